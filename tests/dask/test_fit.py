"""Fits by partition, of arrays and frames: those of one machine with the same part of the rows."""

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from lazyknife import LazyJackknifeRegressor, Split, SplitConformalRegressor, mlp, wide
from lazyknife.estimators.fit_dask import dask_step
from lazyknife.estimators.fit_input import prepare
from lazyknife.estimators.fit_shared import part_of
from lazyknife.intervals import find_construction, kappa
from lazyknife.intervals.streamed import CompactModels

Numbers = NDArray[np.float64]
# Ends are moved outwards by what rounding may have done, which differs with the order of sums.
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def rows_of(n: int, p: int = 3, seed: int = 0) -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2 * X[:, 0]) + (0.2 + 0.4 * (X[:, -1] > 0)) * rng.normal(size=n) + 3.0


def model_of(**settings: Any) -> LazyJackknifeRegressor:
    return LazyJackknifeRegressor(network=wide("laplace"), random_state=0, **settings)


def fitted(X: Numbers, y: Numbers, chunk: int, **settings: Any) -> LazyJackknifeRegressor:
    rows = da.from_array(X, chunks=(chunk, 2)), da.from_array(y, chunks=chunk + 1)
    return model_of(**settings).fit(*rows)


def on_one_machine(
    X: Numbers, y: Numbers, new: Numbers, alpha: float, **settings: Any
) -> tuple[Numbers, ...]:
    """Point, lower and upper end by the models in memory, whatever the number of rows."""
    model = model_of(**settings)
    given = prepare(model, X, y, None, None)
    loo, choice = dask_step(model, given, len(y)).models(given.X, given.y)
    ranks = [kappa(alpha, len(loo.residuals))]
    point, lower, upper = find_construction("plus").ends(loo, torch.from_numpy(new), ranks)
    target = given.target.on(choice.target_scale)
    return tuple(
        end.numpy() for end in (target.point(point), *target.ends(lower[:, 0], upper[:, 0]))
    )


@pytest.mark.parametrize("widths", [None, "constant"])
@pytest.mark.parametrize(("n", "chunk"), [(60, 13), (300, 300), (300, 41), (900, 250)])
def test_ends_are_those_of_one_machine(n: int, chunk: int, widths: str | None) -> None:
    X, y = rows_of(n)
    new = np.concatenate([rows_of(40, seed=1)[0], 30 * rows_of(4, seed=2)[0]])
    point, lower, upper = on_one_machine(X, y, new, 0.1, widths=widths)
    model = fitted(X, y, chunk, widths=widths)
    rows, ends = da.from_array(new, chunks=(17, 3)), np.stack([lower, upper], axis=1)
    lazy, here = model.predict_interval(rows), model.predict_interval(new)
    assert lazy.chunks == ((17, 17, 10), (2,))
    for found, expected in (
        *((lazy.compute(), ends), (here.to_numpy(), ends)),
        *((model.predict(rows).compute(), point), (here.point, point)),
    ):
        assert np.allclose(found, expected, **CLOSE)


@pytest.mark.slow
def test_a_fit_of_many_rows_is_that_of_the_same_rows_in_memory() -> None:
    X, y = rows_of(2200, p=4)
    whole, parts = model_of(construction="plus").fit(X, y), fitted(X, y, 300)
    assert parts.construction_ == "plus"
    new = rows_of(50, p=4, seed=1)[0]
    levels = [0.05, 0.1, 0.4]
    found = parts.predict_interval(da.from_array(new, chunks=(20, 4)), alpha=levels)
    assert found.shape == (50, 2, 3)
    assert np.allclose(found.compute(), whole.predict_interval(new, levels).to_numpy(), **CLOSE)
    assert str(parts.certificate_) == str(whole.certificate_)
    assert parts.choice_ == whole.choice_
    assert parts.rounding_ == pytest.approx(whole.rounding_, rel=1e-6)
    assert parts.n_samples_fit_ == 2200
    assert np.allclose(parts.ridge_, whole.ridge_[-1])


@pytest.mark.slow
def test_nothing_of_the_size_of_the_rows_is_in_the_model(tmp_path: Path) -> None:
    X, y = rows_of(4000, p=2)
    model = fitted(X, y, 500, ridge=1.0, widths="constant")
    loo = model.loo_
    assert isinstance(loo, CompactModels)
    n = 4000 - part_of(4000)
    assert loo.count == len(loo.residuals) == n
    assert len(loo.residuals.untyped_storage()) == 8
    (level,) = loo.levels.values()
    assert len(level.models.scores) < n / 2
    assert model.certificate_.coverage == pytest.approx(1 - (2 * kappa(0.1, n) - 1) / (n + 1))


