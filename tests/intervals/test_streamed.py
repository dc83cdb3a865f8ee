"""Models of many rows by passes over blocks, and ends from windows: equal to explicit refits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lazyknife.compute import Machine
from lazyknife.data.frames import unscaled
from lazyknife.intervals.order import kappa, kth_largest, kth_smallest
from lazyknife.intervals.passes import Passes
from lazyknife.intervals.window import windowed_plus
from lazyknife.networks import wide
from lazyknife.solve.amount import Amount
from lazyknife.tangent import Landmarks, WideTangent

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
        amount = Amount(tangent, points, sizes, torch.tensor(-0.5, dtype=torch.float64))
    return Passes(Landmarks.of(tangent, X[:landmarks]), RIDGE, intercept, 4.5, amount)


def refitted(passes: Passes, X: Tensor, y: Tensor, row: int | None, new: Tensor) -> Tensor:
    """Predictions of the ridge without a row, solved by itself."""
    kept = torch.ones(len(y), dtype=torch.bool)
    if row is not None:
        kept[row] = False
    features = [passes.basis.at(each).coordinates for each in (X[kept], new)]
    penalty = torch.full((passes.basis.size,), RIDGE, dtype=torch.float64)
    if passes.intercept:
        features = [torch.cat([each, torch.ones_like(each[:, :1])], dim=1) for each in features]
        penalty = torch.cat([penalty, penalty.new_zeros(1)])
    old, at = features
    weights = torch.linalg.solve(old.T @ old + penalty.diag(), old.T @ (y[kept] - passes.center))
    return at @ weights + passes.center


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "landmarks", "apart"), [(60, 20, 20), (35, 30, 30), (50, 7, 12)])
def test_models_are_those_of_refits_without_each_row(
    n: int, landmarks: int, apart: int, intercept: bool
) -> None:
    X, y = rows_of(n, 3, seed=n)
    passes = passes_of(X, landmarks, intercept, scaled=False)
    loo = passes.models(X, y, torch.arange(apart, n))
    new = rows_of(9, 3, seed=1)[0]
    found, (point, each) = loo.scaled(new), loo.predict(new)
    assert torch.allclose(point, refitted(passes, X, y, None, new), rtol=1e-10)
    for k, row in enumerate(range(apart, n)):
        assert torch.allclose(each[:, k], refitted(passes, X, y, row, new), rtol=1e-10)
        own = y[row] - refitted(passes, X, y, row, X[row : row + 1])[0]
        assert loo.residuals[k] == pytest.approx(float(own), rel=1e-8)
        gap = (each[:, k] - point).abs()
        limit = loo.reach[k] * loo.near(new).roots
        assert bool((gap <= limit * (1 + 1e-9)).all())
    assert torch.equal(found.each, each)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 0.6])
@pytest.mark.parametrize(("n", "landmarks"), [(400, 40), (250, 5), (90, 60)])
def test_windows_give_the_ends_of_all_models(
    n: int, landmarks: int, alpha: float, scaled: bool
) -> None:
    X, y = rows_of(n, 4, seed=n)
    loo = passes_of(X, landmarks, True, scaled).models(X, y, torch.arange(landmarks, n))
    new = torch.cat([rows_of(60, 4, seed=7)[0], 30 * rows_of(5, 4, seed=8)[0]])
    ranks = [kappa(alpha, len(loo.residuals)), 3, 0]
    found, lower, upper = windowed_plus(loo, new, ranks)
    full = loo.scaled(new)
    margins = loo.scores * full.scales * (1 + full.stretch)[:, None]
    assert torch.allclose(lower, kth_smallest(full.each - margins, ranks), rtol=1e-12)
    assert torch.allclose(upper, kth_largest(full.each + margins, ranks), rtol=1e-12)
    assert torch.equal(found.point, full.point)
