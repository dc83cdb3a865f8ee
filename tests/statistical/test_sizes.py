"""More rows never make intervals of the default wider, also where a part begins to choose."""

from itertools import pairwise

import numpy as np
import pytest

import lazyknife as lk
from reference import Array

SIZES = (800, 1000, 1001, 1600, 3200)  # beyond 1,000 rows a part of them chooses for all models
MOST = 1.02  # of the mean score with fewer rows


def rows(seed: int, n: int) -> tuple[Array, Array]:
    """Friedman's first function, with noise that varies and two features that do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 8))
    mean = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    mean += 10 * X[:, 3] + 5 * X[:, 4]
    return X, mean + (0.5 + 2 * X[:, 5]) * rng.normal(size=n)


@pytest.mark.slow
def test_the_mean_score_does_not_rise_with_the_number_of_rows() -> None:
    """Seeds are fixed, so there are no false alarms."""
    X_new, y_new = rows(99, 1500)
    tables = [rows(seed, SIZES[-1]) for seed in range(3)]
    scores = []
    for n in SIZES:
        fits = (lk.LazyJackknifeRegressor(random_state=0).fit(X[:n], y[:n]) for X, y in tables)
        found = [float(lk.interval_score(y_new, fit.predict_interval(X_new))) for fit in fits]
        scores.append(np.mean(found))
    assert all(later <= MOST * earlier for earlier, later in pairwise(scores))
    assert scores[-1] < 0.95 * scores[0]
