"""Columns of frames: their kinds, their values and what is refused."""

import datetime as dt
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from lazyknife import TableEncoder
from lazyknife.data.schema import as_frame
from lazyknife.errors import TableError

DAYS = 18_262.0  # from 1970-01-01 to 2020-01-01, a Wednesday
NAN = np.nan
ROWS: dict[str, tuple[str, list[Any], list[float]]] = {  # the kind of a column, and what is read
    "int": ("number", [1, 2, 3], [1, 2, 3]),
    "gaps": ("number", [1.5, None, 2.5], [1.5, NAN, 2.5]),
    "bool": ("number", [True, False, None], [1, 0, NAN]),
    "text": ("category", ["u", "v", None], [0, 1, -1]),
    "day": ("date", [dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)], [DAYS, NAN, DAYS + 1]),
    "moment": (
        "moment",
        [dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 2), None],
        [DAYS + 0.5, DAYS + 1, NAN],
    ),
    "iso": ("date", ["2020-01-01", "2020-01-02", None], [DAYS, DAYS + 1, NAN]),
    "iso time": (
        "moment",
        ["2020-01-01T12:00", "2020-01-02 00:00Z", None],
        [DAYS + 0.5, DAYS + 1, NAN],
    ),
    "length": ("duration", [dt.timedelta(hours=6), None, dt.timedelta(days=2)], [0.25, NAN, 2]),
    "decimal": ("number", [Decimal("1.5"), None, Decimal(2)], [1.5, NAN, 2]),
}
LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def read(frame: Any, **settings: Any) -> np.ndarray:
    return TableEncoder(**settings).schema(frame).read(nw.from_native(frame, eager_only=True))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_kind_of_column_in_every_library(library: str) -> None:
    frame = LIBRARIES[library]({name: values for name, (_, values, _) in ROWS.items()})
    schema = TableEncoder().schema(frame)
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {name: kind for name, (kind, _, _) in ROWS.items()}
    values = schema.read(nw.from_native(frame, eager_only=True))
    found = dict(zip(schema.features, values.T, strict=True))
    for name, (_, _, expected) in ROWS.items():
        np.testing.assert_array_equal(found[name], expected)
    assert sum(schema.nominal) == 1


def test_cycles_of_dates() -> None:
    days = pd.date_range("2019-01-01", periods=1100)
    names = TableEncoder().schema(pd.DataFrame({"d": days})).features
    found = dict(zip(names, read(pd.DataFrame({"d": days})).T, strict=True))
    assert len(names) == 7
    for length, cycle in ((7, "week"), (365, "year")):
        for part in ("sine", "cosine"):
            wave = found[f"d: {part} of {cycle}"]
            np.testing.assert_allclose(wave[length:], wave[:-length], atol=0.03)
            assert np.ptp(wave) > 1.8
    assert np.ptp(found["d: cosine of day"]) == 0.0
    mondays = found["d: cosine of week"][days.day_of_week == 0]
    np.testing.assert_allclose(mondays, 1.0)


@pytest.mark.parametrize(
    ("fitted", "new", "codes", "declared"),
    [
        (["a", "b", "a"], ["z", "b", None, "y"], [2, 1, -1, 2], []),  # unknown ones share a code
        ([2134.0, 10001.0, NAN], [10001], [0], ["c"]),
        ([2**53, 2**53 + 1], [2**53 + 1, 2**53], [1, 0], ["c"]),  # are equal as floats
        *(
            (pd.Series(["u", pd.NA, "v"], dtype=dtype), ["v", pd.NA], [1, -1], [])
            for dtype in ("string", "object", "category")
        ),
    ],
)
def test_codes_of_categories(fitted: Any, new: Any, codes: list[int], declared: list[str]) -> None:
    schema = TableEncoder(categorical=declared).schema(pd.DataFrame({"c": fitted}))
    assert "2 categories" in str(schema)
    rows = pd.DataFrame({"c": pd.Series(new, dtype=getattr(fitted, "dtype", None))})
    assert schema.read(nw.from_native(rows, eager_only=True))[:, 0].tolist() == codes


