from __future__ import annotations

import datetime
import gzip
import io
import os
import subprocess
import sys
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli.tables import (
    SUFFIXES,
    TableError,
    encode,
    encode_one,
    read_table,
    read_tables,
    write_table,
)

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def refused(call, *words: str) -> str:
    """The message of the TableError that the call raises: one line that has all the words."""
    with pytest.raises(TableError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"
    return message


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


# Reading.


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
        ("a,b\n1,2\n".encode("utf-16"), "binary"),
        ("name,b\nJos\u00e9,2\n".encode("latin-1"), "UTF-8"),
        ("größe,b\n1,2\n".encode("latin-1"), "UTF-8"),
        (b"a,b\n" + b"1,2\n" * 9999 + b"1,\xff\n", "UTF-8"),
    ],
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


@pytest.mark.parametrize(
    ("name", "header"), [("a.csv", "a;b"), ("a.csv", "a\tb"), ("a.tsv", "a,b")]
)
def test_another_separator(tmp_path, name, header):
    refused_file(tmp_path / name, header.encode() + b"\n1\n", repr(header), "separate")
    refused_file(tmp_path / name, header.encode() + b"\n1,5;2\t5\n", repr(header), "separate")


# Writing.


def test_a_failing_write_leaves_the_old_file(tmp_path):
    class Failing(pd.DataFrame):
        def to_csv(self, *_, **__):
            raise OSError(28, "No space left on device")

        def to_parquet(self, path, **_):
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        path.write_text("old")
        refused(lambda path=path: write_table(Failing(), path), str(path), "No space left")
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


# Encoding: numbers.


