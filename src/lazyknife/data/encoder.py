"""The public encoder: a frame with columns of any kind as an array of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .schema import Frame, Numbers, Schema, as_frame, expansion_of, schema_of


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

    def schema(self, X: Any, others: Sequence[Any] = (), table: str = "X") -> Schema:
        """Kinds and categories of the columns of a frame; ``others`` are further rows."""
        frames = [frame for other in others if (frame := as_frame(other, "X")) is not None]
        names = (_names("categorical", self.categorical), _names("ignore", self.ignore))
        return schema_of(_frame(X, table), frames, *names, table)

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
        """Names of the columns that ``transform`` returns."""
        check_is_fitted(self)
        labels = {str(column.name): column.categories for column in self.schema_.columns}
        return np.array(self.expansion_.column_names(labels), dtype=object)


def _frame(X: Any, table: str = "X") -> Frame:
    found = as_frame(X, table)
    if found is None:
        raise TypeError(f"{table} is of type {type(X).__name__}: give a frame")
    return found


def _names(setting: str, given: Any) -> tuple[Any, ...]:
    try:
        return (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        raise TypeError(f"{setting}={given!r}: give names of columns") from None
