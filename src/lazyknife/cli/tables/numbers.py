"""Columns of numerals: one mark of decimals for all files, one style and unit for a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import TableError, quoted, quoted_list
from .formats import option
from .numerals import STYLES, Numeral, Style, decimals, meanings, parse, shape, styles_of, to_float
from .pools import Pool
from .reading import Reading
from .written import Written

OTHER = {".": ",", ",": "."}


@dataclass(frozen=True)
class Numbers:
    """A column whose texts are all numbers, but for some that mark missing values."""

    pool: Pool
    numerals: tuple[Numeral, ...]  # one of each shape
    marks: tuple[str, ...]  # texts of missing values

    @property
    def has_marks(self) -> bool:
        """Whether some number has decimals or groups of digits."""
        return any(not numeral.digits.isdigit() for numeral in self.numerals)


def as_numbers(pool: Pool, marks: Sequence[str]) -> Numbers | None:
    """Return the texts of a column as numerals; None if they are not, an error if only most are."""
    missing = present_marks(pool, marks)
    shapes = {text: shape(text) for text in pool.texts if text not in missing}
    examples = {of: text for text, of in shapes.items()}
    parsed = {of: parse(text) for of, text in examples.items()}
    found = tuple(numeral for numeral in parsed.values() if numeral is not None)
    if len(found) == len(parsed):
        return Numbers(pool, found, missing)
    right = [text for text, of in shapes.items() if parsed[of] is not None]
    if 2 * len(right) >= len(shapes):
        raise pool.odd_one({*right, *missing}, "number")
    return None


def present_marks(pool: Pool, marks: Sequence[str]) -> tuple[str, ...]:
    """Return the marks of missing values that a column has."""
    texts = set(pool.texts)
    return tuple(mark for mark in marks if mark in texts)


def decimal_mark(columns: Sequence[Numbers], reading: Reading) -> str | None:
    """Return the mark of decimals in all files: as given, or as some column shows; else None."""
    if reading.decimal is not None:
        return reading.decimal
    if reading.thousands in OTHER:
        return OTHER[reading.thousands]
    shown: dict[str, str] = {}
    for column in columns:
        marks = decimals(column.numerals)
        if len(marks) == 1:
            shown.setdefault(marks.pop(), column.pool.name)
    if len(shown) > 1:
        names = {mark: quoted(name) for mark, name in shown.items()}
        files = " and ".join(dict.fromkeys(columns[0].pool.files))
        found = f"column {names[',']} has decimal commas and column {names['.']} decimal points"
        ways = "pass --decimal, and --categorical or --drop for columns of other texts"
        raise TableError(f"{files}: {found}: {ways}")
    return next(iter(shown), None)


def style_of(column: Numbers, decimal: str | None, thousands: str | None) -> Style:
    """Return the one style of a column; refuse numbers that no style or several styles fit."""
    among = [
        style
        for style in STYLES
        if decimal in (None, style.decimal)
        and (not thousands or style.thousands in ("", thousands))
    ]
    fitting = styles_of(column.numerals, among)
    if not fitting:
        raise _unfitting(column, among)
    found = list(meanings(column.numerals, fitting).values())
    if len(found) == 1:
        return found[0]
    read = [
        {one.example: to_float(one.unit, style)(one.example) for one in column.numerals}
        for style in found[:2]
    ]
    text = next(text for text, value in read[0].items() if read[1][text] != value)
    values = " or ".join(f"{numbers[text]:.15g}" for numbers in read)
    ways = "pass --decimal . or --decimal ,"
    raise column.pool.error(f"is ambiguous, as {quoted(text)} is {values}: {ways}")


def _unfitting(column: Numbers, among: Sequence[Style]) -> TableError:
    """Return an error that names the first number that no style fits."""
    wrong = [one for one in column.numerals if not any(one.fits(style) for style in among)]
    if wrong:
        return column.pool.odd_one({*column.pool.texts} - {wrong[0].example}, "number")
    ways = f"write them alike, or pass {option('--categorical', column.pool.name)}"
    return column.pool.error(f"contains numbers that are written in different ways: {ways}")


def convert(column: Numbers, style: Style) -> Written:
    """Turn the texts into numbers, in place; return how they are written."""
    name = column.pool.name
    units = {numeral.unit for numeral in column.numerals}
    if len(units) > 1:
        found = quoted_list(sorted(unit or "no unit" for unit in units))
        ways = f"use one unit, or pass {option('--categorical', name)}"
        raise column.pool.error(f"contains numbers with {found}: {ways}")
    unit = units.pop() if units else None
    counts = missing_counts(column.pool, column.marks)
    number_of = to_float(unit or "", style)
    marks = set(column.marks)
    texts = column.pool.texts
    column.pool.convert({text: number_of(text) for text in texts if text not in marks}, "float64")
    notes = (_unit_note(column.numerals[0].example, unit, number_of),) if unit else ()
    kind = "number" if column.numerals else "empty"
    return Written(kind, unit, style if column.has_marks else None, marks=counts, notes=notes)


def _unit_note(example: str, unit: str, number_of: Callable[[str], float]) -> str:
    return f"{unit} is left out, {quoted(example)} is {number_of(example):.15g}."


def missing_counts(pool: Pool, marks: Sequence[str]) -> dict[str, int]:
    """Return how many values of a column are each of the marks, which become missing values."""
    return {
        mark: sum(int((frame[pool.name] == mark).sum()) for frame in pool.frames) for mark in marks
    }
