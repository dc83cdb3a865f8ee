"""Models of many rows by passes over blocks, and ends from windows: equal to explicit refits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from lazyknife.choosing.shape import QuantileShape, Shaped
from lazyknife.compute import PROCESSOR, Machine
from lazyknife.data.own_scaling import unscaled
from lazyknife.intervals.constructions import full, minmax, plus, split
from lazyknife.intervals.order import kappa, kth_largest, kth_smallest
from lazyknife.intervals.streamed import Passes, StreamedModels
from lazyknife.intervals.window import windowed_plus
from lazyknife.networks import wide
from lazyknife.records import Side
from lazyknife.ridge.system import Indefinite
from lazyknife.tangent import Landmarks, Rows, WideTangent
from lazyknife.tangent.trees import grow
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
    basis = Landmarks.of(tangent_of(X.shape[1]), X[:landmarks])
    passes = Passes(basis, RIDGE, intercept, 4.5)
    if not scaled:
        return passes
    old, y = rows_of(200, X.shape[1], seed=9)
    start = passes.solve(passes.sums(old, y)[0]).weights
    level = passes.features(old)[0] @ start + passes.center
    rows, errors = torch.cat([old, level[:, None]], dim=1), (y - level) * (y - 4.5).exp() + 0.3
    low, high = (
        grow(rows, errors, 0, loss="quantile", quantile=q, max_iter=20) for q in (0.05, 0.95)
    )
    return replace(passes, shape=QuantileShape(low, high, 0.05), start=start)


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
    assert loo.solved.count == n
    new = rows_of(9, 3, seed=1)[0]
    point, each = loo.scaled(new)[:2]
    expected, at_training = (refits(passes, X, y, rows) for rows in (new, X))
    np.testing.assert_allclose(point, expected[:, -1], rtol=1e-10)
    np.testing.assert_allclose(each, expected[:, apart:-1], rtol=1e-10)
    own = y.numpy() - at_training[:, :-1].diagonal()
    np.testing.assert_allclose(loo.residuals, own[apart:], rtol=1e-8)
    limits = loo.full_at(new).roots[:, None] * loo.reach
    assert bool(((each - point[:, None]).abs() <= limits * (1 + 1e-9)).all())


def test_trees_are_one_more_feature() -> None:
    """With values of their own for rows that they were grown on, which are never left out."""
    X, y = rows_of(80, 3, seed=5)
    passes, new = passes_of(X, 12, True, scaled=False), rows_of(9, 3, seed=1)[0]
    trees = grow(X[:30], y[:30], 0, max_iter=20, min_samples_leaf=3)
    basis = replace(passes.basis, trees=trees)
    grown = torch.full_like(y, torch.nan)
    grown[:30] = y.roll(7)[:30]
    loo = replace(passes, basis=basis).models(X, y, torch.arange(30, 80), grown=grown)
    parts = [passes.basis.at(each).coordinates.numpy() for each in (X, new)]
    values = torch.where(grown.isnan(), trees(X), grown), trees(new)
    old, at = (np.c_[part, value.numpy()] for part, value in zip(parts, values, strict=True))
    twin = reference.refits(old, (y - passes.center).numpy(), RIDGE, True)
    expected = at @ twin.moves.T + twin.intercepts + passes.center
    point, each = loo.scaled(new)[:2]
    np.testing.assert_allclose(point, expected[:, -1], rtol=1e-9)
    np.testing.assert_allclose(each, expected[:, 30:-1], rtol=1e-9)
    assert_windows(loo, new, [1, 5])


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

    def at(self, X: Tensor, grown: Tensor | None = None) -> Rows:
        return Rows(X.new_zeros(len(X)), X, X.square().sum(dim=1))


exact = np.vectorize(Fraction, otypes=[object])


def fitted(passes: Passes, rows: Any, targets: Any) -> Any:
    """Weights of the ridge by Gauss-Jordan elimination, without rounding."""
    penalty = exact(np.diag([passes.ridge] * (rows.shape[1] - 1) + [0.0]))
    system = np.column_stack([rows.T @ rows + penalty, rows.T @ targets])
    for k in range(len(system)):
        system[k] /= system[k, k]
        others = np.arange(len(system)) != k
        system[others] -= system[others, k : k + 1] * system[k]
    return system[:, -1]


def exact_rows(passes: Passes, X: Tensor, y: Tensor, new: Tensor) -> tuple[Any, Any, Any]:
    """Features, targets and new features as rational numbers."""
    old, at = (exact(passes.features(each)[0].numpy()) for each in (X, new))
    return old, exact(y.numpy()) - Fraction(passes.center), at


def exact_ends(
    passes: Passes, X: Tensor, y: Tensor, first: int, new: Tensor, ranks: list[int]
) -> tuple[Any, Any]:
    """Both ends of jackknife+, (m, ranks), by solving for each model in rational numbers."""
    old, targets, at = exact_rows(passes, X, y, new)
    ends = []
    for j in range(first, len(y)):
        weights = fitted(passes, np.delete(old, j, axis=0), np.delete(targets, j))
        error, values = abs(targets[j] - old[j] @ weights), at @ weights + Fraction(passes.center)
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


def hard_models(passes: Passes, X: Tensor, y: Tensor) -> Iterator[StreamedModels]:
    """The models of all rows from the sixth on, from several first guesses."""
    wrong = torch.tensor([1e3, -7.0, 0.1, 5.0], dtype=torch.float64)
    for start in (None, "ridge", wrong):
        try:
            own = started(passes, X, y) if isinstance(start, str) else replace(passes, start=start)
            yield own.models(X, y, torch.arange(5, 13))
        except Indefinite:
            continue


@pytest.mark.parametrize("ridge", [1e-10, 1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_ends_contain_those_of_rational_numbers(kind: str, ridge: float) -> None:
    X, y, new, center = hard_rows(kind, seed=round(math.log10(ridge)) + 20)
    passes, ranks = Passes(Plain(3), ridge, True, center), [1, 2, 8]  # type: ignore[arg-type]
    lows, highs = exact_ends(passes, X, y, 5, new, ranks)
    for loo in hard_models(passes, X, y):
        lower, upper = plus(loo, new, ranks)[1:]
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
    plain = Passes(Plain(3), 1e-6, True, 0.0)  # type: ignore[arg-type]
    slopes = [
        passes.models(X, y, torch.arange(5, 13)).rounding.slope
        for passes in (plain, started(plain, X, y))
    ]
    assert slopes[1] < 1e-3 * slopes[0]


@pytest.mark.parametrize("ends", [plus, minmax, full])
def test_a_leverage_that_rounds_to_one_has_an_infinite_score(ends: Any) -> None:
    X, y = rows_of(60, 3, seed=0)
    loo = passes_of(X, 10, True, scaled=False).models(X, y, torch.arange(10, 60))
    residuals, own = loo.residuals.clone(), loo.rounding.own.clone()
    residuals[3], own[3] = torch.nan, torch.inf
    out = loo.out._replace(left=loo.out.left._replace(residuals=residuals))
    lost = replace(loo, out=out, rounding=loo.rounding._replace(own=own))
    assert lost.undetermined == 1
    _, lower, upper = ends(lost, rows_of(5, 3, seed=1)[0], [1, 4])
    assert bool((lower[:, 0] == -torch.inf).all() and (upper[:, 0] == torch.inf).all())
    assert bool(torch.isfinite(lower[:, 1]).all() and torch.isfinite(upper[:, 1]).all())


@pytest.mark.parametrize("construction", [plus, minmax])
def test_ends_with_a_shape_are_those_of_refits(construction: Any) -> None:
    """Without each row, given the shape; the ends by sorting. Mutants differ."""
    X, y = rows_of(80, 3, seed=3)
    passes, new = passes_of(X, 12, True, scaled=True), rows_of(9, 3, seed=4)[0]
    assert passes.shape is not None
    loo, ranks = passes.models(X, y, torch.arange(20, 80)), [1, 4, 15]
    at_new, at_old = (refits(passes, X, y, rows) for rows in (new, X))
    point, at_new = at_new[:, -1], at_new[:, 20:-1]
    errors = (y.numpy() - at_old[:, :-1].diagonal())[20:]

    def curves(rows: Tensor) -> tuple[Array, Array]:
        level = passes.features(rows)[0] @ passes.start + passes.center
        given = torch.cat([rows, level[:, None]], dim=1)
        low, high = (each(given).numpy() for each in (passes.shape.low, passes.shape.high))
        return (low + high) / 2, np.maximum((high - low) / 2, passes.shape.floor)

    (shift, scale), (own_shift, own_scale) = curves(new), curves(X[20:])

    def ends(shift: Array, own_shift: Array) -> tuple[Array, Array]:
        scores = np.abs(errors - own_shift) / own_scale
        if construction is minmax:
            margins = scale[:, None] * np.sort(scores)[[-k for k in ranks]]
            middle = shift[:, None] + at_new
            return middle.min(axis=1)[:, None] - margins, middle.max(axis=1)[:, None] + margins
        margins = scale[:, None] * scores
        lower = np.sort(at_new + shift[:, None] - margins, axis=1)[:, [k - 1 for k in ranks]]
        upper = np.sort(at_new + shift[:, None] + margins, axis=1)[:, [-k for k in ranks]]
        return lower, upper

    found, lower, upper = construction(loo, new, ranks)
    np.testing.assert_allclose(found, point, rtol=1e-9)
    for one, expected in zip((lower, upper), ends(shift, own_shift), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-8)
    for wrong in (ends(0 * shift, own_shift), ends(shift, 0 * own_shift), ends(-shift, own_shift)):
        assert np.abs(lower.numpy() - wrong[0]).max() > 0.01


def test_rows_whose_shape_rounding_may_decide_are_conceded() -> None:
    X, y = rows_of(60, 3, seed=0)
    passes = passes_of(X, 10, True, scaled=True)
    assert passes.shape is not None
    new, places = rows_of(5, 3, seed=1)[0], torch.arange(10, 60)
    level = passes.features(torch.cat([X[17:18], new[2:3]]))[0] @ passes.start + passes.center
    low = passes.shape.low
    assert low.features[-1] == 3  # the level
    cuts = torch.cat([low.cuts[-1], level]).sort().values
    left = low.left[-1][[0] * len(level) + list(range(len(low.left[-1])))]
    near = replace(low, cuts=(*low.cuts[:-1], cuts), left=(*low.left[:-1], left))
    shape = replace(passes.shape, low=near)
    loo = replace(passes, shape=shape).models(X, y, places)
    assert torch.isinf(loo.scores).nonzero()[:, 0].tolist() == [7]
    assert loo.undetermined == 1
    for construction in (plus, minmax):
        _, lower, upper = construction(loo, new, [3])
        assert torch.isinf(upper - lower)[:, 0].tolist() == [k == 2 for k in range(5)]


class Unlike(QuantileShape):
    """A mutant: new rows come alone, and their shape is another than that of training rows."""

    def at(self, X: Tensor, levels: Tensor, errors: Tensor) -> Shaped:
        found = super().at(X, levels, errors)
        return found._replace(scale=found.scale / 4) if len(X) == 1 else found


SIDES: dict[Side, Any] = {"both": np.abs, "upper": lambda e: e, "lower": lambda e: -e}


@pytest.mark.parametrize("kind", [QuantileShape, Unlike])
@pytest.mark.parametrize(("ends", "side"), [(plus, "both"), *((full, side) for side in SIDES)])
def test_few_of_the_rows_of_a_bag_are_missed_by_the_others(
    ends: Any, side: Side, kind: Any
) -> None:
    """At most 2κ − 1 of the rows beside S by plus, each as the new one, and κ by full."""
    bag, apart, excess, shares = torch.arange(20, 43), torch.arange(20), [], []
    for seed, rank in product(range(3), (1, 2, 5, 9)):
        X, y = rows_of(43, 2, seed)
        y[25:] += 2 * X[25:, 0].exp() * (torch.arange(18) % 3 == 0)
        passes, missed = passes_of(X[:20], 12, True, scaled=True), 0
        passes = replace(passes, shape=kind(**vars(passes.shape)))
        for new in bag:
            rows = torch.cat([apart, bag[bag != new]])
            loo = replace(passes.models(X[rows], y[rows], torch.arange(20, 42)), side=side)
            _, lower, upper = ends(loo, X[new][None], [rank])
            above, below = bool(y[new] > upper[0, 0]), bool(y[new] < lower[0, 0])
            missed += {"both": above or below, "upper": above, "lower": below}[side]
        most = rank if ends is full else 2 * rank - 1
        excess.append(missed - most)
        shares.append(missed / most)
    assert (max(excess) > 0) == (kind is Unlike)
    assert ends is plus or max(shares) > 0.7  # the bound is nearly attained


def test_squares_of_tiny_targets_are_not_taken_for_zero() -> None:
    X, y = rows_of(60, 3, seed=0)
    passes = replace(passes_of(X, 10, True, scaled=False), center=0.0)
    for size in (1e-170, 1e-300):
        loo = passes.models(X, size * y, torch.arange(10, 60))
        assert loo.rounding.slope > 1e-16 * float(loo.residuals.abs().median())
    assert passes.models(X, 0 * y, torch.arange(10, 60)).rounding.slope == 0


@pytest.mark.parametrize("scaled", [True, False])
def test_a_split_scores_rows_that_its_ridge_has_not_seen(scaled: bool) -> None:
    X, y = rows_of(60, 3, seed=6)
    passes, new = passes_of(X, 12, True, scaled), rows_of(9, 3, seed=1)[0]
    loo = passes.models(X, y, torch.arange(20, 60), splits=True)
    expected, own = (refits(passes, X[:20], y[:20], rows)[:, -1] for rows in (new, X[20:]))
    shapes = [passes.shaped(rows, *passes.features(rows)) for rows in (new, X[20:])]
    (shift, scale), (own_shift, own_scale) = ([each.numpy() for each in s[:2]] for s in shapes)
    errors = y[20:].numpy() - own - own_shift
    for side, values in (("both", np.abs(errors)), ("upper", errors)):
        point, lower, upper = split(replace(loo, side=side), new, [1, 4, 15])
        margins = scale[:, None] * np.sort(values / own_scale)[[-1, -4, -15]]
        np.testing.assert_allclose(point, expected, rtol=1e-9)
        np.testing.assert_allclose(upper, (expected + shift)[:, None] + margins, rtol=1e-8)
        np.testing.assert_allclose(lower, (expected + shift)[:, None] - margins, rtol=1e-8)
    seen = passes.models(X, y, torch.arange(20, 60))
    assert not np.allclose(split(seen, new, [1])[2], upper[:, :1], rtol=1e-3)


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("kind", [*KINDS])
def test_ends_of_a_split_contain_those_of_rational_numbers(kind: str, ridge: float) -> None:
    X, y, new, center = hard_rows(kind, seed=7)
    passes = Passes(Plain(3), ridge, True, center)  # type: ignore[arg-type]
    loo, ranks = passes.models(X, y, torch.arange(5, 13), splits=True), [1, 2, 8]
    old, targets, at = exact_rows(passes, X, y, new)
    weights = fitted(passes, old[:5], targets[:5])
    scores = np.sort(np.abs(targets[5:] - old[5:] @ weights))[::-1]
    points = at @ weights + Fraction(center)
    _, lower, upper = split(loo, new, ranks)
    for k, point in enumerate(points):
        for column, rank in enumerate(ranks):
            assert contained(float(lower[k, column]), point - scores[rank - 1])
            assert contained(-float(upper[k, column]), -point - scores[rank - 1])
    if kind == "plain":
        assert float(upper[0, 0]) == pytest.approx(float(points[0] + scores[0]), rel=1e-3)
