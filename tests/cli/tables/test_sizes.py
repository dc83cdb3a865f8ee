"""Sizes of files before they are read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lazyknife.cli.tables import open_file
from lazyknife.cli.tables.sizes import Size, size_of

ROWS = 40_000


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(ROWS, 3)).round(12)
    return pd.DataFrame(wide, columns=list("abc")).assign(t=rng.choice(["u", "vwx"], ROWS))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_rows_of_text_are_estimated_from_a_sample(tmp_path, frame, suffix):
    path = tmp_path / f"a{suffix}"
    frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    found = size_of(open_file(path, whole=False))
    assert found.rows == pytest.approx(ROWS, rel=0.03)
    assert (found.columns, found.exact) == (4, False)
    assert found.memory == 32 * found.rows
    assert size_of(open_file(path, whole=False), ["t"]).columns == 3
    assert str(found).startswith("about ")


def test_lines_that_become_longer_are_sampled_in_several_places(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 500_000 + f"{'1' * 30},2\n" * 200_000)
    assert size_of(open_file(path, whole=False)).rows == pytest.approx(700_000, rel=0.5)


def test_a_parquet_file_says_its_size(tmp_path, frame):
    frame.to_parquet(tmp_path / "a.parquet")
    found = size_of(open_file(tmp_path / "a.parquet"))
    assert found == Size(ROWS, 4, ROWS * (3 * 8 + 24))
    assert size_of(open_file(tmp_path / "a.parquet"), ["t", "a"]) == Size(ROWS, 2, ROWS * 16)
    assert str(found) == "40,000 rows × 4 columns"


def test_small_files(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    assert size_of(open_file(tmp_path / "a.csv")).rows == 2
    (tmp_path / "b.csv").write_text("a,b")
    assert size_of(open_file(tmp_path / "b.csv", whole=False)).rows == 1
