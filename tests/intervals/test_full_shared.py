"""Full conformal prediction given rows that are never left out: equal to refits with candidates."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from intervals.test_streamed import (
    KINDS,
    SIDES,
    Plain,
    contained,
    exact_rows,
    fitted,
    hard_models,
    hard_rows,
    passes_of,
    refits,
    rows_of,
)
from lazyknife.intervals import full_shared as module
from lazyknife.intervals.constructions import full
from lazyknife.intervals.order import kth_largest
from lazyknife.intervals.streamed import Passes, StreamedModels
from lazyknife.networks import wide
from lazyknife.records import Side
from reference import Array

INSIDE = 1e-6


def accepting(
    passes: Passes, X: Tensor, y: Tensor, first: int, x: Tensor, candidates: Tensor, side: Side
) -> Array:
    """How many of the rows from the first on accept each candidate, by refits with it."""
    rows, counts = torch.cat([X, x[None]]), []
    shape = passes.shaped(rows, *passes.features(rows))
    for candidate in candidates:
        targets = torch.cat([y, candidate[None]])
        left = targets.numpy() - refits(passes, rows, targets, rows)[:, :-1].diagonal()
        scores = SIDES[side]((left - shape.shift.numpy()) / shape.scale.numpy())
        counts.append((scores[first:-1] >= scores[-1]).sum())
    return np.array(counts)


def models_of(n: int, landmarks: int, scaled: bool, seed: int) -> tuple[Passes, Tensor, Tensor]:
    X, y = rows_of(n, 3, seed)
    return passes_of(X[:landmarks], landmarks, seed % 2 == 0, scaled), X, y


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(16, 40),
    landmarks=st.integers(2, 12),
    scaled=st.booleans(),
    side=st.sampled_from(list(SIDES)),
    seed=st.integers(0, 99),
)
def test_ends_are_those_of_the_accepted_candidates(
    n: int, landmarks: int, scaled: bool, side: Side, seed: int
) -> None:
    """Just within them at least κ rows accept; just outside, and far away, fewer do."""
    passes, X, y = models_of(n, landmarks, scaled, seed)
    loo = replace(passes.models(X, y, torch.arange(landmarks, n)), side=side)
    new, ranks = rows_of(2, 3, seed + 100)[0] * 3, [1, 2, 4]
    _, lower, upper = full(loo, new, ranks)
    for k, row in enumerate(new):
        for column, rank in enumerate(ranks):
            low, high = float(lower[k, column]), float(upper[k, column])
            if not np.isfinite(high - low):  # some rows count as accepting everything
                continue
            gap = INSIDE * abs(high - low)
            inside, outside = [], []
            if side != "lower":
                inside, outside = [high - gap], [high + gap, high + 30.0, high + 1e4]
            if side != "upper":
                inside, outside = [*inside, low + gap], [*outside, low - gap, low - 30, low - 1e4]
            here = torch.tensor(inside + outside, dtype=torch.float64)
            found = accepting(passes, X, y, landmarks, row, here, side)
            assert (found[: len(inside)] >= rank).all()
            assert (found[len(inside) :] < rank).all()


def with_all(loo: StreamedModels, X: Tensor, ranks: list[int]) -> tuple[Tensor, Tensor]:
    """The order statistics among all rows."""
    near, every = loo.compared.near(X), torch.arange(len(loo.residuals))
    products = near.factors @ loo.compared.columns(every)
    below, above = module.FULL.ends(loo.compared, near, torch.arange(len(X)), every, products)
    point = near.found.point[:, None]
    return point - kth_largest(below, ranks), point + kth_largest(above, ranks)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("n", "landmarks"), [(400, 40), (250, 5), (90, 60)])
def test_windows_give_the_ends_of_all_rows(
    n: int, landmarks: int, scaled: bool, side: Side
) -> None:
    X, y = rows_of(n, 4, seed=n)
    passes = passes_of(X, landmarks, True, scaled)
    loo = replace(passes.models(X, y, torch.arange(landmarks, n)), side=side)
    new = torch.cat([rows_of(60, 4, seed=7)[0], 30 * rows_of(5, 4, seed=8)[0]])
    m = n - landmarks
    ranks = [m // 10, m // 3, 3, 0]
    _, lower, upper = module.accepted(loo, new, ranks)
    for found, expected in zip((lower, upper), with_all(loo, new, ranks), strict=True):
        assert torch.allclose(found, expected, rtol=1e-12)
    if landmarks == 5 and not scaled:  # not by looking at all of them
        etas = loo.compared.etas(loo.full_at(new[:60])).amax(dim=0)
        low, high = module.FULL.bounds(loo.compared, *etas.tolist())
        bottom, top = kth_largest(low, [ranks[0]]), kth_largest(high, [ranks[0]])
        assert int(((high >= bottom) & (low <= top)).sum()) < m / 2


def exact_roots(
    passes: Passes, X: Tensor, y: Tensor, first: int, new: Tensor
) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Lower and upper roots of all rows for each new one, by refits in rational numbers.

    A left-out error is linear in the candidate: two candidates tell it.
    """
    found, (old, targets, at) = [], exact_rows(passes, X, y, new)
    for x in at:
        point, lows, highs = x @ fitted(passes, old, targets), [], []
        for i in range(first, len(old)):
            rows = np.vstack([np.delete(old, i, axis=0), x])
            errors = []
            for t in (Fraction(0), Fraction(1)):
                weights = fitted(passes, rows, np.append(np.delete(targets, i), point + t))
                errors.append(targets[i] - old[i] @ weights)
            error, slope = errors[0], errors[0] - errors[1]
            ends = sorted([error / (1 + slope), -error / (1 - slope)])
            assert abs(slope) < 1
            lows.append(ends[0] + point + Fraction(passes.center))
            highs.append(ends[1] + point + Fraction(passes.center))
        found.append((sorted(lows), sorted(highs, reverse=True)))
    return found


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_ends_contain_those_of_rational_numbers(kind: str, ridge: float) -> None:
    X, y, new, center = hard_rows(kind, seed=round(np.log10(ridge)) + 20)
    passes = Passes(Plain(3), ridge, True, center)  # type: ignore[arg-type]
    ranks, finite = [1, 2, 8], 0
    expected = exact_roots(passes, X, y, 5, new) if kind != "leverage" else ()
    for loo in hard_models(passes, X, y):
        _, lower, upper = full(loo, new, ranks)
        assert bool((lower <= upper).all())
        for row, (lows, highs) in enumerate(expected):
            for column, rank in enumerate(ranks):
                high = float(upper[row, column])
                assert contained(float(lower[row, column]), lows[rank - 1])
                assert contained(-high, -highs[rank - 1])
                if kind == "plain" and np.isfinite(high):  # not by being far wider
                    assert high == pytest.approx(float(highs[rank - 1]), rel=1e-3)
                    finite += 1
    assert (finite > 0) == (kind == "plain")


