"""The target: numbers without gaps in the training file, wherever possible in the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .columns import Source, check_finite, distinct_texts, to_numbers
from .formats import TableError, counted, quoted
from .kinds import are_numbers, kind_of

if TYPE_CHECKING:
    from ...records import Array


def target_values(source: Source, target: str) -> Array:
    """Return the target, (rows,), which must be numbers without a gap."""
    column = source[target]
    kind = kind_of(column)
    if kind == "text":
        rows = distinct_texts(column)
        position = int(np.argmin(are_numbers(list(rows))))
        value, row = list(rows.items())[position]
        raise source.error(
            target, f"is the target and holds text, {quoted(value)} in row {row}: give numbers"
        )
    if kind not in ("number", "empty"):
        shown = kind if str(column.dtype) == "object" else column.dtype
        raise source.error(target, f"is the target and holds values of type {shown}: give numbers")
    values = to_numbers(column, "number")
    missing = np.isnan(values)
    if missing.any():
        raise source.error(
            target,
            f"is the target and has {counted(missing.sum(), 'missing value')}, the "
            f"first in row {int(np.argmax(missing)) + 1}: leave such rows out",
        )
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
