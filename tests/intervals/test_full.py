"""Full conformal in closed form against a refit for every candidate."""

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
from lazyknife.intervals.full_conformal import FullModels
from lazyknife.networks import mlp
from lazyknife.tangent import Basis, Dual, Primal, linearise
from machines import MACHINE, here
from reference import Array, assert_close
from rows import linear
from systems import FORMS, factor

RIDGE = 0.3
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


def models(J: Array, r: Array, ridge: float, intercept: bool, form: str = "dual") -> FullModels:
    """Of a linear network that starts at 0, whose Jacobian is its input."""
    network = nn.Linear(J.shape[1], 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(network.weight)
    X = here(J)
    tangent = linearise(network, X, machine=MACHINE)
    basis: Basis = Primal(tangent, J.shape[1])
    if form == "dual":
        basis = Dual(tangent, tangent.features(X))
    return FullModels(basis, factor(form, J, r, ridge, intercept))


def ends(found: FullModels, new: Array, ranks: Sequence[int]) -> tuple[Array, Array, Array]:
    point, lower, upper = found.accepted(here(new), ranks)
    return point.cpu().numpy(), lower.cpu().numpy(), upper.cpu().numpy()


def rows_above(scores: Array) -> Array:
    """For each candidate, how many rows have a score of at least the new row's."""
    found: Array = (scores[:-1] >= scores[-1]).sum(axis=0)
    return found


def check_by_candidates(
    case: tuple[Array, Array, Array, float, bool],
    ranks: Sequence[int],
    lower: Array,
    upper: Array,
) -> None:
    """Just within the ends a candidate is accepted; outside of them none is."""
    J, r, x, ridge, intercept = case
    reach = 3 * max(np.abs(r).max(), np.abs(lower).max(), np.abs(upper).max())
    far = np.geomspace(1e-3, 1e3, 200) * reach
    wide = np.concatenate([np.linspace(-reach, reach, 1500), far, -far])
    middles = np.linspace(r.min(), r.max(), 500)  # heavy tails make the first of these coarse
    slack = 1e-6 * (1e-3 + upper - lower)
    sampled = np.concatenate([wide, middles])
    counts, at_lower, at_upper = (
        rows_above(reference.candidate_scores(J, r, x, candidates, ridge, intercept))
        for candidates in (sampled, lower + slack, upper - slack)
    )
    for k, rank in enumerate(ranks):
        accepted = sampled[counts >= rank]
        assert at_lower[k] >= rank
        assert at_upper[k] >= rank
        assert (accepted >= lower[k] - slack[k]).all()
        assert (accepted <= upper[k] + slack[k]).all()


def check(
    case: tuple[Array, Array, Array], ridge: float, intercept: bool, form: str, ranks: Sequence[int]
) -> None:
    J, r, new = case
    found = models(J, r, ridge, intercept, form)
    point, lower, upper = ends(found, new, ranks)
    move, b = reference.ridge_fit(J, r, ridge, intercept)
    scale = np.abs(r).max()
    assert np.abs(point - new @ move - b).max() <= 1e-8 * scale
    assert np.abs(found.point(here(new)).cpu().numpy() - point).max() <= 1e-12 * scale
    assert_close(found.residuals, reference.left_out_residuals(J, r, ridge, intercept), 1e-8)
    assert_close(found.training_residuals, r - J @ move - b, 1e-8)
    for i, x in enumerate(new):
        check_by_candidates((J, r, x, ridge, intercept), ranks, lower[i], upper[i])


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("form", FORMS)
def test_ends_are_those_of_the_accepted_candidates(form: str, draw: str) -> None:
    for seed, (n, size) in enumerate([(9, 3), (12, 8), (7, 12)]):
        intercept = bool(seed % 2) == (form == "dual")
        check(problem(n, size, seed, draw), RIDGE, intercept, form, [1, 2, n // 2, n])
    J, r, new = problem(10, 4, 3, draw)
    J[5:], r[7:] = J[:5], r[2:5]  # rows that occur twice, and again as new ones
    new[0], new[1] = J[0], J[2]
    check((J, r, new), RIDGE, True, form, [1, 3, 10])


@pytest.mark.parametrize("draw", DRAWS)
def test_rows_that_are_never_outranked(draw: str) -> None:
    """A row may have one of the largest scores somewhere on a piece of y, if it has at a point."""
    J, r, new = problem(12, 4, 0, draw)
    accepts = models(J, r, RIDGE, True).accepts(here(new))
    low, high = accepts.middle - np.abs(r).max(), accepts.middle + 2
    for rank in (1, 3):
        possible = accepts.outranked(low, high, rank).cpu().numpy()
        seen = np.zeros_like(possible)
        for k, x in enumerate(new):
            y = np.linspace(float(low[k]), float(high[k]), 41)
            scores = reference.candidate_scores(J, r, x, y, RIDGE, True)
            limit = np.sort(scores, axis=0)[-1 - rank] * (1 + 1e-9)
            seen[k] = (scores[:-1] > limit).any(axis=1)
        assert (possible | ~seen).all()
        assert seen.sum() >= 2
        assert possible.sum() < 0.8 * possible.size


@pytest.mark.parametrize("form", FORMS)
def test_too_few_rows_accept_everything(form: str) -> None:
    J, r, new = problem(8, 3, 0)
    found = models(J, r, RIDGE, True, form)
    for ranks in ([0, 1, 3], [0]):
        _, lower, upper = ends(found, new, ranks)
        assert (lower[:, 0] == -np.inf).all()
        assert (upper[:, 0] == np.inf).all()
        assert np.isfinite(lower[:, 1:]).all()


@pytest.mark.parametrize(("n", "form"), [(9, Dual), (25, Primal)])
def test_the_lazy_step_takes_the_form(n: int, form: type) -> None:
    torch.manual_seed(0)
    module = mlp((3,), "tanh")(3)
    X, y = linear(n)
    new = linear(4, seed=1)[0]
    J, J_new = (reference.jacobian(module, torch.from_numpy(rows)) for rows in (X, new))
    base, base_new = (reference.outputs(module, torch.from_numpy(rows)) for rows in (X, new))
    expected = ends(models(J, y - base, 0.5, True, "dual"), J_new, [1, 2])
    for budget in (MACHINE.budget, 4000):
        tangent = linearise(module, here(X), machine=replace(MACHINE, budget=budget))
        solved = LazyStep(0.5, construction="full", seed=5).models(tangent, here(X), here(y))
        assert type(solved.basis) is form
        for got, twin in zip(ends(solved, new, [1, 2]), expected, strict=True):
            base_column = base_new if got.ndim == 1 else base_new[:, None]
            assert_close(got, twin + base_column, 1e-7)


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