def test_trees_and_shapes_are_those_of_one_machine(tmp_path: Path) -> None:
    X, _ = rows_of(1800)
    noise = np.random.default_rng(5).exponential(size=1800)
    y = 2.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0.3)) + 0.1 * np.exp(X[:, 2]) * noise
    new, settings = rows_of(40, seed=1)[0], {"ridge": 0.1, "feature_weights": None}
    point, lower, upper = on_one_machine(X, y, new, 0.1, **settings)
    model = fitted(X, y, 500, **settings)
    assert model.choice_.trees
    assert set(model.choice_.widths) == {"learnt"}
    found = model.predict_interval(new)
    model.save(tmp_path / "m.lk")
    for again in (found, LazyJackknifeRegressor.load(tmp_path / "m.lk").predict_interval(new)):
        ends = zip((again.point, again.lower, again.upper), (point, lower, upper), strict=True)
        assert all(np.allclose(one, other, **CLOSE) for one, other in ends)


def test_collections_are_parted_whatever_their_size() -> None:
    X, y = rows_of(200)
    model = fitted(X, y, 60, widths="constant")
    with pytest.warns(
        UserWarning, match="100 left-out rows are .* takes 6660 rows in all, not 200"
    ):
        model.predict_interval(X[:2], alpha=0.001)


