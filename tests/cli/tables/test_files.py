"""What is read from files and written to them, and what can be wrong with one."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli.tables import SUFFIXES, TableError, read_table, write_table
from tabular import refused

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def refused_file(path: Path, content: bytes, *words: str) -> None:
    path.write_bytes(content)
    refused(lambda: read_table(path), str(path), *words)


def packed_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    return buffer.getvalue()


@pytest.fixture
def locked(tmp_path):
    """A folder that may not be written, with a file that may not be read, for others than root."""
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "a.csv").write_text("a\n1\n")
    (folder / "a.csv").chmod(0)
    folder.chmod(0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o700)


def test_numbers_text_and_gaps_of_a_csv_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('n,t,b\n1,x,True\n,NA,False\nNaN,"y, z",True\nnull,,False\n2.5, x,True\n')
    frame = read_table(path)
    assert list(frame.columns) == ["n", "t", "b"]
    assert frame["n"].dtype == np.float64
    np.testing.assert_array_equal(frame["n"], [1, np.nan, np.nan, np.nan, 2.5])
    assert frame["t"].isna().tolist() == [False, True, False, True, False]
    assert frame["t"].dropna().tolist() == ["x", "y, z", "x"]
    assert frame["b"].dtype == bool


@pytest.mark.parametrize("content", ["﻿a,b\r\n1,2\r\n", "\na,b\n\n1,2\n  \n", "a, b\r1, 2"])
def test_marks_line_ends_blanks_and_blank_lines_do_no_harm(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    assert read_table(path).to_dict("list") == {"a": [1], "b": [2]}


def test_the_type_of_a_column_comes_from_the_whole_file(tmp_path):
    path = tmp_path / "a.csv"
    rows = 400_000  # beyond the blocks in which a reader guesses
    path.write_text("a,b\n" + "1,2\n" * rows + "1.5,x\n")
    frame = read_table(path)
    assert frame["a"].dtype == np.float64
    assert set(map(type, frame["b"])) == {str}


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".CSV", ".Parquet", ".csv.GZ"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    frame = pd.DataFrame(
        {"x": [0.1, np.nan, np.inf], "n": [1, 2, 3], "t": ['a,b\t"c"', "é\nz", None]},
        index=[7, 8, 9],
    )
    write_table(frame, path)
    pd.testing.assert_frame_equal(read_table(path), frame.reset_index(drop=True))
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=9),
    suffix=st.sampled_from(SUFFIXES),
)
def test_every_float_survives_a_file(tmp_path_factory, values, suffix):
    path = tmp_path_factory.getbasetemp() / f"floats{suffix}"
    write_table(pd.DataFrame({"x": values}), path)
    np.testing.assert_array_equal(read_table(path)["x"].to_numpy(float), values)


def test_the_same_table_makes_the_same_packed_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_table(pd.DataFrame({"x": [1]}), tmp_path / name)
        assert (tmp_path / name).read_bytes()[4:8] == bytes(4)  # no time
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).split() == [b"x", b"1"]


def test_a_tsv_file_has_tabs(tmp_path):
    write_table(pd.DataFrame({"x": [1], "y": [2]}), tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_text() == "x\ty\n1\t2\n"


def test_a_parquet_file_has_no_row_labels(tmp_path):
    write_table(pd.DataFrame({"x": [1, 2]}, index=[5, 3]), tmp_path / "a.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").names == ["x"]


def test_row_labels_of_pandas_are_no_column_but_a_named_index_is(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"x": [1, 2]}, index=[5, 3])
    frame.to_parquet(path)
    assert list(read_table(path).columns) == ["x"]
    frame.rename_axis("id").to_parquet(path)
    assert sorted(read_table(path).columns) == ["id", "x"]
    pd.DataFrame({0: [1.0], 1: [2.0]}).to_parquet(path)
    assert list(read_table(path).columns) == ["0", "1"]


# What can be wrong with a file.


def test_files_that_are_not_there(tmp_path):
    refused(lambda: read_table(tmp_path / "no.csv"), "no.csv", "No such file")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    refused(lambda: read_table(folder), "folder.csv", "folder")
    refused(lambda: read_table(tmp_path / "a\nb.csv"), "No such file")
    (tmp_path / "file").write_text("")
    refused(lambda: read_table(tmp_path / "file" / "a.csv"), "cannot be read")
    refused(lambda: read_table(Path("a\0.csv")), "cannot be read")


def test_a_file_that_may_not_be_read(locked):
    path = locked / "a.csv"
    refused(lambda: read_table(path), str(path), "Permission denied", "permissions")


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "csv", "a.csv.zip"])
def test_an_unknown_suffix_lists_the_known_ones(tmp_path, name):
    for call in (read_table, lambda path: write_table(pd.DataFrame(), path)):
        refused(lambda call=call: call(tmp_path / name), name, *SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file(tmp_path, suffix):
    refused_file(tmp_path / f"a{suffix}", b"", "empty")


@pytest.mark.parametrize("content", [b"\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_nothing_but_blanks(tmp_path, content):
    refused_file(tmp_path / "a.csv", content, "empty")
    refused_file(tmp_path / "a.csv.gz", gzip.compress(content), "empty")


def test_a_header_without_rows(tmp_path):
    refused_file(tmp_path / "a.csv", b"a,b\n", "no rows")
    refused_file(tmp_path / "a.csv", b'""\n', "no rows")
    pd.DataFrame({"a": []}).to_parquet(tmp_path / "a.parquet")
    refused(lambda: read_table(tmp_path / "a.parquet"), "a.parquet", "no rows")
    pd.DataFrame(index=[5, 3]).to_parquet(tmp_path / "b.parquet")
    refused(lambda: read_table(tmp_path / "b.parquet"), "b.parquet", "no columns")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (PNG, "binary"),
        (packed_zip(), "binary"),
        (b"a,b\n1,x\0y\n", "binary"),
        ("a,b\n1,2\n".encode("utf-16-le"), "--encoding"),
        (b"a,b\n" + b"1,2\n" * 9999 + b"1,\x81\n", "UTF-8"),
        (b"a,b\n1,\xff\x01\n", "binary"),
    ],
    ids=["image", "zip", "null byte", "UTF-16", "long", "byte order"],
)
def test_a_binary_file_called_csv(tmp_path, content, word):
    refused_file(tmp_path / "a.csv", content, word)
    refused_file(tmp_path / "a.csv.gz", gzip.compress(content), word)


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12]]
)
def test_a_file_that_is_not_packed_or_cut_off(tmp_path, content):
    refused_file(tmp_path / "a.csv.gz", content, "gzip")


def test_a_damaged_gzip_file(tmp_path):
    content = bytearray(gzip.compress(bytes(range(33, 127)) * 9))
    content[20:40] = b"\xff" * 20
    refused_file(tmp_path / "a.csv.gz", bytes(content), "gzip")


def test_a_damaged_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"a": np.arange(50.0), "b": pd.Categorical(list("xyxyx") * 10)})
    frame.to_parquet(path)
    whole = path.read_bytes()
    for content in (PNG, b"a,b\n1,2\n", whole[:-9], whole[20:], whole[:4] + whole[-8:]):
        refused_file(path, content, "Parquet")
    generator = np.random.default_rng(0)
    messages = []
    for _ in range(100):
        content = bytearray(whole)
        for place in generator.integers(len(content), size=3):
            content[place] ^= 0xFF
        path.write_bytes(bytes(content))
        try:
            read_table(path)
        except TableError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert "\n" not in "".join(messages)


def test_duplicate_names(tmp_path):
    refused_file(tmp_path / "a.csv", b"a,b,a\n1,2,3\n", "'a'", "several columns")
    table = pa.table([[1], [2]], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    refused(lambda: read_table(tmp_path / "a.parquet"), "a.parquet", "'a'", "several columns")
    path = tmp_path / "b.csv"
    path.write_text("a,a.1,,\n1,2,3,4\n")  # no duplicates, and two columns without a name
    assert list(read_table(path).columns) == ["a", "a.1", "Unnamed: 2", "Unnamed: 3"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2,3\n", ["line 2 has 3 fields", "header 2"]),
        (b"a,b\n1,2,3\n4,5,6\n", ["line 2 has 3 fields"]),
        (b"a,b\n0,2,3\n1,5,6\n", ["line 2 has 3 fields"]),  # as numbered rows
        (b"a,b\n1,2\n1,2,3\n", ["line 3 has 3 fields"]),
        (b"a,b,c\n1,2,3\n1,2\n", ["line 3 has 2 fields"]),
        (b'a,b,c\n"1",2,3\n\n1,2\n', ["line 4 has 2 fields"]),
        (b"a,b\n1,2\n3\n", ["line 3 has 1 field"]),
        (b'a,b\n1,"2\n3,4\n', ["double quote"]),
        (b'a,"b\n1,2\n3,4\n', ["double quote"]),
        (b'a,"b\n' + b"1,2\n" * 99999, ["double quote"]),
        (b'"', ["double quote"]),
    ],
)
def test_ragged_rows(tmp_path, content, words):
    refused_file(tmp_path / "a.csv", content, *words)


@pytest.mark.parametrize("content", [b"a,b\n1,\n2,3\n", b'a,b\n"1",\n2,3\n'])
def test_an_empty_last_field_is_not_ragged(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv")["b"], [np.nan, 3])


def test_another_separator_of_a_tsv_file(tmp_path):
    refused_file(tmp_path / "a.tsv", b"a,b\n1\n", "'a,b'", "separated by a tab", "--sep")


# The package.


def test_a_missing_package_is_named_with_the_way_to_get_it(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    (tmp_path / "a.parquet").write_text("any")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pyarrow.*lazyknife\[cli\]"):
        read_table(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas.*lazyknife\[cli\]"):
        read_table(path)


def test_importing_the_module_stays_light():
    code = (
        "import sys, lazyknife.cli.tables as t; assert t.read_tables\n"
        "print([name for name in ('torch', 'pandas', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_failing_write_leaves_the_old_file(tmp_path):
    class Failing(pd.DataFrame):
        def to_csv(self, *_, **__):
            raise OSError(28, "No space left on device")

        def __getitem__(self, _):  # as for a Parquet file
            raise OSError(28, "No space left on device")

    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        path.write_text("old")
        refused(
            lambda path=path: write_table(Failing({"a": [1]}), path), str(path), "No space left"
        )
        assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == len(SUFFIXES)


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "a.csv", tmp_path / "file" / "new" / "a.csv"):
        refused(lambda path=path: write_table(frame, path), str(path), "cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "file"]
    write_table(frame, tmp_path / "new" / "folders" / "a.csv")
