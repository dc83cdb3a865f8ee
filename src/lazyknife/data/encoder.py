"""Frames as numbers alone, for networks of finite width: the public encoder, and what it learns.

What it learns from rows, medians and categories, is a symmetric function of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import TableError, column_error, quoted_list
from .schema import Column, Frame, Numbers, Schema, as_frame, categories_of, kind_of

MOST_CATEGORIES = 100  # columns that one feature may become


@dataclass(frozen=True)
class Expansion:
    """How features become numbers alone.

    Gaps become medians and are marked in a column of their own; a category becomes a 0/1 column if
    at least two rows have it, and a row with any other category has 0 in all of them: to a model
    without its row such a category is unknown.
    """

    names: tuple[str, ...]  # of the features
    medians: tuple[float, ...]  # of each feature; NaN for nominal ones
    marked: tuple[int, ...]  # features whose gaps are marked
    codes: tuple[tuple[float, ...] | None, ...]  # those with a column; None: feature of numbers

    @property
    def learnt(self) -> bool:
        """Whether anything depends on the rows that it was learnt from."""
        return bool(self.marked) or any(codes is not None for codes in self.codes)

    @property
    def empty(self) -> bool:
        """Whether no column is left: all are categories that occur once."""
        return not self.marked and not any(codes is None or codes for codes in self.codes)

    def __call__(self, X: Numbers) -> Numbers:
        """Columns: numbers, marks of gaps, categories; shape (rows, columns)."""
        numbers = [f for f, codes in enumerate(self.codes) if codes is None]
        gaps = np.isnan(X)
        new = [f for f in numbers if f not in self.marked and gaps[:, f].any()]
        if new:
            message = (
                "has missing values, but the rows that were fitted have none: fill them, or pass "
                "the rows to predict as X_pool in fit"
            )
            raise column_error("X", self.names[new[0]], message)
        if not self.learnt:  # nothing but numbers, of which none is missing
            return X
        filled = np.where(gaps, np.array(self.medians), X)[:, numbers]
        categories = [
            np.equal.outer(X[:, f], codes).astype(np.float64)
            for f, codes in enumerate(self.codes)
            if codes is not None
        ]
        return np.hstack([filled, gaps[:, list(self.marked)].astype(np.float64), *categories])

    def column_names(self, labels: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the columns, given the categories of each feature by code."""
        pairs = list(zip(self.names, self.codes, strict=True))
        numbers = [name for name, codes in pairs if codes is None]
        marks = [f"{self.names[f]} is missing" for f in self.marked]
        categories = [
            f"{name} = {labels[name][int(code)] if code >= 0 else '(missing)'}"
            for name, codes in pairs
            for code in codes or ()
        ]
        return [*numbers, *marks, *categories]


def expansion_of(X: Numbers, nominal: Sequence[bool], names: Sequence[str]) -> Expansion:
    """Learn medians, gaps and categories from rows (rows, features)."""
    medians: list[float] = []
    codes: list[tuple[float, ...] | None] = []
    for column, is_code, name in zip(X.T, nominal, names, strict=True):
        known = column[~np.isnan(column)]
        if is_code:
            found, counts = np.unique(column, return_counts=True)
            repeated = found[counts > 1]
            if len(repeated) > MOST_CATEGORIES:
                message = (
                    f"has {len(repeated)} categories of two or more rows, more than "
                    f"{MOST_CATEGORIES}: merge some, or drop the column"
                )
                raise column_error("X", name, message)
            codes.append(tuple(repeated.tolist()))
            medians.append(np.nan)
        else:
            codes.append(None)
            medians.append(float(2 * np.median(known / 2)) if len(known) else 0.0)  # no overflow
    marked = np.flatnonzero(np.isnan(X).any(axis=0)).tolist()
    return Expansion(tuple(names), tuple(medians), tuple(marked), tuple(codes))


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode the columns of a frame by fixed rules.

    Estimators encode frames themselves: pass an encoder as ``encoding`` only to change its
    settings. As a transformer of its own it returns numbers alone: numbers, days for dates and
    durations, sines and cosines of the cycles of dates, marks of missing values, and a 0/1 column
    for each category of at least two rows.

    Parameters
    ----------
    categorical
        Names of columns whose values, such as numbers, are codes of categories.
    ignore
        Names of columns that are no features.

    Attributes
    ----------
    schema_
        Kinds and categories of the columns; print it.

    """

    def __init__(self, categorical: Sequence[Any] = (), ignore: Sequence[Any] = ()) -> None:
        self.categorical = categorical
        self.ignore = ignore

    def schema(self, X: Any, others: Sequence[Any] = ()) -> Schema:
        """Kinds and categories of the columns of a frame.

        Its rows decide the kinds; categories of ``others``, further rows, are listed too.
        """
        categorical = _names("categorical", self.categorical)
        ignored = _names("ignore", self.ignore)
        frame, further = _frame(X), [as_frame(other, "X") for other in others]
        unknown = [name for name in (*categorical, *ignored) if name not in frame.columns]
        if unknown:
            known = quoted_list(frame.columns)
            raise TableError(f"X: no column {quoted_list(unknown)}: the columns are {known}")
        columns = []
        for name in (name for name in frame.columns if name not in ignored):
            every = [frame, *(each for each in further if each is not None)]
            found = [each.get_column(name) for each in every if name in each.columns]
            kind = kind_of(found[0], "X", name in categorical)
            labels = categories_of(found) if kind == "category" else ()
            columns.append(Column(name, kind, labels, name in categorical))
        if not columns:
            raise TableError("X: no features are left: ignore fewer columns")
        return Schema(tuple(columns), ignored)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find kinds and categories of the columns, and medians of those with gaps."""
        self.schema_ = self.schema(X)
        rows = self.schema_.read(_frame(X))
        self.expansion_ = expansion_of(rows, self.schema_.nominal, self.schema_.features)
        return self

    def transform(self, X: Any) -> Numbers:
        """Return the rows as numbers, shape (rows, columns)."""
        check_is_fitted(self)
        return self.expansion_(self.schema_.read(_frame(X)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        check_is_fitted(self)
        labels = {str(column.name): column.categories for column in self.schema_.columns}
        return np.array(self.expansion_.column_names(labels), dtype=object)


def _frame(X: Any) -> Frame:
    found = as_frame(X, "X")
    if found is None:
        raise TypeError(f"X is of type {type(X).__name__}: give a frame")
    return found


def _names(setting: str, given: Any) -> tuple[Any, ...]:
    try:
        return (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        raise TypeError(f"{setting}={given!r}: give names of columns") from None
