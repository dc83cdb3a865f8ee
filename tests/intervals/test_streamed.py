"""Models of many rows by passes over blocks, and ends from windows: equal to explicit refits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from lazyknife.choosing.shape import NoiseModel
from lazyknife.compute import PROCESSOR, Machine
from lazyknife.data.own_scaling import unscaled
from lazyknife.intervals.constructions import minmax, plus
from lazyknife.intervals.order import kappa, kth_largest, kth_smallest
from lazyknife.intervals.streamed import Passes
from lazyknife.intervals.window import windowed_plus
from lazyknife.networks import wide
from lazyknife.ridge.system import Indefinite
from lazyknife.tangent import Landmarks, Rows, WideTangent
from reference import Array

RIDGE = 0.3


def rows_of(n: int, p: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, p, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, dtype=torch.float64, generator=generator)
    return X, torch.sin(2 * X[:, 0]) + (0.2 + 0.3 * (X[:, -1] > 0)) * noise + 5.0


def tangent_of(p: int, budget: int = 2**28) -> WideTangent:
    frame = unscaled(1, p)[0]
    weights = torch.linspace(0.3, 1.0, p, dtype=torch.float64)
    return WideTangent(wide("laplace"), weights, frame).on(Machine(budget=budget))


def passes_of(X: Tensor, landmarks: int, intercept: bool, scaled: bool) -> Passes:
    tangent = tangent_of(X.shape[1])
    amount = None
    if scaled:
        points = tangent.features(X[:20])
        sizes = torch.linspace(-0.3, 0.3, 20, dtype=torch.float64)
        amount = NoiseModel(tangent, points, sizes, torch.tensor(-0.5, dtype=torch.float64))
    return Passes(Landmarks.of(tangent, X[:landmarks]), RIDGE, intercept, 4.5, amount)


def refits(passes: Passes, X: Tensor, y: Tensor, new: Tensor) -> Array:
    """Predictions of the ridge without each row and, last, of all of them, shape (m, n + 1)."""
    old, at = (passes.basis.at(each).coordinates.numpy() for each in (X, new))
    twin = reference.refits(old, (y - passes.center).numpy(), RIDGE, passes.intercept)
    return at @ twin.moves.T + twin.intercepts + passes.center


def assert_windows(loo: Any, new: Tensor, ranks: list[int]) -> None:
    """Windows give the ends of all models."""
    found, lower, upper = windowed_plus(loo, new, ranks)
    full = loo.scaled(new)
    margins = loo.scores * full.scales * (1 + full.stretch)[:, None]
    assert torch.allclose(lower, kth_smallest(full.each - margins, ranks), rtol=1e-12)
    assert torch.allclose(upper, kth_largest(full.each + margins, ranks), rtol=1e-12)
    assert torch.equal(found.point, full.point)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "landmarks", "apart"), [(60, 20, 20), (35, 30, 30), (50, 7, 12)])
def test_models_are_those_of_refits_without_each_row(
    n: int, landmarks: int, apart: int, intercept: bool
) -> None:
    X, y = rows_of(n, 3, seed=n)
    passes = passes_of(X, landmarks, intercept, scaled=False)
    loo = passes.models(X, y, torch.arange(apart, n))
    new = rows_of(9, 3, seed=1)[0]
    point, each = loo.scaled(new)[:2]
    expected, at_training = (refits(passes, X, y, rows) for rows in (new, X))
    np.testing.assert_allclose(point, expected[:, -1], rtol=1e-10)
    np.testing.assert_allclose(each, expected[:, apart:-1], rtol=1e-10)
    own = y.numpy() - at_training[:, :-1].diagonal()
    np.testing.assert_allclose(loo.residuals, own[apart:], rtol=1e-8)
    limits = loo.full_at(new).roots[:, None] * loo.reach
    assert bool(((each - point[:, None]).abs() <= limits * (1 + 1e-9)).all())


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 0.6])
@pytest.mark.parametrize(("n", "landmarks"), [(400, 40), (250, 5), (90, 60)])
def test_windows_give_the_ends_of_all_models(
    n: int, landmarks: int, alpha: float, scaled: bool
) -> None:
    X, y = rows_of(n, 4, seed=n)
    loo = passes_of(X, landmarks, True, scaled).models(X, y, torch.arange(landmarks, n))
    new = torch.cat([rows_of(60, 4, seed=7)[0], 30 * rows_of(5, 4, seed=8)[0]])
    assert_windows(loo, new, [kappa(alpha, len(loo.residuals)), 3, 0])


@pytest.mark.parametrize("scaled", [True, False])
def test_minmax_in_parts_is_that_of_all_models(scaled: bool) -> None:
    X, y = rows_of(90, 4, seed=2)
    passes = passes_of(X, 20, True, scaled)
    loo = passes.models(X, y, torch.arange(20, 90))
    new, ranks = rows_of(9, 4, seed=3)[0], [2, 0, 9]
    full = loo.scaled(new)
    margins = kth_largest(loo.scores, ranks) * full.scales * (1 + full.stretch)[:, None]
    _, lower, upper = minmax(loo, new, ranks)
    assert torch.allclose(lower, full.each.amin(dim=1)[:, None] - margins, rtol=1e-7)
    assert torch.allclose(upper, full.each.amax(dim=1)[:, None] + margins, rtol=1e-7)


@dataclass(frozen=True)
class Plain:
    """Features that are the numbers themselves, so that they have no errors."""

    size: int
    row_bytes: int = 64

    @property
    def tangent(self) -> Any:
        return SimpleNamespace(machine=PROCESSOR)

    @property
    def points(self) -> Any:
        return SimpleNamespace(X=torch.eye(self.size, dtype=torch.float64))

    def at(self, X: Tensor) -> Rows:
        return Rows(X.new_zeros(len(X)), X, X.square().sum(dim=1))


exact = np.vectorize(Fraction, otypes=[object])


def solved(matrix: Any, right: Any) -> Any:
    """Gauss-Jordan elimination of a positive definite matrix, without rounding."""
    rows = np.column_stack([matrix, right])
    for k in range(len(rows)):
        rows[k] /= rows[k, k]
        others = np.arange(len(rows)) != k
        rows[others] -= rows[others, k : k + 1] * rows[k]
    return rows[:, -1]


def exact_ends(
    passes: Passes, X: Tensor, y: Tensor, first: int, new: Tensor, ranks: list[int]
) -> tuple[Any, Any]:
    """Both ends of jackknife+, (m, ranks), by solving for each model in rational numbers."""
    old, at = (exact(passes.features(each)[0].numpy()) for each in (X, new))
    center = Fraction(passes.center)
    targets, penalty = exact(y.numpy()) - center, exact(np.zeros((old.shape[1],) * 2))
    for a in range(X.shape[1]):
        penalty[a, a] = Fraction(passes.ridge)
    ends = []
    for j in range(first, len(y)):
        kept, labels = np.delete(old, j, axis=0), np.delete(targets, j)
        weights = solved(kept.T @ kept + penalty, kept.T @ labels)
        error, values = abs(targets[j] - old[j] @ weights), at @ weights + center
        ends.append([values - error, values + error])
    lows, highs = (np.sort(side, axis=1) for side in np.array(ends).transpose(1, 2, 0))
    return lows[:, [k - 1 for k in ranks]], highs[:, [-k for k in ranks]]


def contained(low: float, exact: Fraction) -> bool:
    return low == -math.inf or Fraction(low) <= exact


KINDS = ("plain", "scales", "alike", "equal", "far", "leverage", "noiseless")


def started(passes: Passes, X: Tensor, y: Tensor) -> Passes:
    """The same with the ridge of the first rows as the first guess."""
    return replace(passes, start=passes.solve(passes.sums(X[:5], y[:5])[0]).weights)


def hard_rows(kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """Features, targets and new features that rounding changes much, and a centre."""
    generator = np.random.default_rng(seed)
    X, new, y = (generator.normal(size=size) for size in ((13, 3), (3, 3), 13))
    center = 0.0
    if kind == "scales":
        scales = 10.0 ** generator.uniform(-5, 5, size=3)
        X, new = X * scales, new * scales
    elif kind == "alike":
        X[:, 1], new[:, 1] = X[:, 0] + 1e-8 * X[:, 1], new[:, 0] + 1e-8 * new[:, 1]
    elif kind == "equal":
        X[7:], y[9:] = X[:6], y[2:6]
    elif kind == "far":
        y, center = 1e8 + 1e-3 * y, 1e8
    elif kind == "leverage":
        X[:, 2] = 0.0
        X[9, 2], y[11] = 10.0 ** generator.uniform(-2, 4), 1e6
    elif kind == "noiseless":
        y = X @ [3.0, -200.0, 1.0] + 1e-9 * y
    return *(torch.from_numpy(each) for each in (X, y, new)), center


@pytest.mark.parametrize("ridge", [1e-10, 1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("kind", [*KINDS])
def test_ends_contain_those_of_rational_numbers(kind: str, ridge: float) -> None:
    X, y, new, center = hard_rows(kind, seed=round(math.log10(ridge)) + 20)
    plain = Passes(Plain(3), ridge, True, center, None)  # type: ignore[arg-type]
    ranks = [1, 2, 8]
    wrong = torch.tensor([1e3, -7.0, 0.1, 5.0], dtype=torch.float64)
    for start in (None, "ridge", wrong):
        try:
            passes = started(plain, X, y) if isinstance(start, str) else replace(plain, start=start)
            loo = passes.models(X, y, torch.arange(5, 13))
        except Indefinite:
            continue
        lower, upper = plus(loo, new, ranks)[1:]
        lows, highs = exact_ends(passes, X, y, 5, new, ranks)
        assert all(map(contained, lower.flatten().tolist(), lows.flatten()))
        assert all(map(contained, (-upper).flatten().tolist(), -highs.flatten()))
        if kind == "plain":  # not by being infinite
            assert float(upper[0, 0]) == pytest.approx(float(highs[0, 0]), rel=1e-3)


@pytest.mark.parametrize("kind", ["plain", "noiseless", "far"])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_errors_of_features_stay_within_their_bound(kind: str, ridge: float) -> None:
    """Those that change a prediction most; a bound of a hundredth of its size fails."""
    X, y, new, center = hard_rows(kind, seed=20)
    exact = started(Passes(Plain(3), ridge, True, center, None), X, y)  # type: ignore[arg-type]
    model, error = exact.solve(exact.sums(X, y)[0]), 1e-7
    for row, sign in ((row, sign) for row in new for sign in (-1, 1)):
        features = exact.features(row[None])[0]
        toward = torch.cholesky_solve(features.T, model.lower)[:3, 0]
        errors = y - center - exact.features(X)[0] @ model.weights
        moved = X + sign * error * errors.sign()[:, None] * toward / toward.norm()
        found = exact.solve(exact.sums(moved, y)[0])
        change = float((features @ (found.weights - model.weights)).abs())
        rows = exact.features(moved)[0]
        left = found.leave_out(rows, exact.targets(rows, y))
        slope = found.bounds(left, error, 0.0).slope
        bound = slope * float(model.half(features).norm())
        assert change <= bound


def test_what_the_first_guess_explains_costs_no_digits() -> None:
    X, y, _, _ = hard_rows("noiseless", seed=0)
    plain = Passes(Plain(3), 1e-6, True, 0.0, None)  # type: ignore[arg-type]
    slopes = [
        passes.models(X, y, torch.arange(5, 13)).rounding.slope
        for passes in (plain, started(plain, X, y))
    ]
    assert slopes[1] < 1e-3 * slopes[0]


def test_a_leverage_that_rounds_to_one_has_an_infinite_score() -> None:
    X, y = rows_of(60, 3, seed=0)
    loo = passes_of(X, 10, True, scaled=False).models(X, y, torch.arange(10, 60))
    residuals, own = loo.residuals.clone(), loo.rounding.own.clone()
    residuals[3], own[3] = torch.nan, torch.inf
    out = loo.out._replace(left=loo.out.left._replace(residuals=residuals))
    lost = replace(loo, out=out, rounding=loo.rounding._replace(own=own))
    assert lost.undetermined == 1
    new = rows_of(5, 3, seed=1)[0]
    for ends in (plus, minmax):
        _, lower, upper = ends(lost, new, [1, 4])
        assert bool((lower[:, 0] == -torch.inf).all() and (upper[:, 0] == torch.inf).all())
        assert bool(torch.isfinite(lower[:, 1]).all() and torch.isfinite(upper[:, 1]).all())


@pytest.mark.parametrize("level", [-800.0, -100.0, 300.0])
def test_windows_of_a_noise_of_any_size(level: float) -> None:
    X, y = rows_of(60, 3, seed=0)
    passes = passes_of(X, 10, True, scaled=True)
    assert passes.amount is not None
    loo = passes.models(X, y, torch.arange(10, 60))
    amount = replace(passes.amount, intercept=torch.tensor(level).double())
    tiny = replace(loo, passes=replace(passes, amount=amount))
    assert_windows(tiny, rows_of(7, 3, seed=1)[0], [1, 5])


def test_squares_of_tiny_targets_are_not_taken_for_zero() -> None:
    X, y = rows_of(60, 3, seed=0)
    passes = replace(passes_of(X, 10, True, scaled=False), center=0.0)
    for size in (1e-170, 1e-300):
        loo = passes.models(X, size * y, torch.arange(10, 60))
        assert loo.rounding.slope > 1e-16 * float(loo.residuals.abs().median())
    assert passes.models(X, 0 * y, torch.arange(10, 60)).rounding.slope == 0