def test_without_any_allowance_rounding_loses_candidates(monkeypatch: Any) -> None:
    """A mutant, so that the test above can fail."""
    lost = 0
    monkeypatch.setattr(module, "CHANGES", 0.0)
    monkeypatch.setattr(module, "EPSILON", 0.0)
    for kind in ("equal", "scales", "alike"):
        X, y, new, center = hard_rows(kind, seed=20)
        passes = Passes(Plain(3), 1e-2, True, center)  # type: ignore[arg-type]
        loo = passes.models(X, y, torch.arange(5, 13))
        nothing = loo.rounding._replace(slope=0.0, constant=0.0, steep=0.0)
        bare = replace(loo, rounding=nothing._replace(own=0 * loo.rounding.own))
        _, lower, upper = module.accepted(bare, new, [1, 2, 8])
        for row, (lows, highs) in enumerate(exact_roots(passes, X, y, 5, new)):
            for column, rank in enumerate([1, 2, 8]):
                lost += Fraction(float(lower[row, column])) > lows[rank - 1]
                lost += Fraction(float(upper[row, column])) < highs[rank - 1]
    assert lost > 0


def test_rows_that_would_accept_far_candidates_count_as_accepting_all() -> None:
    """Where widths are very unlike, a candidate may move a row's error by more than its own."""
    X, y = rows_of(60, 3, seed=0)
    passes = passes_of(X, 10, True, scaled=True)
    loo = passes.models(X, y, torch.arange(10, 60))
    shape = loo.out.shape
    narrow = replace(loo, out=loo.out._replace(shape=shape._replace(scale=shape.scale / 1e4)))
    _, lower, upper = full(narrow, rows_of(5, 3, seed=1)[0], [1, 50])
    assert bool((lower[:, 0] == -torch.inf).all() and (upper[:, 0] == torch.inf).all())


def test_rows_far_away_have_ordered_ends() -> None:
    X, y = rows_of(90, 2, seed=1)
    for kind in ("laplace", "relu"):
        tangent = passes_of(X, 10, True, scaled=False).basis.tangent
        basis = type(passes_of(X, 10, True, False).basis).of(
            replace(tangent, network=wide(kind)), X[:10]
        )
        passes = Passes(basis, 0.1, True, 4.0)
        loo = passes.models(X, y, torch.arange(10, 90))
        for factor in (1.0, 1e4, 1e9, 1e150):
            _, lower, upper = full(loo, factor * X[:4], [1, 5, 0])
            assert not bool((lower.isnan() | upper.isnan()).any())
            assert bool((lower[:, :2] <= upper[:, :2]).all())
