"""Columns of a frame of any library: what kind they are, and their values as numbers or labels."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..words import column_error, encoder_setting, label_of, quoted
from .dates import parse_date, to_days

Numbers = NDArray[np.float64]
Series = nw.Series[Any]

# Kinds of columns, and what they are called.
KINDS = {
    "number": "numbers",
    "date": "dates",
    "moment": "dates with a time",
    "duration": "durations",
    "category": "text or categories",
}
# Classes of the values of a column of Python objects, tried in this order.
OBJECTS: dict[str, tuple[type, ...]] = {
    "number": (Real, Decimal, np.bool_),
    "moment": (datetime.datetime,),
    "date": (datetime.date,),
    "duration": (datetime.timedelta,),
    "category": (str,),
}
# Classes that inherit from those of a kind, and are not of it.
EXCEPT: dict[str, type] = {"date": datetime.datetime, "number": np.timedelta64}
NAMED: dict[Any, str] = {nw.Date: "date", nw.Datetime: "moment", nw.Duration: "duration"}
NAMED |= dict.fromkeys((nw.String, nw.Categorical, nw.Enum), "category")
TYPED = (nw.Boolean, nw.Date, nw.Datetime, nw.Duration, nw.Categorical, nw.Enum)
MICROSECONDS = 86_400e6  # of a day
PART = 2**16  # rows whose values are Python objects at a time
FEW_ROWS, MOST_SINGLE = 20, 0.75  # text with more values of one row than this is no category


def kind_of(column: Series, table: str, declared: bool = False) -> str:
    """Return a key of ``KINDS``; ``declared`` says that the values are codes of categories."""
    if is_empty(column):
        raise column_error(table, column.name, "has no values: drop it")
    if declared:
        return "category"
    found = type_of(column)
    if found not in KINDS:
        way_out = "convert them to numbers, or drop the column"
        raise column_error(table, column.name, f"has values of type {found}: {way_out}")
    if is_typed(column):
        return found
    counts = Counter(value for part in parts(column) for value in present(part))
    if counts.total() == 1 < len(column):  # its row would decide the kind for models without it
        way_out = "drop it, or declare it as categorical"
        raise column_error(
            table, column.name, f"has a single value, {quoted(next(iter(counts)))}: {way_out}"
        )
    return _kind_of_text(column.name, counts, table) if found == "category" else found


def is_empty(column: Series) -> bool:
    """Whether all values are missing."""
    missing = column.null_count() == len(column)
    return missing or (column.dtype.is_float() and bool(np.isnan(column.to_numpy()).all()))


def is_typed(column: Series) -> bool:
    """Whether the type of a column says its kind; that of text and objects does not."""
    dtype = column.dtype
    return dtype.is_numeric() or any(dtype == kind for kind in TYPED)


def type_of(column: Series) -> str:
    """A key of ``KINDS`` by the type of a column, or the name of a type that is none of them."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "number"
    for kind, name in NAMED.items():
        if dtype == kind:
            return name
    found = {type(value) for part in parts(column) for value in present(part)}
    fits = (kind for kind in OBJECTS if all(_is_of(one, kind) for one in found))
    return next(fits, " and ".join(sorted(one.__name__ for one in found)))


def _is_of(one: type, kind: str) -> bool:
    """Whether objects of a class are of a kind."""
    other = EXCEPT.get(kind)
    return issubclass(one, OBJECTS[kind]) and not (other and issubclass(one, other))


def _kind_of_text(name: str, counts: Counter[str], table: str) -> str:
    """Dates, or categories; text that is mostly numbers or free text is an error."""
    distinct, rows = list(counts), counts.total()
    dates = [parse_date(text) is not None for text in distinct]
    if 2 * sum(dates) >= len(dates):
        return _kind_of_dates(name, distinct, table)
    if 2 * sum(map(is_number, distinct)) >= len(distinct):
        odd = [text for text in distinct if not is_number(text)]
        but = f", but also {quoted(odd[0])}" if odd else ""
        as_codes = encoder_setting("categorical", name)
        way_out = f"convert them to numbers, or pass {as_codes} if they are codes"
        raise column_error(table, name, f"contains numbers that are stored as text{but}: {way_out}")
    single = sum(count == 1 for count in counts.values())
    if rows > FEW_ROWS and single > MOST_SINGLE * rows:
        found = f"has {single} values that occur only once in {rows} rows"
        ways = (encoder_setting(parameter, name) for parameter in ("ignore", "categorical"))
        way_out = "pass {} to leave it out, or {} to keep it".format(*ways)
        raise column_error(table, name, f"{found}, like row names or text: {way_out}")
    return "category"


def _kind_of_dates(name: str, distinct: Sequence[str], table: str) -> str:
    check_dates(name, distinct, table)
    with_time = [":" in text for text in distinct]
    if any(with_time) and not all(with_time):
        raise column_error(table, name, "has dates with and without a time: use one form")
    return "moment" if with_time[0] else "date"


def check_dates(name: str, texts: Sequence[str], table: str) -> None:
    """Refuse texts that are not all dates, and name the first."""
    odd = next((text for text in texts if parse_date(text) is None), None)
    if odd is not None:
        message = f"contains dates, but {quoted(odd)} is not a date (YYYY-MM-DD)"
        way_out = f"correct it, leave it empty, or pass {encoder_setting('categorical', name)}"
        raise column_error(table, name, f"{message}: {way_out}")


def is_number(text: str) -> bool:
    """Whether a text is meant as a number, also with a decimal comma."""
    try:
        float(text.strip().replace(",", ".", 1))
    except ValueError:
        return False
    return True


def parts(column: Series) -> Iterator[Series]:
    """Yield a column in parts: as Python objects, the values of all would take much memory."""
    return (column[start : start + PART] for start in range(0, len(column), PART))


def present(column: Series) -> list[Any]:
    """The values that are not missing."""
    if column.dtype == nw.String:
        return [value for value in column.to_list() if isinstance(value, str)]
    return [value for value in column.to_list() if not is_missing(value)]


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA, which is equal to nothing and no number."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return bool(np.ndim(value) == 0 and value != value)


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
        each = (np.nan if is_missing(one) else convert(one) for one in column.to_list())
        values = np.fromiter(each, np.float64, len(column))
    return np.asarray(values, dtype=np.float64)


def _is_large(column: Series) -> bool:
    """Whether a column has integers beyond those that are all floats."""
    ends = (column.min(), column.max()) if column.dtype.is_integer() else ()
    return any(not is_missing(end) and abs(int(end)) > 2**53 for end in ends)


def _exact(value: Any) -> float:
    """A number as a float; refuse an integer that becomes another: two could become equal."""
    found = float(value)
    if isinstance(value, Integral) and int(found) != value:
        raise ValueError(f"{value} is not a float64 number")
    return found


def as_labels(column: Series) -> list[str | None]:
    """The names of categories, None where they are missing."""
    if column.dtype == nw.String:  # most columns, and much faster
        return [value if isinstance(value, str) else None for value in column.to_list()]
    return [None if is_missing(value) else label_of(value) for value in column.to_list()]
