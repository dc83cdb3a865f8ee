"""Dates and durations as numbers of days, by a fixed rule."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from .formats import load

if TYPE_CHECKING:
    from ...records import Array

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
# YYYY-MM-DD, optionally with a time, then optionally with a zone.
ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d+)?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?",
    re.ASCII,
)


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
