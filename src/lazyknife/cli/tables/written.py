"""How the values of a column are written, in one file or in parts of it that must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...errors import TableError, counted, quoted, quoted_list
from .formats import option
from .numerals import Style

NAMES = {
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates",
    "duration": "durations",
    "text": "text",
    "category": "categories",
}


@dataclass(frozen=True)
class Written:
    """What the values of a column show; empty is what they leave open."""

    kind: str = "empty"
    unit: str | None = None  # of numbers; "" is none
    style: Style | None = None  # of numbers with decimals or groups of digits
    order: str = ""  # of the parts of dates
    marks: Mapping[str, int] = field(default_factory=dict)  # of missing values, and how many
    notes: tuple[str, ...] = ()  # what was guessed besides, one sentence each

    @property
    def decimal(self) -> str | None:
        return None if self.style is None else self.style.decimal

    def sentences(self, name: str) -> list[str]:
        """Return what was guessed of the column, but for the style of its numbers."""
        counts = [
            f"{counted(count, 'value')} {quoted(mark)} read as missing (--na)."
            for mark, count in self.marks.items()
        ]
        return [f"{name}: {note}" for note in (*counts, *self.notes)]


def notes_of(written: Mapping[str, Written]) -> list[str]:
    """Return what was guessed of all columns: styles of numbers, then each column."""
    by_style: dict[Style, list[str]] = {}
    for name, one in written.items():
        if one.style not in (None, Style(".")):
            by_style.setdefault(one.style, []).append(name)
    styles = [
        f"{quoted_list(names)}: numbers with {style} (--decimal, --thousands)."
        for style, names in by_style.items()
    ]
    return styles + [note for name, one in written.items() for note in one.sentences(name)]


def agreed(
    file: str, before: Mapping[str, Written], here: Mapping[str, Written]
) -> dict[str, Written]:
    """Return what two parts of a file show together; refuse columns that differ."""
    both = {name: _both(file, name, one, here[name]) for name, one in before.items()}
    marks = {one.decimal for one in both.values()} - {None}
    if len(marks) > 1:
        ways = "pass --decimal, or write them alike"
        raise TableError(f"{file}: some numbers have decimal commas, others points: {ways}")
    return both


def _both(file: str, name: str, one: Written, other: Written) -> Written:
    if "empty" in (one.kind, other.kind):
        known = other if one.kind == "empty" else one
    else:
        kinds = (NAMES.get(part.kind, part.kind) for part in (one, other))
        _check(file, name, "types", *kinds)
        _check(file, name, "units", one.unit, other.unit)
        _check(file, name, "styles", one.decimal, other.decimal)
        _check(file, name, "orders of dates", one.order, other.order)
        styles = [style for style in (one.style, other.style) if style is not None]
        known = replace(
            one,
            unit=one.unit or other.unit,
            style=max(styles, key=lambda style: style.thousands, default=None),
            order=one.order or other.order,
            notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
        )
    return replace(known, marks=Counter(one.marks) + Counter(other.marks))


def _check(file: str, name: str, what: str, one: str | None, other: str | None) -> None:
    if None in (one, other) or one == other or (what == "orders of dates" and not (one and other)):
        return
    found = f"rows differ in their {what} ({one or 'none'} and {other or 'none'})"
    ways = f"write them alike, or pass {option('--categorical', name)} when fitting"
    raise TableError(f"{file}: column {quoted(name)}: {found}: {ways}")
