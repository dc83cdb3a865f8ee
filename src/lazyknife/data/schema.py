"""Columns of a frame of any library, and the features that they become.

A number is a feature, a category is a code of which only equality matters, a date is a number with
sines and cosines of the year, the week and the day. Missing numbers are NaN, a missing category is
a code of its own. Nothing is learnt from the rows: which code a category has makes no difference,
and categories that were not listed share a code that no listed one has.

Networks of finite width take numbers alone, see ``Expansion``. What that learns from rows, medians
and categories, is a symmetric function of them.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from ..errors import TableError, column_error, counted, quoted, quoted_list

Numbers = NDArray[np.float64]
Series = nw.Series[Any]
Frame = nw.DataFrame[Any]

# Kinds of columns, and what they are called.
KINDS = {
    "number": "numbers",
    "date": "dates",
    "moment": "dates with a time",
    "duration": "durations",
    "category": "text or categories",
}
# Types of columns that say a kind, as those of numbers do; those of text and objects do not.
TYPES: dict[Any, str] = {
    nw.Boolean: "number",
    nw.Date: "date",
    nw.Datetime: "moment",
    nw.Duration: "duration",
    nw.Categorical: "category",
    nw.Enum: "category",
}
# Classes of the values of a column of Python objects, tried in this order, and those that inherit
# from them but are not of the kind.
OBJECTS: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "number": ((Real, Decimal, np.bool_), (np.timedelta64,)),
    "moment": ((datetime.datetime,), ()),
    "date": ((datetime.date,), (datetime.datetime,)),
    "duration": ((datetime.timedelta,), ()),
    "category": ((str,), ()),
}
MISSING = -1.0  # code of a missing category
MOST_CATEGORIES = 100  # columns that one feature may become
PART = 2**16  # rows whose values are Python objects at a time
FEW_ROWS, MOST_SINGLE = 20, 0.75  # text with more values of one row than this is no category

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
MICROSECONDS = 86_400e6  # of a day
MONDAY = 3.0  # days from a Monday to 1970-01-01
# Lengths of cycles in days and where they begin, all fixed, and the cycles of each kind of dates.
CYCLES = {"year": (365.2425, 0.0), "week": (7.0, MONDAY), "day": (1.0, 0.0)}
CYCLES_OF = {"date": ("year", "week"), "moment": ("year", "week", "day")}
# YYYY-MM-DD, optionally with a time, then optionally with a zone.
ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d+)?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?",
    re.ASCII,
)


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


def labels_of(column: Series) -> Iterator[str | None]:
    """Yield the names of categories, None where they are missing."""
    is_text = column.dtype == nw.String
    for value in values_of(column):
        yield value if is_text or value is None else label_of(value)


def label_of(value: Any) -> str:
    """The name of a category: the same for a code, whether it is an integer or a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))  # no float: large integers stay different
    return str(int(float(value))) if float(value).is_integer() else str(value)


def as_numbers(column: Series, kind: str, table: str) -> Numbers:
    """A column of numbers, dates or durations as numbers or days, (rows,), missing ones as NaN."""
    try:
        found = _converted(column, kind)
    except (ValueError, OverflowError) as error:  # pyarrow converts only what floats can hold
        message = f"has values that are not read as numbers: {error}. Correct or round them"
        raise column_error(table, column.name, message) from None
    if np.isinf(found).any():
        row = int(np.argmax(np.isinf(found))) + 1
        message = f"has an infinite value in row {row}: correct it, or leave it empty"
        raise column_error(table, column.name, message)
    return found


def _converted(column: Series, kind: str) -> Numbers:
    dtype = column.dtype
    if (dtype.is_numeric() and not _is_large(column)) or dtype == nw.Boolean:
        values = column.cast(nw.Float64).to_numpy()
    elif dtype == nw.Duration:
        values = column.dt.total_microseconds().to_numpy() / MICROSECONDS
    elif dtype == nw.Date or dtype == nw.Datetime:
        stamps = column.cast(nw.Datetime("us")) if dtype == nw.Date else column
        values = stamps.dt.timestamp("us").to_numpy() / MICROSECONDS
    else:
        convert = _exact if kind == "number" else to_days
        each = (np.nan if value is None else convert(value) for value in values_of(column))
        values = np.fromiter(each, np.float64, len(column))
    return np.asarray(values, dtype=np.float64)


def _is_large(column: Series) -> bool:
    """Whether a column has integers beyond those that are all floats."""
    ends = (column.min(), column.max()) if column.dtype.is_integer() else ()
    return any(end is not None and end == end and abs(int(end)) > 2**53 for end in ends)


