"""The two tests of exchangeability against slow twins, their false alarms and their power."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom, mannwhitneyu

from lazyknife.shift import (
    column_tests,
    deal,
    discriminant,
    held_out_scores,
    location_and_spread,
    midranks,
    rank_sum_test,
)


def labels(n, m):
    return np.arange(n + m) >= n


def test_ranks_of_equal_values_are_their_mean():
    np.testing.assert_allclose(
        midranks(np.array([[3.0], [1.0], [1.0]]))[:, 0], [3 / 4, 1.5 / 4, 1.5 / 4]
    )
    scores = location_and_spread(np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]))
    np.testing.assert_allclose(scores, [[-0.25, 0, 0.25, 0], [0, 0, 0, 0], [0.25, 0, 0.25, 0]])


def test_sums_of_columns_are_standardised_by_all_permutations():
    rng = np.random.default_rng(0)
    scores, new = rng.normal(size=(7, 3)), labels(4, 3)
    sums = np.array(
        [scores[list(pick)].sum(axis=0) for pick in itertools.combinations(range(7), 3)]
    )
    z, adjusted = column_tests(scores, new, rng)
    standardised = (sums - sums.mean(axis=0)) / sums.std(axis=0)
    np.testing.assert_allclose(z, standardised[-1], rtol=1e-9)
    exact = (np.abs(standardised).max(axis=1)[:, None] >= np.abs(z) - 1e-9).mean(axis=0)
    np.testing.assert_allclose(adjusted, exact, atol=0.06)  # 4 standard errors of 999 draws


def test_a_constant_column_says_nothing():
    z, adjusted = column_tests(np.ones((9, 2)), labels(5, 4), np.random.default_rng(0))
    assert z.tolist() == [0, 0]
    assert adjusted.tolist() == [1, 1]


def test_blocks_hold_every_row_once_and_both_kinds():
    new = labels(50, 23)
    blocks = deal(new, np.random.default_rng(0))
    assert sorted(np.concatenate(blocks)) == list(range(73))
    assert {int(new[block].sum()) for block in blocks} == {4, 5}


def test_one_block_gives_the_rank_sum_of_scipy():
    rng = np.random.default_rng(0)
    scores, new = rng.normal(size=80), labels(50, 30)
    expected = mannwhitneyu(scores[new], scores[~new], alternative="greater", method="asymptotic")
    p_value, area = rank_sum_test(scores, new, [np.arange(80)])
    assert p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert area == pytest.approx(expected.statistic / 1500)


def test_a_block_is_scored_by_the_blocks_before_it_alone():
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(60, 2)), labels(30, 30)
    blocks = deal(new, rng)
    scores = held_out_scores(rows, new, blocks)
    assert np.isnan(scores[blocks[0]]).all()
    before = np.concatenate(blocks[:2])
    expected = discriminant(rows[before], new[before], rows[blocks[2]])
    np.testing.assert_allclose(scores[blocks[2]], expected)


def test_very_many_features_are_scored_one_by_one():
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(40, 301)), labels(20, 20)
    rows[new, 7] += 9
    scores = discriminant(rows, new, rows)
    assert scores[new].min() > scores[~new].max()


RUNS = 400


def alarms(scored) -> int:
    """Runs with exchangeable rows whose p-value is at most .01."""
    rng, new, found = np.random.default_rng(0), labels(30, 30), 0
    for _ in range(RUNS):
        rows = rng.normal(size=(60, 8))
        blocks = deal(new, rng)
        found += rank_sum_test(*scored(rows, new, blocks))[0] <= 0.01
    return found


def test_held_out_scores_raise_few_false_alarms_and_in_sample_scores_many():
    """Of 400 runs at 1 %, more than 13 have a probability below 1e-4."""
    most = binom.isf(1e-4, RUNS, 0.01)
    assert alarms(lambda X, new, parts: (held_out_scores(X, new, parts), new, parts[1:])) <= most
    assert alarms(lambda X, new, parts: (discriminant(X, new, X), new, parts[1:])) > RUNS / 4
