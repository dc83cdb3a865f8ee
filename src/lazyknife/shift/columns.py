"""Rows of two tables as numbers, by rules that treat the rows of both alike."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..data.encoder import TableEncoder
from ..data.schema import Schema, as_frame, expansion_of
from ..records import Array

MOST_CATEGORIES = 50
DATES = ("date", "moment")  # kinds of columns whose first feature is days


class Tables(NamedTuple):
    """Two tables as they were passed: frames of narwhals with a schema, or arrays without."""

    old: Any
    new: Any
    schema: Schema | None = None


class Columns(NamedTuple):
    """Pooled rows: values (n + m, p), the training rows first; names of columns, and of dates."""

    values: Array
    names: tuple[str, ...]
    dates: frozenset[str]


def as_tables(X: Any, X_new: Any) -> Tables:
    """Return two frames with the same columns, or two arrays of numbers."""
    old, new = as_frame(X, "X"), as_frame(X_new, "X_new")
    if old is None or new is None:
        return Tables(_as_array(X, "X"), _as_array(X_new, "X_new"))
    return Tables(old, new, TableEncoder().schema(X, [X_new]))


def as_rows(table: Any, schema: Schema | None, name: str) -> Array:
    """Return an array of a table: codes for categories, NaN for missing values."""
    return table if schema is None else schema.read(table, name)


def pool_rows(old: Array, new: Array, names: Any, schema: Schema | None) -> Columns:
    """Return the rows of two arrays as numbers alone; further axes are flattened."""
    if old.shape[1:] != new.shape[1:]:
        raise ValueError(
            f"X_new has rows of shape {new.shape[1:]}, but those of X have {old.shape[1:]}: pass "
            "the same features"
        )
    width = math.prod(old.shape[1:])
    rows = np.concatenate([part.reshape(len(part), width) for part in (old, new)]).astype(float)
    rows[np.isinf(rows)] = np.nan
    if schema is None:
        given = [f"x{place}" for place in range(width)] if names is None else list(map(str, names))
        expansion = expansion_of(rows, (False,) * width, given)
        return Columns(expansion(rows), tuple(expansion.column_names({})), frozenset())
    labels = {str(column.name): (*column.categories, "(other)") for column in schema.columns}
    for place in np.flatnonzero(schema.nominal):
        rows[:, place] = _frequent(rows[:, place], len(labels[schema.features[place]]) - 1)
    expansion = expansion_of(rows, schema.nominal, schema.features)
    dates = frozenset(str(column.name) for column in schema.columns if column.kind in DATES)
    return Columns(expansion(rows), tuple(expansion.column_names(labels)), dates)


def _frequent(codes: Array, other: int) -> Array:
    """Codes of the most frequent categories of the pool; rarer ones share the code ``other``."""
    found, counts = np.unique(codes, return_counts=True)
    kept = found[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]]
    return np.where(np.isin(codes, kept), codes, float(other))


def _as_array(part: Any, name: str) -> Array:
    rows = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    if rows.ndim < 2 or rows.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has shape {rows.shape} and type {rows.dtype}: give rows of numbers, or a "
            "frame for both"
        )
    return rows
