"""Numbers, categories, dates and durations as features."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lazyknife.cli.tables import read_table
from lazyknife.cli.tables.encoding import encode, encode_one
from tabular import frames, halves, refused


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
        "c: 2 categories became 2 columns; 1 category occurs only once and has no column.",
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
            "c: 2 categories became 2 columns; 1 category occurs only once and has no column.",
        )
    for first, second in ((rows, [new, new]), ([new, new], rows)):  # twice, in one of them
        got = encode(*halves(first, second), "y")
        assert sorted(got.columns) == sorted(("c = a", "c = b", f"c = {label}"))
        assert np.concatenate([got.X, got.X_new]).sum() == 6


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