def frames(**columns) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Four training rows and two new rows of each column of six values, and a target."""
    whole = pd.DataFrame(columns)
    train, test = whole.iloc[:4].copy(), whole.iloc[4:].copy()
    train.insert(0, "y", [1.0, 2.0, 3.0, 4.0])
    return train, test


def test_numbers_of_all_kinds_stay_numbers():
    train, test = frames(
        i=[1, 2, 3, 4, 5, 6],
        f=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
        b=[True, False, True, True, False, True],
        n=pd.array([1, 2, 3, 4, 5, 6], dtype="Int16"),
        m=pd.array([True, False, True, True, False, True], dtype="boolean"),
        d=[Decimal(i) for i in range(6)],
        o=pd.Series([True, False, True, True, False, True], dtype=object),
    )
    got = encode(train, test, "y")
    expected = pd.concat([train, test]).drop(columns="y").astype(float).to_numpy()
    np.testing.assert_array_equal(np.concatenate([got.X, got.X_new]), expected)
    assert got.X.shape == (4, 7)
    assert got.X.dtype == got.X_new.dtype == got.y.dtype == np.float64
    np.testing.assert_array_equal(got.y, [1, 2, 3, 4])
    assert got.columns == tuple("ifbnmdo")
    assert (got.notes, got.fitted, got.ids, got.y_new) == ((), False, None, None)


def test_missing_numbers_take_the_median_of_both_files_and_a_mark():
    train, test = frames(
        a=[1.0, np.nan, 2.0, 3.0, 100.0, np.nan],
        n=pd.array([1, 2, None, 4, 5, 60], dtype="Int64"),
        o=pd.Series([True, True, True, True, None, False], dtype=object),
        w=[1, 2, 3, 4, 5, 6],
    )
    got = encode(train, test, "y")
    assert got.columns == ("a", "n", "o", "w", "a is missing", "n is missing", "o is missing")
    pool = np.concatenate([got.X, got.X_new])
    np.testing.assert_array_equal(pool[:, 0], [1, 2.5, 2, 3, 100, 2.5])
    np.testing.assert_array_equal(pool[:, 1], [1, 2, 4, 4, 5, 60])
    np.testing.assert_array_equal(pool[:, 2], [1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(pool[:, 4], [0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(pool[:, 5], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(pool[:, 6], [0, 0, 0, 0, 1, 0])
    end = "filled with the median of both files and marked in an extra column."
    assert got.notes[:2] == (f"a: 2 missing values {end}", f"n: 1 missing value {end}")
    assert got.fitted
    assert np.isnan(train["a"].iloc[1])  # the caller's frame is as it was


def test_a_column_without_values_in_one_file_or_both():
    train, test = frames(x=[1, 2, 3, 4, None, None], w=[1] * 6)
    np.testing.assert_array_equal(encode(train, test, "y").X_new, [[2.5, 1, 1]] * 2)
    for nothing in (pd.Series([None, None], dtype=object), pd.Series([pd.NaT, pd.NaT])):
        other = test.assign(x=nothing.to_numpy())
        np.testing.assert_array_equal(encode(train, other, "y").X_new, [[2.5, 1, 1]] * 2)
    train, test = frames(x=[None] * 4 + [5, 7], w=[1] * 6)
    np.testing.assert_array_equal(encode(train, test, "y").X, [[6, 1, 1]] * 4)
    for dtype in (float, object, "str", "category"):
        empty = frames(**{"x x": pd.Series([None] * 6, dtype=dtype), "w": [1] * 6})
        refused(lambda empty=empty: encode(*empty, "y"), "TRAIN", "'x x'", "--drop 'x x'")
        refused(lambda empty=empty: encode(*empty, "y", categorical=["x x"]), "--drop 'x x'")


@pytest.mark.parametrize(("row", "name"), [(2, "TRAIN"), (5, "TEST")])
def test_infinite_values(row, name):
    values = [1.0] * 6
    values[row] = -np.inf
    train, test = frames(w=[1.0] * 6, x=values)
    number = row + 1 if name == "TRAIN" else row - 3
    refused(lambda: encode(train, test, "y"), name, "'x'", f"infinite value in row {number}:")


# Encoding: categories.


def test_text_becomes_a_column_for_each_category_of_two_rows():
    train, test = frames(
        w=[9, 8, 7, 6, 5, 4],
        c=["red", "blue", "red", "green", "blue", "red"],
        k=pd.Categorical(["1", "3", "1", "1", "3", "3"], categories=["3", "2", "1"]),
        s=["same"] * 6,
    )
    got = encode(train, test, "y")
    assert got.columns == ("w", "c = blue", "c = red", "k = 1", "k = 3", "s = same")
    expected = [
        [9, 0, 1, 1, 0, 1],
        [8, 1, 0, 0, 1, 1],
        [7, 0, 1, 1, 0, 1],
        [6, 0, 0, 1, 0, 1],
        [5, 1, 0, 0, 1, 1],
        [4, 0, 1, 0, 1, 1],
    ]
    np.testing.assert_array_equal(np.concatenate([got.X, got.X_new]), expected)
    assert got.notes == (
        "c: 2 categories became 2 columns; 1 category occurs in only one row and has none.",
        "k: 2 categories became 2 columns.",
        "s: 1 category became 1 column.",
    )
    assert got.fitted


def test_missing_is_a_category_of_its_own():
    train, test = frames(c=["(missing)", None, "(missing)", "b", "b", np.nan])
    got = encode(train, test, "y")
    assert got.columns == ("c = (missing)", "c = b", "c = (missing) (2)")
    np.testing.assert_array_equal(got.X.argmax(axis=1), [0, 2, 0, 1])
    np.testing.assert_array_equal(got.X_new.argmax(axis=1), [1, 2])
    assert got.X.sum() == 4


@pytest.mark.parametrize("missing", [False, True])
def test_categories_that_only_one_file_has_are_encoded_by_how_often_they_occur(missing):
    new = None if missing else "new"
    label = "(missing)" if missing else "new"
    rows = ["a", "b", "a", "b"]
    for first, second in ((rows, [new, "a"]), ([new, "a"], rows)):  # once, in either file
        got = encode(*halves(first, second), "y")
        assert got.columns == ("c = a", "c = b")
        pool = np.concatenate([got.X, got.X_new])
        np.testing.assert_array_equal(pool.sum(axis=1), [value != new for value in first + second])
        assert got.notes == (
            "c: 2 categories became 2 columns; 1 category occurs in only one row and has none.",
        )
    for first, second in ((rows, [new, new]), ([new, new], rows)):  # twice, in one of them
        got = encode(*halves(first, second), "y")
        assert sorted(got.columns) == sorted(("c = a", "c = b", f"c = {label}"))
        assert np.concatenate([got.X, got.X_new]).sum() == 6


def halves(first: list, second: list) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Files with a column c of these values; the first has a target."""
    train, test = (pd.DataFrame({"c": values}, dtype=object) for values in (first, second))
    return train.assign(y=range(len(first))), test


