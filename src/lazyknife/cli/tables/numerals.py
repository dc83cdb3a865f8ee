"""Numbers as people write them: ``1.234,5``, ``$23.00``, ``12 %``.

A column is a column of numbers if *all* of its texts fit one style. What a text leaves open
(``1,234``) is decided by the other columns, and otherwise by the user: never silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CURRENCIES = ("$", "€", "£", "¥", "₹", "US$", "USD", "EUR", "GBP", "CHF", "JPY")
UNITS = (*CURRENCIES, "%")
BLANKS = {ord(blank): " " for blank in "\u00a0\u2009\u202f"}  # of groups of digits
QUOTES = {ord(quote): "'" for quote in "’ʼ"}
MINUS = {ord("−"): "-"}
SAME = BLANKS | QUOTES | MINUS

_UNIT = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
_PARTS = re.compile(rf"([+-]?) ?({_UNIT})? ?([+-]?)([\d.,' ]*\d[.,]?)([eE][+-]?\d+)? ?({_UNIT})?")


@dataclass(frozen=True)
class Style:
    """How a number is written."""

    decimal: str  # "." or ","
    thousands: str = ""  # between groups of three digits; none if empty

    @property
    def pattern(self) -> re.Pattern[str]:
        point, group = re.escape(self.decimal), re.escape(self.thousands)
        whole = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+" if self.thousands else r"\d+"
        return re.compile(rf"(?:(?:{whole})(?:{point}\d*)?|{point}\d+)", re.ASCII)

    def __str__(self) -> str:
        marks = {".": "points", ",": "commas", " ": "spaces", "'": "apostrophes"}
        group = f", {marks[self.thousands]} between thousands" if self.thousands else ""
        return f"decimal {marks[self.decimal]}{group}"


STYLES = (
    *(Style("."), Style(","), Style(".", ","), Style(",", ".")),
    *(Style(decimal, group) for group in (" ", "'") for decimal in (".", ",")),
)
_PATTERNS = {style: style.pattern for style in STYLES}


@dataclass(frozen=True)
class Numeral:
    """The parts of a text that is a number."""

    negative: bool
    digits: str  # with the marks of decimals and thousands
    exponent: str  # "e5", or nothing
    unit: str  # one of UNITS, or nothing

    def fits(self, style: Style) -> bool:
        """Whether the digits can be written in the style."""
        return _PATTERNS[style].fullmatch(self.digits) is not None

    def value(self, style: Style) -> float:
        """Return the number."""
        digits = self.digits.replace(style.thousands, "") if style.thousands else self.digits
        number = float(f"{digits.replace(style.decimal, '.')}{self.exponent}")
        return -number if self.negative else number


def parse(text: str) -> Numeral | None:
    """Return the parts of a number with at most one unit and one sign; None for other text."""
    match = _PARTS.fullmatch(text.translate(SAME).strip())
    if match is None:
        return None
    first, before, second, digits, exponent, after = (part or "" for part in match.groups())
    numeral = Numeral("-" in (first, second), digits, exponent, before or after)
    if (before and after) or (first and second) or before == "%":
        return None
    return numeral if any(numeral.fits(style) for style in STYLES) else None


def styles_of(numerals: Iterable[Numeral], among: Sequence[Style] = STYLES) -> list[Style]:
    """Return the styles that all numbers fit, without those whose mark of thousands none has.

    A column of 1,5 and 2 fits decimal commas with or without points between thousands, which is
    the same: the simplest of such styles is kept.
    """
    numbers = list(numerals)
    fitting = [style for style in among if all(number.fits(style) for number in numbers)]
    present = {mark for number in numbers for mark in number.digits if not mark.isdigit()}
    return [style for style in fitting if not style.thousands or style.thousands in present]


def meanings(numerals: Sequence[Numeral], styles: Iterable[Style]) -> dict[tuple[float, ...], Style]:
    """Return the styles that give different numbers, by these numbers."""
    found: dict[tuple[float, ...], Style] = {}
    for style in styles:
        found.setdefault(tuple(number.value(style) for number in numerals), style)
    return found


def decimals(numerals: Sequence[Numeral]) -> set[str]:
    """Return the marks of decimals that the numbers allow; both if they say nothing."""
    return {style.decimal for style in styles_of(numerals)}