MOMENTS = [dt.datetime(2020, 1, day, 5) for day in range(1, 9)]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no values": ({"x": [None] * 30}, "has no values"),
    "lists": ({"x": [[1], [2], [3]] * 10}, "values of type"),
    "numbers as text": ({"x": [f"{k},5" for k in range(30)]}, "numbers that are stored as text"),
    "free text": ({"x": [f"name {k}" for k in range(30)]}, r"ignore=\['x'\]"),
    "a bad date": ({"x": ["2020-01-01"] * 29 + ["soon"]}, "'soon' is not a date"),
    "dates with and without time": ({"x": ["2020-01-01", "2020-01-01T10:00"] * 15}, "one form"),
    "infinite": ({"x": [1.0] * 29 + [np.inf]}, "infinite value in row 30"),
    "complex": ({"x": [1j] * 30}, "values of type complex"),
    "beyond floats": ({"x": [10**400] * 30}, "too large"),
    "a day among moments": ({"x": [*MOMENTS, dt.date(2020, 1, 1)]}, "has values of type"),
    "a span among moments": ({"x": [*MOMENTS, np.timedelta64(3, "h")]}, "has values of type"),
    **{
        f"a single {type(value).__name__}": ({"x": [None, value, None]}, "has a single value")
        for value in ("2020-03-04", dt.datetime(2020, 1, 1, 4), Decimal(3))
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_column(name: str) -> None:
    columns, message = REFUSED[name]
    with pytest.raises(TableError, match=message) as error:
        read(pd.DataFrame(columns, dtype=object if "single" in name else None))
    assert "'x'" in str(error.value)


def test_a_single_value_may_be_declared_and_a_lazy_frame_must_be_collected() -> None:
    frame = pd.DataFrame({"note": pd.Series([None, "x", None], dtype=object)})
    assert len(np.unique(read(frame, categorical=["note"]))) == 2
    with pytest.raises(TypeError, match="collect"):
        as_frame(pl.DataFrame({"a": [1]}).lazy(), "X")
    assert as_frame(np.zeros((2, 2)), "X") is None


@pytest.mark.parametrize("dtype", ["int64", "uint64", "date32"])
def test_what_pyarrow_does_not_convert_names_the_column(dtype: str) -> None:
    largest = 2**31 - 1 if dtype == "date32" else 2**53 + 1
    values = pa.array([1, 2, largest], getattr(pa, dtype)())
    for frame in (
        pa.table({"x": values}),
        pd.DataFrame({"x": values.to_pandas(types_mapper=pd.ArrowDtype)}),
    ):
        with pytest.raises(TableError, match=f"column 'x' .*{largest}"):
            read(frame)


def test_new_rows_must_have_the_columns_and_kinds_of_the_fit() -> None:
    schema = TableEncoder().schema(pd.DataFrame({"a": [1.0, 2.0], "c": ["u", "v"]}))
    for frame, message in (
        ({"a": ["x"], "c": ["u"]}, "has text or categories, but had numbers"),
        ({"a": [1.0], "c": [3.0]}, "has numbers, but had text"),
        ({"a": [1.0]}, "no column 'c'"),
        ({"a": [1.0], "c": ["u"], "z": [1.0]}, "column 'z'"),
    ):
        with pytest.raises(TableError, match=message):
            schema.read(nw.from_native(pd.DataFrame(frame), eager_only=True))
    # A single new row decides nothing: its text may look like a number, and it may have gaps.
    one = nw.from_native(pd.DataFrame({"a": [None], "c": ["7"]}), eager_only=True)
    np.testing.assert_array_equal(schema.read(one), [[np.nan, 2.0]])


def test_names_of_columns() -> None:
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises((TableError, ValueError), match="a"):
        TableEncoder().schema(twice)
    assert TableEncoder(ignore="a").schema(pd.DataFrame({"a": [1], "b": [2]})).features == ["b"]
    with pytest.raises(TableError, match="no column 'q'"):
        TableEncoder(categorical=["q"]).schema(pd.DataFrame({"a": [1]}))
    with pytest.raises(TableError, match="no features are left"):
        TableEncoder(ignore=["a"]).schema(pd.DataFrame({"a": [1]}))
    numbered = pd.DataFrame([[1.0, "u"], [2.0, "v"]])
    np.testing.assert_array_equal(read(numbered), [[1, 0], [2, 1]])


@pytest.mark.parametrize("library", LIBRARIES)
def test_long_columns_of_text_are_read_in_parts(library: str) -> None:
    texts = [None if k % 7 == 0 else "late" if k > 69_000 else f"c{k % 5}" for k in range(70_000)]
    frame = LIBRARIES[library]({"t": texts, "x": np.arange(70_000.0)})
    schema = TableEncoder().schema(frame)
    names = ("c0", "c1", "c2", "c3", "c4", "late")
    assert schema.columns[0].categories == names
    expected = [-1.0 if text is None else float(names.index(text)) for text in texts]
    np.testing.assert_array_equal(schema.read(nw.from_native(frame))[:, 0], expected)


# Categories and gaps as numbers alone.


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
    turned = TableEncoder().fit(FRAME.iloc[[3, 1, 0, 2]])
    np.testing.assert_array_equal(turned.transform(FRAME), expected)


def test_what_numbers_alone_cannot_say_is_refused() -> None:
    with pytest.raises(TableError, match="'b' has missing values"):  # as no row of the fit had
        TableEncoder().fit(FRAME).transform(FRAME.assign(b=[None, True, True, True]))
    with pytest.raises(TableError, match="101 categories"):
        TableEncoder().fit(pd.DataFrame({"c": np.repeat([f"name {k}" for k in range(101)], 2)}))


def test_the_encoder_is_a_transformer() -> None:
    encoder = clone(TableEncoder(categorical=["b"], ignore=["a"])).fit(FRAME)
    assert encoder.get_feature_names_out().tolist() == ["c = u", "b = True"]
    with pytest.raises(TypeError, match="give a frame"):
        encoder.transform(np.zeros((2, 3)))
