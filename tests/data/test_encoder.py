"""Categories and gaps as numbers alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from lazyknife import TableEncoder
from lazyknife.errors import TableError

FRAME = pd.DataFrame(
    {"a": [1.0, np.nan, 5.0, 3.0], "c": ["u", "v", "u", None], "b": [True, False, True, True]}
)


def test_medians_marks_and_categories_of_two_rows() -> None:
    encoder = TableEncoder().fit(FRAME)
    names = ["a", "b", "a is missing", "c = u"]
    assert encoder.get_feature_names_out().tolist() == names
    expected = [[1, 1, 0, 1], [3, 0, 1, 0], [5, 1, 0, 1], [3, 1, 0, 0]]
    np.testing.assert_array_equal(encoder.transform(FRAME), expected)
    unknown = pd.DataFrame({"a": [2.0], "c": ["z"], "b": [False]})
    np.testing.assert_array_equal(encoder.transform(unknown), [[2, 0, 0, 0]])


def test_gaps_that_no_row_had_are_refused() -> None:
    new = FRAME.assign(b=[None, True, True, True])
    with pytest.raises(TableError, match="'b' has missing values"):
        TableEncoder().fit(FRAME).transform(new)


def test_order_of_the_rows_does_not_matter() -> None:
    both = [TableEncoder().fit(FRAME.iloc[rows]) for rows in ([0, 1, 2, 3], [3, 1, 0, 2])]
    np.testing.assert_array_equal(*(encoder.transform(FRAME) for encoder in both))


def test_too_many_categories_are_refused() -> None:
    frame = pd.DataFrame({"c": np.repeat([f"name {k}" for k in range(101)], 2)})
    with pytest.raises(TableError, match="101 categories"):
        TableEncoder().fit(frame)


def test_the_encoder_is_a_transformer() -> None:
    encoder = clone(TableEncoder(categorical=["b"], ignore=["a"])).fit(FRAME)
    assert encoder.get_feature_names_out().tolist() == ["c = u", "b = True"]
    with pytest.raises(TypeError, match="give a frame"):
        encoder.transform(np.zeros((2, 3)))
