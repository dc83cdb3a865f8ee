"""Turn tables into arrays and keep the rows exchangeable.

The coverage guarantee requires that training and new rows are treated alike. So whatever is learned
from the rows here (types of columns, medians, lists of categories) is a symmetric function of the
rows of both files together, and does not use the target. No row is dropped or refused because of
what the other file lacks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blocks import category_block, number_blocks
from .columns import Source, check_finite, check_known, distinct_texts, to_numbers
from .formats import TableError, check_unique, counted, one_line, option, quoted, quoted_list
from .kinds import are_numbers, kind_of, kind_of_pool

if TYPE_CHECKING:
    import pandas as pd

    from ...records import Array

CATEGORY = "category"


@dataclass(frozen=True)
class Encoded:
    """Two tables as arrays, and what was done to them."""

    X: Array  # features of the training rows, shape (n, p)
    y: Array  # their target, (n,)
    X_new: Array  # features of the new rows, shape (m, p)
    y_new: Array | None  # their target, (m,), if the file has it without missing values
    ids: pd.Series | None  # the new rows' names, (m,), if there is a column of them
    columns: tuple[str, ...]  # of X: numbers and dates, missing-value indicators, categories
    notes: tuple[str, ...]  # what was done, one sentence each
    fitted: bool  # whether anything (medians, categories) was learned from the rows of both files


def encode(
    train: pd.DataFrame,
    test: pd.DataFrame,
    target: str,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    id_column: str | None = None,
    files: tuple[str, str] = ("TRAIN", "TEST"),
) -> Encoded:
    """Turn a file of training rows and a file of new rows into arrays.

    Numbers are unchanged, booleans become 0 and 1, dates become days since 1970-01-01, and
    durations days; missing ones become the median of both files and are marked in a column of
    their own. Text becomes a 0/1 column for each category that occurs in at least two rows of both
    files together.

    The n training rows and m new rows have the same columns in any order; ``test`` may lack the
    numeric ``target``. ``drop`` and ``id_column``, the new rows' names, are not features;
    ``categorical`` columns are categories even if they contain numbers. Messages name ``files``.
    """
    old, new = map(Source, (train, test), files)
    for source in (old, new):
        check_unique(source.frame.columns, source.name)
    apart = _check_names(old, new, target, drop, categorical, id_column)
    names = _features(old, new, apart)
    y = target_of(old, target)
    kinds = {name: kind_of_pool(name, old, new, name in categorical) for name in names}
    blocks = [
        *number_blocks(old, new, {name: kinds[name] for name in names if kinds[name] != CATEGORY}),
        *(category_block(old, new, name) for name in names if kinds[name] == CATEGORY),
    ]
    pool = np.hstack([block.values for block in blocks])
    if not pool.shape[1]:
        raise TableError(f"{old.name}: no features are left: drop fewer columns")
    y_new, remarks = new_target_of(new, target)
    notes = [note for block in blocks for note in block.notes]
    return Encoded(
        X=pool[: len(train)],
        y=y,
        X_new=pool[len(train) :],
        y_new=y_new,
        ids=None if id_column is None else test[id_column].reset_index(drop=True),
        columns=_distinct([name for block in blocks for name in block.columns]),
        notes=tuple(map(one_line, [*notes, *remarks])),
        fitted=any(block.fitted for block in blocks),
    )


def encode_one(
    frame: pd.DataFrame,
    target: str,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    name: str = "DATA",
) -> Encoded:
    """Turn one file into arrays, as ``encode`` does with two; there are no new rows."""
    nothing = frame.iloc[:0].drop(columns=target, errors="ignore")
    return encode(frame, nothing, target, drop, categorical, files=(name, name))


def target_of(source: Source, target: str) -> Array:
    """Return the target, (rows,), which must be numbers without missing values."""
    column = source[target]
    kind = kind_of(column)
    if kind == "text":
        rows = distinct_texts(column)
        value, row = list(rows.items())[int(np.argmin(are_numbers(list(rows))))]
        message = f"is the target and contains text, {quoted(value)} in row {row}: give numbers"
        raise source.error(target, message)
    if kind not in ("number", "empty"):
        shown = kind if str(column.dtype) == "object" else column.dtype
        raise source.error(target, f"is the target and has values of type {shown}: give numbers")
    values = to_numbers(column, "number")
    missing = np.isnan(values)
    if missing.any():
        found = counted(missing.sum(), "missing value")
        first = f"the first in row {missing.argmax() + 1}"
        raise source.error(target, f"is the target and has {found}, {first}: remove such rows")
    check_finite(source, [target], values[:, None])
    return values


def new_target_of(new: Source, target: str) -> tuple[Array | None, list[str]]:
    """Return the new rows' target if it is complete, otherwise None and why."""
    if target not in new.frame.columns:
        return None, []
    try:
        return target_of(new, target), []
    except TableError as error:
        return None, [f"The new rows are not scored. {error}."]


def _check_names(
    old: Source,
    new: Source,
    target: str,
    drop: Sequence[str],
    categorical: Sequence[str],
    id_column: str | None,
) -> set[str]:
    """Check the names that the user gave; return the columns that are not features."""
    ids = [] if id_column is None else [id_column]
    files = old.name if old.name == new.name else f"{old.name} and {new.name}"
    either = dict.fromkeys([*old.frame.columns, *new.frame.columns])
    check_known(target, old.frame.columns, old.name)
    for flag, names, columns, where in (
        ("--drop", drop, either, files),
        ("--categorical", categorical, old.frame.columns, old.name),
        ("--id", ids, new.frame.columns, new.name),
    ):
        for name in names:
            check_known(name, columns, where)
        if target in names:
            raise old.error(target, f"is the target: remove it from {flag}")
    return {target, *drop, *ids}


def _features(old: Source, new: Source, apart: set[str]) -> list[str]:
    """Return the columns that are features, in the order of the training file."""
    for here, there in ((old, new), (new, old)):
        extra = [c for c in here.frame.columns if c not in there.frame.columns and c not in apart]
        if extra:
            raise TableError(
                f"{there.name}: no column {quoted_list(extra)}, which {here.name} has: add what "
                "is missing, or pass --drop for each"
            )
    names = [name for name in old.frame.columns if name not in apart]
    for name in names:
        if re.fullmatch(r"Unnamed: \d+", str(name)):
            way_out = f"pass {option('--drop', name)}, or give it a name"
            raise old.error(name, f"has no name in the file and may be row numbers: {way_out}")
    return names


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, changed where they are another feature's too (a text "(missing)", say)."""
    found: dict[str, None] = {}
    for name in names:
        while name in found:
            name += " (2)"
        found[name] = None
    return tuple(found)