def test_a_column_whose_categories_all_occur_once_is_left_out():
    train, test = frames(c=[*"abcdef"], w=[1] * 6)
    got = encode(train, test, "y")
    assert got.columns == ("w",)
    assert got.notes == ("c: no category occurs in more than one row, so the column is ignored.",)
    refused(lambda: encode(train, test, "y", drop=["w"]), "TRAIN: no features are left")


@pytest.mark.parametrize(
    ("single", "repeated", "allowed"),
    [
        (20, 0, True),
        (21, 0, False),
        (19, 3, False),  # of 25 rows
        (18, 3, True),  # of 24 rows
        (80, 60, True),  # 40 % of 200 rows
        (0, 100, True),
        (0, 101, False),
    ],
)
def test_names_of_rows_and_too_many_categories(single, repeated, allowed):
    labels = [f"single {i}" for i in range(single)] + [f"name {i}" for i in range(repeated)] * 2
    frame = pd.DataFrame({"y": np.arange(len(labels)), "my name": labels, "w": 1})
    if allowed:
        got = encode_one(frame, "y")
        assert got.X.shape == (len(labels), repeated + 1)
        np.testing.assert_array_equal(got.X[:, 1:].sum(axis=1), np.arange(len(labels)) >= single)
        return
    message = refused(lambda: encode_one(frame, "y"), "DATA", "'my name'", "--drop 'my name'")
    assert "--id" not in message
    for cut in (1, len(labels) - 1):
        old, new = frame.iloc[:cut], frame.iloc[cut:]
        refused(lambda old=old, new=new: encode(old, new, "y"), "'my name'", "--id 'my name'")


def test_missing_counts_as_a_category():
    labels = [f"name {i % 100}" for i in range(300)]
    frame = pd.DataFrame({"y": np.arange(300), "c": labels})
    assert encode_one(frame, "y").X.shape == (300, 100)
    frame.loc[299, "c"] = None
    assert encode_one(frame, "y").X.shape == (300, 100)
    frame.loc[298, "c"] = None
    refused(lambda: encode_one(frame, "y"), "101 categories")


@pytest.mark.parametrize(
    ("values", "row", "value"),
    [
        (["12", "13", "14", "?", "12", "13"], 4, "?"),
        (["12", "13", "n/a", "?", "12", "13"], 3, "n/a"),
        (["12", "13", "14", "1,5", "12", "13"], 4, "1,5"),
        (["1,5", "2,5", "3,5", "2,5", "1,5", "1,5"], 1, "1,5"),
        (["a", "1", "a", "a", "1", "1"], 1, "a"),
        (["12", " 13 ", None, "line\nbreak", "12", "12"], 4, "line\\nbreak"),
        (["12", "13", "14", "15", "12", "?"], 2, "?"),
    ],
)
def test_numbers_with_a_slip_are_not_taken_for_categories(values, row, value):
    train, test = frames(x=values, w=[1] * 6)
    name = "TEST" if value not in map(str, values[:4]) and "line" not in value else "TRAIN"
    words = [f"{name}: column 'x'", f"'{value}'", f"row {row} ", "--categorical x"]
    refused(lambda: encode(train, test, "y"), *words)
    if name == "TRAIN":
        train["w"] = range(4)
        assert encode(train, test, "y", categorical=["x"]).fitted


def test_a_slip_in_one_file_makes_the_other_files_numbers_no_riddle():
    train, test = frames(x=["12", "13", "?", "14", "12", "13"])
    test["x"] = test["x"].astype(int)
    refused(lambda: encode(train, test, "y"), "TRAIN: column 'x'", "'?'", "row 3")
    got = encode(train, test, "y", categorical=["x"])
    assert got.columns == ("x = 12", "x = 13")
    np.testing.assert_array_equal(got.X_new, [[1, 0], [0, 1]])


