"""Columns with the names of their files, and their values as numbers, days or labels."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .formats import TableError, load, option, quoted, quoted_list

if TYPE_CHECKING:
    import pandas as pd

    from ...records import Array

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
# YYYY-MM-DD, optionally with a time, then optionally with a zone.
ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d+)?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Source:
    """A file's frame, and the name of the file for messages."""

    frame: pd.DataFrame
    name: str

    def __getitem__(self, column: str) -> Any:
        return self.frame[column]

    def error(self, column: str, message: str) -> TableError:
        return TableError(f"{self.name}: column {quoted(column)} {message}")


def check_known(name: str, columns: Iterable[object], files: str) -> None:
    """Refuse a name that no column has, and suggest the closest."""
    names = list(columns)
    if name in names:
        return
    folded = {str(column).strip().casefold(): column for column in names}
    closest = get_close_matches(name.strip().casefold(), folded, n=1)
    hint = f"the columns are {quoted_list(names)}"
    if closest:
        hint = f"did you mean {quoted(folded[closest[0]])}?"
    raise TableError(f"{files}: no column {quoted(name)}: {hint}")


def distinct_texts(column: Any) -> dict[str, int]:
    """Return the distinct texts with the row, counted from 1, in which each occurs first."""
    values = column.reset_index(drop=True).dropna().drop_duplicates()
    return {str(value): row + 1 for row, value in values.items()}


def to_numbers(column: Any, kind: str) -> Array:
    """Return a column of numbers, dates or durations as numbers, (rows,), missing ones as NaN."""
    if column.isna().all():  # whatever its type
        return np.full(len(column), np.nan)
    if kind != "number":
        return to_days(column)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


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


def to_days(column: Any) -> Array:
    """Return dates as days since 1970-01-01 UTC or durations as days, (rows,), missing as NaN.

    The column has dates, times with dates, durations, or text that ``parse_date`` takes.
    """
    types = load("pandas").api.types
    if types.is_datetime64_any_dtype(column.dtype):
        if column.dt.tz is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        # In microseconds the division is correctly rounded, as that of Python's own dates is.
        since = column.to_numpy().astype("datetime64[us]") - np.datetime64(0, "us")
        return np.asarray(since / np.timedelta64(1, "D"), dtype=np.float64)
    if types.is_timedelta64_dtype(column.dtype):
        durations = column.to_numpy().astype("timedelta64[us]")
        return np.asarray(durations / np.timedelta64(1, "D"), dtype=np.float64)
    present = column.notna().to_numpy()
    days = np.full(len(column), np.nan)
    days[present] = [_days(value) for value in column[present]]
    return days


def _days(value: Any) -> float:
    if isinstance(value, datetime.timedelta):
        return value / DAY
    if isinstance(value, str):
        value = parse_date(value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return float((_in_zone(value) - EPOCH) / DAY)


def _in_zone(moment: datetime.datetime) -> datetime.datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def to_labels(source: Source, name: str) -> tuple[NDArray[np.intp], list[str]]:
    """Return each row's position in the list of labels, −1 where it is missing, and that list."""
    try:
        codes, values = load("pandas").factorize(source[name])
    except TypeError:  # lists and the like cannot be compared
        message = f"contains values that cannot be categories: pass {option('--drop', name)}"
        raise source.error(name, message) from None
    return np.asarray(codes, dtype=np.intp), [_label(value) for value in values]


def _label(value: Any) -> str:
    """Return the same text for a code whether its file has integers or, next to gaps, floats."""
    whole = isinstance(value, Real) and not isinstance(value, bool) and float(value).is_integer()
    return str(int(float(value))) if whole else str(value)


def check_finite(source: Source, names: Sequence[str], values: Array) -> None:
    """Refuse infinite values, (rows, columns), and name the first."""
    infinite = np.isinf(values)
    if infinite.any():
        column = int(np.argmax(infinite.any(axis=0)))
        row = int(np.argmax(infinite[:, column])) + 1
        message = f"has an infinite value in row {row}: correct it, or leave it empty"
        raise source.error(names[column], message)
