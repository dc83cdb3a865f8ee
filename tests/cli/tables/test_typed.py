"""What is guessed of text files, what is noted, and what is refused as open."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli.tables import Reading, Roles, read_tables, with_target
from lazyknife.cli.tables.moments import moment
from lazyknife.cli.tables.numerals import STYLES, parse, styles_of, to_float
from tabular import refused


@pytest.fixture
def read(tmp_path):
    """Read texts as files; return a frame for each, and the notes."""

    def read(*texts, roles=Roles("y"), encoding="utf-8", **options):  # noqa: B008, frozen
        paths = [tmp_path / f"{name}.csv" for name in ("train", "test")[: len(texts)]]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode(encoding))
        found = read_tables(paths, Reading(**options), roles)
        return (*found.frames, " ".join(found.notes))

    return read


@pytest.mark.parametrize(
    ("texts", "options", "values", "note"),
    [
        ("1,5 2,25", {}, [1.5, 2.25], "decimal commas"),
        ("1.234,5 2", {}, [1234.5, 2], "decimal commas, points between thousands"),
        ("1,234.5 2", {}, [1234.5, 2], "decimal points, commas between thousands"),
        ("1,234,567 2", {}, [1234567, 2], "commas between thousands"),
        ("1,234 2", {"decimal": "."}, [1234, 2], "commas between thousands"),
        ("1,234 2", {"decimal": ","}, [1.234, 2], "decimal commas"),
        ("1,234 2", {"thousands": ","}, [1234, 2], "commas between thousands"),
        ("1.234 2", {"thousands": "."}, [1234, 2], "points between thousands"),
        ("0,123 2", {}, [0.123, 2], "decimal commas"),
        ("1\u00a0234,5 -2", {}, [1234.5, -2], "spaces between thousands"),
        ("1'234.5 −2", {}, [1234.5, -2], "apostrophes between thousands"),
        ("$23.00 $1,234.50", {}, [23, 1234.5], "$ is left out"),
        ("-$5 $-6", {}, [-5, -6], "$ is left out"),
        ("€\u00a05 6€", {}, [5, 6], "€ is left out"),
        ("12% 3\u00a0%", {}, [12, 3], "% is left out, '12%' is 12"),
        ("? 5", {}, [np.nan, 5], "1 value '?' read as missing (--na)"),
        ("- 5 2.5", {}, [np.nan, 5, 2.5], "1 value '-' read as missing"),
        ("-999 5", {"na": ("-999",)}, [np.nan, 5], ""),
        ("1,5e3 2", {}, [1500, 2], "decimal commas"),
    ],
)
def test_numbers_as_people_write_them(read, texts, options, values, note):
    rows = "".join(f"{text}|{row}|7\n" for row, text in enumerate(texts.split(" ")))
    train, notes = read(f"a|y|w\n{rows}", **options)
    np.testing.assert_array_equal(train["a"], values)
    assert train["a"].dtype == np.float64
    assert note in notes
    assert train["w"].dtype == np.int64


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ("1,234 2", {}, ["'a' is ambiguous", "'1,234' is 1.234 or 1234", "--decimal"]),
        ("1,5 2.5", {}, ["different ways"]),
        ("1,5 2", {"decimal": "."}, ["'1,5' in row 1 is not a number"]),
        ("2.5 2", {"decimal": ","}, ["'2.5' in row 1 is not a number"]),
        ("$5 €6", {}, ["'$', '€'", "one unit"]),
        ("5% 6", {}, ["'%', 'no unit'"]),
        ("1 2 3 x", {}, ["'x' in row 4", "--na x", "--categorical a"]),
        ("2020-01-01 2020-13-01", {}, ["'2020-13-01' in row 2 is not a date"]),
        ("03/04/2020 05/06/2020", {}, ["order is ambiguous", "--dates day-first"]),
        ("03.04.2020 05.06.2020", {}, ["order is ambiguous"]),
        ("31.04.2020 05.06.2020", {}, ["'31.04.2020' in row 1 is not a date"]),
        ("31/03/2020 05/06/2020", {"dates": "month-first"}, ["another order"]),
        ("NA NA", {}, ["has no values", "--drop a"]),
        ("? ?", {}, ["has no values", "--drop a"]),
    ],
)
def test_what_is_open_or_odd_is_refused(read, texts, options, words):
    rows = "".join(f"{text}|{row}\n" for row, text in enumerate(texts.split(" ")))
    refused(lambda: read(f"a|y\n{rows}", **options), "train.csv", "'a'", *words)
    categories, _ = read(f"a|y\n{rows}", roles=Roles("y", categorical=("a",), drop=("a",)))
    assert len(categories) == len(texts.split(" "))


def test_other_columns_decide_what_one_leaves_open(read):
    train, notes = read("a;b;y\n1.234;1,5;0\n2.345;2;1\n")
    assert train["a"].tolist() == [1234, 2345]
    assert "'a': numbers with decimal commas, points between thousands" in notes
    train, _ = read('a,b,y\n"1,234",1.5,0\n"2,345",2,1\n')
    assert train["a"].tolist() == [1234, 2345]
    refused(lambda: read("a;b;y\n1,5;2.5;0\n2;2;1\n"), "'a' has decimal commas", "--decimal")
    refused(lambda: read("a;y\n1.234;0\n2.345;1\n"), "'a' is ambiguous")
    train, notes = read("a,y\n1.234,0\n2.345,1\n")  # commas separate fields, so points are decimal
    assert (train["a"].tolist(), notes) == ([1.234, 2.345], "")


def test_a_column_has_one_type_in_both_files(read):
    old, new, notes = read("a;b;y\n1;x;0\n2;z;1\n", "a;b\n?;x\n1,5;5\n")
    assert new["a"].tolist()[1] == 1.5
    assert old["a"].dtype == new["a"].dtype == np.float64
    assert new["b"].tolist() == ["x", "5"]
    assert "'?' read as missing" in notes
    old, new, _ = read("a,d,y\n1,03/04/2020,0\n", "a,d\n1,13/04/2020\n")
    assert old["d"].tolist() == [datetime(2020, 4, 3)]
    assert old["d"].dtype == new["d"].dtype
    old, new, notes = read("a,t,y\n1,x,0\n2,z,1\n", "a,t\n,\n,\n")
    assert new["a"].isna().all()
    assert "test.csv: column 'a' has no values" in notes
    assert "test.csv: column 't' has no values" in notes


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        ("2020-02-03", "ymd", datetime(2020, 2, 3)),
        ("2020/02/03", "ymd", datetime(2020, 2, 3)),
        ("2020-02-03T10:30:05.25+02:00", "ymd", datetime(2020, 2, 3, 8, 30, 5, 250000)),
        ("2020-02-03 10:30 -0130", "ymd", datetime(2020, 2, 3, 12)),
        ("3.2.2020 23:59", "dmy", datetime(2020, 2, 3, 23, 59)),
        ("2/3/2020 12:05 AM", "mdy", datetime(2020, 2, 3, 0, 5)),
        ("2/3/2020 1:05:06 p.m.", "mdy", datetime(2020, 2, 3, 13, 5, 6)),
        ("3 Feb 2020", "named dmy", datetime(2020, 2, 3)),
        ("03-February-2020", "named dmy", datetime(2020, 2, 3)),
        ("Sept. 3, 2020", "named mdy", datetime(2020, 9, 3)),
        ("2020-02-30", "ymd", None),
        ("2020-02-03 24:00", "ymd", None),
        ("2020-02.03", "ymd", None),
        ("3 Foo 2020", "named dmy", None),
        ("2/3/2020 13:05 PM", "mdy", None),
        ("0001-01-01 00:00+10:00", "ymd", None),
        ("2020-02-0٣", "ymd", None),
    ],
)
def test_dates_in_all_orders(text, order, expected):
    assert moment(text, order) == expected


def test_dates_by_an_option(read):
    train, _ = read("d,y\n03/04/20,0\n05/06/21,1\n", dates="%d/%m/%y")
    assert train["d"].tolist() == [datetime(2020, 4, 3), datetime(2021, 6, 5)]
    train, notes = read("d,y\n03/04/2020,0\n05/06/2021,1\n", dates="month-first")
    assert (train["d"][0], notes) == (datetime(2020, 3, 4), "")
    train, notes = read("d,y\n13/04/2020,0\n?,1\n")
    assert train["d"].isna().tolist() == [False, True]
    assert "d: dates with the day first (--dates)." in notes


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("cp1252", "train.csv: read as cp1252 (--encoding)."),
        ("utf-16", "train.csv: read as utf-16 (--encoding)."),
    ],
)
def test_encodings_are_guessed(read, encoding, note):
    train, notes = read("größe,t,y\n1,é,0\n2,é,1\n", encoding=encoding)
    assert list(train.columns) == ["größe", "t", "y"]
    assert set(train["t"]) == {"é"}
    assert notes == note


def test_an_encoding_that_is_given(read):
    train, _ = read("t,y\nж,0\nж,1\n", encoding="koi8-r")  # read as cp1252
    assert "ж" not in set(train["t"])
    paths = {"roles": Roles("y"), "encoding": "utf-8"}
    refused(lambda: Reading(encoding="base64"), "--encoding base64")
    assert read("t,y\nж,0\nж,1\n", **paths)[0]["t"][0] == "ж"


def test_the_encoding_option_is_used(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("t,y\nж,0\n".encode("koi8-r"))
    assert read_tables([path], Reading(encoding="koi8-r")).frames[0]["t"][0] == "ж"
    refused(lambda: read_tables([path], Reading(encoding="utf-8")), "not utf-8 text", "--encoding")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_guessed(read, separator):
    train, notes = read(f"a{separator}y\n1{separator}0\n2{separator}1\n")
    assert train["a"].tolist() == [1, 2]
    assert "fields are separated by" in notes
    train, notes = read(f"a{separator}y\n1{separator}0\n", sep=separator)
    assert notes == ""


def test_a_separator_that_could_be_two(read):
    refused(lambda: read("a;b,c\n1;2,3\n"), "',' or ';'", "--sep")
    train, _ = read("a;b,c,y\n1;2,3,4\n", sep=",")
    assert train["a;b"].tolist() == ["1;2"]
    train, notes = read("a;b,y\n1,4\n2,5\n")  # only commas cut all rows alike
    assert (list(train.columns), notes) == (["a;b", "y"], "")


def test_swallowed_rows_are_found(read):
    text = '1,"a\n2,b,7\n3,c",9\n'
    refused(lambda: read(f"a,t,y\n{text}"), "line 4", "double quote that is never closed")
    refused(lambda: read('a,t,y\n1,"b"c,3\n'), "double quote")
    train, _ = read('a,t,y\n1,"two\nlines",3\n')
    assert train["t"][0] == "two\nlines"


def test_names_of_rows_are_kept_as_they_are(read):
    text = "i,a,y\n00001,1,0\nNA,2,1\n,3,2\n1.50,4,3\n"
    train, _ = read(text, roles=Roles("y", id_column="i"))
    assert train["i"].tolist() == ["00001", "NA", "", "1.50"]


def test_types_of_parquet_files_are_made_plain(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame(
        {
            "d": pd.date_range("2020", periods=2, tz="Europe/Berlin"),
            "b": pd.array([True, None], dtype="object"),
            "c": pd.Categorical([1, 2]),
            "day": [datetime(2020, 1, 1).date(), None],
        }
    )
    frame.to_parquet(path)
    found = read_tables([path], roles=Roles(categorical=("c",))).frames[0]
    assert found["d"].tolist() == [datetime(2019, 12, 31, 23), datetime(2020, 1, 1, 23)]
    assert str(found["b"].dtype) == "boolean"
    assert found["c"].tolist() == ["1", "2"]
    assert str(found["day"].dtype) == "datetime64[us]"


def test_rows_without_a_target_are_left_out_and_counted():
    frame = pd.DataFrame({"y": [1.0, np.nan, 3.0], "a": [1, 2, 3]})
    kept, (note,) = with_target(frame, "y", "train.csv")
    assert kept["a"].tolist() == [1, 3]
    assert note.startswith("train.csv: 1 row without a target left out; the certificate is about")
    assert with_target(kept, "y", "train.csv")[1] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sep": ""}, "--sep ''"),
        ({"sep": "ab"}, "--sep 'ab'"),
        ({"sep": '"'}, "--sep"),
        ({"decimal": ";"}, "--decimal ';': give . or ,"),
        ({"thousands": "x"}, "--thousands 'x'"),
        ({"decimal": ",", "thousands": ","}, "both ','"),
        ({"encoding": "nothing"}, "--encoding nothing"),
        ({"encoding": "a\0"}, "--encoding"),
        ({"dates": "whenever"}, "--dates 'whenever'"),
        ({"dates": "%Q"}, "--dates '%Q'"),
    ],
)
def test_options_of_reading_are_checked(options, words):
    refused(lambda: Reading(**options), words)


@settings(max_examples=300, deadline=None)
@given(
    st.decimals(-(10**9), 10**9, allow_nan=False, places=4),
    st.sampled_from(STYLES),
    st.sampled_from(["", "$", "%", "EUR"]),
)
def test_a_number_written_in_a_style_is_read_in_it(number, style, unit):
    whole, _, part = f"{abs(number):,f}".partition(".")
    text = whole.replace(",", style.thousands) + style.decimal + part
    text = f"{'-' * (number < 0)}{text} {unit}".strip()
    found = parse(text)
    assert found is not None
    assert found.unit == unit
    assert style in styles_of([found]) or not style.thousands or abs(number) < 1000
    assert to_float(unit, style)(text) == float(number)
