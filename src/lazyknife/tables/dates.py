"""Dates as numbers: days since 1970-01-01, and where they lie in the year, the week and the day."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
# YYYY-MM-DD, optionally with a time, then optionally with a zone.
ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d+)?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?",
    re.ASCII,
)
MONDAY = 3.0  # days from a Monday to 1970-01-01
# Name, length in days and where each cycle begins; all are fixed.
CYCLES = {"year": (365.2425, 0.0), "week": (7.0, MONDAY), "day": (1.0, 0.0)}


def cycles_of(has_time: bool) -> list[str]:
    """Names of the cycles; dates without a time have no time of day."""
    return [name for name in CYCLES if has_time or name != "day"]


def date_features(days: Numbers, has_time: bool) -> Numbers:
    """Days, and sine and cosine of each cycle; shape (rows, 1 + 2·cycles)."""
    columns = [days]
    for name in cycles_of(has_time):
        length, offset = CYCLES[name]
        phase = 2 * np.pi * np.mod((days + offset) / length, 1.0)
        columns += [np.sin(phase), np.cos(phase)]
    return np.column_stack(columns)


def date_names(name: str, has_time: bool) -> list[str]:
    """Names of the same features."""
    parts = [
        f"{name}: {part} of {cycle}" for cycle in cycles_of(has_time) for part in ("sine", "cosine")
    ]
    return [name, *parts]


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
    """Days of a date, a moment, a duration, or text that ``parse_date`` takes."""
    if isinstance(value, datetime.timedelta):
        return value / DAY
    if isinstance(value, str):
        value = parse_date(value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return float((_in_zone(value) - EPOCH) / DAY)


def _in_zone(moment: datetime.datetime) -> datetime.datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
