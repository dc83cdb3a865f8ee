import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lazyknife.data.batches import all_rows, rows_and_targets

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6.0)


def in_twos(*parts):
    return (tuple(part[k : k + 2] for part in parts) for k in range(0, 6, 2))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, pd.DataFrame, pl.DataFrame])
def test_batches_are_joined_in_their_container(make):
    rows, targets = rows_and_targets(in_twos(make(X), Y), None)
    assert type(rows) is type(make(X))
    np.testing.assert_array_equal(np.asarray(rows), X)
    np.testing.assert_array_equal(targets, Y)


def test_loaders_and_what_is_no_stream():
    tensors = [torch.from_numpy(part) for part in (X, Y)]
    rows, targets = rows_and_targets(DataLoader(TensorDataset(*tensors), batch_size=4), None)
    assert torch.equal(rows, tensors[0])
    assert torch.equal(targets, tensors[1])
    assert rows_and_targets(X, Y) == (X, Y)
    assert all_rows(None) is None
    np.testing.assert_array_equal(all_rows(in_twos(X, Y)), X)
    np.testing.assert_array_equal(all_rows(iter([X[:3], X[3:]])), X)


@pytest.mark.parametrize(
    ("batches", "y", "error", "words"),
    [
        ([(X, Y)], Y, ValueError, "y was passed beside an X that yields batches"),
        ([X], None, TypeError, "batches of ndarray, without targets: give batches"),
        ([(X,)], None, TypeError, "batches of 1 parts"),
        ([(X, Y, Y)], None, TypeError, "batches of 3 parts"),
        ([{"X": X, "y": Y}], None, TypeError, r"a dict with keys \['X', 'y'\]"),
        ([], None, ValueError, "X yields no batches"),
    ],
)
def test_other_batches_are_refused(batches, y, error, words):
    with pytest.raises(error, match=words):
        rows_and_targets(iter(batches), y)
