"""The public encoder: a frame with columns of any kind as an array of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .expansion import expansion_of
from .schema import Frame, Schema, schema_of

Numbers = NDArray[np.float64]


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
        frames = [as_frame(each, name) for each, name in ((X, table), *((o, "X") for o in others))]
        found = [frame for frame in frames if frame is not None]
        if frames[0] is None:
            raise TypeError(f"{table} is of type {type(X).__name__}: give a frame")
        return schema_of(found[0], found[1:], _names(self.categorical), _names(self.ignore), table)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find kinds and categories of the columns, and medians of those with gaps."""
        self.schema_ = self.schema(X)
        rows = self.schema_.read(nw.from_native(X, eager_only=True))
        self.expansion_ = expansion_of(rows, self.schema_.nominal, self.schema_.features)
        return self

    def transform(self, X: Any) -> Numbers:
        """Return the rows as numbers, shape (rows, columns)."""
        check_is_fitted(self)
        frame = as_frame(X, "X")
        if frame is None:
            raise TypeError(f"X is of type {type(X).__name__}: give a frame")
        return self.expansion_(self.schema_.read(frame))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns that ``transform`` returns."""
        check_is_fitted(self)
        labels = {str(column.name): column.categories for column in self.schema_.columns}
        return np.array(self.expansion_.column_names(labels), dtype=object)


def as_frame(X: Any, name: str) -> Frame | None:
    """Return a frame of any library that narwhals reads, or None for what is not a frame."""
    try:
        found = nw.from_native(X, pass_through=True)
    except DuplicateError as error:
        raise ValueError(f"{name} has columns with equal names: rename them. {error}") from None
    if isinstance(found, nw.LazyFrame):
        way_out = "call .collect() (polars, DuckDB) or .compute() (Dask) first"
        raise TypeError(f"{name} is a lazy frame ({type(X).__name__}): {way_out}")
    return found if isinstance(found, nw.DataFrame) else None


def _names(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
