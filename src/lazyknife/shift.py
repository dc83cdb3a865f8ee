"""Whether new rows look like the training rows: a test of what every certificate assumes.

Rows of two tables become numbers by rules that treat the rows of both alike; two tests compare
them, one by permutations, one by a normal approximation of rank sums.

Labels say which of N pooled rows are new. If the rows are exchangeable, then all assignments of the
labels are equally likely given the pooled rows. Whatever is computed from the pool without the
labels (ranks, medians, categories) therefore changes neither test.

*Columns.* The statistic of a column of scores a is its sum over new rows, standardised by the mean
and variance of that sum under permutations. The largest |z| over all columns is compared with its
values under random permutations (Westfall and Young's single-step maxT), so that the adjusted
p-values hold for all columns together, whatever their ties and correlations.

*Classifier.* The rows are dealt into blocks at random. A classifier that was trained on the first k
blocks scores block k + 1, where the rank sum of the new rows, with ties in random order, has
Wilcoxon's distribution given all earlier blocks. The sums of different blocks are therefore
independent, which the sums of a cross-validation are not, and the sum of their standardised values
has mean 0 and variance 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .data.encoder import TableEncoder, expansion_of
from .data.schema import DATES, Schema, as_frame
from .records import Array

Flags = NDArray[np.bool_]
Places = NDArray[np.intp]

LEVEL = 0.01  # largest share of false alarms with exchangeable rows
MOST_ROWS, MOST_NUMBERS = 2000, 500_000  # of each side, and in both together
MOST_CATEGORIES = 50  # of a column; rarer ones count as one
NAMED = 3  # features in a sentence
CURE = (
    "If y depends on the features as before, predict_interval(X_new, weights='estimate') counts "
    "training rows by how common their like are among the new ones."
)
SEED = 0
PERMUTATIONS = 999
BLOCKS = 5
PENALTIES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # inverse, of a classifier
MOST_JOINT = 300  # features whose correlations the classifier uses


class ShiftWarning(UserWarning):
    """New rows do not look like the training rows."""


class Difference(NamedTuple):
    """A feature whose values differ between training and new rows."""

    name: str  # the feature, or "column = category"
    measure: str  # what differs most: a key of ``MEASURES``
    train: float  # its value in the training rows; dates are days since 1970-01-01
    new: float  # and in the new rows
    p_value: float  # adjusted for all features

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
        Of the hypothesis that training and new rows are exchangeable.
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

    @property
    def finding(self) -> str:
        if not self.clear:
            return (
                "The new rows look like the training rows in their features "
                f"(p = {self.p_value:.2g}). Whether y depends on them in the same way is not seen."
            )
        found = ""
        if self.auc is not None:
            found = f": a classifier tells them apart with an AUC of {self.auc:.2f} (.5: chance)"
        which = "No single feature differs clearly, but a combination of features does."
        if self.features:
            shown = "; ".join(map(str, self.features[:NAMED]))
            more = len(self.features) - NAMED
            rest = f"; and {more} more" if more > 0 else ""
            which = f"What differs, training → new: {shown}{rest}."
        return f"The new rows do not look like the training rows{found}. {which}"

    def __str__(self) -> str:
        return f"{self.finding} {CURE}" if self.clear else self.finding


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
    kept = [table[kept_places(*table.shape)] for table in (old, new)]
    return compare_rows(schema.read(kept[0], "X"), schema.read(kept[1], "X_new"), None, schema)


def estimate_weights(
    old: Array, new: Array, names: Any = None, schema: Schema | None = None
) -> tuple[Array, Array]:
    """Ratios of the density of new rows to that of old ones, at the old and at the new rows.

    Up to a factor they are the odds of a logistic regression that tells the rows apart, with the
    penalty that tells held-out rows apart best: with too small a one few rows have all the weight.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import StandardScaler

    columns = pool_rows(old, new, names, schema).values
    scaled = StandardScaler().fit_transform(columns)
    is_new = np.arange(len(scaled)) >= len(old)
    model = LogisticRegression(max_iter=1000)
    model = GridSearchCV(model, {"C": PENALTIES}, scoring="neg_log_loss", cv=BLOCKS)
    found = model.fit(scaled, is_new).decision_function(scaled)
    ratios = np.exp(found - found.max())  # up to a factor
    return ratios[: len(old)], ratios[len(old) :]


