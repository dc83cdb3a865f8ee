"""Columns of numerals: one mark of decimals for all files, one style and unit for a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .formats import TableError, counted, option, quoted, quoted_list
from .numerals import STYLES, Numeral, Style, decimals, meanings, parse, styles_of
from .pools import Pool
from .reading import Reading

OTHER = {".": ",", ",": "."}
NAMES = {".": "points", ",": "commas"}
PERCENT = "%"


@dataclass(frozen=True)
class Numbers:
    """A column whose texts are all numbers, but for some that mark missing values."""

    pool: Pool
    numerals: dict[str, Numeral]  # by text
    marks: tuple[str, ...]  # texts of missing values

    @property
    def different(self) -> tuple[Numeral, ...]:
        return tuple(self.numerals.values())


def as_numbers(pool: Pool, marks: Sequence[str]) -> Numbers | None:
    """Return the texts of a column as numerals; None if they are not, an error if only most are."""
    missing = tuple(text for text in pool.texts if text.strip() in marks)
    texts = [text for text in pool.texts if text not in missing]
    parsed = {text: parse(text) for text in texts}
    right = {text: numeral for text, numeral in parsed.items() if numeral is not None}
    if len(right) == len(texts):
        return Numbers(pool, right, missing)
    if 2 * len(right) >= len(texts):
        raise pool.odd_one({*right, *missing}, "number")
    return None


def decimal_mark(columns: Sequence[Numbers], reading: Reading) -> str | None:
    """Return the mark of decimals in all files: as given, or as some column shows; else None."""
    if reading.decimal is not None:
        return reading.decimal
    if reading.thousands in OTHER:
        return OTHER[reading.thousands]
    shown: dict[str, str] = {}
    for column in columns:
        marks = decimals(column.different)
        if len(marks) == 1:
            shown.setdefault(marks.pop(), column.pool.name)
    if len(shown) > 1:
        names = {mark: quoted(name) for mark, name in shown.items()}
        raise TableError(
            f"{' and '.join(dict.fromkeys(columns[0].pool.files))}: column {names[',']} has decimal "
            f"commas and column {names['.']} decimal points: pass --decimal, and --categorical or "
            "--drop for columns of other texts"
        )
    return next(iter(shown), None)


def style_of(column: Numbers, decimal: str | None, thousands: str | None) -> Style:
    """Return the one style of a column; refuse numbers that no style or several styles fit."""
    among = [
        style
        for style in STYLES
        if decimal in (None, style.decimal) and (not thousands or style.thousands in ("", thousands))
    ]
    fitting = styles_of(column.different, among)
    if not fitting:
        raise _unfitting(column, among)
    found = list(meanings(column.different, fitting).values())
    if len(found) == 1:
        return found[0]
    first, second = found[:2]
    text, numeral = next(
        (text, one)
        for text, one in column.numerals.items()
        if one.value(first) != one.value(second)
    )
    values = f"{numeral.value(first):.15g} or {numeral.value(second):.15g}"
    ways = "pass --decimal . or --decimal ,"
    raise column.pool.error(f"is ambiguous, as {quoted(text)} is {values}: {ways}")


def _unfitting(column: Numbers, among: Sequence[Style]) -> TableError:
    """Return an error that names the first number that no style fits."""
    valid = {t for t, one in column.numerals.items() if any(one.fits(style) for style in among)}
    if len(valid) < len(column.numerals):
        return column.pool.odd_one({*valid, *column.marks}, "number")
    ways = f"write them alike, or pass {option('--categorical', column.pool.name)}"
    return column.pool.error(f"contains numbers that are written in different ways: {ways}")


def convert(column: Numbers, style: Style) -> list[str]:
    """Turn the texts into numbers, in place; return notes on what was guessed."""
    name, values = column.pool.name, column.numerals
    units = {numeral.unit for numeral in values.values()}
    if len(units) > 1:
        found = quoted_list(sorted(unit or "no unit" for unit in units))
        ways = f"use one unit, or pass {option('--categorical', name)}"
        raise column.pool.error(f"contains numbers with {found}: {ways}")
    unit = units.pop() if units else ""
    counts = missing_counts(column.pool, column.marks)
    numbers: dict[str, Any] = {text: one.value(style) for text, one in values.items()}
    column.pool.convert(numbers, "float64")
    notes = [f"{name}: {note}." for note in counts]
    if unit:
        example = next(iter(values))
        notes.append(f"{name}: {unit} is left out, {quoted(example)} is {numbers[example]:.15g}.")
    return notes


def missing_counts(pool: Pool, marks: Sequence[str]) -> list[str]:
    """Return how many values of a column are marks of missing values, which become missing."""
    found = []
    for mark in marks:
        total = sum(int((frame[pool.name] == mark).sum()) for frame in pool.frames)
        found.append(f"{counted(total, 'value')} {quoted(mark)} read as missing (--na)")
    return found


def style_notes(styles: dict[str, Style]) -> list[str]:
    """Return a note for each style but the usual one, with its columns."""
    by_style: dict[Style, list[str]] = {}
    for name, style in styles.items():
        by_style.setdefault(style, []).append(name)
    return [
        f"{quoted_list(names)}: numbers with {style} (--decimal, --thousands)."
        for style, names in by_style.items()
        if style != Style(".")
    ]