def test_few_numbers_among_text_are_categories():
    train, test = frames(x=["a", "b", "1", "c", "a", "1"])
    assert encode(train, test, "y").columns == ("x = 1", "x = a")


def test_numbers_stored_as_text():
    train, test = frames(x=["1", "2", "3", "4", "1", "2"])
    refused(lambda: encode(train, test, "y"), "TRAIN", "'x'", "as text", "--categorical x")


def test_codes_are_categories_if_the_user_says_so():
    train, test = frames(
        z=[10, 2, 10, 3, 3, 2], b=[True, False, True, False, True, False], f=[0.5, 1, 1, 1, 1, 0.5]
    )
    test["z"] = test["z"].astype(float)  # as a file with missing values has it
    got = encode(train, test, "y", categorical=["z", "b", "f"])
    assert got.columns == (
        *("z = 10", "z = 2", "z = 3", "b = False", "b = True", "f = 0.5", "f = 1"),
    )
    np.testing.assert_array_equal(got.X_new, [[0, 0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1, 0]])
    train.loc[[0, 2], "z"] = None
    got = encode(train, test, "y", categorical=["z"], drop=["b", "f"])
    assert got.columns == ("z = 2", "z = 3", "z = (missing)")
    dates = frames(d=pd.to_datetime(["2020-01-01", "2020-01-02"] * 3))
    assert encode(*dates, "y", categorical=["d"]).X.shape == (4, 2)


# Encoding: dates and durations.

DAYS = [0.0, 0.5, -1.0, 18321.25, 2932896.0, 18321.0]
MOMENTS = [
    "1970-01-01",
    "1970-01-01T12:00",
    "1969-12-31 00:00:00",
    "2020-02-29T08:00:00.000+02:00",
    "9999-12-31",
    " 2020-02-28 19:00:00 -0500",
]
ZONES = [datetime.datetime.fromisoformat(text.strip().replace(" -", "-")) for text in MOMENTS]
NAIVE = [
    moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    for moment in ZONES
]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(MOMENTS),
        pd.Series(MOMENTS, dtype=object),
        pd.Series(ZONES, dtype=object),
        pd.Series(np.array(NAIVE, dtype="datetime64[us]")),
        pd.Series(np.array(NAIVE, dtype="datetime64[s]")).dt.tz_localize("UTC"),
        pd.Series(np.array(NAIVE, dtype="datetime64[ms]"))
        .dt.tz_localize("UTC")
        .dt.tz_convert("Asia/Tokyo"),
    ],
)
def test_dates_become_days_since_1970(values):
    train, test = frames(d=values, w=[1] * 6)
    got = encode(train, test, "y")
    assert got.columns == ("d", "w")
    np.testing.assert_array_equal(np.concatenate([got.X, got.X_new])[:, 0], DAYS)
    assert got.notes == ("d: dates became days since 1970-01-01.",)
    assert not got.fitted  # a fixed rule
    other = encode(train.assign(d=pd.Series(MOMENTS[:4])), test, "y")  # of another type
    np.testing.assert_array_equal(other.X, got.X)


def test_days_without_a_time_are_dates():
    train, test = frames(d=[datetime.date(1970, 1, day) for day in range(1, 7)])
    np.testing.assert_array_equal(encode(train, test, "y").X, [[0], [1], [2], [3]])


@pytest.mark.parametrize("dtype", ["timedelta64[ns]", "timedelta64[s]", object])
def test_durations_become_days(dtype):
    durations = [datetime.timedelta(days=k, hours=6) for k in range(6)]
    train, test = frames(d=pd.Series(durations, dtype=dtype))
    got = encode(train, test, "y")
    np.testing.assert_array_equal(got.X[:, 0], [0.25, 1.25, 2.25, 3.25])
    assert got.notes == ("d: durations became days.",)


def test_missing_dates_and_durations_are_treated_like_missing_numbers():
    dates = pd.Series(["1970-01-02", None, "1970-01-04", "1970-01-12", None, "1970-01-03"])
    for values in (dates, pd.to_datetime(dates), pd.to_datetime(dates) - pd.Timestamp(0)):
        train, test = frames(d=values)
        got = encode(train, test, "y")
        assert got.columns == ("d", "d is missing")
        pool = np.concatenate([got.X, got.X_new])
        np.testing.assert_array_equal(pool[:, 0], [1, 2.5, 3, 11, 2.5, 2])
        np.testing.assert_array_equal(pool[:, 1], [0, 1, 0, 0, 1, 0])
        assert got.fitted


