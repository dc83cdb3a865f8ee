"""Ranks in exact arithmetic, order statistics by sorting, and every construction by definition."""

import math
from collections.abc import Callable, Sequence
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
    side: str = "both"

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


Definition = Callable[[Models, int, Fraction], tuple[float, float]]


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
@pytest.mark.parametrize("kind", ["ties", "distinct", "infinite"])
@pytest.mark.parametrize("n", [1, 2, SHORT - 1, SHORT, SHORT + 1, 3 * SHORT])
def test_short_and_long_rows_agree_with_sorting(n: int, kind: str, dtype: torch.dtype) -> None:
    values = np.random.default_rng(n).normal(size=(5, n))
    if kind == "infinite":
        values[0, :2], values[1, n // 2] = np.inf, -np.inf
    rows = torch.from_numpy(values.round(1) if kind == "ties" else values).to(dtype)
    middle = (n + 1) // 2
    for ranks in ([0], [1], [n], [middle], [0, 0], [middle, 0, n, 1, n], [n, n - 1], [1, 0]):
        for each in (rows, rows[0], rows[:0], rows.T.contiguous().T):
            check_against_sorting(each, ranks)


def plus(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    each, margins = loo.each[row].tolist(), (loo.sigma[row] * loo.scores).tolist()
    pairs = list(zip(each, margins, strict=True))
    return (
        lower_quantile([f - margin for f, margin in pairs], alpha),
        upper_quantile([f + margin for f, margin in pairs], alpha),
    )


def minmax(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
    score = upper_quantile(loo.scores.tolist(), alpha)
    pairs = list(zip(loo.each[row].tolist(), loo.sigma[row].tolist(), strict=True))
    return min(f - score * s for f, s in pairs), max(f + score * s for f, s in pairs)


def around(errors: str) -> Definition:
    """The full model's prediction, and a quantile of these errors either side."""

    def definition(loo: Models, row: int, alpha: Fraction) -> tuple[float, float]:
        margin = upper_quantile(getattr(loo, errors).abs().tolist(), alpha)
        return float(loo.full[row]) - margin, float(loo.full[row]) + margin

    return definition


DEFINITIONS: dict[str, Definition] = {
    "plus": plus,
    "cv+": plus,
    "minmax": minmax,
    "jackknife": around("residuals"),
    "naive": around("training_residuals"),
    "full": around("residuals"),  # of these models; those of full.py have a test of their own
}


def test_every_construction_has_a_definition() -> None:
    assert CONSTRUCTIONS.keys() - DEFINITIONS.keys() == {"split"}  # of one model of many rows
    others = [name for name, kind in CONSTRUCTIONS.items() if not kind.any_models]
    assert others == ["full", "cv+", "split"]
    unbounded = [name for name, kind in CONSTRUCTIONS.items() if kind.miss is None]
    assert unbounded == ["jackknife", "naive"]


@pytest.mark.parametrize("name", DEFINITIONS)
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 25), m=st.integers(1, 3), k=st.integers(1, 999), seed=st.integers(0, 999))
def test_construction_equals_its_definition(name: str, n: int, m: int, k: int, seed: int) -> None:
    loo, X = random_models(n, m, seed)
    slack = seed % 2 * torch.linspace(0.5, 2, m).double()  # what rounding may change, or nothing
    certified = CONSTRUCTIONS[name].miss is not None and name != "full"
    loo = replace(loo, slack=slack) if certified else loo
    point, lower, upper = CONSTRUCTIONS[name].ends(loo, X, [kappa(k / 1000, n)])
    assert torch.equal(point, loo.full)
    expected = [DEFINITIONS[name](loo, row, Fraction(k, 1000)) for row in range(m)]
    low, high = np.array(expected).T
    if certified:  # widened by rounding, never narrowed
        low, high = low - slack.numpy(), high + slack.numpy()
        assert (lower[:, 0].numpy() <= low).all()
        assert (upper[:, 0].numpy() >= high).all()
    np.testing.assert_allclose(lower[:, 0], low, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(upper[:, 0], high, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_several_levels_at_once_equal_single_levels(name: str) -> None:
    loo, X = random_models(20, 3, seed=0)
    ranks = [4, 0, 1, 20, 4]
    _, lower, upper = CONSTRUCTIONS[name].ends(loo, X, ranks)
    assert lower.shape == upper.shape == (3, 5)
    for column, k in enumerate(ranks):
        _, low, high = CONSTRUCTIONS[name].ends(loo, X, [k])
        assert torch.equal(lower[:, [column]], low)
        assert torch.equal(upper[:, [column]], high)


@pytest.mark.parametrize(
    ("name", "rank", "n", "folds", "bound"),
    [
        *(("plus", rank, 100, 0, bound) for rank, bound in ((0, 0), (1, 1 / 101), (10, 19 / 101))),
        *((name, rank, 100, 0, rank / 101) for name in ("minmax", "full") for rank in (0, 1, 10)),
        ("cv+", 10, 100, 10, 28 / 110),
        ("cv+", 90, 1000, 4, 182 / 1004),  # many rows in a fold
        ("cv+", 0, 7, 10, 0.0),  # an infinite interval covers
        ("cv+", 44, 442, 10, 96 / 452),  # folds of 44 and 45 rows
        ("cv+", 100, 100, 10, 1.0),
    ],
)
def test_miss_bounds(name: str, rank: int, n: int, folds: int, bound: float) -> None:
    assert CONSTRUCTIONS[name].miss(rank, n, folds) == pytest.approx(bound)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "n", "folds", "terms", "bound"),
    [
        ("cv+", 100, 50, {"independent": False}, (68 / 150, 1)),
        ("cv+", 100, 50, {"independent": True}, (20 / 102, 2)),
        ("cv+", 100, 50, {"independent": True, "new_rows": 1}, (68 / 150, 1)),
        ("cv+", 100, 5, {"independent": True}, (23 / 105, 1)),
        ("cv+", 101, 50, {"independent": True}, (68 / 151, 1)),  # unequal
        ("naive", 10, 2, {"independent": True}, (None, 1)),
    ],
)
def test_bounds_of_independent_bases(name, n, folds, terms, bound) -> None:  # type: ignore[no-untyped-def]
    assert CONSTRUCTIONS[name].bound(0.1, n, folds, **terms)[:2] == bound


def test_bounds_where_coins_tell_which_rows_choose() -> None:
    """For every seed, or on average over seeds; folds and full conformal have no coins to count."""

    def bound(name: str) -> tuple[float | None, bool]:
        found = CONSTRUCTIONS[name].bound(0.1, 500, 10, independent=False, coins=True)
        return found.miss, found.any_seed

    assert bound("plus") == (100 / 502, True)
    assert bound("minmax") == (50 / 501, False)
    assert bound("full") == (50 / 501, True)
    assert bound("cv+") == (108 / 510, True)
