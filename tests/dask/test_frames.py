"""Dask frames: categories, gaps and dates are read by partition, as one machine reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from lazyknife import LazyJackknifeRegressor, wide


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def frame_of(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    a, b, days = rng.normal(size=n), rng.integers(3, size=n), rng.integers(700, size=n)
    y = np.sin(2 * a) + b + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(n) < 0.1, np.nan, a),
            "b": np.array(["low", "mid", "high"])[b],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D"),
        },
        index=np.arange(n) + 1000,
    )
    return frame, pd.Series(y, index=frame.index)


def model(ridge: Any = 1.0) -> LazyJackknifeRegressor:
    return LazyJackknifeRegressor(network=wide("laplace"), ridge=ridge, random_state=0)


def from_row(part: Any, first: int = 1040) -> Any:
    return part[part.index >= first]


@pytest.mark.slow
def test_mixed_columns_give_the_intervals_of_one_machine() -> None:
    frame, y = frame_of(2100)
    new, _ = frame_of(60, seed=1)
    whole = model("auto").fit(frame, y).predict_interval(new).to_frame()
    fitted = model("auto").fit(
        dd.from_pandas(frame, npartitions=4), dd.from_pandas(y, npartitions=4)
    )
    found = fitted.predict_interval(dd.from_pandas(new, npartitions=3))
    assert found.npartitions == 3
    assert found.divisions == dd.from_pandas(new, npartitions=3).divisions
    pd.testing.assert_frame_equal(found.compute(), whole, rtol=1e-10)
    assert list(found.columns) == list(whole.columns)
    points = fitted.predict(dd.from_pandas(new, npartitions=3)).compute()
    pd.testing.assert_series_equal(points, whole["point"], rtol=1e-10)
    assert list(fitted.feature_names_in_) == ["a", "b", "day"]


def test_empty_partitions_and_levels() -> None:
    frame, y = frame_of(120)
    rows, targets = dd.from_pandas(frame, npartitions=6), dd.from_pandas(y, npartitions=6)
    some = rows.map_partitions(from_row)  # the first partitions are empty
    fitted = model().fit(some, targets.map_partitions(from_row))
    assert fitted.n_samples_fit_ == 80
    found = fitted.predict_interval(some, alpha=[0.1, 0.3])
    assert list(found.columns) == list(found.compute().columns)
    assert list(found.compute().index) == list(frame.index[40:])
    assert "lower_0.3" in found.columns
    assert fitted.predict(some).compute().notna().all()


def test_categories_that_the_part_lacks_are_unknown_ones() -> None:
    frame, y = frame_of(80)
    frame.loc[frame.index[:1], "b"] = "rare"
    fitted = model().fit(dd.from_pandas(frame, npartitions=3), dd.from_pandas(y, npartitions=3))
    column = {each.name: each for each in fitted.reader_.schema.columns}["b"]
    assert len(column.categories) in (3, 4)
    assert np.isfinite(fitted.predict_interval(frame).to_numpy()).all()


def test_other_collections_are_refused() -> None:
    frame, y = frame_of(40)
    rows = dd.from_pandas(frame, npartitions=2)
    with pytest.raises(TypeError, match="X is a Dask Index: give a Dask array or frame"):
        model().fit(rows.index, dd.from_pandas(y, npartitions=2))
    with pytest.raises(TypeError, match="X is a Dask Series: give a Dask array or frame"):
        model().fit(rows["a"], dd.from_pandas(y, npartitions=2))
    fitted = model().fit(rows, da.from_array(y.to_numpy(), chunks=20))
    with pytest.raises(ValueError, match="no column 'day'"):
        fitted.predict_interval(rows[["a", "b"]]).compute()
    for predict in (fitted.predict, fitted.predict_interval):
        with pytest.raises(TypeError, match="X is a Dask Series: give a Dask array or frame"):
            predict(rows["a"])