@pytest.mark.parametrize("odd", ["soon", "2021-02-29", "2020-01-01T24:00", "01.02.2020", "2020"])
@pytest.mark.parametrize("place", [3, 5])
def test_dates_with_a_slip_are_not_taken_for_categories(odd, place):
    values = ["2020-01-01", "2020-01-02", "2020-01-03"] * 2
    values[place] = odd
    train, test = frames(d=values, w=[1] * 6)
    where = ("TRAIN", "row 4 ") if place == 3 else ("TEST", "row 2 ")
    refused(lambda: encode(train, test, "y"), *where, f"'{odd}'", "not a date", "--categorical d")
    assert encode(train, test, "y", categorical=["d"]).fitted
    if place == 5:  # the other file's type says that they are dates
        typed = train.assign(d=pd.Timestamp(0))
        refused(lambda: encode(typed, test, "y"), "TEST", f"'{odd}'", "not a date")


def test_few_dates_among_text_are_categories():
    train, test = frames(d=["a", "b", "a", "2020-01-01", "c", "2020-01-01"])
    assert encode(train, test, "y").columns == ("d = 2020-01-01", "d = a")


def test_dates_of_parquet_files(tmp_path):
    moments = pd.to_datetime(pd.Series(MOMENTS[:4]), format="ISO8601", utc=True)
    table = pa.table(
        {
            "y": [1, 2, 3, 4],
            "day": pa.array([datetime.date(1970, 1, 2)] * 3 + [None], pa.date32()),
            "moment": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
            "length": pa.array([datetime.timedelta(hours=12)] * 4, pa.duration("s")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    got = encode_one(read_table(tmp_path / "a.parquet"), "y")
    assert got.columns == ("day", "moment", "length", "day is missing")
    expected = [[1, day, 0.5, row == 3] for row, day in enumerate(DAYS[:4])]
    np.testing.assert_array_equal(got.X, expected)


# Encoding: columns that do not fit.


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([datetime.time(1)] * 6, "time"),
        (pd.period_range("2020", periods=6, freq="M"), "period"),
        ([[1, 2]] * 6, "list"),
        ([{"a": 1}] * 6, "dict"),
        ([b"x", None] * 3, "bytes"),
        ([1, "a"] * 3, "int and str"),
        ([1j] * 6, "complex"),
    ],
)
def test_other_types_are_refused_by_name(values, kind):
    train, test = frames(w=[1] * 6, x=values)
    refused(lambda: encode(train, test, "y"), "TRAIN", "'x'", f"{kind}", "--drop x")
    assert encode(train, test, "y", drop=["x"]).columns == ("w",)
    refused(lambda: encode(train.assign(x=1), test, "y"), "TEST", "'x'", f"{kind}")


def test_other_types_of_a_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {"ndarray": [[1.0, 2.0]] * 2, "bytes": [b"x"] * 2, "dict": [{"a": 1}] * 2}
    for name, values in columns.items():
        pq.write_table(pa.table({"y": [1, 2], name: values}), path)
        refused(lambda: encode_one(read_table(path), "y"), f"'{name}'", "of type")
    decimals = pa.array([Decimal("1.5"), None, Decimal(2)], pa.decimal128(5, 2))
    table = pa.table({"y": [1, 2, 3], "d": decimals, "n": pa.array([True, None, False])})
    pq.write_table(table.append_column("c", pa.array(["1", "2", "1"]).dictionary_encode()), path)
    got = encode_one(read_table(path), "y")
    assert got.columns == ("d", "n", "d is missing", "n is missing", "c = 1")
    np.testing.assert_array_equal(got.X[:, :2], [[1.5, 1], [1.75, 0.5], [2, 0]])


def test_lists_cannot_be_declared_categories():
    train, test = frames(x=[[1]] * 6)
    refused(lambda: encode(train, test, "y", categorical=["x"]), "TRAIN", "'x'", "--drop x")


def test_columns_that_only_one_file_has():
    train, test = frames(**{name: [1] * 6 for name in "abcdefgh"})
    message = refused(
        lambda: encode(train, test[["h"]], "y"), "TEST", "'a', 'b', 'c', 'd', 'e' and 2 more"
    )
    assert "--drop" in message
    refused(lambda: encode(train[["y", "a"]], test, "y"), "TRAIN: no column 'b'", "TEST has")
    refused(lambda: encode(train, test.drop(columns="c"), "y"), "TEST: no column 'c', which")
    got = encode(train, test.drop(columns="c").assign(z=1), "y", drop=["c", "z"])
    assert got.columns == tuple("abdefgh")
    got = encode(train.drop(columns="c"), test, "y", id_column="c")  # TRAIN needs no names
    assert got.columns == tuple("abdefgh")


def test_a_type_that_differs():
    train, test = frames(x=["a", "b", "c", "a", "d", "e"], w=[1] * 6)
    numbers = test.assign(x=[1, 2])
    refused(lambda: encode(train, numbers, "y"), "TRAIN and TEST", "'x'", "--categorical x")
    grouped = train.assign(x=train["x"].astype("category"))
    refused(lambda: encode(grouped, numbers, "y"), "'x'", "--drop x")
    assert encode(grouped, test, "y").columns == ("w", "x = a")
    dates = train.assign(x=pd.Timestamp(0))
    message = refused(lambda: encode(dates, numbers, "y"), "TRAIN and TEST", "'x'", "--drop x")
    assert "dates in one file and numbers in the other" in message
    bare = encode(train, test.assign(x=np.nan), "y")
    assert bare.columns == ("w", "x = a", "x = (missing)")
    np.testing.assert_array_equal(bare.X_new, [[1, 0, 1]] * 2)


def test_the_order_of_the_new_rows_columns_does_not_matter():
    train, test = frames(a=[1, 2, 3, 4, 5, None], b=["u", "v", "u", "v", "u", "v"], c=[9] * 6)
    got, other = encode(train, test, "y"), encode(train, test[["c", "b", "a"]], "y")
    np.testing.assert_array_equal(got.X_new, other.X_new)
    assert got.columns == other.columns


def test_a_column_without_a_name_is_no_silent_feature(tmp_path):
    path = tmp_path / "a.csv"
    pd.DataFrame({"x": [5.0, 6.0], "y": [1, 2]}).to_csv(path)
    frame = read_table(path)
    refused(lambda: encode_one(frame, "y"), "no name", "--drop 'Unnamed: 0'")
    assert encode_one(frame, "y", drop=["Unnamed: 0"]).columns == ("x",)


def test_nothing_to_predict_from():
    train, test = frames(x=[1] * 6)
    refused(lambda: encode(train, test, "y", drop=["x"]), "TRAIN", "no features are left")
    refused(lambda: encode_one(train[["y"]], "y", name="a.csv"), "a.csv", "no features are left")


def test_frames_with_duplicate_names():
    train, test = frames(x=[1] * 6)
    twice = pd.concat([test, test], axis=1)
    refused(lambda: encode(train, twice, "y"), "TEST", "'x'")
    refused(lambda: encode(pd.concat([train, train], axis=1), test, "y"), "TRAIN", "'x'")


# Encoding: names and the target.


def test_unknown_names_get_a_suggestion():
    train, test = frames(age=[1] * 6, colour=[2] * 6)
    refused(lambda: encode(train, test, "Y"), "TRAIN: no column 'Y': did you mean 'y'?")
    refused(lambda: encode_one(train, "Y"), "DATA: no column 'Y': did you mean 'y'?")
    refused(lambda: encode(train, test, "price"), "the columns are 'y', 'age', 'colour'")
    refused(lambda: encode(train, test, "y", drop=["color"]), "'color': did you mean 'colour'?")
    refused(lambda: encode(train, test, "y", categorical=["Age "]), "did you mean 'age'?")
    refused(lambda: encode(train, test, "y", id_column="ag"), "TEST", "did you mean 'age'?")
    refused(lambda: encode(train.assign(n=1), test, "y", id_column="n"), "TEST: no column 'n'")


def test_the_target_cannot_be_something_else_too():
    train, test = frames(x=[1] * 6)
    refused(lambda: encode(train, test, "y", drop=["y"]), "'y'", "target", "--drop")
    refused(lambda: encode(train, test, "y", categorical=["y"]), "'y'", "target", "--categorical")
    scored = test.assign(y=1.0)
    refused(lambda: encode(train, scored, "y", id_column="y"), "'y'", "target", "--id")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, None, 3, None], ["2 missing values", "row 2:"]),
        ([1, 2, 3, None], ["1 missing value,", "row 4:"]),
        ([None] * 4, ["4 missing values", "row 1:"]),
        ([1, 2, np.inf, 4], ["infinite", "row 3:"]),
        (["1", "2", "x", "4"], ["'x'", "row 3:"]),
        (["1", "2", "3", "4"], ["text", "row 1:"]),
        (pd.date_range("2020", periods=4), ["datetime64"]),
        (pd.Categorical([1, 2, 1, 2]), ["category"]),
    ],
)
def test_a_target_that_is_no_column_of_numbers(values, words):
    train, test = frames(x=[1] * 6)
    train["y"] = values
    refused(lambda: encode(train, test, "y"), "TRAIN: column 'y' ", *words)
    refused(lambda: encode_one(train, "y", name="d.csv"), "d.csv: column 'y' ", *words)
    train["y"] = [1, 2, 3, 4]
    got = encode(train, test.assign(y=values[:2] if words[0][0] == "2" else values[2:]), "y")
    assert got.y_new is None
    assert len(got.notes) == 1
    assert "TEST: column 'y'" in got.notes[0]
    assert not got.fitted


