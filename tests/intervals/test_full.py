"""Full conformal in closed form against a refit for every candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lazyknife as lk
import reference
from lazyknife.choosing.rows import rows_apart
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.intervals.full_conformal import Family, FullModels, Piece, hull
from lazyknife.networks import mlp
from lazyknife.ridge.problem import ridge_grid
from lazyknife.tangent import Basis, Dual, Primal, linearise
from machines import MACHINE, here
from reference import Array, assert_close
from rows import linear
from systems import FORMS, factor

GRID = [30.0, 0.003, 1.0, 0.03, 0.3, 3.0]  # in no order: the choice must not depend on it
DRAWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(1.5, size=n),
    "cauchy": lambda rng, n: rng.standard_cauchy(size=n),
    "outlier": lambda rng, n: rng.normal(size=n) + 1e4 * (np.arange(n) == 1),
    "ties": lambda rng, n: rng.choice([-1.0, 0.0, 1.0], size=n),
}


def problem(n: int, size: int, seed: int, draw: str = "normal") -> tuple[Array, Array, Array]:
    """Return the Jacobian of n training rows, the targets and the Jacobian of two new rows."""
    rng = np.random.default_rng(seed)
    J, new = rng.normal(size=(n, size)), 1.5 * rng.normal(size=(2, size))
    return J, 2 + J[:, 0] + DRAWS[draw](rng, n), new


def models(
    J: Array, r: Array, ridges: Sequence[float], intercept: bool, form: str = "dual"
) -> FullModels:
    """Of a linear network that starts at 0, whose Jacobian is its input."""
    network = nn.Linear(J.shape[1], 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(network.weight)
    X = here(J)
    tangent = linearise(network, X, machine=MACHINE)
    basis: Basis = Primal(tangent, J.shape[1])
    if form == "dual":
        basis = Dual(tangent, tangent.features(X))
    factors = tuple(factor(form, J, r, ridge, intercept) for ridge in ridges)
    return FullModels.of([Family(basis, factors)])


def ends(found: FullModels, new: Array, ranks: Sequence[int]) -> tuple[Array, Array, Array]:
    point, lower, upper = found.accepted(here(new), ranks)
    return point.cpu().numpy(), lower.cpu().numpy(), upper.cpu().numpy()


def check_by_candidates(
    case: tuple[Array, Array, Array, Sequence[float], bool],
    ranks: Sequence[int],
    lower: Array,
    upper: Array,
) -> None:
    """Just within the ends a candidate is accepted; outside of them none is."""
    J, r, x, ridges, intercept = case
    reach = 3 * max(np.abs(r).max(), np.abs(lower).max(), np.abs(upper).max())
    far = np.geomspace(1e-3, 1e3, 200) * reach
    wide = np.concatenate([np.linspace(-reach, reach, 1500), far, -far])
    middles = np.linspace(r.min(), r.max(), 500)  # heavy tails make the first of these coarse
    slack = 1e-6 * (1e-3 + upper - lower)
    sampled = np.concatenate([wide, middles])
    counts, at_lower, at_upper = (
        reference.accepts(J, r, x, candidates, ridges, intercept)
        for candidates in (sampled, lower + slack, upper - slack)
    )
    for k, rank in enumerate(ranks):
        accepted = sampled[counts >= rank]
        if lower[k] == upper[k]:  # nothing is accepted, and the point prediction stands for it
            assert len(accepted) == 0
            continue
        assert at_lower[k] >= rank
        assert at_upper[k] >= rank
        assert (accepted >= lower[k] - slack[k]).all()
        assert (accepted <= upper[k] + slack[k]).all()


def check(
    J: Array,
    r: Array,
    new: Array,
    ridges: Sequence[float],
    intercept: bool,
    form: str,
    ranks: Sequence[int],
) -> None:
    found = models(J, r, ridges, intercept, form)
    point, lower, upper = ends(found, new, ranks)
    left_out = [reference.left_out_residuals(J, r, ridge, intercept) for ridge in ridges]
    errors = [np.square(each).sum() for each in left_out]
    best = errors.index(min(errors))
    move, b = reference.ridge_fit(J, r, ridges[best], intercept)
    scale = np.abs(r).max()
    assert np.abs(point - new @ move - b).max() <= 1e-8 * scale
    assert np.abs(found.point(here(new)).cpu().numpy() - point).max() <= 1e-12 * scale
    assert found.chosen.ridge == ridges[best]
    assert_close(found.residuals, left_out[best], 1e-8)
    assert_close(found.training_residuals, r - J @ move - b, 1e-8)
    for i, x in enumerate(new):
        check_by_candidates((J, r, x, ridges, intercept), ranks, lower[i], upper[i])


@pytest.mark.parametrize("ridges", [[0.3], GRID], ids=["fixed", "chosen"])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("form", FORMS)
def test_ends_are_those_of_the_accepted_candidates(
    form: str, draw: str, ridges: list[float]
) -> None:
    for seed, (n, size) in enumerate([(9, 3), (12, 8), (7, 12)]):
        J, r, new = problem(n, size, seed, draw)
        check(J, r, new, ridges, bool(seed % 2) == (form == "dual"), form, [1, 2, n // 2, n])
    J, r, new = problem(10, 4, 3, draw)
    J[5:], r[7:] = J[:5], r[2:5]  # rows that occur twice, and again as new ones
    new[0], new[1] = J[0], J[2]
    check(J, r, new, ridges, True, form, [1, 3, 10])


def test_some_ends_are_where_the_ridge_changes() -> None:
    """Otherwise crossings would not be seen; at usual levels they hardly ever are."""
    crossings = 0
    for n, seed, draw in ((6, 17, "normal"), (6, 24, "normal"), (9, 14, "normal"), (9, 3, "heavy")):
        J, r, new = problem(n, 3, seed, draw)
        ranks = list(range(1, n + 1))
        _, lower, upper = ends(models(J, r, GRID, True), new, ranks)
        single = [ends(models(J, r, [ridge], True), new, ranks) for ridge in GRID]
        for found, which in ((lower, 1), (upper, 2)):
            gaps = np.stack([np.abs(each[which] - found) for each in single]).min(axis=0)
            crossings += int((gaps > 1e-6 * np.abs(found)).sum())
        check(J, r, new, GRID, True, "dual", ranks)
    assert crossings >= 15


def random_pieces(seed: int, count: int) -> list[Piece]:
    """Quadratics and intervals that no data would give, gaps and empty sets among them."""
    rng = np.random.default_rng(seed)
    pieces = []
    for _ in range(count):
        low, high = np.sort(rng.normal(scale=2, size=(2, 1, 2)), axis=0)
        square, root = rng.uniform(0.5, 3.0), rng.normal(scale=2)
        error = (square * root**2 + rng.uniform(0.1, 8.0), -2 * square * root, square)
        parts = tuple(here(np.array([part])) for part in error)
        zero = here(np.zeros(1))
        pieces.append(Piece(zero, here(low), here(high), parts, zero, zero))  # type: ignore[arg-type]
    return pieces


def test_the_hull_of_any_pieces() -> None:
    """Against a fine grid of t, for shapes that refits rarely have."""
    t = np.linspace(-12, 12, 48_001)
    empty = 0
    for seed in range(150):
        pieces = random_pieces(seed, 1 + seed % 5)
        least, most = (part.cpu().numpy()[0] for part in hull(pieces))
        values = [[float(part) for part in piece.error] for piece in pieces]
        best = np.argmin([a + t * (b + t * c) for a, b, c in values], axis=0)
        for k in range(2):
            bounds = [(float(p.lower[0, k]), float(p.upper[0, k])) for p in pieces]
            low, high = np.array(bounds)[best].T
            accepted = t[(low <= t) & (t <= high)]
            if len(accepted) == 0:
                empty += 1
                assert least[k] == most[k] == 0.0
            else:
                assert least[k] == pytest.approx(accepted.min(), abs=2e-3)
                assert most[k] == pytest.approx(accepted.max(), abs=2e-3)
    assert empty >= 3


@pytest.mark.parametrize("ridges", [[0.3], GRID], ids=["fixed", "chosen"])
@pytest.mark.parametrize("form", FORMS)
def test_too_few_rows_accept_everything(form: str, ridges: list[float]) -> None:
    J, r, new = problem(8, 3, 0)
    found = models(J, r, ridges, True, form)
    for ranks in ([0, 1, 3], [0]):
        _, lower, upper = ends(found, new, ranks)
        assert (lower[:, 0] == -np.inf).all()
        assert (upper[:, 0] == np.inf).all()
        assert np.isfinite(lower[:, 1:]).all()


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_units_of_y_do_not_matter(shift: float) -> None:
    J, r, new = problem(15, 6, 2)
    plain = ends(models(J, r, GRID, True), new, [1, 3])
    for unit in (1e-6, 1e6):
        other = ends(models(J, unit * (r + shift), GRID, True), new, [1, 3])
        for one, two in zip(plain, other, strict=True):
            assert_close(two / unit - shift, one, 1e-7)


@pytest.mark.parametrize("ridge", [0.5, "auto"])
@pytest.mark.parametrize(("n", "form"), [(9, Dual), (25, Primal)])
def test_the_lazy_step_takes_the_grid_and_the_form(n: int, form: type, ridge: float | str) -> None:
    torch.manual_seed(0)
    module = mlp((3,), "tanh")(3)
    X, y = linear(n)
    new = linear(4, seed=1)[0]
    J, J_new = (reference.jacobian(module, torch.from_numpy(rows)) for rows in (X, new))
    base, base_new = (reference.outputs(module, torch.from_numpy(rows)) for rows in (X, new))
    expected = None
    for budget in (MACHINE.budget, 4000):
        machine = replace(MACHINE, budget=budget)
        tangent = linearise(module, here(X), machine=machine)
        grid = [ridge] if ridge != "auto" else ridge_grid(tangent, here(X), 5).tolist()
        step = LazyStep(ridge, construction="full", seed=5)
        solved = step.models(tangent, here(X), here(y))
        assert type(solved.family.basis) is form
        assert [factor.ridge for factor in solved.family.factors] == grid
        found = ends(solved, new, [1, 2])
        if expected is None:
            expected = ends(models(J, y - base, grid, True, "dual"), J_new, [1, 2])
        for got, twin in zip(found, expected, strict=True):
            base_column = base_new if got.ndim == 1 else base_new[:, None]
            assert_close(got, twin + base_column, 1e-7)


def test_the_estimator_hands_on_the_rank_and_certifies_it() -> None:
    X, y = linear(30)
    new = linear(5, seed=1)[0]
    model = lk.LazyJackknifeRegressor(mlp((4,)), construction="full", random_state=0).fit(X, y)
    found = model.predict_interval(new, alpha=0.2)
    _, lower, upper = ends(model.loo_, new, [6])
    np.testing.assert_allclose(found.to_numpy(), np.hstack([lower, upper]), rtol=1e-10)
    assert model.ridge_.shape == (1,)
    assert model.certificate_.coverage == pytest.approx(1 - 3 / 31)


@pytest.mark.parametrize(("construction", "widths"), [("full", None), ("minmax", "leverage")])
def test_bounds_of_few_features_see_how_directions_cancel(
    construction: str, widths: str | None
) -> None:
    """At small λ a bound by sums of sizes alone is thousands of times larger."""
    X, y = linear(60)
    terms: dict[str, Any] = {"construction": construction, "widths": widths, "random_state": 0}
    model = lk.LazyJackknifeRegressor(mlp((8,)), ridge=1e-4, **terms).fit(X, y)
    assert model.certificate_.coverage is not None
    assert model.rounding_ < 1e-3


@pytest.mark.parametrize("n", [9, 25])
def test_rows_that_are_never_left_out_are_not_compared(n: int) -> None:
    torch.manual_seed(0)
    module, (X, y), left = mlp((3,), "tanh")(3), linear(n), n - 3
    new = linear(2, seed=1)[0]
    J, J_new = (reference.jacobian(module, torch.from_numpy(rows)) for rows in (X, new))
    base, base_new = (reference.outputs(module, torch.from_numpy(rows)) for rows in (X, new))
    step = LazyStep(0.3, construction="full", seed=5)
    found = step.models(linearise(module, here(X), machine=MACHINE), here(X), here(y), left)
    _, lower, upper = ends(found, new, [1, 4])
    for row, start, low, high in zip(J_new, base_new, lower, upper, strict=True):
        gap = 1e-6 * (high - low)
        inside = np.concatenate([low + gap, high - gap]) - start
        outside = np.concatenate([low - gap, high + gap]) - start
        for candidates, accepted in ((inside, True), (outside, False)):
            found_scores = reference.candidate_scores(J, y - base, row, candidates, 0.3, True)
            scores = np.reshape(found_scores, (-1, n + 1, len(candidates)))[0]
            counts = (scores[:left] >= scores[-1]).sum(axis=0)
            assert ((counts >= [1, 4, 1, 4]) == accepted).all()
    assert len(found.residuals) == len(found.training_residuals) == left


def test_beyond_1000_rows_a_part_chooses_for_one_network() -> None:
    X, y = linear(1010)
    terms: dict[str, Any] = {"construction": "full", "random_state": 0, "device": MACHINE.device}
    model = lk.LazyJackknifeRegressor(mlp((1,)), **terms).fit(X, y)
    rest = rows_apart(len(y), model.seeds_.lazy)[0]
    assert len(model.loo_.residuals) == len(rest) == 151
    assert model.certificate_ == lk.certify(n=1010, alpha=0.1, construction="full")
    assert model.certificate_.coverage == 1 - 15 / 152
    given = lk.LazyJackknifeRegressor(mlp((1,)), ridge=1.0, **terms).fit(X, y)
    assert given.certificate_.coverage == 1 - 101 / 1011  # nothing to choose
