import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from lazyknife.data.flavour import flavour_of, make_frame

COLUMNS = {"a": np.arange(3.0), "b": np.ones(3)}


@pytest.mark.parametrize(
    ("rows", "flavour"),
    [
        (pd.DataFrame(COLUMNS), "pandas"),
        (pl.DataFrame(COLUMNS), "polars"),
        (pl.LazyFrame(COLUMNS), "polars"),
        (pa.table(COLUMNS), "pyarrow"),
        (pd.Series([1.0]), None),
        (np.ones((3, 2)), None),
        (torch.ones(3, 2), None),
        ([[1.0]], None),
    ],
)
def test_the_library_of_a_frame_is_found(rows, flavour):
    assert flavour_of(rows) == flavour


def test_frames_of_each_library_are_made():
    labels = pd.Index(list("xyz"), name="house")
    pd.testing.assert_frame_equal(
        make_frame(COLUMNS, "pandas", labels), pd.DataFrame(COLUMNS, index=labels)
    )
    assert make_frame(COLUMNS, "polars").equals(pl.DataFrame(COLUMNS))
    assert make_frame(COLUMNS, "pyarrow").equals(pa.table(COLUMNS))
    pd.testing.assert_frame_equal(make_frame(COLUMNS, None), pd.DataFrame(COLUMNS))
