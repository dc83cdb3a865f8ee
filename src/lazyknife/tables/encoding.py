"""Turn tables into arrays without harm to the coverage guarantee.

The guarantee asks that training and new rows are treated alike. So whatever is learnt from the rows
here, medians and lists of categories, is a symmetric function of the rows of both files together,
and the target has no part in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .columns import (
    Source,
    check_finite,
    check_known,
    is_category,
    target_values,
    to_labels,
    to_numbers,
)
from .formats import TableError, check_unique, counted, one_line, option, quoted_list

if TYPE_CHECKING:
    import pandas as pd

    from ..records import Array

MOST_CATEGORIES = 100
FEW_ROWS = 20  # so few rows may well have as many categories


@dataclass(frozen=True)
class Encoded:
    """Two tables as arrays, and what was done to them.

    Attributes
    ----------
    X, y
        Features, shape (n, p), and target, (n,), of the training rows.
    X_new, y_new
        Features, shape (m, p), of the new rows; their target, (m,), if the file has it without a
        gap, otherwise None.
    ids
        The new rows' names, (m,), if there is a column of them.
    columns
        Names of the p features: first the numbers, then the marks of missing values, then one
        for each category.
    notes
        What was done, one sentence each.
    fitted
        Whether anything (medians, categories) was learnt from the rows of both files.

    """

    X: Array
    y: Array
    X_new: Array
    y_new: Array | None
    ids: pd.Series | None
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    fitted: bool


@dataclass(frozen=True)
class _Block:
    """Some of the features, (n + m, columns), the training rows first."""

    values: Array
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


def encode(
    train: pd.DataFrame,
    test: pd.DataFrame,
    target: str,
    *,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    id_column: str | None = None,
    train_name: str = "TRAIN",
    test_name: str = "TEST",
) -> Encoded:
    """Turn a file of training rows and a file of new rows into arrays.

    Numbers stay as they are; missing ones become the median of both files and are marked in a
    column of their own. Text becomes one column of 0 and 1 for each category of both files.

    Parameters
    ----------
    train, test
        n training rows and m new rows, with the same columns in any order; ``test`` may lack the
        target.
    target
        The column to predict, numeric and without missing values.
    drop
        Columns, of either file, that are no features.
    categorical
        Columns that hold categories though they look like numbers.
    id_column
        A column of ``test`` that names the rows; no feature.
    train_name, test_name
        What messages call the files.

    """
    old, new = Source(train, train_name), Source(test, test_name)
    check_unique(train.columns, train_name)
    check_unique(test.columns, test_name)
    apart = _check_names(old, new, target, drop, categorical, id_column)
    names = _features(old, new, apart)
    y = target_values(old, target)
    groups = [name for name in names if is_category(name, old, new, name in categorical)]
    blocks = [
        *_numbers(old, new, [name for name in names if name not in groups]),
        *(_categories(old, new, name) for name in groups),
    ]
    pool = np.hstack([block.values for block in blocks])
    y_new, remarks = _new_target(new, target)
    notes = [note for block in blocks for note in block.notes]
    return Encoded(
        X=pool[: len(train)],
        y=y,
        X_new=pool[len(train) :],
        y_new=y_new,
        ids=None if id_column is None else test[id_column].reset_index(drop=True),
        columns=tuple(name for block in blocks for name in block.columns),
        notes=tuple(map(one_line, [*notes, *remarks])),
        fitted=bool(notes),  # each note of a block tells of medians or categories
    )


def encode_one(
    frame: pd.DataFrame,
    target: str,
    *,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    name: str = "DATA",
) -> Encoded:
    """Turn one file into arrays, as ``encode`` does with two; there are no new rows."""
    nothing = frame.iloc[:0].drop(columns=target, errors="ignore")
    return encode(
        frame,
        nothing,
        target,
        drop=drop,
        categorical=categorical,
        train_name=name,
        test_name=name,
    )


def _check_names(
    old: Source,
    new: Source,
    target: str,
    drop: Sequence[str],
    categorical: Sequence[str],
    id_column: str | None,
) -> set[str]:
    """Check the names that the user gave; return the columns that are no features."""
    check_known(target, old.frame.columns, old.name)
    files = old.name if old.name == new.name else f"{old.name} and {new.name}"
    either = dict.fromkeys([*old.frame.columns, *new.frame.columns])
    for name in drop:
        check_known(name, either, files)
    for name in categorical:
        check_known(name, old.frame.columns, old.name)
    if id_column is not None:
        check_known(id_column, new.frame.columns, new.name)
    for flag, names in (("--drop", drop), ("--categorical", categorical), ("--id", [id_column])):
        if target in names:
            raise old.error(target, f"is the target: leave it out of {flag}")
    return {target, *drop, *([] if id_column is None else [id_column])}


def _features(old: Source, new: Source, apart: set[str]) -> list[str]:
    """Return the columns that are features, in the order of the training file."""
    names = [name for name in old.frame.columns if name not in apart]
    for here, there in ((old, new), (new, old)):
        extra = [c for c in here.frame.columns if c not in there.frame.columns and c not in apart]
        if extra:
            raise TableError(
                f"{there.name}: no column {quoted_list(extra, 5)}, which {here.name} has: add what "
                "is missing, or pass --drop for each"
            )
    for name in names:
        if re.fullmatch(r"Unnamed: \d+", str(name)):
            raise old.error(
                name,
                "has no name in the file and may hold row numbers: pass "
                f"{option('--drop', name)}, or give it a name",
            )
    if not names:
        raise TableError(f"{old.name}: no column is left to predict from: drop fewer, or add some")
    return names


def _numbers(old: Source, new: Source, names: list[str]) -> tuple[_Block, _Block]:
    """Columns of numbers, filled with medians, and the marks of what was missing."""
    parts = [to_numbers(source.frame[names]) for source in (old, new)]
    for source, part in zip((old, new), parts, strict=True):
        check_finite(source, names, part)
    values = np.concatenate(parts)
    missing = np.isnan(values)
    gaps = np.flatnonzero(missing.any(axis=0))
    marks = missing[:, gaps]
    if gaps.size:
        values[:, gaps] = np.where(marks, np.nanmedian(values[:, gaps], axis=0), values[:, gaps])
    files = "both files" if len(new.frame) else "the file"
    notes = [
        f"{names[gap]}: {counted(count, 'missing value')} filled with the median of {files} "
        "and marked in an extra column."
        for gap, count in zip(gaps, marks.sum(axis=0), strict=True)
    ]
    return (
        _Block(values, tuple(map(str, names))),
        _Block(
            marks.astype(np.float64),
            tuple(f"{names[gap]} is missing" for gap in gaps),
            tuple(notes),
        ),
    )


def _categories(old: Source, new: Source, name: str) -> _Block:
    """One column of 0 and 1 for each category, the last for missing values if there are any."""
    (old_codes, old_labels), (new_codes, new_labels) = to_labels(old, name), to_labels(new, name)
    labels = sorted({*old_labels, *new_labels})
    place = {label: position for position, label in enumerate(labels)}
    places = np.concatenate(
        [  # the last position is that of missing values, whose code is −1
            np.array([*(place[label] for label in old_labels), len(labels)])[old_codes],
            np.array([*(place[label] for label in new_labels), len(labels)])[new_codes],
        ]
    )
    gaps = int((places == len(labels)).sum())
    count = len(labels) + (gaps > 0)
    _check_count(old, new, name, count)
    unseen: list[str] = sorted(set(new_labels) - set(old_labels))
    if (new_codes < 0).any() and not (old_codes < 0).any():
        unseen.append("(missing)")
    if unseen:
        raise new.error(
            name,
            f"has values that {old.name} lacks, {quoted_list(unseen, 3)}: leave those rows out, or "
            f"pass {option('--drop', name)}",
        )
    values = (places[:, None] == np.arange(count)).astype(np.float64)
    columns = [f"{name} = {label}" for label in [*labels, "(missing)"][:count]]
    became = "1 category became 1 column"
    if count > 1:
        became = f"{count} categories became {count} columns"
    return _Block(values, tuple(columns), (f"{name}: {became}.",))


def _check_count(old: Source, new: Source, name: str, count: int) -> None:
    """Refuse a column that names its rows or holds free text."""
    rows = len(old.frame) + len(new.frame)
    if count > MOST_CATEGORIES or (rows > FEW_ROWS and 2 * count > rows):
        names_rows = f" or {option('--id', name)}" if len(new.frame) else ""
        raise old.error(
            name,
            f"has {count} categories in {rows} rows, as names of rows or free text have: pass "
            f"{option('--drop', name)}{names_rows}",
        )


def _new_target(new: Source, target: str) -> tuple[Array | None, list[str]]:
    """Return the new rows' target if it is whole, otherwise None and why."""
    if target not in new.frame.columns:
        return None, []
    try:
        return target_values(new, target), []
    except TableError as error:
        return None, [f"The new rows are not scored. {error}."]
