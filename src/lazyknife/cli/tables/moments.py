"""Dates as people write them; a column is one of dates if *all* of its texts are, in one order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

# YYYY-MM-DD, optionally with a time, then optionally with a zone.
TIME = r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
TIME += r"(?: ?(?P<half>[AaPp]\.?[Mm]\.?))?(?: ?(?P<zone>Z|UTC|[+-]\d\d(?::?\d\d)?))?)?"
MARK = r"(?P<mark>[-/.])"
DIGITS = {
    "ymd": rf"(?P<y>\d{{4}}){MARK}(?P<m>\d{{1,2}})(?P=mark)(?P<d>\d{{1,2}})",
    "dmy": rf"(?P<d>\d{{1,2}}){MARK}(?P<m>\d{{1,2}})(?P=mark)(?P<y>\d{{4}})",
    "mdy": rf"(?P<m>\d{{1,2}}){MARK}(?P<d>\d{{1,2}})(?P=mark)(?P<y>\d{{4}})",
}
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
LONG = "january february march april may june july august september october november december"
NAME = r"(?P<m>[A-Za-z]{3,9})\.?"
NAMED = {
    "named dmy": rf"(?P<d>\d{{1,2}})[- ]{NAME}[- ](?P<y>\d{{4}})",
    "named mdy": rf"{NAME} (?P<d>\d{{1,2}}),? (?P<y>\d{{4}})",
    "named ymd": rf"(?P<y>\d{{4}})[- ]{NAME}[- ](?P<d>\d{{1,2}})",
}
PATTERNS = {
    order: re.compile(pattern + TIME, re.ASCII) for order, pattern in (DIGITS | NAMED).items()
}


def moments(texts: Sequence[str], order: str) -> dict[str, datetime] | None:
    """Return the dates of texts in an order, a key of ``PATTERNS``; None if one is not a date."""
    found: dict[str, datetime] = {}
    for text in texts:
        day = moment(text, order)
        if day is None:
            return None
        found[text] = day
    return found


def moment(text: str, order: str) -> datetime | None:
    """Return a date in UTC, without its zone; None for other text. No zone is UTC."""
    match = PATTERNS[order].fullmatch(text.strip())
    if match is None:
        return None
    part = match.groupdict()
    try:
        day = datetime(int(part["y"]), _month(part["m"]), int(part["d"]))
        return day if part["hour"] is None else day + _time(part) - _offset(part["zone"])
    except (ValueError, OverflowError):  # such as 30 February
        return None


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    name = text.lower()
    if name not in LONG.split() and name not in (*MONTHS, "sept"):
        raise ValueError(text)
    return MONTHS.index(name[:3]) + 1


def _time(part: dict[str, str]) -> timedelta:
    """Return the time since midnight."""
    hour, minute, second = _hour(int(part["hour"]), part["half"]), part["minute"], part["second"]
    if hour > 23 or int(minute) > 59 or int(second or 0) > 60:
        raise ValueError(hour)
    fraction = int(f"{part['part'] or ''}000000"[:6])
    return timedelta(0, int(second or 0), fraction, 0, int(minute), hour)


def _offset(zone: str | None) -> timedelta:
    """Return the offset of a zone from UTC."""
    if zone is None or zone in ("Z", "UTC"):
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    sign = -1 if zone.startswith("-") else 1
    return timedelta(hours=sign * int(digits[:2]), minutes=sign * int(digits[2:]))


def _hour(hour: int, half: str | None) -> int:
    """Return the hour of the day, of twelve hours and their half of it."""
    if half is None:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + (12 if half.lower().startswith("p") else 0)


def with_format(text: str, pattern: str) -> datetime | None:
    """Return a date of a format of ``strptime``, in UTC; None for other text."""
    try:
        found = datetime.strptime(text.strip(), pattern)
    except ValueError:
        return None
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def look_like_dates(texts: Iterable[str], most: int = 1000) -> bool:
    """Whether at least half of the first texts are dates in some order."""
    first = list(islice(texts, most))
    found = sum(any(moment(text, order) for order in PATTERNS) for text in first)
    return 2 * found >= len(first) > 0
