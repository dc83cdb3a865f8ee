"""Frames as they come: exact leave-one-out models, the certificate, the caller's library."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from torch import Tensor

import lazyknife as lk
from reference import assert_close

N, ROW = 16, 5


def table(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with a number with gaps, a category, a boolean and a date; ROW has values of its own."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(100, 30, n),
            "age": rng.gamma(2, 10, n),
            "city": rng.choice(["Rome", "Oslo", "Lima"], n),
            "garage": rng.random(n) < 0.4,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    frame.loc[ROW, "city"] = "Bonn"
    frame.loc[ROW, "age"] = np.nan
    y = frame["size"] / 30 + (frame["city"] == "Rome") + rng.normal(size=n) / 3
    return frame, y.to_numpy()


def fitted(frame: Any, y: np.ndarray, **settings: Any) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(random_state=0, **settings).fit(frame, y)


def features_of(model: lk.LazyJackknifeRegressor, frame: pd.DataFrame) -> Tensor:
    return torch.from_numpy(model.scaling_(model.reader_(frame, model)))


def test_a_model_without_a_row_is_the_model_of_the_other_rows() -> None:
    frame, y = table()
    loo = fitted(frame, y).loo_
    for j in (ROW, 0):
        without = fitted(frame.drop(index=j), np.delete(y, j))
        assert_close(
            float(without.predict(frame.loc[[j]])[0]), y[j] - float(loo.residuals[j]), 1e-8
        )


def without_row(X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame) -> np.ndarray:
    """Predictions of the model without ROW."""
    model = fitted(X, y)
    return model.loo_.scaled(features_of(model, new)).each[:, ROW].numpy()


@pytest.mark.parametrize(
    ("column", "value"), [("city", "Oslo"), ("age", 12.0), ("garage", True), ("extra", 1000.2)]
)
def test_a_row_does_not_change_the_model_without_it(column: str, value: Any) -> None:
    """Not even if it is the only one that has a value."""
    frame, y = table()
    new = table(seed=1)[0].assign(extra=np.linspace(-3, 3, N))
    frame["extra"] = np.where(np.arange(N) == ROW, 7.3, np.nan)
    changed = frame.copy()
    changed.loc[ROW, column] = value
    assert_close(without_row(changed, y, new), without_row(frame, y, new), 1e-9)


LIBRARIES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("construction", ["plus", "full"])
def test_the_library_of_the_frame_makes_no_difference(construction: str) -> None:
    (frame, y), (new, _), found = table(), table(seed=1), []
    new.index = new.index + 100
    for convert in LIBRARIES.values():
        result = fitted(convert(frame), y, construction=construction).predict_interval(convert(new))
        found.append(result.with_arrays().to_numpy())
        assert type(result.to_frame()) is type(convert(new))
        if convert(new) is new:
            assert (result.to_frame().index == new.index).all()
        assert_close(found[-1], found[0], 1e-12)
    numbers = frame[["size"]].assign(other=frame["garage"].astype(int))
    results = [fitted(X, y).predict(X) for X in (numbers, numbers.to_numpy(dtype=float))]
    assert_close(*results, 1e-12)


COLUMNS = make_column_transformer(  # receives the frame
    (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    (SimpleImputer(), ["age"]),
    ("passthrough", ["size", "garage"]),
)
FINITE = lk.mlp((4,), skip=True)


@pytest.mark.parametrize(
    "model",
    [
        lk.LazyJackknifeRegressor(FINITE, random_state=0),
        lk.LazyJackknifeRegressor(FINITE, scaling="standardize", random_state=0),
        lk.LazyJackknifeRegressor(scaling=COLUMNS, random_state=0),
        lk.SplitConformalRegressor(FINITE, epochs=1, random_state=0),
    ],
)
@pytest.mark.filterwarnings("ignore:no coverage is guaranteed")
def test_what_learns_from_the_rows_needs_those_to_predict(model: Any) -> None:
    (frame, y), new = table(30), table(20, seed=1)[0]
    pooled = model.fit(frame, y, X_pool=new)
    assert pooled.certificate_.coverage is not None
    assert "X_pool" in str(pooled.certificate_)
    assert np.isfinite(pooled.predict_interval(new).lower).all()
    if isinstance(model, lk.LazyJackknifeRegressor):
        assert model.fit(frame, y).certificate_.coverage is None


NUMBERS = ["size", "age", "garage"]
# Settings by how the frame is read, with the columns that they take: as encoded features, as
# numbers alone for a network, as numbers, or as it is by a transformer that sees positions.
READ: dict[str, tuple[list[str], dict[str, Any]]] = {
    "encoded": (["size", "age", "city", "garage", "sold"], {}),
    "full": (["size", "city"], {"construction": "full"}),
    "network": (["size", "city"], {"network": lk.mlp((4,)), "scaling": "standardize"}),
    "numbers": (NUMBERS, {}),
    "raw": (NUMBERS, {"scaling": FunctionTransformer(lambda rows: np.asarray(rows) / [1, 2, 3])}),
}


def swapped(frame: pd.DataFrame) -> pd.DataFrame:
    """The same columns in another order."""
    return frame[[*frame.columns[1:], frame.columns[0]]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("read", READ)
def test_columns_are_found_by_name_in_any_order(read: str, library: str) -> None:
    names, settings = READ[read]
    convert, (frame, y) = LIBRARIES[library], table()
    rows = frame.drop(index=ROW).astype({"garage": float})[names]
    new = convert(swapped(rows))
    learns = {"X_pool": new} if read == "network" else {}
    model = lk.LazyJackknifeRegressor(random_state=0, **settings)
    model.fit(convert(rows), np.delete(y, ROW), **learns)
    found, expected = (model.predict_interval(each) for each in (new, convert(rows)))
    assert model.certificate_.coverage is not None
    assert found.certificate == expected.certificate
    assert type(found.to_frame()) is type(expected.to_frame())
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())
    np.testing.assert_array_equal(model.predict(new), model.predict(convert(rows)))
    assert model.check_exchangeable(new) == model.check_exchangeable(convert(rows))
    for other, message in (
        (rows.drop(columns="size"), "X: no column 'size'"),
        (swapped(rows).assign(more=1.0), "had no column 'more'"),
        (rows.rename(columns={"size": "sise"}), "X: no column 'size'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict_interval(convert(other))


def test_encoding_settings() -> None:
    frame, y = table()
    model = fitted(frame, y, encoding=lk.TableEncoder(ignore=["sold"], categorical=["garage"]))
    assert model.reader_.schema.features == ["size", "age", "city", "garage"]
    np.testing.assert_array_equal(model.predict(frame.drop(columns="sold")), model.predict(frame))
    with pytest.raises(TypeError, match="pass a frame"):
        model.predict(np.zeros((2, 5)))


FRAME = table()[0]
SCALED = {"encoding": lk.TableEncoder(), "scaling": SimpleImputer()}


@pytest.mark.parametrize(
    ("X", "settings", "error", "words"),
    [
        (pl.from_pandas(FRAME).lazy(), {}, TypeError, "collect"),
        (FRAME, {"encoding": "onehot"}, TypeError, "TableEncoder"),
        (FRAME, SCALED, ValueError, "give one of them"),
        (np.zeros((N, 2)), {"encoding": lk.TableEncoder()}, TypeError, "requires X to be a frame"),
    ],
)
def test_frames_and_encodings_that_do_not_fit_are_refused(
    X: Any, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        fitted(X, np.zeros(N), **settings)
