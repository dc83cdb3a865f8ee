"""Tables that are written in parts have the bytes of the whole."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from lazyknife.cli.tables import SUFFIXES, table_bytes
from lazyknife.cli.tables.writing import GROUP, appending


def in_parts(frame, path, size):
    buffer = io.BytesIO()
    with appending(buffer, path) as append:
        for start in range(0, len(frame), size):
            append(frame[start : start + size])
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_bytes_do_not_depend_on_the_parts(suffix, size):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"r,{k}" for k in range(100)], "point": rng.normal(size=100)})
    path = Path(f"a{suffix}")
    assert in_parts(frame, path, size) == table_bytes(frame, path)


def test_groups_of_a_parquet_file_are_full(tmp_path):
    frame = pd.DataFrame({"x": np.arange(2.0 * GROUP + 5)})
    written = in_parts(frame, Path("a.parquet"), 100_000)
    file = pq.ParquetFile(io.BytesIO(written))
    groups = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    assert groups == [GROUP, GROUP, 5]
    assert written == table_bytes(frame, Path("a.parquet"))
    np.testing.assert_array_equal(file.read()["x"], frame["x"])
