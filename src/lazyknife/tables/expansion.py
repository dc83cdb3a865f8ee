"""Rows of numbers, gaps and categories as numbers alone, for networks of finite width.

Gaps become medians and are marked in a column of their own; a category becomes a 0/1 column if at
least two rows have it, and a row with any other category has 0 in all of them: to a model without
its row such a category is unknown. What is learnt, medians and categories, is a symmetric function
of the rows that it is learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import column_error

Numbers = NDArray[np.float64]
MOST_CATEGORIES = 100  # columns that one feature may become


@dataclass(frozen=True)
class Expansion:
    """How features become columns.

    Attributes
    ----------
    names
        Of the features.
    medians
        Of each feature; NaN for nominal ones.
    marked
        Features whose gaps are marked in a column of their own.
    codes
        For each feature its codes that have a column; None for numbers.

    """

    names: tuple[str, ...]
    medians: tuple[float, ...]
    marked: tuple[int, ...]
    codes: tuple[tuple[float, ...] | None, ...]

    @property
    def learnt(self) -> bool:
        """Whether anything depends on the rows that it was learnt from."""
        return bool(self.marked) or any(codes is not None for codes in self.codes)

    def __call__(self, X: Numbers, table: str = "X") -> Numbers:
        """Columns: numbers, marks of gaps, categories; shape (rows, columns)."""
        numbers = [f for f, codes in enumerate(self.codes) if codes is None]
        gaps = np.isnan(X)
        self._check_gaps(gaps[:, numbers], numbers, table)
        if not self.learnt:  # nothing but numbers, of which none is missing
            return X
        filled = np.where(gaps, np.array(self.medians), X)[:, numbers]
        marks = gaps[:, list(self.marked)].astype(np.float64)
        categories = [
            np.equal.outer(X[:, f], codes).astype(np.float64)
            for f, codes in enumerate(self.codes)
            if codes is not None
        ]
        return np.hstack([filled, marks, *categories])

    @property
    def empty(self) -> bool:
        """Whether no column is left: all are categories that occur once."""
        return not self.marked and not any(codes is None or codes for codes in self.codes)

    def column_names(self, labels: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the columns, given the categories of each feature by code."""
        numbers = [
            name for name, codes in zip(self.names, self.codes, strict=True) if codes is None
        ]
        marks = [f"{self.names[f]} is missing" for f in self.marked]
        categories = [
            f"{name} = {labels[name][int(code)] if code >= 0 else '(missing)'}"
            for name, codes in zip(self.names, self.codes, strict=True)
            for code in codes or ()
        ]
        return [*numbers, *marks, *categories]

    def _check_gaps(self, gaps: NDArray[np.bool_], numbers: Sequence[int], table: str) -> None:
        found = [f for f, any_gap in zip(numbers, gaps.T, strict=True) if any_gap.any()]
        new = [self.names[f] for f in found if f not in self.marked]
        if new:
            message = "has missing values, but the rows that were fitted have none"
            way_out = "fill them, or pass the rows to predict as X_pool in fit"
            raise column_error(table, new[0], f"{message}: {way_out}")


def expansion_of(X: Numbers, nominal: Sequence[bool], names: Sequence[str]) -> Expansion:
    """Learn medians, gaps and categories from rows (rows, features)."""
    gaps = np.isnan(X).any(axis=0)
    medians = [
        np.nan if codes else _median(column) for column, codes in zip(X.T, nominal, strict=True)
    ]
    marked = tuple(int(f) for f in np.flatnonzero(gaps))
    codes = tuple(
        _repeated(column, name) if is_code else None
        for column, is_code, name in zip(X.T, nominal, names, strict=True)
    )
    return Expansion(tuple(names), tuple(medians), marked, codes)


def _median(column: Numbers) -> float:
    known = column[~np.isnan(column)]
    return float(2 * np.median(known / 2)) if len(known) else 0.0  # no overflow


def _repeated(column: Numbers, name: str) -> tuple[float, ...]:
    codes, counts = np.unique(column, return_counts=True)
    repeated = codes[counts > 1]
    if len(repeated) > MOST_CATEGORIES:
        found = f"has {len(repeated)} categories of two or more rows"
        way_out = f"more than {MOST_CATEGORIES}: merge some, or drop the column"
        raise column_error("X", name, f"{found}, {way_out}")
    return tuple(repeated.tolist())
