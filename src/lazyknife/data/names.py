"""Names of columns: rows of several containers must have the same ones in the same order."""

from __future__ import annotations

from typing import Any


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a frame or an arrow table; None for what has no names."""
    names = getattr(X, "column_names", None) if hasattr(X, "schema") else None
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None or callable(names) else list(names)


def check_same_columns(X: Any, **others: Any) -> None:
    """Refuse further rows whose columns have other names than those of X, or another order."""
    expected = column_names(X)
    for argument, rows in others.items():
        found = column_names(rows)
        if expected is not None and found is not None and found != expected:
            raise ValueError(
                f"{argument} has the columns {found}, but X has {expected}: give the same columns "
                "in the same order"
            )
