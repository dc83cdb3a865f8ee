"""Blocks of features, made of the columns of both files by rules that treat all rows alike.

Every function here depends on the rows of both files only as one pool: which file a row is in
changes neither its own features nor those of any other row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .columns import Source, check_finite, to_labels, to_numbers
from .formats import counted, option

if TYPE_CHECKING:
    from ...records import Array

MOST_CATEGORIES = 100
MOST_SINGLE = 0.75  # of the rows; names of rows and free text have more values that occur once
FEW_ROWS = 20  # with so few rows most categories may well occur once
CONVERTED = {"date": "dates became days since 1970-01-01", "duration": "durations became days"}


@dataclass(frozen=True)
class Block:
    """Some of the features."""

    values: Array  # shape (n + m, columns), the training rows first
    columns: tuple[str, ...]  # names of the features
    notes: tuple[str, ...] = ()  # what was done, one sentence each
    fitted: bool = False  # whether anything (medians, categories) was learned from the rows


def number_blocks(old: Source, new: Source, kinds: dict[str, str]) -> tuple[Block, Block]:
    """Return numbers, with medians for missing ones, and the indicators of missing values.

    ``kinds`` has "number", "date" or "duration" for each column.
    """
    names = list(kinds)
    parts = []
    for source in (old, new):
        part = np.empty((len(source.frame), len(names)))
        for place, (name, kind) in enumerate(kinds.items()):
            part[:, place] = to_numbers(source[name], kind)
        check_finite(source, names, part)
        parts.append(part)
    values = np.concatenate(parts)
    missing = np.isnan(values)
    gaps = np.flatnonzero(missing.any(axis=0))
    marks = missing[:, gaps]
    if gaps.size:
        values[:, gaps] = np.where(marks, np.nanmedian(values[:, gaps], axis=0), values[:, gaps])
    notes = [f"{name}: {CONVERTED[kind]}." for name, kind in kinds.items() if kind in CONVERTED]
    pool = "both files" if len(new.frame) else "the file"
    filled = [
        f"{names[gap]}: {counted(count, 'missing value')} filled with the median of {pool} "
        "and marked in an extra column."
        for gap, count in zip(gaps, marks.sum(axis=0), strict=True)
    ]
    marked = tuple(f"{names[gap]} is missing" for gap in gaps)
    return (
        Block(values, tuple(map(str, names)), tuple(notes)),
        Block(marks.astype(np.float64), marked, tuple(filled), fitted=bool(filled)),
    )


def category_block(old: Source, new: Source, name: str) -> Block:
    """Return a 0/1 column for each category that occurs in at least two rows of the pool.

    A category of one row has no column: its row has 0 everywhere. To a model without that row the
    category is unknown, so a row with it looks the same in either file and left out or not.
    Missing values are one more category.
    """
    coded = [to_labels(source, name) for source in (old, new)]
    labels = sorted({label for _, found in coded for label in found})
    place = {label: position for position, label in enumerate(labels)}
    places = np.concatenate(
        [  # the last position is that of missing values, whose code is −1
            np.array([*map(place.__getitem__, found), len(labels)])[codes] for codes, found in coded
        ]
    )
    counts = np.bincount(places, minlength=len(labels) + 1)
    repeated, single = np.flatnonzero(counts > 1), int((counts == 1).sum())
    _check_categories(old, new, name, len(repeated), single)
    named = [*labels, "(missing)"]
    return Block(
        (places[:, None] == repeated).astype(np.float64),
        tuple(f"{name} = {named[position]}" for position in repeated),
        (f"{name}: {_summary(len(repeated), single)}.",),
        fitted=True,
    )


def _check_categories(old: Source, new: Source, name: str, repeated: int, single: int) -> None:
    """Refuse a column of row names or free text."""
    rows = len(old.frame) + len(new.frame)
    way_out = f"pass {option('--drop', name)}"
    if len(new.frame):
        way_out += f" or {option('--id', name)}"
    if rows > FEW_ROWS and single > MOST_SINGLE * rows:
        found = f"has {single} values that occur only once in {rows} rows, like row names or text"
        raise old.error(name, f"{found}: {way_out}")
    if repeated > MOST_CATEGORIES:
        found = f"has {repeated} categories of two or more rows, more than {MOST_CATEGORIES}"
        raise old.error(name, f"{found}: merge some, or {way_out}")


def _summary(repeated: int, single: int) -> str:
    if not repeated:
        return "no category occurs in more than one row, so the column is ignored"
    columns = counted(repeated, "column")
    text = f"{counted(repeated, 'category', 'categories')} became {columns}"
    if not single:
        return text
    has = "occurs only once and has" if single == 1 else "occur only once and have"
    return f"{text}; {counted(single, 'category', 'categories')} {has} no column"