def test_a_copy_predicts_without_the_rows_at_the_levels_that_were_used(tmp_path: Path) -> None:
    X, y = rows_of(200)
    model, new = fitted(X, y, 60), rows_of(20, seed=1)[0]
    both = model.predict_interval(new, alpha=[0.1, 0.2]).to_numpy()
    model.save(tmp_path / "m.lk")
    for copy in (LazyJackknifeRegressor.load(tmp_path / "m.lk"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(copy.predict_interval(new, alpha=[0.1, 0.2]).to_numpy(), both)
        lazy = copy.predict_interval(da.from_array(new, chunks=(7, 3)), alpha=[0.1, 0.2])
        assert np.allclose(lazy.compute(), both, **CLOSE)
        assert copy.certificate_ == model.certificate_
        with pytest.raises(ValueError, match="Predict with this alpha once before"):
            copy.predict_interval(new, alpha=0.3)


def test_far_rows_have_wider_ends_where_the_models_cannot_be_asked() -> None:
    X, y = rows_of(200)
    model = fitted(X, y, 60, widths="constant")
    ((rank, level),) = model.loo_.levels.items()
    copy, new = pickle.loads(pickle.dumps(model)), rows_of(30, seed=1)[0]
    copy.loo_.levels[rank] = model.loo_.ask(rank, level.eta / 64)
    exact, found = (each.predict_interval(new) for each in (model, copy))
    assert (found.lower <= exact.lower).all()
    assert (found.upper >= exact.upper).all()
    assert (found.width > exact.width).any()
    assert np.array_equal(found.point, exact.point)


X, Y = rows_of(60)
FEW = r"X has [0127] row\(s\): .*at least 8.*compute"
CUBE = r"X is a Dask array of shape \(60, 3, 1\): .*\(n, features\)"
REFUSED: list[tuple[dict[str, Any], Numbers, Numbers, str]] = [
    ({"construction": "minmax"}, X, Y, "construction='minmax' does not support Dask"),
    ({"base": Split()}, X, Y, r"base=Split\(.*\) does not support Dask"),
    ({"scaling": "standardize"}, X, Y, "scaling='standardize' does not support Dask"),
    ({"widths": "leverage"}, X, Y, "widths='leverage'"),
    *(({"network": None}, X[:n], Y[:n], FEW) for n in (0, 1, 2, 7)),
    *(({}, X[:n], Y[:n], FEW) for n in (0, 1, 2, 7)),
    *(({"network": network}, X[:, :, None], Y, CUBE) for network in (None, wide("laplace"))),
    ({}, X, Y[:59], "partition 2 of X has 20 rows and that of y 19"),
    ({}, X, Y[:40], "X has 3 partitions and y 2"),
    ({}, np.where(X > 2, np.nan, X), Y, "contains NaN"),
]


@pytest.mark.parametrize(("settings", "rows", "y", "message"), REFUSED)
def test_what_cannot_be_fitted_by_partition_is_refused(
    settings: dict[str, Any], rows: Numbers, y: Numbers, message: str
) -> None:
    model = model_of().set_params(**settings)
    collections = (da.from_array(part, chunks=(20, *part.shape[1:])) for part in (rows, y))
    with pytest.raises(ValueError, match=message):
        model.fit(*collections)


def test_eight_rows_are_enough_and_new_rows_and_levels_are_checked() -> None:
    X, y = rows_of(8)
    model = fitted(X, y, 3, alpha=0.3)
    new = da.from_array(X, chunks=(3, 3))
    assert np.isfinite(model.predict_interval(new).compute()).all()
    with pytest.raises(ValueError, match=r"alpha=\[\]: give at least one level"):
        model.predict_interval(new, alpha=[])
    for predict in (model.predict, model.predict_interval):
        with pytest.raises(ValueError, match="X is a Dask array of shape"):
            predict(new[:, :, None])


def test_other_estimators_predict_collections_but_fit_rows_in_memory() -> None:
    X, y = rows_of(40)
    rows = da.from_array(X, chunks=(20, 3))
    model = SplitConformalRegressor(mlp((4,)), epochs=1, random_state=0)
    with pytest.raises(TypeError, match="y is of type ndarray, but X is a Dask collection"):
        model_of().fit(rows, y)
    with pytest.raises(TypeError, match=r"SplitConformalRegressor does not take: call \.compute"):
        model.fit(rows, da.from_array(y, chunks=20))
    model.fit(X, y)
    np.testing.assert_allclose(model.predict(rows).compute(), model.predict(X), **CLOSE)
    found = model.predict_interval(rows).compute()
    np.testing.assert_allclose(found, model.predict_interval(X).to_numpy(), **CLOSE)


# Dask frames: categories, gaps and dates are read by partition, as one machine reads them.


def frame_of(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    a, b, days = rng.normal(size=n), rng.integers(3, size=n), rng.integers(700, size=n)
    columns = {
        "a": np.where(rng.random(n) < 0.1, np.nan, a),
        "b": np.array(["low", "mid", "high"])[b],
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D"),
    }
    index = np.arange(n) + 1000
    y = np.sin(2 * a) + b + 0.3 * rng.normal(size=n)
    return pd.DataFrame(columns, index=index), pd.Series(y, index=index)


def by_partition(frame: Any, y: Any, count: int) -> tuple[Any, Any]:
    return dd.from_pandas(frame, npartitions=count), dd.from_pandas(y, npartitions=count)


def from_row(part: Any, first: int = 1040) -> Any:
    return part[part.index >= first]


@pytest.mark.slow
def test_mixed_columns_give_the_intervals_of_one_machine() -> None:
    frame, y = frame_of(2100)
    new, _ = frame_of(60, seed=1)
    whole = model_of(construction="plus").fit(frame, y).predict_interval(new).to_frame()
    fitted, parts = model_of().fit(*by_partition(frame, y, 4)), dd.from_pandas(new, npartitions=3)
    found = fitted.predict_interval(parts)
    assert found.npartitions == 3
    assert found.divisions == parts.divisions
    pd.testing.assert_frame_equal(found.compute(), whole, rtol=1e-10)
    assert list(found.columns) == list(whole.columns)
    points = fitted.predict(parts).compute()
    pd.testing.assert_series_equal(points, whole["point"], rtol=1e-10)
    assert list(fitted.feature_names_in_) == ["a", "b", "day"]


def test_empty_partitions_and_levels() -> None:
    frame, y = frame_of(120)
    some, targets = (part.map_partitions(from_row) for part in by_partition(frame, y, 6))
    fitted = model_of(ridge=1.0).fit(some, targets)  # the first partitions are empty
    assert fitted.n_samples_fit_ == 80
    found = fitted.predict_interval(some, alpha=[0.1, 0.3])
    assert list(found.columns) == list(found.compute().columns)
    assert list(found.compute().index) == list(frame.index[40:])
    assert "lower_0.3" in found.columns
    assert fitted.predict(some).compute().notna().all()


def test_categories_that_the_part_lacks_are_unknown_ones() -> None:
    frame, y = frame_of(80)
    frame.loc[frame.index[:1], "b"] = "rare"
    fitted = model_of(ridge=1.0).fit(*by_partition(frame, y, 3))
    column = {each.name: each for each in fitted.reader_.schema.columns}["b"]
    assert len(column.categories) in (3, 4)
    assert np.isfinite(fitted.predict_interval(frame).to_numpy()).all()


def test_other_collections_are_refused() -> None:
    frame, y = frame_of(40)
    rows, targets = by_partition(frame, y, 2)
    fitted = model_of(ridge=1.0).fit(rows, da.from_array(y.to_numpy(), chunks=20))
    with pytest.raises(ValueError, match="no column 'day'"):
        fitted.predict_interval(rows[["a", "b"]]).compute()
    for call, part in (
        *((partial(model_of().fit, y=targets), part) for part in (rows.index, rows["a"])),
        *((predict, rows["a"]) for predict in (fitted.predict, fitted.predict_interval)),
    ):
        kind = type(part).__name__
        with pytest.raises(TypeError, match=f"X is a Dask {kind}: give a Dask array or frame"):
            call(part)
