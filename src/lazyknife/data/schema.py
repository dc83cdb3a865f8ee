"""Columns of a frame of any library, and the features that they become.

A number is a feature, a category is a code of which only equality matters, a date is a number with
sines and cosines of the year, the week and the day. Missing numbers are NaN, a missing category is
a code of its own. Nothing is learnt from the rows: which code a category has makes no difference,
and categories that were not listed share a code that no listed one has.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from ..errors import TableError, column_error, counted, quoted, quoted_list

Numbers = NDArray[np.float64]
Series = nw.Series[Any]
Frame = nw.DataFrame[Any]


class Kind(NamedTuple):
    """A kind of columns: what it is called, and which types and classes of values say it."""

    called: str
    dtypes: tuple[Any, ...]
    classes: tuple[type, ...]
    cycles: tuple[str, ...] = ()


# A value is of the first kind whose classes it has. Types of text and of objects say no kind.
KINDS = {
    "duration": Kind("durations", (nw.Duration,), (datetime.timedelta, np.timedelta64)),
    "number": Kind("numbers", (nw.Boolean,), (Real, Decimal, np.bool_)),
    "moment": Kind(
        "dates with a time", (nw.Datetime,), (datetime.datetime,), ("year", "week", "day")
    ),
    "date": Kind("dates", (nw.Date,), (datetime.date,), ("year", "week")),
    "category": Kind("text or categories", (nw.Categorical, nw.Enum), (str,)),
}
DATES = ("date", "moment")
MISSING = -1.0  # code of a missing category
PART = 2**16  # rows whose values are Python objects at a time
FEW_ROWS, MOST_SINGLE = 20, 0.75  # text with more values of one row than this is no category

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
MICROSECONDS = 86_400e6  # of a day
# Lengths of cycles in days and where they begin, all fixed: 1970-01-01 is 3 days after a Monday.
CYCLES = {"year": (365.2425, 0.0), "week": (7.0, 3.0), "day": (1.0, 0.0)}
# YYYY-MM-DD, optionally with a time, then optionally with a zone.
ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d[\d:.]*) ?(Z|[+-][\d:]+)?)?", re.ASCII)


def as_frame(X: Any, name: str) -> Frame | None:
    """Return a frame of any library that narwhals reads, or None for what is not a frame."""
    try:
        found = nw.from_native(X, pass_through=True)
    except DuplicateError as error:
        raise ValueError(f"{name} has columns with equal names: rename them. {error}") from None
    if isinstance(found, nw.LazyFrame):
        raise TypeError(
            f"{name} is a lazy frame ({type(X).__name__}): call .collect() (polars, DuckDB) or "
            ".compute() (Dask) first"
        )
    return found if isinstance(found, nw.DataFrame) else None


# Values of columns.


def values_of(column: Series) -> Iterator[Any]:
    """Yield values as Python objects, None where they are missing, in parts: all take much memory.

    Missing are None, NaN, NaT and pandas' NA, which is equal to nothing and no number.
    """
    is_text = column.dtype == nw.String  # most columns, and much faster
    for start in range(0, len(column), PART):
        for value in column[start : start + PART].to_list():
            if is_text:
                yield value if isinstance(value, str) else None
            else:
                missing = value is None or type(value).__name__ == "NAType"
                yield None if missing or (np.ndim(value) == 0 and value != value) else value


def label_of(value: Any) -> str:
    """The name of a category: the same for a code, whether it is an integer or a float."""
    is_code = isinstance(value, Real) and not isinstance(value, Integral)
    return str(int(value)) if is_code and float(value).is_integer() else str(value)


def categories_of(columns: Iterable[Series]) -> tuple[str, ...]:
    """The names of all categories of some columns, in their order."""
    values = (value for column in columns for value in values_of(column))
    return tuple(sorted({label_of(value) for value in values if value is not None}))


def as_numbers(column: Series, kind: str, table: str) -> Numbers:
    """A column of numbers, dates or durations as numbers or days, (rows,), missing ones as NaN."""
    dtype = column.dtype
    try:
        if dtype.is_numeric() or dtype == nw.Boolean:
            values = column.cast(nw.Float64).to_numpy()
        elif dtype == nw.Duration:
            values = column.dt.total_microseconds().to_numpy() / MICROSECONDS
        elif dtype == nw.Date or dtype == nw.Datetime:
            stamps = column.cast(nw.Datetime("us")) if dtype == nw.Date else column
            values = stamps.dt.timestamp("us").to_numpy() / MICROSECONDS
        else:
            convert = float if kind == "number" else to_days
            each = (np.nan if value is None else convert(value) for value in values_of(column))
            values = np.fromiter(each, np.float64, len(column))
    except (ValueError, OverflowError) as error:  # pyarrow converts only what floats can hold
        message = f"has values that are not read as numbers: {error}. Correct or round them"
        raise column_error(table, column.name, message) from None
    infinite = np.isinf(values := np.asarray(values, dtype=np.float64))
    if infinite.any():
        row = int(np.argmax(infinite)) + 1
        message = f"has an infinite value in row {row}: correct it, or leave it empty"
        raise column_error(table, column.name, message)
    return values


# Dates.


def parse_date(text: str) -> datetime.datetime | None:
    """Return an ISO date or date-time, with its zone if it has one; None for other text."""
    found = ISO.fullmatch(text.strip())
    if found is None:
        return None
    day, time, zone = found.groups(default="")
    try:
        return datetime.datetime.fromisoformat(f"{day} {time}{zone}".strip())
    except ValueError:  # such as 30 February
        return None


def to_days(value: Any) -> float:
    """Days since 1970-01-01 of a date, a moment or text that ``parse_date`` takes; of a duration.

    Dates and moments without a zone are in UTC.
    """
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return float(value / DAY)
    if isinstance(value, str):
        value = parse_date(value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return float((value.replace(tzinfo=value.tzinfo or datetime.UTC) - EPOCH) / DAY)


def date_features(days: Numbers, cycles: Iterable[str]) -> Numbers:
    """Days, and sine and cosine of each cycle; shape (rows, 1 + 2·cycles)."""
    columns = [days]
    for length, offset in map(CYCLES.__getitem__, cycles):
        phase = 2 * np.pi * np.mod((days + offset) / length, 1.0)
        columns += [np.sin(phase), np.cos(phase)]
    return np.column_stack(columns)


# Kinds of columns.


def kind_of(column: Series, table: str, declared: bool = False) -> str:
    """Return a key of ``KINDS``; ``declared`` says that the values are codes of categories."""
    if is_empty(column):
        raise column_error(table, column.name, "has no values: drop it")
    if declared:
        return "category"
    found = type_of(column)
    if found not in KINDS:
        message = f"has values of type {found}: convert them to numbers, or drop the column"
        raise column_error(table, column.name, message)
    if _kind_by_type(column) is not None:
        return found
    counts = Counter(value for value in values_of(column) if value is not None)
    if counts.total() == 1 < len(column):  # its row would decide the kind for models without it
        one = quoted(next(iter(counts)))
        message = f"has a single value, {one}: drop it, or declare it as categorical"
        raise column_error(table, column.name, message)
    return _kind_of_text(column.name, counts, table) if found == "category" else found


def is_empty(column: Series) -> bool:
    """Whether all values are missing."""
    missing = column.null_count() == len(column)
    return missing or (column.dtype.is_float() and bool(np.isnan(column.to_numpy()).all()))


def _kind_by_type(column: Series) -> str | None:
    """A key of ``KINDS`` where the type of a column says it."""
    if column.dtype.is_numeric():
        return "number"
    return next((name for name, kind in KINDS.items() if column.dtype in kind.dtypes), None)


def type_of(column: Series) -> str:
    """A key of ``KINDS`` by the type of a column or of its values, or the names of other types."""
    if (known := _kind_by_type(column)) is not None:
        return known
    if column.dtype == nw.String:
        return "category"
    classes = {type(value) for value in values_of(column) if value is not None}
    kinds = {
        next((name for name, kind in KINDS.items() if issubclass(one, kind.classes)), "")
        for one in classes
    }
    if len(kinds) == 1 and "" not in kinds:
        return kinds.pop()
    return " and ".join(sorted(one.__name__ for one in classes))


def _kind_of_text(name: str, counts: Counter[str], table: str) -> str:
    """Dates, or categories; text that is mostly numbers or free text is an error."""
    distinct, rows = list(counts), counts.total()
    dates = sum(parse_date(text) is not None for text in distinct)
    if 2 * dates >= len(distinct):
        check_dates(name, distinct, table)
        with_time = {":" in text for text in distinct}
        if len(with_time) == 2:
            raise column_error(table, name, "has dates with and without a time: use one form")
        return "moment" if with_time.pop() else "date"
    odd = [text for text in distinct if not _is_number(text)]
    if 2 * len(odd) <= len(distinct):
        but = f", but also {quoted(odd[0])}" if odd else ""
        message = (
            f"contains numbers that are stored as text{but}: convert them to numbers, or pass "
            f"{_setting('categorical', name)} if they are codes"
        )
        raise column_error(table, name, message)
    single = sum(count == 1 for count in counts.values())
    if rows > FEW_ROWS and single > MOST_SINGLE * rows:
        message = (
            f"has {single} values that occur only once in {rows} rows, like row names or text: "
            f"pass {_setting('ignore', name)} to leave it out, or "
            f"{_setting('categorical', name)} to keep it"
        )
        raise column_error(table, name, message)
    return "category"


def check_dates(name: str, texts: Iterable[str], table: str) -> None:
    """Refuse texts that are not all dates, and name the first."""
    odd = next((text for text in texts if parse_date(text) is None), None)
    if odd is not None:
        message = (
            f"contains dates, but {quoted(odd)} is not a date (YYYY-MM-DD): correct it, leave it "
            f"empty, or pass {_setting('categorical', name)}"
        )
        raise column_error(table, name, message)


def _is_number(text: str) -> bool:
    """Whether a text is meant as a number, also with a decimal comma."""
    with suppress(ValueError):
        float(text.strip().replace(",", ".", 1))
        return True
    return False


def _setting(parameter: str, column: object) -> str:
    """How a column is declared: the command spells it as its own option."""
    return f"encoding=TableEncoder({parameter}=[{column!r}])"


# Features.


@dataclass(frozen=True)
class Column:
    """A column of a frame: its name, a key of ``KINDS``, and its categories."""

    name: Any
    kind: str
    categories: tuple[str, ...] = ()
    declared: bool = False

    @property
    def names(self) -> list[str]:
        waves = [(part, of) for of in KINDS[self.kind].cycles for part in ("sine", "cosine")]
        return [str(self.name), *(f"{self.name}: {part} of {cycle}" for part, cycle in waves)]

    @property
    def nominal(self) -> bool:
        return self.kind == "category"

    def read(self, series: Series, table: str) -> Numbers:
        """Its features, shape (rows, features); refuse another kind than in the rows of the fit."""
        if not (self.declared or (found := type_of(series)) == self.kind or is_empty(series)):
            if found == "category" and self.kind in DATES:
                texts = (text for text in values_of(series) if text is not None)
                check_dates(self.name, texts, table)
            elif not {self.kind, found} <= set(DATES):
                is_now = KINDS[found].called if found in KINDS else f"values of type {found}"
                message = (
                    f"has {is_now}, but had {KINDS[self.kind].called} in the rows that were "
                    "fitted: pass the same type"
                )
                raise column_error(table, self.name, message)
        if not self.nominal:
            return date_features(as_numbers(series, self.kind, table), KINDS[self.kind].cycles)
        codes = {label: code for code, label in enumerate(self.categories)}
        each = (
            MISSING if value is None else codes.get(label_of(value), len(codes))
            for value in values_of(series)
        )
        return np.fromiter(each, np.float64, len(series))[:, None]


@dataclass(frozen=True)
class Schema:
    """The columns that become features, in their order."""

    columns: tuple[Column, ...]
    ignored: tuple[Any, ...] = ()

    @property
    def features(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def nominal(self) -> tuple[bool, ...]:
        return tuple(column.nominal for column in self.columns for _ in column.names)

    @property
    def plain(self) -> bool:
        return all(column.kind == "number" for column in self.columns)

    def read(self, frame: Frame, table: str = "X") -> Numbers:
        """Features of the rows of a frame, shape (rows, features); columns are found by name."""
        series = dict(zip(frame.columns, frame.iter_columns(), strict=True))
        check_columns([column.name for column in self.columns], series, table, self.ignored)
        found, start = np.empty((len(frame), len(self.features))), 0
        for column in self.columns:  # one after the other: the table may be large
            end = start + len(column.names)
            found[:, start:end] = column.read(series[column.name], table)
            start = end
        return found

    def __str__(self) -> str:
        lines = [counted(len(self.columns), "column")]
        for column in self.columns:
            count = counted(len(column.categories), "category", "categories")
            lines += [
                f"  {column.name}: {KINDS[column.kind].called}" + f", {count}" * column.nominal
            ]
        return "\n".join(lines)


def check_columns(
    expected: Collection[Any], found: Collection[Any], table: str, ignored: Collection[Any] = ()
) -> None:
    """Refuse a frame that lacks a column or has one more; their order does not matter."""
    lacking = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected and name not in ignored]
    if lacking:
        raise TableError(f"{table}: no column {quoted_list(lacking)}: pass the columns of the fit")
    if more:
        raise TableError(
            f"{table}: the rows that were fitted had no column {quoted_list(more)}: pass the "
            "columns of the fit alone"
        )
