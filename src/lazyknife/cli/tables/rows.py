"""The rows of the files as frames of features and targets, for an estimator that encodes frames."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import TableError, counted, quoted
from .formats import option
from .names import Roles
from .pools import kind_of

if TYPE_CHECKING:
    import pandas as pd

    from ...data.encoder import TableEncoder
    from ...data.schema import Schema
    from ...records import Array

NUMBERS = ("number", "boolean")


@dataclass(frozen=True)
class About:
    """What is said of the rows.

    Attributes
    ----------
    training, features
        Number of training rows and of columns that are features.
    y_new
        Target of the new rows; None if the file lacks it or some of it.
    ids
        Names of the new rows, if there is a column of them.
    notes
        What was done, one sentence each.

    """

    training: int
    features: int
    y_new: Array | None
    ids: pd.Series | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Training rows and new rows.

    Attributes
    ----------
    X, y
        Features of the training rows, a frame, and their target, shape (n,).
    X_new
        Features of the new rows.
    encoding
        How the columns become features; none if the user declared nothing.
    about
        What is said of them.

    """

    X: pd.DataFrame
    y: Array
    X_new: pd.DataFrame
    encoding: TableEncoder | None
    about: About


def split_rows(
    train: pd.DataFrame, test: pd.DataFrame | None, roles: Roles, files: tuple[str, str]
) -> Rows:
    """Separate features, target and names of rows.

    Without a file of new rows there are none. Columns must have been checked and typed.
    """
    from ...data.encoder import TableEncoder

    new = train.iloc[:0] if test is None else test
    names = _features(train, roles, files[0])
    encoder = TableEncoder(categorical=roles.categorical)
    X, X_new = train[names], new[names]
    y = target_of(train, str(roles.target), files[0])
    schema = encoder.schema(X, [X_new] if len(X_new) else [], table=files[0])
    y_new, remarks = (None, []) if test is None else new_target(test, str(roles.target), files[1])
    ids = None if roles.id_column is None else new[roles.id_column].reset_index(drop=True)
    notes = (*_notes(schema, X, X_new), *remarks)
    encoding = encoder if roles.categorical else None
    return Rows(X, y, X_new, encoding, About(len(X), len(names), y_new, ids, notes))


def _features(train: pd.DataFrame, roles: Roles, file: str) -> list[str]:
    names = [name for name in train.columns if name not in roles.apart]
    for name in names:
        if re.fullmatch(r"Unnamed: \d+", str(name)):
            way_out = f"pass {option('--drop', name)}, or give it a name"
            found = "has no name in the file and may be row numbers"
            raise TableError(f"{file}: column {quoted(name)} {found}: {way_out}")
    if not names:
        raise TableError(f"{file}: no features are left: drop fewer columns")
    return names


def target_of(frame: pd.DataFrame, target: str, file: str) -> Array:
    """Return the target, (rows,), which must be numbers without missing values."""
    column, what = frame[target], f"{file}: column {quoted(target)} is the target and"
    kind = kind_of(column)
    if kind == "text":
        first = quoted(column.dropna().iloc[0])
        raise TableError(f"{what} contains text, such as {first}: give numbers")
    if kind not in (*NUMBERS, "empty"):
        raise TableError(f"{what} has values of type {kind}: give numbers")
    values: Array = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    missing = np.isnan(values)
    if missing.any():
        found = counted(int(missing.sum()), "missing value")
        raise TableError(f"{what} has {found}, the first in row {missing.argmax() + 1}")
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax()) + 1
        raise TableError(f"{what} has an infinite value in row {row}: correct it")
    return values


def new_target(new: pd.DataFrame, target: str, file: str) -> tuple[Array | None, list[str]]:
    """Return the new rows' target if it is complete, otherwise None and why."""
    if target not in new.columns:
        return None, []
    try:
        return target_of(new, target, file), []
    except TableError as error:
        return None, [f"The new rows are not scored. {error}."]


def _notes(schema: Schema, X: Any, X_new: Any) -> Iterator[str]:
    """What becomes of columns that are not complete numbers."""
    for column in schema.columns:
        gaps = int(X[column.name].isna().sum() + X_new[column.name].isna().sum())
        if column.nominal:
            yield f"{column.name}: {counted(len(column.categories), 'category', 'categories')}."
        elif len(column.names) > 1:
            yield f"{column.name}: dates became days since 1970-01-01, and parts of their cycles."
        elif column.kind == "duration":
            yield f"{column.name}: durations became days."
        if gaps:
            yield f"{column.name}: {counted(gaps, 'missing value')}."
