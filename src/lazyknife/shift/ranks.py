"""Two tests of exchangeability: one by permutations, one by a normal approximation of rank sums.

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

import numpy as np
from numpy.typing import NDArray

from ..records import Array

Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Scorer = Callable[[Array, Flags, Array], Array]

PERMUTATIONS = 999
BLOCKS = 5
MOST_JOINT = 300  # features whose correlations the classifier uses


def midranks(values: Array) -> Array:
    """Ranks of each column, equal values sharing the mean of theirs, divided by N + 1: (N, p)."""
    from scipy.stats import rankdata

    ranks: Array = rankdata(values, axis=0) / (len(values) + 1)
    return ranks


def location_and_spread(values: Array) -> Array:
    """Scores that grow with a value and with its distance from the median, shape (N, 2p)."""
    ranks = midranks(values) - 0.5
    return np.hstack([ranks, np.abs(ranks)])


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


def held_out_scores(
    features: Array, new: Flags, blocks: list[Places], scorer: Scorer = discriminant
) -> Array:
    """Scores of the rows of every block but the first, by a classifier of the blocks before."""
    scores = np.full(len(new), np.nan)
    for k in range(1, len(blocks)):
        before = np.concatenate(blocks[:k])
        scores[blocks[k]] = scorer(features[before], new[before], features[blocks[k]])
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
