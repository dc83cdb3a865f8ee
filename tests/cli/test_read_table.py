"""What is read from files, what is guessed of texts and said, and what is wrong with a file."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli import read_table
from lazyknife.cli.output import spooled
from lazyknife.cli.read_table import (
    SUFFIXES,
    Formats,
    open_source,
    parse,
    rows_of,
    type_columns,
    typed_rows,
)
from lazyknife.errors import TableError
from lazyknife.files import write_together
from tabular import refused

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def write_table(frame, path):
    """Write a table as the command does."""
    with spooled(path) as (append, move):
        append(frame)
        write_together({path: move})


def read(path, **options):
    """One file, with typed columns."""
    formats = Formats(**options)
    return type_columns([rows_of(open_source(path, formats))], ["f"], formats).frames[0]


@pytest.fixture
def typed(tmp_path):
    """Texts as files with typed columns: a frame for each, and the notes."""

    def call(*texts, as_text=(), encoding="utf-8", **options):
        formats, sources = Formats(**options), []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.csv"
            path.write_bytes(text.encode(encoding))
            sources.append(open_source(path, formats))
        found = type_columns(
            [rows_of(source) for source in sources], [s.name for s in sources], formats, as_text
        )
        said = [note for source in sources for note in source.notes] + found.notes
        return (*found.frames, " ".join(said))

    return call


# Texts


@pytest.mark.parametrize(
    ("texts", "options", "values", "note"),
    [
        ("1,5 2,25", {}, [1.5, 2.25], "decimal commas"),
        ("1.234,5 2", {}, [1234.5, 2], "decimal commas"),
        ("1,234.5 2", {}, [1234.5, 2], "commas between thousands"),
        ("1,234,567 2", {}, [1234567, 2], "commas between thousands"),
        ("1,234 2", {}, [1234, 2], "commas between thousands (--decimal)"),
        ("1,234 2", {"decimal": "."}, [1234, 2], ""),
        ("1,234 2", {"decimal": ","}, [1.234, 2], ""),
        ("1.234 2", {"decimal": ","}, [1234, 2], ""),
        ("1.234 2", {}, [1.234, 2], ""),
        ("0,123 2", {}, [0.123, 2], "decimal commas"),
        ("1\u00a0234,5 -2", {}, [1234.5, -2], "decimal commas"),
        ("1'234.5 −2", {}, [1234.5, -2], ""),
        ("$23.00 $1,234.50", {}, [23, 1234.5], "'$23.00' is read as 23"),
        ("-$5 $-6", {}, [-5, -6], "'-$5' is read as -5"),
        ("€\u00a05 6€", {}, [5, 6], "is read as 5"),
        ("12% 3\u00a0%", {}, [12, 3], "'12%' is read as 12"),
        ("? 5", {}, [np.nan, 5], "1 value '?' read as missing (--na)"),
        ("- 5 2.5", {}, [np.nan, 5, 2.5], "1 value '-' read as missing"),
        ("-999 5", {"na": ("-999",)}, [np.nan, 5], ""),
        ("1,5e3 2", {}, [1500, 2], "decimal commas"),
        ("True false", {}, [1, 0], ""),
    ],
)
def test_numbers_as_people_write_them(typed, texts, options, values, note):
    lines = "".join(f"{text}|{row}|7\n" for row, text in enumerate(texts.split(" ")))
    frame, notes = typed(f"a|y|w\n{lines}", **options)
    np.testing.assert_array_equal(frame["a"], values)
    assert frame["a"].dtype == np.float64
    assert note in notes
    assert bool(notes.replace("0.csv: fields are separated by '|' (--sep).", "")) == bool(note)


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ("1,5 2", {"decimal": "."}, ["'1,5' in row 1", "decimal points"]),
        ("2.5 2", {"decimal": ","}, ["'2.5' in row 1", "decimal commas"]),
        ("$5 €6", {}, ["'€6' in row 2"]),
        ("1 2 3 x", {}, ["'x' in row 4", "--na x", "--categorical a"]),
        ("1 2 <0.5 3", {}, ["'<0.5' in row 3", "--na '<0.5'"]),
        ("2020-01-01 2020-13-01", {}, ["'2020-13-01' in row 2", "date"]),
        ("31.04.2020 05.06.2020", {}, ["'31.04.2020' in row 1"]),
        ("31/03/2020 05/06/2020 07/08/2020", {"dates": "month-first"}, ["'31/03/2020' in row 1"]),
    ],
)
def test_an_odd_text_among_others_is_refused(typed, texts, options, words):
    lines = "".join(f"{text}|{row}\n" for row, text in enumerate(texts.split(" ")))
    refused(lambda: typed(f"a|y\n{lines}", **options), "0.csv: column 'a'", *words)
    frame, _ = typed(f"a|y\n{lines}", as_text=["a"], **options)
    assert frame["a"].tolist() == texts.split(" ")


def test_other_columns_and_files_decide_what_one_leaves_open(typed):
    frame, _ = typed("a;b;y\n1.234;1,5;0\n2.345;2;1\n")
    assert frame["a"].tolist() == [1234, 2345]
    one, other, _ = typed("a;y\n1.234;0\n", "a;y\n1,5;2\n")
    assert (one["a"].tolist(), other["a"].tolist()) == ([1234], [1.5])
    one, other, notes = typed("a,d,y\n1,03/04/2020,0\n", "a,d\n1,13/04/2020\n")
    assert one["d"].tolist() == [datetime(2020, 4, 3)]
    assert one["d"].dtype == other["d"].dtype
    assert "d: dates like 03/04/2020 have the day first (--dates)." in notes
    one, other, _ = typed("a,y\n01,0\n02,1\n", "a,y\nb7,2\nc8,1\nd9,2\n")
    assert one["a"].tolist() == ["01", "02"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-02-03", datetime(2020, 2, 3)),
        ("2020/02/03", datetime(2020, 2, 3)),
        ("2020-02-03T10:30:05.25+02:00", datetime(2020, 2, 3, 8, 30, 5, 250000)),
        ("3.2.2020 23:59", datetime(2020, 2, 3, 23, 59)),
        ("03.02.20", datetime(2020, 2, 3)),
        ("03.02.20 10:05", datetime(2020, 2, 3, 10, 5)),
        ("3 Feb 2020", datetime(2020, 2, 3)),
        ("03-February-2020", datetime(2020, 2, 3)),
        ("02/03/2020", datetime(2020, 2, 3)),  # announced
        ("2020-02-30", None),
        ("3 Foo 2020", None),
        ("May", None),
        ("10:30", None),
    ],
)
def test_dates(typed, text, expected):
    frame, notes = typed(f"d,y\n{text},1\n")
    assert frame["d"][0] == (expected or text)
    assert ("first (--dates)" in notes) == (expected is not None and text[:4] not in ("2020"))


def test_dates_by_an_option(typed):
    frame, _ = typed("d,y\n03/04/20,0\n05/06/21,1\n", dates="%d/%m/%y")
    assert frame["d"].tolist() == [datetime(2020, 4, 3), datetime(2021, 6, 5)]
    frame, notes = typed("d,y\n03/04/2020,0\n05/06/2021,1\n", dates="day-first")
    assert (frame["d"][0], notes) == (datetime(2020, 4, 3), "")
    frame, notes = typed("d,y\n13.04.2020,0\n?,1\n")
    assert frame["d"].isna().tolist() == [False, True]
    refused(lambda: Formats(dates="whenever"), "--dates 'whenever'")


@settings(max_examples=200, deadline=None)
@given(
    st.decimals(-(10**9), 10**9, allow_nan=False, places=4),
    st.sampled_from([(".", ","), (",", "."), (".", " "), (",", "'"), (".", ""), (",", "")]),
    st.sampled_from(["", "$", "%", "EUR"]),
)
def test_a_number_written_in_a_style_is_read_in_it(number, style, unit):
    whole, _, part = f"{abs(number):,f}".partition(".")
    text = f"{'-' * (number < 0)}{whole.replace(',', style[1])}{style[0]}{part} {unit}".strip()
    assert parse(pd.Series([text], dtype="str"), style[0])[0] == float(number)


def test_types_of_later_rows_follow_earlier_ones():
    first = pd.DataFrame({"a": ["1,5"], "d": ["31.01.2020"]}, dtype="str")
    later = pd.DataFrame({"a": ["1,234"], "d": ["02.01.2020"]}, dtype="str")
    found = type_columns([later], ["f"], type_columns([first], ["f"], Formats()).formats).frames[0]
    assert (found["a"][0], found["d"][0]) == (1.234, datetime(2020, 1, 2))


# Files


@pytest.mark.parametrize("content", ["﻿a,b\r\n1,2\r\n", "\na,b\n\n1,2\n  \n", "a, b\r1, 2"])
def test_marks_line_ends_blanks_and_blank_lines_do_no_harm(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content.encode())
    assert read(tmp_path / "a.csv").to_dict("list") == {"a": [1], "b": [2]}


def test_texts_gaps_and_lines_within_fields(typed):
    frame, notes = typed('n,t\n1,x\n,NA\nnull,"y, z"\n2.5,\n3,"two\nlines"\n')
    np.testing.assert_array_equal(frame["n"], [1, np.nan, np.nan, 2.5, 3])
    assert frame["t"].dropna().tolist() == ["x", "y, z", "two\nlines"]
    assert notes == ""


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".CSV", ".Parquet", ".csv.GZ", ".XLSX"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    frame = pd.DataFrame(
        {"x": [0.1, np.nan, 2.5], "n": [1, 2, 3], "t": ['a,b\t"c"', "é\nz", None]},
        index=[7, 8, 9],
    )
    write_table(frame, path)
    found = read(path)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(found["x"], frame["x"])
    np.testing.assert_array_equal(found["n"], frame["n"])
    assert found["t"].dropna().tolist() == ['a,b\t"c"', "é\nz"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_every_float_survives_a_text_file(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "floats.csv"
    write_table(pd.DataFrame({"x": values}), path)
    np.testing.assert_array_equal(read(path)["x"].to_numpy(float), values)


def test_the_same_table_makes_the_same_packed_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_table(pd.DataFrame({"x": [1]}), tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).split() == [b"x", b"1"]


def test_a_table_of_a_workbook(tmp_path):
    path = tmp_path / "a.xlsx"
    cells = pd.DataFrame(
        {"a": [None, " n ", 1, 2.5], "b": [None, "day", datetime(2020, 1, 2), None], "c": None}
    ).assign(d=[None, "code", 7, "<5"])
    with pd.ExcelWriter(path) as book:
        cells.to_excel(book, sheet_name="one", index=False, header=False)
        pd.DataFrame({"z": [1]}).to_excel(book, sheet_name="two", index=False)
    source = open_source(path, Formats())
    assert source.columns == ("n", "day", "code")
    assert source.notes == ["a.xlsx: sheet 'one' is read (--sheet)."]
    frame = type_columns([rows_of(source)], ["f"], Formats(), ["code"]).frames[0]
    assert frame["n"].tolist() == [1, 2.5]
    assert frame["day"][0] == datetime(2020, 1, 2)
    assert frame["code"].tolist() == ["7", "<5"]
    assert read(path, sheet="two").to_dict("list") == {"z": [1]}
    refused(lambda: read(path, sheet="three"), "no sheet 'three'", "'one', 'two'")


def test_row_labels_of_pandas_are_no_column_but_a_named_index_is(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"x": [1, 2]}, index=[5, 3])
    frame.to_parquet(path)
    assert list(read(path).columns) == ["x"]
    frame.rename_axis("id").to_parquet(path)
    assert sorted(read(path).columns) == ["id", "x"]


def test_batches_have_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(read_table, "BATCH_BYTES", 4096)
    monkeypatch.setattr(read_table, "BATCH_ROWS", 100)
    frame = pd.DataFrame({"a": np.arange(2000.0), "t": ["x,\ny"] * 2000})
    for suffix in (".csv", ".parquet", ".csv.gz"):
        path = tmp_path / f"a{suffix}"
        write_table(frame, path)
        source = open_source(path, Formats())
        assert len(list(source.batches())) > 5
        found = type_columns([rows_of(source)], ["f"], Formats()).frames[0]
        np.testing.assert_array_equal(found["a"], frame["a"])
        assert found["t"].unique().tolist() == ["x,\ny"]


@pytest.mark.parametrize(
    ("encoding", "note"),
    [("utf-8", ""), ("utf-8-sig", ""), ("cp1252", "read as cp1252"), ("utf-16", "read as utf-16")],
)
def test_encodings_are_guessed(typed, encoding, note):
    frame, notes = typed("größe,t,y\n1,é,0\n2,é,1\n", encoding=encoding)
    assert list(frame.columns) == ["größe", "t", "y"]
    assert set(frame["t"]) == {"é"}
    assert (note in notes) if note else notes == ""


def test_the_encoding_option_is_used(tmp_path):
    (tmp_path / "a.csv").write_bytes("t,y\nж,0\n".encode("koi8-r"))
    assert read(tmp_path / "a.csv", encoding="koi8-r")["t"][0] == "ж"
    for encoding in ("utf-8", "nothing"):
        refused(lambda encoding=encoding: read(tmp_path / "a.csv", encoding=encoding), "a.csv")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_guessed(typed, separator):
    frame, notes = typed(f"a{separator}y\n1{separator}0\n2{separator}1\n")
    assert frame["a"].tolist() == [1, 2]
    assert "fields are separated by" in notes
    assert typed(f"a{separator}y\n1{separator}0\n", sep=separator)[-1] == ""


def test_a_separator_that_could_be_two(typed):
    refused(lambda: typed("a;b,c\n1;2,3\n"), "',' or ';'", "--sep")
    assert typed("a;b,c,y\n1;2,3,4\n", sep=",")[0]["a;b"].tolist() == ["1;2"]
    assert list(typed("a;b,y\n1,4\n2,5\n")[0].columns) == ["a;b", "y"]  # cuts all rows alike
    for wrong in ("", "ab", '"'):
        refused(lambda wrong=wrong: Formats(sep=wrong or "ab"), "--sep")


def test_rows_can_be_typed():
    source = typed_rows(["a=1, b b=x=y; c=", "c=2,a=1,5,b b=z"])
    assert source.columns == ("a", "b b", "c")
    frame = type_columns([rows_of(source)], ["f"], Formats()).frames[0]
    assert frame["a"].tolist() == [1, 1.5]
    assert frame["b b"].tolist() == ["x=y", "z"]
    assert frame["c"].isna().tolist() == [True, False]
    refused(lambda: typed_rows(["a=1", "b=2"]), "--row", "different columns")
    refused(lambda: typed_rows(["a"]), "--row 'a'", "a=1, b=2")


# What can be wrong with a file


def packed_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    return buffer.getvalue()


def test_files_that_are_not_there(tmp_path):
    refused(lambda: read(tmp_path / "no.csv"), "no.csv", "No such file")
    (tmp_path / "folder.csv").mkdir()
    refused(lambda: read(tmp_path / "folder.csv"), "folder.csv", "folder")
    (tmp_path / "file").write_text("")
    refused(lambda: read(tmp_path / "file" / "a.csv"), "cannot be read")
    refused(lambda: read(Path("a\0.csv")), "cannot be read")
    if getattr(os, "geteuid", int)():  # neither the superuser nor Windows
        (tmp_path / "locked.csv").touch(0)
        refused(lambda: read(tmp_path / "locked.csv"), "Permission denied", "permissions")


@pytest.mark.parametrize("name", ["a.xls", "a", "a.gz", "csv", "a.csv.zip"])
def test_an_unknown_suffix_lists_the_known_ones(tmp_path, name):
    refused(lambda: read(tmp_path / name), name, *SUFFIXES)


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        *((f"a{suffix}", b"", "empty") for suffix in SUFFIXES),
        ("a.csv", b"\n \n", "empty"),
        ("a.csv", b"\xef\xbb\xbf\n", "empty"),
        ("a.csv", b'""\n', "no rows"),
        ("a.csv", b"a,b\n", "no rows"),
        ("a.csv", PNG, "binary"),
        ("a.csv", packed_zip(), "binary"),
        ("a.csv", b"a,b\n1,x\0y\n", "binary"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), "--encoding"),
        ("a.csv", b"a,b\n" + b"1,2\n" * 9999 + b"1,\x81\n", "--encoding"),
        ("a.csv.gz", b"a,b\n1,2\n", "gzip"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12], "gzip"),
        ("a.xlsx", packed_zip(), "Excel"),
        ("a.xlsx", b"a,b\n1,2\n", "Excel"),
        ("a.csv", b"a,b,a\n1,2,3\n", "several columns are named 'a'"),
        ("a.csv", b"a,b\n1,2,3\n", "has 3 fields and the header 2"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "the row '1,2,3'"),
        ("a.csv", b"a,b\n1,2\n3\n", "has 1 fields"),
        ("a.csv", b'a,b\n1,"2\n3,4\n', "double quote"),
        ("a.csv", b'a,"b\n1,2\n3,4\n', "double quote"),
        ("a.csv", b'a,"b\n' + b"1,2\n" * 99999, "double quote"),
        ("a.csv", b'"', "double quote"),
        ("a.csv", b'a,t,y\n1,"a\n2,b,7\n3,c",9\n', "double quote"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    refused(lambda: read(tmp_path / name), name, word)


def test_a_damaged_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"a": np.arange(50.0), "b": pd.Categorical(list("xyxyx") * 10)})
    frame.to_parquet(path)
    whole = path.read_bytes()
    for content in (PNG, b"a,b\n1,2\n", whole[:-9], whole[20:], whole[:4] + whole[-8:]):
        path.write_bytes(content)
        refused(lambda: read(path), "a.parquet", "damaged")
    generator, messages = np.random.default_rng(0), []
    for _ in range(100):
        content = bytearray(whole)
        for place in generator.integers(len(content), size=3):
            content[place] ^= 0xFF
        path.write_bytes(bytes(content))
        try:
            read(path)
        except TableError as error:
            messages.append(str(error))
    assert len(messages) > 20
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), path)
    refused(lambda: read(path), "a.parquet", "'a'", "several columns")
