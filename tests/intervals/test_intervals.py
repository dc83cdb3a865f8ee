"""Ranks in exact arithmetic, order statistics by sorting, and every construction by definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from lazyknife.intervals import (
    CONSTRUCTIONS,
    kappa,
    kth_largest,
    kth_smallest,
    rows_needed,
)
from lazyknife.intervals.order import SHORT
from lazyknife.records import Predictions
from reference import lower_quantile, upper_quantile

ZERO = torch.zeros((), dtype=torch.float64)


@dataclass(frozen=True)
class Models:
    """Leave-one-out models given by their numbers alone."""

    residuals: Tensor
    training_residuals: Tensor
    full: Tensor  # (m,)
    each: Tensor  # (m, n)
    own: Tensor  # (n,)
    sigma: Tensor  # (m, n)
    slack: Tensor = ZERO  # of each row

    @property
    def scores(self) -> Tensor:
        return self.residuals.abs() / self.own

    def scaled(self, X: Tensor) -> Predictions:
        return Predictions(*self.predict(X), self.sigma[: len(X)], ZERO, self.slack)

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        margin = kth_largest(self.residuals.abs(), ranks).expand(len(X), -1)
        return self.full[: len(X)], self.full[:, None] - margin, self.full[:, None] + margin

    def point(self, X: Tensor) -> Tensor:
        return self.full[: len(X)]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.full[: len(X)], self.each[: len(X)]


def random_models(n: int, m: int, seed: int) -> tuple[Models, Tensor]:
    rng = np.random.default_rng(seed)
    tensors = [rng.normal(size=shape).round(1) for shape in (n, n, m, (m, n))]  # rounded: ties
    scales = [2.0 ** rng.integers(-2, 3, size=shape) for shape in (n, (m, n))]
    return Models(*map(torch.from_numpy, (*tensors, *scales))), torch.zeros(m, 2)


def test_kappa_is_exact_at_the_traps_of_floating_point() -> None:
    """Levels as they are written, and as one minus a coverage."""
    for n in (*range(1, 201), 998, 999, 1998, 1999, 9998, 9999, 999_998, 999_999):
        for k in range(1, 1000):
            exact = reference.rank(Fraction(k, 1000), n)
            assert kappa(k / 1000, n) == kappa(1 - (1000 - k) / 1000, n) == exact, (k, n)


def test_rows_needed_is_the_least_number_of_rows_with_a_finite_interval() -> None:
    for k in range(1, 1000):
        expected = max(math.ceil(Fraction(1000, k)) - 1, 1)
        assert rows_needed(k / 1000) == expected
        assert reference.rank(Fraction(k, 1000), expected) >= 1
    assert [rows_needed(1 - 0.9), rows_needed(1 - 0.95), rows_needed(1e-5)] == [9, 19, 99_999]
    assert rows_needed(1e-15) == pytest.approx(1e15, rel=1e-6)  # the least level of a setting


def check_against_sorting(rows: Tensor, ranks: list[int]) -> None:
    """Each rank's order statistics of every row; the rows stay as they are."""
    before, n = rows.clone(), rows.shape[-1]
    ordered = np.sort(rows.numpy(), axis=-1)
    ends = np.full((*rows.shape[:-1], 1), np.inf)
    padded = np.concatenate([-ends, ordered, ends], axis=-1)
    smallest, largest = kth_smallest(rows, ranks), kth_largest(rows, ranks)
    np.testing.assert_array_equal(smallest, padded[..., ranks])
    np.testing.assert_array_equal(largest, padded[..., [n + 1 - k for k in ranks]])
    assert smallest.dtype == largest.dtype == rows.dtype
    assert torch.equal(rows, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("n", [1, 2, SHORT - 1, SHORT, SHORT + 1, 3 * SHORT])
def test_short_and_long_rows_agree_with_sorting(n: int, ties: bool, dtype: torch.dtype) -> None:
    values = np.random.default_rng(n).normal(size=(5, n))
    rows = torch.from_numpy(values.round(1) if ties else values).to(dtype)
    middle = (n + 1) // 2
    for ranks in ([0], [1], [n], [middle], [0, 0], [middle, 0, n, 1, n], [n, n - 1], [1, 0]):
        check_against_sorting(rows, ranks)
        check_against_sorting(rows[0], ranks)
        check_against_sorting(rows[:0], ranks)
        check_against_sorting(rows.T.contiguous().T, ranks)


def test_infinite_values_keep_their_place() -> None:
    for n in (6, SHORT + 6):
        rows = torch.linspace(-1, 1, n, dtype=torch.float64).repeat(2, 1)
        rows[0, :2], rows[1, 3] = torch.inf, -torch.inf
        for ranks in ([1], [n], [1, 2, 3, n], [0, 2]):
            check_against_sorting(rows, ranks)


def plus(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    margins = [s * score for s, score in zip(loo.sigma[row].tolist(), scores(loo), strict=True)]
    pairs = list(zip(loo.each[row].tolist(), margins, strict=True))
    return (
        lower_quantile([f - margin for f, margin in pairs], alpha),
        upper_quantile([f + margin for f, margin in pairs], alpha),
    )


def scores(loo: Models) -> list[float]:
    return [abs(e) / s for e, s in zip(loo.residuals.tolist(), loo.own.tolist(), strict=True)]


def minmax(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    score = upper_quantile(scores(loo), alpha)
    pairs = list(zip(loo.each[row].tolist(), loo.sigma[row].tolist(), strict=True))
    return min(f - score * s for f, s in pairs), max(f + score * s for f, s in pairs)


def jackknife(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    margin = upper_quantile([abs(e) for e in loo.residuals.tolist()], alpha)
    return float(loo.full[row]) - margin, float(loo.full[row]) + margin


def naive(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    margin = upper_quantile([abs(e) for e in loo.training_residuals.tolist()], alpha)
    return float(loo.full[row]) - margin, float(loo.full[row]) + margin


DEFINITIONS = {
    "plus": plus,
    "cv+": plus,
    "minmax": minmax,
    "jackknife": jackknife,
    "naive": naive,
    "full": jackknife,  # of these models; those of full.py have a test of their own
}


def test_every_construction_has_a_definition() -> None:
    assert DEFINITIONS.keys() == CONSTRUCTIONS.keys()
    assert [n for n, kind in CONSTRUCTIONS.items() if not kind.any_models] == ["full", "cv+"]


@pytest.mark.parametrize("name", DEFINITIONS)
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 25), m=st.integers(1, 3), k=st.integers(1, 999), seed=st.integers(0, 999))
def test_construction_equals_its_definition(name: str, n: int, m: int, k: int, seed: int) -> None:
    loo, X = random_models(n, m, seed)
    point, lower, upper = CONSTRUCTIONS[name].ends(loo, X, [kappa(k / 1000, n)])
    assert torch.equal(point, loo.full)
    expected = [DEFINITIONS[name](loo, row, Fraction(k, 1000)) for row in range(m)]
    low, high = np.array(expected).T
    # Widened by rounding, never narrowed.
    if CONSTRUCTIONS[name].miss is not None:
        assert (lower[:, 0].numpy() <= low).all()
        assert (upper[:, 0].numpy() >= high).all()
    np.testing.assert_allclose(lower[:, 0], low, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(upper[:, 0], high, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ["plus", "minmax", "cv+"])
def test_ends_move_outwards_by_what_rounding_may_change(name: str) -> None:
    loo, X = random_models(9, 3, seed=0)
    slack = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    _, lower, upper = CONSTRUCTIONS[name].ends(replace(loo, slack=slack), X, [2])
    low, high = np.array([DEFINITIONS[name](loo, row, Fraction(1, 5)) for row in range(3)]).T
    assert (lower[:, 0].numpy() < low - slack.numpy()).all()
    assert (upper[:, 0].numpy() > high + slack.numpy()).all()
    np.testing.assert_allclose(lower[:, 0], low - slack.numpy(), rtol=1e-14)
    np.testing.assert_allclose(upper[:, 0], high + slack.numpy(), rtol=1e-14)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_several_levels_at_once_equal_single_levels(name: str) -> None:
    loo, X = random_models(20, 3, seed=0)
    ranks = [4, 0, 1, 20, 4]
    _, lower, upper = CONSTRUCTIONS[name].ends(loo, X, ranks)
    assert lower.shape == upper.shape == (3, 5)
    for column, k in enumerate(ranks):
        _, low, high = CONSTRUCTIONS[name].ends(loo, X, [k])
        assert torch.equal(lower[:, [column]], low)
        assert torch.equal(upper[:, [column]], high)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_rank_zero_gives_the_whole_line(name: str) -> None:
    loo, X = random_models(5, 3, seed=0)
    _, lower, upper = CONSTRUCTIONS[name].ends(loo, X, [0])
    assert (lower == -torch.inf).all()
    assert (upper == torch.inf).all()


def miss(name: str, rank: int, n: int, folds: int = 0) -> float:
    bound = CONSTRUCTIONS[name].miss
    assert bound is not None
    return bound(rank, n, folds)


def test_miss_bounds() -> None:
    assert [miss("plus", k, 100) for k in (0, 1, 10)] == [0, 1 / 101, 19 / 101]
    for name in ("minmax", "full"):
        assert [miss(name, k, 100) for k in (0, 1, 10)] == [0, 1 / 101, 10 / 101]
    assert [name for name, kind in CONSTRUCTIONS.items() if kind.miss is None] == [
        "jackknife",
        "naive",
    ]


def test_the_bound_of_folds() -> None:
    assert miss("cv+", 10, 100, 10) == pytest.approx(28 / 110)
    assert miss("cv+", 90, 1000, 4) == pytest.approx(182 / 1004)  # many rows in a fold
    assert miss("cv+", 0, 7, 10) == 0.0  # an infinite interval covers
    assert miss("cv+", 44, 442, 10) == pytest.approx(96 / 452)  # folds of 44 and 45 rows
    assert miss("cv+", 100, 100, 10) == 1.0
    folds = CONSTRUCTIONS["cv+"]
    assert folds.bound(0.1, 100, 50, independent=False)[:2] == (68 / 150, 1)
    assert folds.bound(0.1, 100, 50, independent=True)[:2] == (20 / 102, 2)
    assert folds.bound(0.1, 100, 50, independent=True, new_rows=1)[:2] == (
        68 / 150,
        1,
    )
    assert folds.bound(0.1, 100, 5, independent=True)[:2] == (23 / 105, 1)
    assert folds.bound(0.1, 101, 50, independent=True)[:2] == (
        68 / 151,
        1,
    )  # unequal
    assert CONSTRUCTIONS["naive"].bound(0.1, 10, 2, independent=True)[:2] == (None, 1)


def test_bounds_where_coins_tell_which_rows_choose() -> None:
    """For every seed, or on average over seeds; folds and full conformal have no coins to count."""

    def bound(name: str) -> tuple[float | None, bool]:
        found = CONSTRUCTIONS[name].bound(0.1, 500, 10, independent=False, coins=True)
        return found.miss, found.any_seed

    assert bound("plus") == (100 / 502, True)
    assert bound("minmax") == (50 / 501, False)
    assert bound("full") == (50 / 501, True)
    assert bound("cv+") == (108 / 510, True)


def misses(name: str, values: Sequence[float], k: int) -> int:
    """How many of n + 1 values their interval from the n others misses; models are means."""
    total, n = sum(values), len(values) - 1
    count = 0
    for i, value in enumerate(values):
        others = torch.tensor([v for j, v in enumerate(values) if j != i])
        each = (total - value - others) / (n - 1)
        ones = torch.ones_like(others)
        loo = Models(others - each, others, torch.zeros(1), each[None], ones, ones[None])
        _, lower, upper = CONSTRUCTIONS[name].ends(loo, torch.zeros(1, 1), [k])
        count += not lower.item() <= value <= upper.item()
    return count


@pytest.mark.parametrize("name", ["plus", "minmax"])
def test_no_more_rows_are_missed_than_the_bound_allows(name: str) -> None:
    worst = 0.0
    for seed in range(30):
        values = np.random.default_rng(seed).standard_cauchy(12).tolist()
        for k in (1, 2, 4):
            allowed = round(12 * miss(name, k, 11))
            assert misses(name, values, k) <= allowed
            assert misses(name, values, 0) == 0
            worst = max(worst, misses(name, values, k) / allowed)
    assert worst == 1.0  # the bound is attained, so an interval one rank shorter breaks it