def compare_rows(old: Array, new: Array, names: Any = None, schema: Schema | None = None) -> Shift:
    """Test rows that are arrays already, shapes (n, ...) and (m, ...), read by a schema or not."""
    old, new = kept_rows(old), kept_rows(new)
    n, m = len(old), len(new)
    columns = pool_rows(old, new, names, schema) if n and m else None
    if columns is None or not columns.names:
        raise ValueError(
            f"X has {n} rows and X_new {m}, and there are no features to compare: give at least "
            "one row each, and a feature whose values occur more than once"
        )
    is_new = np.arange(n + m) >= n
    rng = np.random.default_rng(SEED)
    ranks = midranks(columns.values) - 0.5
    # Scores that grow with a value and with its distance from the median, shape (N, 2p).
    z, adjusted = column_tests(np.hstack([ranks, np.abs(ranks)]), is_new, rng)
    least, auc = float(adjusted.min()), None
    if min(n, m) >= 4 * BLOCKS:
        by_classifier, auc = classifier_test(columns.values, is_new, rng)
        adjusted = 2 * adjusted  # Bonferroni: there are two tests
        least = min(1.0, 2 * least, 2 * by_classifier)
    sizes, each = np.abs(z).reshape(2, -1), adjusted.reshape(2, -1).min(axis=0)
    clearest = np.argsort(-sizes.max(axis=0), kind="stable")
    features = [
        _difference(columns, k, n, sizes[0, k] >= sizes[1, k], float(each[k]))
        for k in clearest[each[clearest] <= LEVEL]
    ]
    return Shift(least, auc, tuple(features), n, m)


def kept_rows(rows: Array) -> Array:
    """Return the rows, or a sample of them, that a later check needs."""
    return np.ascontiguousarray(rows[kept_places(len(rows), math.prod(rows.shape[1:]))])


def kept_places(count: int, width: int) -> Any:
    """Places of at most as many rows as a check uses, in their order; a slice for all of them."""
    most = max(20, min(MOST_ROWS, MOST_NUMBERS // (2 * max(width, 1))))
    if count <= most:
        return slice(None)
    return np.sort(np.random.default_rng(SEED).permutation(count)[:most])


def _difference(columns: Columns, k: int, n: int, moved: bool, p_value: float) -> Difference:
    """Say how column k differs, in its location if it moved, else in its spread."""
    name, values = columns.names[k], columns.values[:, k]
    parts = (values[:n], values[n:])
    quartiles = [4 * np.quantile(part / 4, (0.25, 0.5, 0.75)) for part in parts]  # no overflow
    if np.isin(values, (0, 1)).all():
        measure, found = "share", [part.mean() for part in parts]
    elif moved:
        measure = "median date" if name in columns.dates else "median"
        found = [middle for _, middle, _ in quartiles]
    else:
        measure = "interquartile range"
        found = [float(high) - float(low) for low, _, high in quartiles]
    return Difference(name, measure, float(found[0]), float(found[1]), p_value)


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
        codes, counts = np.unique(rows[:, place], return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]]
        other = len(labels[schema.features[place]]) - 1
        rows[~np.isin(rows[:, place], frequent), place] = other
    expansion = expansion_of(rows, schema.nominal, schema.features)
    dates = frozenset(str(column.name) for column in schema.columns if column.kind in DATES)
    return Columns(expansion(rows), tuple(expansion.column_names(labels)), dates)


def _as_array(part: Any, name: str) -> Array:
    rows = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    if rows.ndim < 2 or rows.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has shape {rows.shape} and type {rows.dtype}: give rows of numbers, or a "
            "frame for both"
        )
    return rows


def midranks(values: Array) -> Array:
    """Ranks of each column, equal values sharing the mean of theirs, divided by N + 1: (N, p)."""
    from scipy.stats import rankdata

    ranks: Array = rankdata(values, axis=0) / (len(values) + 1)
    return ranks


