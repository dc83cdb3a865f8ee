"""The caller's rows: containers and batches that are read, refused, and given back."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import lazyknife as lk
from descents import Moved
from lazyknife.data.rows import (
    all_rows,
    backend_of,
    make_frame,
    rows_and_targets,
)
from rows import linear

X, Y = linear(24)
NEW = linear(6, seed=1)[0]
HALVES = (torch.float16, torch.bfloat16)


def model():
    return lk.LazyJackknifeRegressor(lk.mlp((6,)), ridge=1.0, random_state=0)


MASKED = np.ma.masked_greater(X, 1.0)
FIELDS = np.zeros(24, dtype=[("a", float), ("b", float)])
REFUSED = {
    "sparse tensor": (torch.from_numpy(X).to_sparse(), "is a sparse tensor: pass X.to_dense()"),
    "complex tensor": (torch.complex(*2 * (torch.from_numpy(X),)), "give real numbers"),
    "meta tensor": (torch.empty(24, 3, device="meta"), "on meta"),
    "masked array": (MASKED, "a masked array with masked values"),
    "structured array": (FIELDS, "fields ['a', 'b']"),
    "dates": (X.astype("datetime64[s]"), "type datetime64"),
    "spans of time": (X.astype("timedelta64[s]"), "type timedelta64"),
    "dict": ({"a": X[:, 0]}, "a dict with keys ['a']"),
    "set": ({1.0, 2.0}, "of type set"),
    "data set": (TensorDataset(torch.from_numpy(X)), "pass DataLoader(X, batch_size=256)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_misread_is_refused(name):
    values, words = REFUSED[name]
    with pytest.raises(TypeError, match=r"^X ") as caught:
        model().fit(values, Y)
    assert words in str(caught.value)
    with pytest.raises(TypeError, match=r"^X "):
        model().fit(X, Y).predict(values)
    if name not in ("set", "data set"):
        with pytest.raises(TypeError, match=r"^y "):
            model().fit(X, values)


def test_masked_arrays_are_arrays_where_nothing_is_masked_and_targets_have_no_batches():
    fitted = model().fit(X, Y)
    found = model().fit(np.ma.asarray(X), np.ma.asarray(Y)).predict(NEW)
    np.testing.assert_array_equal(found, fitted.predict(NEW))
    with pytest.raises(TypeError, match="masked values"):
        fitted.predict_interval(NEW).covers(np.ma.masked_greater(np.arange(6.0), 3.0))
    with pytest.raises(TypeError, match="y is of type generator"):
        model().fit(X, (value for value in Y))


def test_fits_and_predictions_of_loaders():
    tensors = [torch.from_numpy(part) for part in (X, Y)]
    loader = DataLoader(TensorDataset(*tensors), batch_size=10)
    found, twin = model().fit(loader), model().fit(*tensors)
    parts = list(found.predict(DataLoader(TensorDataset(torch.from_numpy(NEW)), batch_size=4)))
    assert [len(part) for part in parts] == [4, 2]
    np.testing.assert_allclose(torch.cat(parts), twin.predict(NEW))
    pooled = model().set_params(scaling="standardize").fit(iter([(X, Y)]), X_pool=iter([NEW]))
    assert pooled.certificate_.scope.startswith("the rows passed as X_pool")


CODES = torch.arange(72).reshape(24, 3) % 5
EMBEDDING = torch.nn.Sequential(
    torch.nn.Embedding(5, 4), torch.nn.Flatten(), torch.nn.Linear(12, 1)
)


def test_rows_without_labels_are_read_as_those_with():
    settings = {"network": lk.mlp((6,)), "base": Moved(), "random_state": 0}
    found, twin = (
        lk.LazyJackknifeRegressor(**settings).fit(X, Y, X_unlabeled=rows).predict(X)
        for rows in (CODES, CODES.double())
    )
    np.testing.assert_array_equal(found, twin)
    with pytest.raises(ValueError, match="X_pool has numbers that are not whole"):
        lk.LazyJackknifeRegressor(EMBEDDING).fit(CODES, Y, X_pool=CODES + 0.5)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_tensors_are_the_numbers_that_they_are_and_results_are_float64_tensors(dtype):
    rows, targets, new = (torch.from_numpy(part).to(dtype) for part in (X, Y, NEW))
    fitted, twin = model().fit(rows, targets), model().fit(rows.double().numpy(), targets.double())
    exact = twin.predict_interval(new.double().numpy())
    assert isinstance(exact.lower, np.ndarray)
    found = fitted.predict_interval(new)
    for part in (found.point, found.lower, found.upper, fitted.predict(new)):
        assert part.dtype == torch.float64
    np.testing.assert_array_equal(found.to_numpy(), exact.to_numpy())
    assert found.covers(targets[:6]).shape == (6,)


@pytest.mark.parametrize("network", [None, lk.mlp((6,)), lk.wide("laplace")])
def test_integer_tensors_are_codes_in_fit_and_numbers_to_a_model_of_numbers(network):
    fitted = lk.LazyJackknifeRegressor(network, ridge=1.0, random_state=0)
    with pytest.raises(ValueError, match=r"integers are codes: pass X\.float\(\) if they are numb"):
        fitted.fit(CODES, Y)
    fitted.fit(X, Y)
    twin = fitted.predict_interval(CODES.double())
    for dtype in (torch.int64, torch.uint8):
        assert fitted.predict_interval(CODES.to(dtype)) == twin
        assert torch.equal(fitted.predict(CODES.to(dtype)), twin.point)


def test_whole_numbers_are_codes_to_a_model_of_codes():
    fitted = lk.LazyJackknifeRegressor(EMBEDDING, random_state=0).fit(CODES, Y)
    twin = fitted.predict(CODES)
    for rows in (CODES.double(), CODES.numpy(), CODES.tolist()):
        np.testing.assert_array_equal(fitted.predict(rows), twin)
    for odd in (0.5, 1e300):
        with pytest.raises(ValueError, match=r"X has numbers that are not whole.*integers"):
            fitted.predict(CODES.double() + odd)


# Batches.

SIX, TARGETS = np.arange(12.0).reshape(6, 2), np.arange(6.0)


def in_twos(*parts):
    return (tuple(part[k : k + 2] for part in parts) for k in range(0, 6, 2))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, pd.DataFrame, pl.DataFrame])
def test_batches_are_joined_in_their_container(make):
    rows, targets = rows_and_targets(in_twos(make(SIX), TARGETS), None)
    assert type(rows) is type(make(SIX))
    np.testing.assert_array_equal(np.asarray(rows), SIX)
    np.testing.assert_array_equal(targets, TARGETS)


def test_rows_without_targets_are_joined_and_arrays_are_no_stream():
    assert rows_and_targets(SIX, TARGETS) == (SIX, TARGETS)
    assert all_rows(None) is None
    np.testing.assert_array_equal(all_rows(in_twos(SIX, TARGETS)), SIX)
    np.testing.assert_array_equal(all_rows(iter([SIX[:3], SIX[3:]])), SIX)


@pytest.mark.parametrize(
    ("batches", "y", "error", "words"),
    [
        ([(SIX, TARGETS)], TARGETS, ValueError, "y was passed beside an X that yields batches"),
        ([SIX], None, TypeError, "batches of ndarray, without targets: give batches"),
        ([(SIX,)], None, TypeError, "batches of 1 parts"),
        ([(SIX, TARGETS, TARGETS)], None, TypeError, "batches of 3 parts"),
        ([{"X": SIX, "y": TARGETS}], None, TypeError, r"a dict with keys \['X', 'y'\]"),
        ([], None, ValueError, "X yields no batches"),
    ],
)
def test_other_batches_are_refused(batches, y, error, words):
    with pytest.raises(error, match=words):
        rows_and_targets(iter(batches), y)


# The caller's kind of frame.

COLUMNS = {"a": np.arange(3.0), "b": np.ones(3)}


def test_frames_of_each_library_are_found_and_made():
    made = {"pandas": pd.DataFrame(COLUMNS), "polars": pl.DataFrame(COLUMNS)}
    for library, frame in (made | {"pyarrow": pa.table(COLUMNS)}).items():
        assert backend_of(frame) == library
        assert make_frame(COLUMNS, library).equals(frame)
    for rows in (pd.Series([1.0]), np.ones((3, 2)), torch.ones(3, 2), [[1.0]]):
        assert backend_of(rows) is None
    labels = pd.Index(list("xyz"), name="house")
    pd.testing.assert_frame_equal(
        make_frame(COLUMNS, "pandas", labels), pd.DataFrame(COLUMNS, index=labels)
    )
    pd.testing.assert_frame_equal(make_frame(COLUMNS, None), made["pandas"])
