"""Recommendations: which method, which others are as good, which fall short."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from lazyknife.compare import differs, falls_short, recommend

FOLDS = 5


def rows(**methods):
    """Rows of a comparison: scores of five folds, coverage and certified coverage of methods."""
    return pd.DataFrame(
        {
            "method": name,
            "fold": fold,
            "n": 200,
            "n_test": 100,
            "score": score,
            "coverage": coverage,
            "certified": certified,
        }
        for name, (scores, coverage, certified) in methods.items()
        for fold, score in enumerate(scores)
    )


NOISE = np.array([0.0, 0.3, -0.3, 0.2, -0.2])


def test_the_smallest_score_wins_among_those_that_cover():
    found = recommend(
        rows(
            narrow=(5 + NOISE, 0.75, np.nan),
            best=(10 + NOISE, 0.9, 0.8),
            close=(10.1 - NOISE, 0.91, 0.8),
            worse=(20 + 2 * NOISE, 0.95, 0.9),
            broken=(NOISE * np.nan, np.nan, np.nan),
        ),
        alpha=0.1,
    )
    assert (found.method, found.same, found.unclear) == ("best", ("close",), ())
    assert found.short == ("narrow",)
    assert found.claim == "Use best; close did about as well."
    text = str(found)
    assert "not significantly below 90 %" in text
    assert "best guarantees a coverage of at least 0.800." in text
    assert text.endswith("Too little coverage: narrow.")


def test_a_clear_winner_and_one_without_a_guarantee():
    found = recommend(rows(a=(10 + NOISE, 0.9, np.nan), b=(12 + NOISE, 0.9, 0.8)), 0.1)
    assert found.claim == "Use a: it did better than all others by more than noise."
    assert "a has no coverage guarantee." in found.reasons


def test_a_much_larger_score_is_not_called_as_good_however_noisy():
    found = recommend(rows(a=(10 + NOISE, 0.9, 0.8), b=(30 + 100 * NOISE, 0.9, 0.8)), 0.1)
    assert (found.same, found.unclear) == ((), ("b",))
    assert found.claim == "Use a, which has the smallest interval score."
    assert "More folds would tell whether b can do as well." in found.reasons


def test_none_may_cover_enough():
    found = recommend(rows(a=(NOISE + 1, 0.5, 0.8), b=(NOISE + np.inf, 1.0, 0.8)), 0.1)
    assert found.method is None
    assert found.claim == "No method has finite intervals that cover enough on these data."


def test_a_method_that_covers_is_said_to_fall_short_in_about_1_percent_of_the_cases():
    """Of 2,000 draws at 1 %, more than 40 have a probability below 1e-5."""
    rng = np.random.default_rng(0)
    count = 0
    for _ in range(2000):
        chance = rng.beta(181, 20)  # of a miss-free row, given 200 training rows at alpha = .1
        drawn = rows(a=(NOISE, 0.0, 0.8))
        drawn["coverage"] = rng.binomial(100, chance, FOLDS) / 100
        count += falls_short(drawn, 0.1)
    assert 5 <= count <= binom.isf(1e-5, 2000, 0.01)


def test_differences_are_told_from_noise_by_a_paired_test():
    assert differs(np.array([1.0, 1.1, 0.9]))
    assert not differs(np.array([1.0, -1.1, 0.9]))
    assert not differs(np.array([1.0, 5.0]))
    assert not differs(np.zeros(4))


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_the_aim_follows_alpha(alpha):
    assert f"below {100 * (1 - alpha):g} %" in str(recommend(rows(a=(NOISE, 1.0, 0.5)), alpha))
