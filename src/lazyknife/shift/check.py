"""Whether two sets of rows look alike: the check, its record, and its sentence.

Rows of two tables become numbers by rules that treat the rows of both alike; ``ranks`` tests them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..data.encoder import TableEncoder, expansion_of
from ..data.schema import DATES, Schema, as_frame
from ..records import Array
from .ranks import BLOCKS, classifier_test, column_tests, location_and_spread

LEVEL = 0.01  # largest share of false alarms with exchangeable rows
MOST_ROWS, MOST_NUMBERS = 2000, 500_000  # of each side, and in both together
MOST_CATEGORIES = 50  # of a column; rarer ones count as one
NAMED = 3  # features in a sentence
SEED = 0


class ShiftWarning(UserWarning):
    """New rows do not look like the training rows."""


class Difference(NamedTuple):
    """A feature whose values differ between training and new rows.

    Attributes
    ----------
    name
        The feature, or "column = category".
    measure
        What differs most: a key of ``MEASURES``.
    train, new
        Its value in the training rows and in the new rows; dates are days since 1970-01-01.
    p_value
        Adjusted for all features.

    """

    name: str
    measure: str
    train: float
    new: float
    p_value: float

    def __str__(self) -> str:
        shown = MEASURES[self.measure]
        return f"{self.name} ({self.measure} {shown(self.train)} → {shown(self.new)})"


MEASURES: dict[str, Callable[[float], str]] = {
    "share": "{:.0%}".format,
    "median date": lambda days: str(np.datetime64(round(days), "D")),
    "median": "{:.4g}".format,
    "interquartile range": "{:.4g}".format,
}


@dataclass(frozen=True)
class Shift:
    """Whether new rows look like the training rows.

    Attributes
    ----------
    p_value
        Of the hypothesis that training and new rows are exchangeable. With exchangeable rows it is
        at most p with probability at most p, up to a normal approximation.
    auc
        Area under the ROC curve of a linear classifier of held-out rows: .5 is chance, 1 tells all
        rows apart. None with fewer than 20 rows on either side.
    features
        The features that differ, the clearest first; empty where only combinations of features do.
    n_train, n_new
        Numbers of rows that were compared, after sampling.
    clear
        Whether ``p_value`` is at most .01.

    """

    p_value: float
    auc: float | None
    features: tuple[Difference, ...]
    n_train: int
    n_new: int

    @property
    def clear(self) -> bool:
        """Whether the rows differ at a false-alarm rate of 1 %."""
        return self.p_value <= LEVEL

    def __str__(self) -> str:
        if not self.clear:
            return (
                "The new rows look like the training rows in their features "
                f"(p = {self.p_value:.2g}). Whether y depends on them in the same way is not seen."
            )
        sentence = "The new rows do not look like the training rows"
        if self.auc is not None:
            sentence += (
                f": a classifier tells them apart with an AUC of {self.auc:.2f} (.5: chance)"
            )
        return f"{sentence}. {self._which()}"

    def _which(self) -> str:
        if not self.features:
            return "No single feature differs clearly, but a combination of features does."
        shown = "; ".join(map(str, self.features[:NAMED]))
        more = len(self.features) - NAMED
        rest = f"; and {more} more" if more > 0 else ""
        return f"What differs, training → new: {shown}{rest}."


def check_exchangeable(X: Any, X_new: Any) -> Shift:
    """Test whether new rows look like the training rows, as every certificate assumes.

    Two tests are combined, whatever the distribution: one of each feature by permutations, adjusted
    for their number, and one of a linear classifier on rows that it was not trained on, by a normal
    approximation. Up to that, exchangeable rows have ``clear`` True in at most 1 % of the cases.

    The check only looks at X. It cannot see a change of y given x, nor rows that depend on each
    other, and few rows hide all but large shifts: no alarm is no proof. It changes neither
    intervals nor certificate and is therefore no leak; whether to use the intervals after an alarm
    is your decision.

    Parameters
    ----------
    X, X_new
        Training and new rows, shapes (n, ...) and (m, ...): arrays, tensors, or frames of the same
        columns with numbers, dates, text and missing values. Of more than 2,000 rows on a side a
        sample is taken, always the same; of rows with very many features a smaller one.

    Returns
    -------
    Shift
        Print it.

    """
    old, new = as_frame(X, "X"), as_frame(X_new, "X_new")
    if old is None or new is None:
        return compare_rows(_as_array(X, "X"), _as_array(X_new, "X_new"))
    schema = TableEncoder().schema(X, [X_new])
    old, new = (table[kept_places(len(table), table.shape[1])] for table in (old, new))
    return _check(schema.read(old, "X"), schema.read(new, "X_new"), None, schema)


def compare_rows(old: Array, new: Array, names: Any = None, schema: Schema | None = None) -> Shift:
    """Test rows that are arrays already, shapes (n, ...) and (m, ...), read by a schema or not."""
    return _check(kept_rows(old), kept_rows(new), names, schema)


def kept_rows(rows: Array) -> Array:
    """Return the rows, or a sample of them, that a later check needs."""
    return np.ascontiguousarray(rows[kept_places(len(rows), math.prod(rows.shape[1:]))])


def kept_places(count: int, width: int) -> Any:
    """Places of at most as many rows as a check uses, in their order; a slice for all of them."""
    most = max(20, min(MOST_ROWS, MOST_NUMBERS // (2 * max(width, 1))))
    if count <= most:
        return slice(None)
    return np.sort(np.random.default_rng(SEED).permutation(count)[:most])


def _check(old: Array, new: Array, names: Any, schema: Schema | None) -> Shift:
    n, m = len(old), len(new)
    columns = pool_rows(old, new, names, schema) if n and m else None
    if columns is None or not columns.names:
        raise ValueError(
            f"X has {n} rows and X_new {m}, and there are no features to compare: give at least "
            "one row each, and a feature whose values occur more than once"
        )
    is_new = np.arange(n + m) >= n
    rng = np.random.default_rng(SEED)
    z, adjusted = column_tests(location_and_spread(columns.values), is_new, rng)
    least, auc = float(adjusted.min()), None
    if min(n, m) >= 4 * BLOCKS:
        by_classifier, auc = classifier_test(columns.values, is_new, rng)
        adjusted = 2 * adjusted  # Bonferroni: there are two tests
        least = min(1.0, 2 * least, 2 * by_classifier)
    return Shift(least, auc, _differences(columns, n, z, adjusted), n, m)


def _differences(columns: Columns, n: int, z: Array, adjusted: Array) -> tuple[Difference, ...]:
    """Return the features with a p-value of at most .01 in location or spread."""
    sizes, least = np.abs(z).reshape(2, -1), adjusted.reshape(2, -1).min(axis=0)
    found = []
    for k in np.argsort(-sizes.max(axis=0), kind="stable"):
        if least[k] <= LEVEL:
            measure = _measure(columns, int(k), sizes[0, k] >= sizes[1, k])
            train, new = (_typical(measure, part) for part in np.split(columns.values[:, k], [n]))
            found.append(Difference(columns.names[k], measure, train, new, float(least[k])))
    return tuple(found)


def _measure(columns: Columns, k: int, moved: bool) -> str:
    if np.isin(columns.values[:, k], (0, 1)).all():
        return "share"
    if not moved:
        return "interquartile range"
    return "median date" if columns.names[k] in columns.dates else "median"


def _typical(measure: str, values: Array) -> float:
    if measure == "share":
        return float(values.mean())
    low, middle, high = 4 * np.quantile(values / 4, (0.25, 0.5, 0.75))  # no overflow
    return float(high) - float(low) if measure == "interquartile range" else float(middle)


class Columns(NamedTuple):
    """Pooled rows: values (n + m, p), the training rows first; names of columns, and of dates."""

    values: Array
    names: tuple[str, ...]
    dates: frozenset[str]


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
