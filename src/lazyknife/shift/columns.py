"""Rows of two tables as numbers, by rules that treat the rows of both alike."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from torch import Tensor

from ..records import Array

MOST_CATEGORIES = 50
DAY = 86_400e6  # microseconds
TIMES = (nw.Datetime, nw.Date, nw.Duration)


class Columns(NamedTuple):
    """Pooled rows: values (n + m, p), the training rows first; names of columns, and of dates."""

    values: Array
    names: tuple[str, ...]
    dates: frozenset[str] = frozenset()


def as_tables(X: Any, X_new: Any) -> tuple[Any, Any]:
    """Return two frames of narwhals with the same columns, or two arrays of numbers."""
    old, new = (nw.from_native(part, eager_only=True, pass_through=True) for part in (X, X_new))
    if not isinstance(old, nw.DataFrame) or not isinstance(new, nw.DataFrame):
        return _as_array(X, "X"), _as_array(X_new, "X_new")
    _check_columns(old.columns, new.columns)
    return old, new


def pool_tables(old: Any, new: Any, names: Any = None) -> Columns:
    """Return the rows of two tables as numbers; further axes of arrays are flattened."""
    if isinstance(old, nw.DataFrame):
        return _joined([_column(name, old[name], new[name]) for name in old.columns])
    if old.shape[1:] != new.shape[1:]:
        raise ValueError(
            f"X_new has rows of shape {new.shape[1:]}, but those of X have {old.shape[1:]}: pass "
            "the same features"
        )
    width = math.prod(old.shape[1:])
    rows = np.concatenate([part.reshape(len(part), width) for part in (old, new)]).astype(float)
    given = [f"x{place}" for place in range(width)] if names is None else names
    return _joined([_numbers(str(name), rows[:, k]) for k, name in enumerate(given)])


def _as_array(part: Any, name: str) -> Array:
    rows = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    if rows.ndim < 2 or rows.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has shape {rows.shape} and type {rows.dtype}: give rows of numbers, or a "
            "frame for both"
        )
    return rows


def _check_columns(old: list[str], new: list[str]) -> None:
    for name, have, lack in (("X_new", new, old), ("X", old, new)):
        missing = [column for column in lack if column not in have]
        if missing:
            raise ValueError(f"{name} has no columns {missing}: pass the same features")


def _column(name: str, old: nw.Series[Any], new: nw.Series[Any]) -> Columns:
    """Return the features of one column of both frames."""
    parts = [_as_numbers(part) for part in (old, new)]
    if all(part is not None for part in parts):
        dates = {name} if isinstance(old.dtype, nw.Datetime | nw.Date) else ()
        return _numbers(name, np.concatenate(parts))._replace(dates=frozenset(dates))  # type: ignore[arg-type]
    return _categories(name, np.concatenate([_texts(part) for part in (old, new)]))


def _as_numbers(part: nw.Series[Any]) -> Array | None:
    """Numbers, 0 and 1, or days, with NaN for missing values; None for text and other types."""
    if isinstance(part.dtype, TIMES):
        missing = part.is_null().to_numpy()
        zone = part.dt.replace_time_zone(None) if isinstance(part.dtype, nw.Datetime) else part
        unit = "datetime64[us]" if not isinstance(part.dtype, nw.Duration) else "timedelta64[us]"
        values = np.asarray(zone.to_numpy()).astype(unit).astype(np.int64) / DAY
        return np.where(missing, np.nan, values)
    if part.dtype.is_numeric() or isinstance(part.dtype, nw.Boolean):
        return np.array([np.nan if value is None else value for value in part.to_list()], float)
    return None


def _texts(part: nw.Series[Any]) -> Any:
    missing = part.is_null().to_numpy()
    return np.array(
        ["" if gone else str(v) for v, gone in zip(part.to_list(), missing, strict=True)], object
    )


def _numbers(name: str, values: Array) -> Columns:
    """Numbers, missing ones at the median, and a column that marks these."""
    missing = ~np.isfinite(values)
    if not missing.any():
        return Columns(values[:, None], (name,))
    middle = np.median(values[~missing]) if not missing.all() else 0.0
    filled = np.where(missing, middle, values)
    return Columns(np.column_stack([filled, missing]), (name, f"{name} is missing"))


def _categories(name: str, texts: Any) -> Columns:
    """0 and 1 for each of the most frequent categories that occur more than once."""
    found, places, counts = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
    kept = order[counts[order] > 1]
    named = tuple(f"{name} = {found[k]}" if found[k] else f"{name} is missing" for k in kept)
    return Columns((places[:, None] == kept).astype(np.float64), named)


def _joined(parts: list[Columns]) -> Columns:
    names = tuple(name for part in parts for name in part.names)
    dates = frozenset[str]().union(*(part.dates for part in parts))
    return Columns(np.hstack([part.values for part in parts]), names, dates)
