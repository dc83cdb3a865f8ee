"""The check on training rows: whether the interval of the other rows contains y.

The share of rows that are missed has as its mean exactly the probability of a miss with a row less;
intervals/games.py has those intervals in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .labels import label_columns

if TYPE_CHECKING:
    from .base import IntervalRegressor

Places = NDArray[np.intp]
MOST_VALUES, BINS = 10, 5  # numbers with more distinct values are binned


@dataclass(frozen=True, eq=False, repr=False)
class SelfCheck:
    """How many training rows the intervals of the other rows contain; prints as a sentence.

    Attributes
    ----------
    alpha
        The level of the intervals.
    rows
        Numbers of the rows that were checked, among those of ``fit``, shape (m,).
    covered
        Whether the interval of the other rows contains y, shape (m,).
    exact
        Whether these are the intervals of fits without the row. Otherwise settings were chosen
        without one of the two rows that a model leaves out, not without both.
    parts
        Name, number of rows and coverage of each part that was asked for.
    construction
        Whose intervals these are, if not those of the fit's construction.

    """

    alpha: float
    rows: Places
    covered: NDArray[np.bool_]
    exact: bool
    parts: tuple[tuple[str, int, float], ...] = ()
    construction: str = ""

    @property
    def coverage(self) -> float:
        """The share of rows that are covered."""
        return float(self.covered.mean())

    @property
    def error(self) -> float:
        """Its standard error, as if rows were independent; never 0."""
        count = len(self.covered) + 4
        share = (self.covered.sum() + 2) / count
        return math.sqrt(share * (1 - share) / count)

    def __repr__(self) -> str:
        count = len(self.covered)
        aim = f"{100 * (1 - self.alpha):.4g}%"
        by = f" (construction {self.construction!r})" if self.construction else ""
        found = (
            f"Checked on {count:,} training rows, each by the other rows{by}: {self.coverage:.1%} "
            f"± {self.error:.1%} of their y lie inside, and {aim} is the aim. This is an estimate, "
            "not a guarantee."
        )
        if not self.parts:
            return found
        size = max(len(name) for name, _, _ in self.parts)
        lines = [f"{name:{size}}  {rows:5,} rows  {part:6.1%}" for name, rows, part in self.parts]
        return "\n".join([found, *lines])


def coverage_of_parts(
    model: IntervalRegressor, by: Any, chosen: Places, covered: NDArray[np.bool_]
) -> Iterator[tuple[str, int, float]]:
    """Coverage of parts of the rows that were checked, which are some of those kept."""
    columns = list[list[Any]]()
    if by is not None:
        if isinstance(by, str):
            if model.kept_rows_ is None:
                raise ValueError(f"by={by!r}: a saved model has no rows: give a value for each")
            found = label_columns(by, model.kept_rows_, len(model.kept_), "by")
        else:
            every = label_columns(by, None, model.n_samples_fit_, "by")
            found = [[column[k] for k in model.kept_numbers_] for column in every]
        columns = [_binned([column[k] for k in chosen]) for column in found]
    elif model.groups_ is not None:
        own = model.groups_.some(model.kept_[chosen])
        for labels, codes in zip(own.labels, own.codes.T, strict=True):
            columns.append([str(labels[code]) for code in codes])
    for column in columns:
        for name in dict.fromkeys(sorted(column, key=_number)):
            inside = np.array([value == name for value in column])
            yield name, int(inside.sum()), float(covered[inside].mean())


def _number(name: str) -> tuple[float, str]:
    """Fifths in the order of their numbers, then labels by name."""
    start = name.split(" to ")[0]
    try:
        return float(start), name
    except ValueError:
        return math.inf, name


def _binned(values: list[Any]) -> list[str]:
    """Labels as text; numbers of which there are many as fifths."""
    is_number = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
    numbers = [v for v, known in zip(values, is_number, strict=True) if known]
    if len(set(numbers)) <= MOST_VALUES:
        return [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)))
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    names = iter(f"{edges[k]:.4g} to {edges[k + 1]:.4g}" for k in places)
    return [next(names) if known else str(v) for v, known in zip(values, is_number, strict=True)]
