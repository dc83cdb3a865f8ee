"""How the columns of a frame become features: fixed rules, and a list of the categories.

A number is a feature, a category is a code of which only equality matters, a date is a number with
sines and cosines of the year, the week and the day. Missing numbers are NaN, a missing category is
a code of its own. Nothing is learnt from the rows: which code a category has makes no difference,
and categories that were not listed share a code that no listed one has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..errors import TableError, column_error, counted, quoted_list
from .columns import (
    KINDS,
    Series,
    as_labels,
    as_numbers,
    check_dates,
    is_empty,
    kind_of,
    parts,
    present,
    type_of,
)
from .dates import date_features, date_names

Numbers = NDArray[np.float64]
Frame = nw.DataFrame[Any]
MISSING = -1.0  # code of a missing category
DATED = {"date": False, "moment": True}  # whether there is a time of day


@dataclass(frozen=True)
class Column:
    """A column of a frame: its name, a key of ``KINDS``, and its categories."""

    name: Any
    kind: str
    categories: tuple[str, ...] = ()
    declared: bool = False

    @property
    def names(self) -> list[str]:
        """Names of its features."""
        if self.kind in DATED:
            return date_names(str(self.name), DATED[self.kind])
        return [str(self.name)]

    @property
    def nominal(self) -> bool:
        return self.kind == "category"

    def read(self, series: Series, table: str) -> Numbers:
        """Its features, shape (rows, features)."""
        self._check(series, table)
        if self.nominal:
            return self._codes(series)[:, None]
        values = as_numbers(series, self.kind, table)
        if self.kind in DATED:
            return date_features(values, DATED[self.kind])
        return values[:, None]

    def _codes(self, series: Series) -> Numbers:
        codes: dict[str | None, float] = {name: float(k) for k, name in enumerate(self.categories)}
        codes[None] = MISSING
        unknown = float(len(self.categories))
        labels = (label for part in parts(series) for label in as_labels(part))
        return np.fromiter((codes.get(label, unknown) for label in labels), float, len(series))

    def _check(self, series: Series, table: str) -> None:
        """Refuse a column of another kind than in the rows that were fitted."""
        if self.declared or is_empty(series):
            return
        found = type_of(series)
        if found == "category" and self.kind in DATED:
            check_dates(self.name, present(series), table)
        elif found != self.kind and not {self.kind, found} <= set(DATED):
            was, is_now = KINDS[self.kind], KINDS.get(found, f"values of type {found}")
            message = f"has {is_now}, but had {was} in the rows that were fitted"
            raise column_error(table, self.name, f"{message}: pass the same type")


@dataclass(frozen=True)
class Schema:
    """The columns that become features, in their order."""

    columns: tuple[Column, ...]
    ignored: tuple[Any, ...] = ()

    @property
    def features(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def nominal(self) -> tuple[bool, ...]:
        """Which features are codes of categories."""
        return tuple(column.nominal for column in self.columns for _ in column.names)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers."""
        return all(column.kind == "number" for column in self.columns)

    def read(self, frame: Frame, table: str = "X") -> Numbers:
        """Features of the rows of a frame, shape (rows, features)."""
        series = dict(zip(frame.columns, frame.iter_columns(), strict=True))
        check_columns([column.name for column in self.columns], series, self.ignored, table)
        found, start = np.empty((len(frame), len(self.features))), 0
        for column in self.columns:  # one after the other: the table may be large
            end = start + len(column.names)
            found[:, start:end] = column.read(series[column.name], table)
            start = end
        return found

    def __str__(self) -> str:
        lines = [
            f"  {column.name}: {KINDS[column.kind]}"
            + (
                f", {counted(len(column.categories), 'category', 'categories')}"
                if column.nominal
                else ""
            )
            for column in self.columns
        ]
        return "\n".join([f"{counted(len(self.columns), 'column')}", *lines])


def schema_of(
    frame: Frame,
    others: Sequence[Frame] = (),
    categorical: Collection[Any] = (),
    ignored: Collection[Any] = (),
    table: str = "X",
) -> Schema:
    """The schema of a frame of training rows.

    Parameters
    ----------
    frame
        Training rows, which decide the kinds of the columns.
    others
        Further rows without labels, whose categories are listed too.
    categorical
        Names of columns whose numbers are codes of categories.
    ignored
        Names of columns that are no features.
    table
        What messages call the frame.

    """
    if len(set(frame.columns)) < len(frame.columns):
        twice = [name for name in frame.columns if frame.columns.count(name) > 1]
        raise TableError(
            f"{table}: several columns are named {quoted_list(twice[:1])}: rename them"
        )
    unknown = [name for name in (*categorical, *ignored) if name not in frame.columns]
    if unknown:
        known = f"the columns are {quoted_list(frame.columns)}"
        raise TableError(f"{table}: no column {quoted_list(unknown)}: {known}")
    columns = [
        _column(series, name, others, name in categorical, table)
        for name, series in zip(frame.columns, frame.iter_columns(), strict=True)
        if name not in ignored
    ]
    if not columns:
        raise TableError(f"{table}: no features are left: ignore fewer columns")
    return Schema(tuple(columns), tuple(ignored))


def _column(
    series: Series, name: Any, others: Sequence[Frame], declared: bool, table: str
) -> Column:
    kind = kind_of(series, table, declared)
    if kind != "category":
        return Column(name, kind)
    every = [series, *(_find(other, name) for other in others)]
    found = [part for one in every if one is not None for part in parts(one)]
    labels = {label for part in found for label in as_labels(part) if label is not None}
    return Column(name, kind, tuple(sorted(labels)), declared)


def _find(frame: Frame, name: Any) -> Series | None:
    return dict(zip(frame.columns, frame.iter_columns(), strict=True)).get(name)


def check_columns(
    expected: Sequence[Any], found: Collection[Any], ignored: Collection[Any], table: str
) -> None:
    """Refuse a frame that lacks a column or has one more."""
    lacking = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected and name not in ignored]
    if lacking:
        raise TableError(f"{table}: no column {quoted_list(lacking)}: pass the columns of the fit")
    if more:
        found = f"the rows that were fitted had no column {quoted_list(more)}"
        raise TableError(f"{table}: {found}: pass the columns of the fit alone")