def test_a_target_of_yes_and_no_and_of_other_types_of_numbers():
    train, test = frames(x=[1] * 6)
    for values in ([True, False, True, True], pd.array([1, 0, 1, 1], dtype="Int8")):
        np.testing.assert_array_equal(encode(train.assign(y=values), test, "y").y, [1, 0, 1, 1])


def test_the_new_rows_target_is_handed_on():
    train, test = frames(x=[1] * 6)
    got = encode(train, test.assign(y=[7, 8]), "y")
    np.testing.assert_array_equal(got.y_new, [7.0, 8.0])
    assert got.y_new.dtype == np.float64
    assert got.notes == ()


def test_the_names_of_the_new_rows():
    train, test = frames(x=[1] * 6, id=list("abcdef"))
    got = encode(train, test, "y", id_column="id")
    assert got.ids.tolist() == ["e", "f"]
    assert got.ids.index.tolist() == [0, 1]
    assert got.columns == ("x",)


def test_one_file():
    train, _ = frames(x=[1, 2, None, 4, 5, 6], c=[None, "b", "b", None, "a", "a"], d=[1] * 6)
    got = encode_one(train, "y", drop=["d"])
    assert got.columns == ("x", "x is missing", "c = b", "c = (missing)")
    np.testing.assert_array_equal(got.X[:, 0], [1, 2, 2, 4])
    assert got.X_new.shape == (0, 4)
    assert got.y_new is None
    assert got.ids is None
    assert "median of the file" in got.notes[0]
    assert encode_one(train, "y", categorical=["d"]).columns[-1] == "d = 1"