def column_tests(scores: Array, new: Flags, rng: np.random.Generator) -> tuple[Array, Array]:
    """Standardised sums over new rows, and p-values adjusted for all columns, shapes (columns,)."""
    n, m = len(new), int(new.sum())
    centred = scores - scores.mean(axis=0)
    variance = centred.var(axis=0) * m * (n - m) / (n - 1)
    varies = variance > 1e-12
    centred = centred / np.sqrt(np.where(varies, variance, 1.0)) * varies
    z = centred[new].sum(axis=0)
    picks = np.argpartition(rng.random((PERMUTATIONS, n), dtype=np.float32), m - 1, axis=1)[:, :m]
    drawn = np.zeros((PERMUTATIONS, n), dtype=np.float32)
    np.put_along_axis(drawn, picks, 1.0, axis=1)
    largest = np.sort(np.abs(drawn @ centred.astype(np.float32)).max(axis=1))
    # Equal values count against an alarm, also where float32 has rounded them.
    above = PERMUTATIONS - np.searchsorted(largest, np.abs(z) * (1 - 1e-5) - 1e-6)
    return z, (1 + above) / (1 + PERMUTATIONS)


def deal(new: Flags, rng: np.random.Generator) -> list[Places]:
    """Cut the rows into blocks at random, each with its share of new rows."""
    old_parts, new_parts = (
        np.array_split(rng.permutation(np.flatnonzero(of)), BLOCKS) for of in (~new, new)
    )
    joined = (np.concatenate(parts) for parts in zip(old_parts, new_parts, strict=True))
    return [rng.permutation(part) for part in joined]


def discriminant(features: Array, new: Flags, rows: Array) -> Array:
    """Scores of rows by a linear discriminant that was trained on features and labels.

    Correlations are shrunk by d/(d + N), and left out if there are very many features.
    """
    n, d = features.shape
    means = [features[of].mean(axis=0) for of in (~new, new)]
    within = features - np.where(new[:, None], means[1], means[0])
    variances = within.var(axis=0) + 1e-6
    direction: Array = (means[1] - means[0]) / variances
    if d <= MOST_JOINT:
        covariance = within.T @ within / (n + d)
        np.fill_diagonal(covariance, variances)
        direction = np.linalg.solve(covariance, means[1] - means[0])
    return rows @ direction


def held_out_scores(features: Array, new: Flags, blocks: list[Places]) -> Array:
    """Scores of the rows of every block but the first, by a classifier of the blocks before."""
    scores = np.full(len(new), np.nan)
    for k in range(1, len(blocks)):
        before = np.concatenate(blocks[:k])
        scores[blocks[k]] = discriminant(features[before], new[before], features[blocks[k]])
    return scores


def rank_sum_test(scores: Array, new: Flags, blocks: list[Places]) -> tuple[float, float]:
    """One-sided p-value, and the area under the ROC curve, of scores in blocks of held-out rows.

    Rows of a block are in random order, which breaks ties. The total has steps, of which half of
    one is subtracted: a normal distribution stands for its null distribution.
    """
    total, area, step = 0.0, 0.0, 0.0
    for block in blocks:
        ranks = np.argsort(np.argsort(scores[block], kind="stable")) + 1
        m, n = int(new[block].sum()), len(block)
        beaten = float(ranks[new[block]].sum()) - m * (m + 1) / 2
        pairs = m * (n - m)
        deviation = math.sqrt(pairs * (n + 1) / 12)
        total, step = total + (beaten - pairs / 2) / deviation, max(step, 1 / deviation)
        area += beaten / pairs / len(blocks)
    return math.erfc((total - step / 2) / math.sqrt(2 * len(blocks))) / 2, area


def classifier_test(values: Array, new: Flags, rng: np.random.Generator) -> tuple[float, float]:
    """p-value and area under the ROC curve of a classifier of rows, shape (N, p), held out."""
    from scipy.special import ndtri

    normal = ndtri(midranks(values))
    squares = normal**2
    features = np.hstack([normal, squares - squares.mean(axis=0)])
    blocks = deal(new, rng)
    return rank_sum_test(held_out_scores(features, new, blocks), new, blocks[1:])
