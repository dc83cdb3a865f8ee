"""Columns of dates that are written as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from .formats import option, quoted
from .moments import PATTERNS, look_like_dates, moment, orders_of, with_format
from .numbers import missing_counts
from .pools import Pool
from .reading import ORDERS, Reading

WORDS = {"dmy": "day first", "mdy": "month first"}
PARSED = "datetime64[us]"


def convert_dates(pool: Pool, reading: Reading) -> list[str] | None:
    """Turn texts that are all dates into dates, in place; return notes, None if they are not."""
    marks = tuple(text for text in pool.texts if text.strip() in reading.marks)
    texts = [text for text in pool.texts if text not in marks]
    found = _dates(pool, texts, reading) if texts else None
    if found is None:
        return None
    values, note = found
    notes = [f"{pool.name}: {count}." for count in missing_counts(pool, marks)]
    pool.convert(values, PARSED)
    return [f"{pool.name}: {note}.", *notes] if note else notes


def _dates(
    pool: Pool, texts: Sequence[str], reading: Reading
) -> tuple[dict[str, datetime], str] | None:
    """Return the date of each text and a note; None if some text is not a date."""
    if reading.dates is not None and reading.dates not in ORDERS:
        parsed = {text: with_format(text, reading.dates) for text in texts}
        if all(parsed.values()):
            return {text: day for text, day in parsed.items() if day}, ""
    found = orders_of(texts)
    wanted = ORDERS.get(reading.dates or "")
    orders = [order for order in found if wanted in (None, order) or order not in WORDS]
    if not orders:
        _check_not_dates(pool, texts, found)
        return None
    readings = [{text: moment(text, order) for text in texts} for order in orders]
    if any(other != readings[0] for other in readings[1:]):
        text = next(text for text in texts if readings[0][text] != readings[1][text])
        ways = " or ".join(option("--dates", order) for order in ORDERS)
        raise pool.error(f"contains dates such as {quoted(text)}, whose order is open: pass {ways}")
    note = f"dates with the {WORDS[orders[0]]}" if orders[0] in WORDS and not wanted else ""
    note += " (--dates)" if note else ""
    return {text: day for text, day in readings[0].items() if day is not None}, note


def _check_not_dates(pool: Pool, texts: Sequence[str], found: Sequence[str]) -> None:
    """Refuse texts of which most are dates: a typo, or dates in another order."""
    if found:
        raise pool.error(f"contains dates such as {quoted(texts[0])}, in another order than --dates")
    if look_like_dates(texts):
        right = [{text for text in texts if moment(text, order)} for order in PATTERNS]
        marks = set(pool.texts).difference(texts)
        raise pool.odd_one(max(right, key=len) | marks, "date")