def test_notes_are_one_line_each():
    train, test = frames(**{"a\nb": [1, 2, None, 4, 5, 6], "c\nd": ["x"] * 6})
    assert [note.count("\n") for note in encode(train, test, "y").notes] == [0, 0]
    refused(lambda: encode(train, test, "y", drop=["a b"]), "'a\\nb'")


# What the guarantee needs.


@st.composite
def pools(draw, most=12):
    """A table of all kinds of columns with gaps, a permutation of its rows, a place to cut it."""
    rows = draw(st.integers(4, most))

    def column(values):
        return draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))

    columns = {
        "x": column(st.floats(-1e6, 1e6)),
        "c": column(st.sampled_from("uvw")),
        "s": column(st.integers(0, 30).map("name {}".format)),  # many of them singletons
        "i": column(st.integers(0, 2)),
        "d": column(st.dates().map(str)),
        "b": column(st.booleans()),
    }
    frame = pd.DataFrame(columns, dtype=object).astype({"x": float})
    frame.loc[rows] = [1.0, "u", "name 0", 0, "2020-01-01", True]  # no column is all missing
    order = draw(st.permutations(range(rows + 1)))
    return frame, order, draw(st.integers(1, rows))


@settings(max_examples=100, deadline=None)
@given(pools())
def test_the_encoding_of_a_row_does_not_depend_on_the_file_that_it_is_in(pool):
    frame, order, cut = pool
    whole = encode_one(frame.assign(y=0.0), "y", categorical=["i"])
    shuffled = frame.iloc[order].reset_index(drop=True)
    train, test = shuffled.iloc[:cut].assign(y=range(cut)), shuffled.iloc[cut:]
    got = encode(train, test, "y", categorical=["i"])
    assert got.columns == whole.columns
    assert got.fitted == whole.fitted
    again = np.empty_like(whole.X)
    again[order] = np.concatenate([got.X, got.X_new])
    np.testing.assert_array_equal(again, whole.X)


