"""Columns that do not fit, names, the target, and what the guarantee needs."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.cli.tables import Roles, TableError, read_table, read_tables
from lazyknife.cli.tables.encoding import encode, encode_one
from tabular import frames, refused


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
    settings = {"categorical": ("t",) if declared else ()}
    roles = Roles("y", **settings)

    def encoded(*files):
        frames = read_tables(files, roles=roles).frames
        return (encode if len(frames) > 1 else encode_one)(*frames, "y", **settings)

    try:
        whole = encoded(paths[0])
    except TableError:
        refused(lambda: encoded(*paths[1:]), "'t'")
        return
    got = encoded(*paths[1:])
    assert got.columns == whole.columns
    again = np.empty_like(whole.X)
    again[order] = np.concatenate([got.X, got.X_new])
    np.testing.assert_array_equal(again, whole.X)


def test_numbers_in_one_file_are_text_where_the_other_file_says_so(tmp_path):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("t,b,n,y\n01,TRUE,1,1\n01,false,2,2\n2,,3,3\n")
    test.write_text("t,b,n,y\n01,0,4,u\nx,w,5,v\nz,,5,v\nu,,5,v\n")
    old, new = read_tables([train, test], roles=Roles("y")).frames
    assert old["t"].tolist() == ["01", "01", "2"]
    assert old["b"].dropna().tolist() == ["TRUE", "false"]
    assert new["b"].dropna().tolist() == ["0", "w"]
    assert old["n"].dtype == old["y"].dtype == np.int64
    assert new["y"].tolist() == ["u", "v", "v", "v"]
    read_table(train).to_parquet(tmp_path / "train.parquet")  # which says what its types are
    both = [tmp_path / "train.parquet", test]
    refused(lambda: read_tables(both, roles=Roles("y", drop=("b",))), "'t'")
    got = encode(*read_tables([train, tmp_path / "train.parquet"]).frames, "y")
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
