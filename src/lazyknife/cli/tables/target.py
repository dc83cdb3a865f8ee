"""The target: numbers without missing values in the training file, if possible in the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .columns import Source, check_finite, distinct_texts, to_numbers
from .formats import TableError, counted, quoted
from .kinds import are_numbers, kind_of

if TYPE_CHECKING:
    from ...records import Array


def target_values(source: Source, target: str) -> Array:
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
        found = (
            f"{counted(missing.sum(), 'missing value')}, the first in row {missing.argmax() + 1}"
        )
        raise source.error(target, f"is the target and has {found}: remove such rows")
    check_finite(source, [target], values[:, None])
    return values


def new_target(new: Source, target: str) -> tuple[Array | None, list[str]]:
    """Return the new rows' target if it is complete, otherwise None and why."""
    if target not in new.frame.columns:
        return None, []
    try:
        return target_values(new, target), []
    except TableError as error:
        return None, [f"The new rows are not scored. {error}."]