TEXTS = ["01", "1", "2.5", "x", "y", "z", "True", "TRUE", "2020-01-01", "2020-01-01 12:00Z", ""]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=3, max_size=12),
    st.data(),
    st.booleans(),
)
def test_the_type_of_a_column_is_decided_on_both_files(tmp_path_factory, texts, data, declared):
    """Two files of text are encoded, or refused, as one file with all rows is."""
    order = data.draw(st.permutations(range(len(texts))))
    cut = data.draw(st.integers(1, len(texts) - 1))
    paths = [tmp_path_factory.getbasetemp() / f"{name}.csv" for name in ("all", "train", "test")]
    for path, rows in zip(paths, (range(len(texts)), order[:cut], order[cut:]), strict=True):
        path.write_text("t,w,y\n" + "".join(f"{texts[row]},1,{row}\n" for row in rows))
    settings = {"categorical": ["t"] if declared else []}
    try:
        whole = encode_one(read_table(paths[0]), "y", **settings)
    except TableError:
        refused(lambda: encode(*read_tables(paths[1:], apart=["y"]), "y", **settings), "'t'")
        return
    got = encode(*read_tables(paths[1:], apart=["y"]), "y", **settings)
    assert got.columns == whole.columns
    again = np.empty_like(whole.X)
    again[order] = np.concatenate([got.X, got.X_new])
    np.testing.assert_array_equal(again, whole.X)


def test_numbers_in_one_file_are_text_where_the_other_file_says_so(tmp_path):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("t,b,n,y\n01,TRUE,1,1\n01,false,2,2\n2,,3,3\n")
    test.write_text("t,b,n,y\n01,0,4,?\nx,1,5,?\n")
    old, new = read_tables([train, test], apart=["y"])
    assert old["t"].tolist() == ["01", "01", "2"]
    assert old["b"].dropna().tolist() == ["TRUE", "false"]
    assert new["b"].tolist() == ["0", "1"]
    assert old["n"].dtype == old["y"].dtype == np.int64
    assert new["y"].tolist() == ["?", "?"]
    read_table(train).to_parquet(tmp_path / "train.parquet")
    old, new = read_tables([tmp_path / "train.parquet", test], apart=["y"])
    assert old["t"].dtype == np.int64  # a Parquet file says what its types are
    refused(lambda: encode(old, new, "y"), "'t'")
    got = encode(*read_tables([train, tmp_path / "train.parquet"]), "y")
    np.testing.assert_array_equal(got.X, got.X_new)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-9, 9), min_size=4, max_size=4), st.booleans())
def test_the_target_has_no_part_in_the_features(target, scored):
    train, test = frames(x=[1, None, 3, 4, 5, 6], c=["a", "b", None, "a", "b", "a"])
    got = encode(train, test, "y")
    other = encode(train.assign(y=target), test.assign(y=9.0) if scored else test, "y")
    np.testing.assert_array_equal(got.X, other.X)
    np.testing.assert_array_equal(got.X_new, other.X_new)
    assert (got.columns, got.notes, got.fitted) == (other.columns, other.notes, other.fitted)
    np.testing.assert_array_equal(other.y, target)


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
        "import sys, lazyknife.cli.tables as t; assert t.encode\n"
        "print([name for name in ('torch', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
