"""Columns of dates that are written as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...errors import TableError, quoted
from .formats import option
from .moments import PATTERNS, look_like_dates, moment, moments, with_format
from .numbers import missing_counts, present_marks
from .pools import Pool
from .reading import ORDERS, Reading
from .written import Written

WORDS = {"dmy": "day first", "mdy": "month first"}
PARSED = "datetime64[us]"


def convert_dates(pool: Pool, reading: Reading, known: str = "") -> Written | None:
    """Turn texts that are all dates into dates, in place; return how, None if they are not.

    ``known`` is the order of their parts where other rows have shown it.
    """
    marks = present_marks(pool, reading.marks)
    texts = [text for text in pool.texts if text not in marks]
    found = _dates(pool, texts, reading, known) if texts else None
    if found is None:
        return None
    values, order = found
    counts = missing_counts(pool, marks)
    pool.convert(values, PARSED)
    guessed = order in WORDS and not ORDERS.get(reading.dates or "")
    notes = (f"dates with the {WORDS[order]} (--dates).",) if guessed else ()
    return Written("date", order=order, marks=counts, notes=notes)


def _dates(
    pool: Pool, texts: Sequence[str], reading: Reading, known: str
) -> tuple[dict[str, datetime], str] | None:
    """Return the date of each text and their order; None if some text is not a date."""
    if reading.dates is not None and reading.dates not in ORDERS:
        parsed = {text: with_format(text, reading.dates) for text in texts}
        if all(parsed.values()):
            return {text: day for text, day in parsed.items() if day}, ""
    tried = {order: moments(texts, order) for order in PATTERNS}
    found = {order: dates for order, dates in tried.items() if dates is not None}
    wanted = known if known in WORDS else ORDERS.get(reading.dates or "")
    fitting = {o: dates for o, dates in found.items() if wanted in (None, o) or o not in WORDS}
    if not fitting:
        _check_not_dates(pool, texts, bool(found))
        return None
    (order, first), *others = fitting.items()
    for _, other in others:
        if other != first:
            raise _open(pool, next(text for text in texts if first[text] != other[text]))
    return first, order


def _open(pool: Pool, text: str) -> TableError:
    ways = " or ".join(option("--dates", order) for order in ORDERS)
    found = f"contains dates such as {quoted(text)}, whose order is ambiguous"
    return pool.error(f"{found}: pass {ways}")


def _check_not_dates(pool: Pool, texts: Sequence[str], otherwise: bool) -> None:
    """Refuse texts of which most are dates: a typo, or dates in another order."""
    if otherwise:
        raise pool.error(
            f"contains dates such as {quoted(texts[0])}, in another order than --dates"
        )
    if look_like_dates(texts):
        right = [{text for text in texts if moment(text, order)} for order in PATTERNS]
        marks = set(pool.texts).difference(texts)
        raise pool.odd_one(max(right, key=len) | marks, "date")