def _exact(value: Any) -> float:
    """A number as a float; refuse an integer that becomes another: two could become equal."""
    found = float(value)
    if isinstance(value, Integral) and int(found) != value:
        raise ValueError(f"{value} is not a float64 number")
    return found


# Dates.


def parse_date(text: str) -> datetime.datetime | None:
    """Return an ISO date or date-time, in UTC if it has no zone; None for other text."""
    stripped = text.strip()
    if ISO.fullmatch(stripped) is None:
        return None
    day, _, rest = stripped.replace("T", " ").partition(" ")
    try:
        return _in_zone(datetime.datetime.fromisoformat(f"{day} {rest.replace(' ', '')}".strip()))
    except ValueError:  # such as 30 February
        return None


def to_days(value: Any) -> float:
    """Days since 1970-01-01 of a date, a moment or text that ``parse_date`` takes; of a duration.

    Dates and moments without a zone are in UTC.
    """
    if isinstance(value, datetime.timedelta):
        return value / DAY
    if isinstance(value, str):
        value = parse_date(value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return float((_in_zone(value) - EPOCH) / DAY)


def _in_zone(moment: datetime.datetime) -> datetime.datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


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
    dtype = column.dtype
    if dtype.is_numeric():
        return "number"
    return next((kind for known, kind in TYPES.items() if dtype == known), None)


def type_of(column: Series) -> str:
    """A key of ``KINDS`` by the type of a column or of its values, or the names of other types."""
    if (known := _kind_by_type(column)) is not None:
        return known
    if column.dtype == nw.String:
        return "category"
    found = {type(value) for value in values_of(column) if value is not None}
    for kind, (classes, others) in OBJECTS.items():
        if all(issubclass(one, classes) and not issubclass(one, others) for one in found):
            return kind
    return " and ".join(sorted(one.__name__ for one in found))


def _kind_of_text(name: str, counts: Counter[str], table: str) -> str:
    """Dates, or categories; text that is mostly numbers or free text is an error."""
    distinct, rows = list(counts), counts.total()
    dates = sum(parse_date(text) is not None for text in distinct)
    if 2 * dates >= len(distinct):
        check_dates(name, distinct, table)
        with_time = [":" in text for text in distinct]
        if any(with_time) and not all(with_time):
            raise column_error(table, name, "has dates with and without a time: use one form")
        return "moment" if with_time[0] else "date"
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
    try:
        float(text.strip().replace(",", ".", 1))
    except ValueError:
        return False
    return True


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
        """Names of its features."""
        waves = [(part, of) for of in CYCLES_OF.get(self.kind, ()) for part in ("sine", "cosine")]
        return [str(self.name), *(f"{self.name}: {part} of {cycle}" for part, cycle in waves)]

    @property
    def nominal(self) -> bool:
        return self.kind == "category"

    def read(self, series: Series, table: str) -> Numbers:
        """Its features, shape (rows, features)."""
        self._check(series, table)
        if self.nominal:
            codes: dict[str | None, float] = {label: k for k, label in enumerate(self.categories)}
            codes[None] = MISSING
            unknown = len(self.categories)
            found = (codes.get(label, unknown) for label in labels_of(series))
            return np.fromiter(found, np.float64, len(series))[:, None]
        values = as_numbers(series, self.kind, table)
        return date_features(values, CYCLES_OF.get(self.kind, ()))

    def _check(self, series: Series, table: str) -> None:
        """Refuse a column of another kind than in the rows that were fitted."""
        if self.declared or is_empty(series):
            return
        found = type_of(series)
        if found == "category" and self.kind in CYCLES_OF:
            texts = (text for text in values_of(series) if text is not None)
            check_dates(self.name, texts, table)
        elif found != self.kind and not {self.kind, found} <= set(CYCLES_OF):
            was, is_now = KINDS[self.kind], KINDS.get(found, f"values of type {found}")
            message = (
                f"has {is_now}, but had {was} in the rows that were fitted: pass the same type"
            )
            raise column_error(table, self.name, message)


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
        """Which features are codes of categories."""
        return tuple(column.nominal for column in self.columns for _ in column.names)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers."""
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
            lines += [f"  {column.name}: {KINDS[column.kind]}" + f", {count}" * column.nominal]
        return "\n".join(lines)


def schema_of(
    frame: Frame,
    others: Sequence[Frame] = (),
    categorical: Collection[Any] = (),
    ignored: Collection[Any] = (),
    table: str = "X",
) -> Schema:
    """The schema of a frame of training rows.

    Parameters
    ----------
    frame
        Training rows, which decide the kinds of the columns.
    others
        Further rows without labels, whose categories are listed too.
    categorical
        Names of columns whose numbers are codes of categories.
    ignored
        Names of columns that are no features.
    table
        What messages call the frame.

    """
    unknown = [name for name in (*categorical, *ignored) if name not in frame.columns]
    if unknown:
        raise TableError(
            f"{table}: no column {quoted_list(unknown)}: the columns are "
            f"{quoted_list(frame.columns)}"
        )
    every = [dict(zip(each.columns, each.iter_columns(), strict=True)) for each in (frame, *others)]
    columns = []
    for name in (name for name in frame.columns if name not in ignored):
        declared = name in categorical
        kind = kind_of(every[0][name], table, declared)
        if kind == "category":
            found = {label for each in every if name in each for label in labels_of(each[name])}
            categories = tuple(sorted(label for label in found if label is not None))
            columns.append(Column(name, kind, categories, declared))
        else:
            columns.append(Column(name, kind))
    if not columns:
        raise TableError(f"{table}: no features are left: ignore fewer columns")
    return Schema(tuple(columns), tuple(ignored))


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


# Numbers alone.


@dataclass(frozen=True)
class Expansion:
    """How features become numbers alone, for networks of finite width.

    Gaps become medians and are marked in a column of their own; a category becomes a 0/1 column if
    at least two rows have it, and a row with any other category has 0 in all of them: to a model
    without its row such a category is unknown.

    Attributes
    ----------
    names
        Of the features.
    medians
        Of each feature; NaN for nominal ones.
    marked
        Features whose gaps are marked in a column of their own.
    codes
        For each feature its codes that have a column; None for numbers.

    """

    names: tuple[str, ...]
    medians: tuple[float, ...]
    marked: tuple[int, ...]
    codes: tuple[tuple[float, ...] | None, ...]

    @property
    def learnt(self) -> bool:
        """Whether anything depends on the rows that it was learnt from."""
        return bool(self.marked) or any(codes is not None for codes in self.codes)

    @property
    def empty(self) -> bool:
        """Whether no column is left: all are categories that occur once."""
        return not self.marked and not any(codes is None or codes for codes in self.codes)

    def __call__(self, X: Numbers) -> Numbers:
        """Columns: numbers, marks of gaps, categories; shape (rows, columns)."""
        numbers = [f for f, codes in enumerate(self.codes) if codes is None]
        gaps = np.isnan(X)
        new = [f for f in numbers if f not in self.marked and gaps[:, f].any()]
        if new:
            message = (
                "has missing values, but the rows that were fitted have none: fill them, or pass "
                "the rows to predict as X_pool in fit"
            )
            raise column_error("X", self.names[new[0]], message)
        if not self.learnt:  # nothing but numbers, of which none is missing
            return X
        filled = np.where(gaps, np.array(self.medians), X)[:, numbers]
        marks = gaps[:, list(self.marked)].astype(np.float64)
        categories = [
            np.equal.outer(X[:, f], codes).astype(np.float64)
            for f, codes in enumerate(self.codes)
            if codes is not None
        ]
        return np.hstack([filled, marks, *categories])

    def column_names(self, labels: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the columns, given the categories of each feature by code."""
        pairs = list(zip(self.names, self.codes, strict=True))
        numbers = [name for name, codes in pairs if codes is None]
        marks = [f"{self.names[f]} is missing" for f in self.marked]
        categories = [
            f"{name} = {labels[name][int(code)] if code >= 0 else '(missing)'}"
            for name, codes in pairs
            for code in codes or ()
        ]
        return [*numbers, *marks, *categories]


def expansion_of(X: Numbers, nominal: Sequence[bool], names: Sequence[str]) -> Expansion:
    """Learn medians, gaps and categories from rows (rows, features)."""
    columns = list(zip(X.T, nominal, names, strict=True))
    medians = tuple(np.nan if is_code else _median(column) for column, is_code, _ in columns)
    marked = tuple(np.flatnonzero(np.isnan(X).any(axis=0)).tolist())
    codes = tuple(_repeated(column, of) if is_code else None for column, is_code, of in columns)
    return Expansion(tuple(names), medians, marked, codes)


def _median(column: Numbers) -> float:
    known = column[~np.isnan(column)]
    return float(2 * np.median(known / 2)) if len(known) else 0.0  # no overflow


def _repeated(column: Numbers, name: str) -> tuple[float, ...]:
    """Codes that at least two rows have."""
    codes, counts = np.unique(column, return_counts=True)
    repeated = codes[counts > 1]
    if len(repeated) > MOST_CATEGORIES:
        message = (
            f"has {len(repeated)} categories of two or more rows, more than {MOST_CATEGORIES}: "
            "merge some, or drop the column"
        )
        raise column_error("X", name, message)
    return tuple(repeated.tolist())
