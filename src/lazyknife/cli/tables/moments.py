"""Dates as people write them; a column is one of dates if *all* of its texts are, in one order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
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
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
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


def orders_of(texts: Iterable[str]) -> list[str]:
    """Return the orders, keys of ``PATTERNS``, in which all texts are dates."""
    found = list(PATTERNS)
    for text in texts:
        found = [order for order in found if moment(text, order) is not None]
        if not found:
            break
    return found


def moment(text: str, order: str) -> datetime | None:
    """Return a date in UTC, without its zone; None for other text. No zone is UTC."""
    match = PATTERNS[order].fullmatch(text.strip())
    if match is None:
        return None
    part = match.groupdict()
    try:
        month = _month(part["m"])
        day = datetime(int(part["y"]), month, int(part["d"]))
        return _with_time(day, part)
    except (ValueError, OverflowError):  # such as 30 February
        return None


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    name = text.lower()
    if name not in LONG.split() and name not in (*MONTHS, "sept"):
        raise ValueError(text)
    return MONTHS.index(name[:3]) + 1


def _with_time(day: datetime, part: dict[str, str | None]) -> datetime:
    if part["hour"] is None:
        return day
    hour = _hour(int(part["hour"]), part["half"])
    fraction = int(((part["part"] or "") + "000000")[:6])
    time = day.replace(
        hour=hour,
        minute=int(part["minute"] or 0),
        second=int(part["second"] or 0),
        microsecond=fraction,
    )
    zone = (part["zone"] or "Z").replace("UTC", "Z").replace(":", "")
    offset = datetime.strptime(zone if len(zone) != 3 else zone + "00", "%z").tzinfo
    return time.replace(tzinfo=offset).astimezone(UTC).replace(tzinfo=None)


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
