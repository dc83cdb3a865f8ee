"""Numbers as people write them: ``1.234,5``, ``$23.00``, ``12 %``.

A column is a column of numbers if *all* of its texts fit one style. What a text leaves open
(``1,234``) is decided by the other columns, and otherwise by the user: never silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

CURRENCIES = ("$", "€", "£", "¥", "₹", "US$", "USD", "EUR", "GBP", "CHF", "JPY")
UNITS = (*CURRENCIES, "%")
BLANKS = {ord(blank): " " for blank in "\u00a0\u2009\u202f"}  # of groups of digits
QUOTES = {ord(quote): "'" for quote in "’ʼ"}
MINUS: dict[int, str | None] = {ord("−"): "-"}
SAME = {**BLANKS, **QUOTES, **MINUS}

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
    """What is common to all numbers of one shape: they differ in their digits only."""

    example: str  # one of them
    digits: str  # of the example, with the marks of decimals and thousands
    unit: str  # one of UNITS, or nothing

    def fits(self, style: Style) -> bool:
        """Whether the digits can be written in the style."""
        return _PATTERNS[style].fullmatch(self.digits) is not None


def parse(text: str) -> Numeral | None:
    """Return the parts of a number with at most one unit and one sign; None for other text."""
    match = _PARTS.fullmatch(text.translate(SAME).strip())
    if match is None:
        return None
    first, before, second, digits, _, after = (part or "" for part in match.groups())
    if (before and after) or (first and second) or before == "%":
        return None
    numeral = Numeral(text, digits, before or after)
    return numeral if any(numeral.fits(style) for style in STYLES) else None


def shape(text: str) -> str:
    """Return the text with every digit but a leading zero as 9: what ``fits`` depends on."""
    same = text.translate(_NINES)
    first = same.find("9")
    return f"{same[:first]}0{same[first + 1 :]}" if first >= 0 and text[first] == "0" else same


_NINES = {ord(digit): "9" for digit in "0123456789"}


def to_float(unit: str, style: Style) -> Callable[[str], float]:
    """Return the function from texts of a style and a unit to their numbers."""
    marks: dict[int, str | None] = dict.fromkeys(map(ord, " '"), None) | MINUS
    marks |= dict.fromkeys((*BLANKS, *QUOTES), None) | {ord(style.decimal): "."}
    if style.thousands:
        marks[ord(style.thousands)] = None
    if unit:
        return lambda text: float(text.replace(unit, "").translate(marks))
    return lambda text: float(text.translate(marks))


def styles_of(numerals: Sequence[Numeral], among: Sequence[Style] = STYLES) -> list[Style]:
    """Return the styles that all numbers fit, without those whose mark of thousands none has.

    A column of 1,5 and 2 fits decimal commas with or without points between thousands, which is
    the same: the simplest of such styles is kept.
    """
    fitting = [style for style in among if all(number.fits(style) for number in numerals)]
    present = {mark for number in numerals for mark in number.digits if not mark.isdigit()}
    return [style for style in fitting if not style.thousands or style.thousands in present]


def meanings(
    numerals: Sequence[Numeral], styles: Iterable[Style]
) -> dict[tuple[float, ...], Style]:
    """Return the styles that give different numbers, by these numbers."""
    found: dict[tuple[float, ...], Style] = {}
    for style in styles:
        numbers = tuple(to_float(number.unit, style)(number.example) for number in numerals)
        found.setdefault(numbers, style)
    return found


def decimals(numerals: Sequence[Numeral]) -> set[str]:
    """Return the marks of decimals that the numbers allow; both if they say nothing."""
    return {style.decimal for style in styles_of(numerals)}
