"""The bounds of labelled rows by enumeration: every order of a few values, nothing simulated.

Rows carry labels (coins, folds) and models are functions of the rows and labels that they see. A
model is here a table: for each value and each set of rows that it saw, a score.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from lazyknife.intervals import find_construction

Labels = tuple[int, ...]
Scores = dict[Any, float]


def missed(labels: Labels, scores: Scores, folds: bool, rank: int) -> Fraction:
    """How many of all orders of n + 1 values miss the last one, by jackknife+ or CV+."""
    n = len(labels)
    found = 0
    for order in permutations(range(n + 1)):
        new, lost = order[n], 0
        for j in range(n):
            kept = [i for i in range(n) if (labels[i] != labels[j] if folds else i != j)]
            seen = frozenset((order[i], labels[i]) for i in kept)
            lost += scores[seen, new] <= scores[seen, order[j]]
        found += lost <= rank - 1
    return Fraction(found, len(list(permutations(range(n + 1)))))


def random_scores(seed: int) -> Scores:
    generator = np.random.default_rng(seed)
    return defaultdict(lambda: float(generator.random()))


# Each of two models prefers one of the two values that it did not see; see by hand.
WORST = {(0, 1): 1, (2, 2): 1, (1, 1): 2, (0, 2): 2, (2, 1): 0, (1, 2): 0}


def test_coins_of_a_given_seed_miss_more_often_than_on_average_over_seeds() -> None:
    scores: Scores = {
        (frozenset({seen}), value): float(value == best)
        for seen, best in WORST.items()
        for value in range(3)
    }
    plus = find_construction("plus")
    worst = missed((1, 2), scores, False, 1)
    assert worst == Fraction(1, 2) == plus.miss_of_any_seed(1, 2, 1)  # type: ignore[comparison-overlap]
    assert worst > plus.miss(1, 2, 1)  # type: ignore[operator]
    every = [missed(labels, scores, False, 1) for labels in ((1, 1), (1, 2), (2, 1), (2, 2))]
    assert sum(every) / 4 <= Fraction(1, 3)  # on average over the coins


COINS = [(0, 0, 1), (0, 1, 1), (0, 0, 0), (0, 0, 1, 1), (0, 0, 0, 1)]
FOLDS = [(0, 0, 1), (0, 0, 0, 1), (0, 0, 1, 2), (0, 0, 1, 1)]


@pytest.mark.parametrize(
    ("labels", "folds"),
    [*((labels, 0) for labels in COINS), *((labels, len(set(labels))) for labels in FOLDS)],
)
@pytest.mark.parametrize("rank", [1, 2])
def test_no_table_misses_more_often_than_the_bound_of_its_labels(
    labels: Labels, folds: int, rank: int
) -> None:
    plus, folded = find_construction("plus"), find_construction("cv+")
    bound = (folded.miss if folds else plus.miss_of_any_seed)(rank, len(labels), folds or 1)  # type: ignore[misc]
    found = [missed(labels, random_scores(seed), folds > 0, rank) for seed in range(20)]
    assert 0 < max(found) <= bound + 1e-12


def test_a_bound_of_folds_without_their_number_would_be_wrong() -> None:
    """The mutant: what jackknife+ has, (2κ − 1)/(n + 1), as the bound of unequal folds.

    Each model prefers c + 1 (modulo 4) to other values, where c is the one that the other saw.
    """
    scores: Scores = defaultdict(float)
    for c in range(4):
        best = (c + 1) % 4
        pair = frozenset((value, 0) for value in range(4) if value not in (c, best))
        scores[frozenset({(c, 1)}), best] = scores[pair, best] = 1.0
    found = missed((0, 0, 1), scores, True, 1)
    assert found == Fraction(1, 3)
    assert find_construction("plus").miss(1, 3, 1) < found  # type: ignore[operator]
    assert found <= find_construction("cv+").miss(1, 3, 2)  # type: ignore[operator]
