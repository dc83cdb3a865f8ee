"""Every way to leave rows or folds out at once, against one explicit refit for each model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import linear_model
from torch import Tensor

import reference
from lazyknife.choosing.per_model import choose_ridges
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.leave_one_out import draw_folds, leave_folds_out, leave_one_out, refits_folds
from lazyknife.ridge.primal import TILE, PrimalSystem
from lazyknife.ridge.rounding import GAMMA, rounding_of
from lazyknife.ridge.system import OwnRidges, RidgeModels
from machines import MACHINE, here
from reference import Array, assert_close
from systems import FORMS, dual_models, own_ridges, problem, system

FOLDED = ["dual folds", "primal folds", "refitted folds"]  # the last: a factor for each fold
WAYS = [*FORMS, *FOLDED]
RELATIVE = 1e-8
Rows = tuple[Array, Array, Array]  # Jacobian rows, targets, Jacobian of new rows
Folds = Sequence[Tensor]
Ridges = float | Sequence[float]
GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it


def form_of(way: str) -> str:
    return "primal" if way.startswith(("primal", "refitted")) else "dual"


def left_out(
    way: str,
    equations: DualSystem | PrimalSystem,
    ridges: OwnRidges,
    folds: Folds = (),
    in_place: bool = False,
) -> RidgeModels:
    if way in FOLDED:
        return leave_folds_out(equations, ridges, folds, refit=way == "refitted folds")
    return leave_one_out(equations, ridges, in_place=in_place)


def solved(
    way: str, rows: Rows, ridges: Ridges, folds: Folds = (), intercept: bool = True, **how: Any
) -> RidgeModels:
    """Models whose λ are those given, in turn."""
    J, r, machine = *rows[:2], how.pop("machine", MACHINE)
    own = own_ridges(ridges, here(np.zeros(len(sets_of(way, len(r), folds)))))
    return left_out(way, system(form_of(way), J, r, intercept, machine), own, folds, **how)


def sets_of(way: str, n: int, folds: Folds) -> list[Array]:
    """The rows that each model leaves out."""
    return [part.numpy() for part in folds] if way in FOLDED else list(np.arange(n)[:, None])


def moves_of(way: str, models: RidgeModels, J: Array) -> Array:
    """Weights of every model and, last, of the full one, in columns."""
    columns = torch.cat([models.columns, models.full[:, None]], dim=1).cpu().numpy()
    return J.T @ columns if form_of(way) == "dual" else columns


def predicted(way: str, models: RidgeModels, rows: Rows) -> Array:
    """Predictions of every model and, last, of the full one, at the new rows."""
    return rows[2] @ moves_of(way, models, rows[0]) + models.intercepts.cpu().numpy()


def test_the_reference_is_scikit_learns_ridge() -> None:
    J, r, new = problem(15, 4, seed=0)
    for intercept in (False, True):
        twin = linear_model.Ridge(alpha=2.0, solver="cholesky", fit_intercept=intercept).fit(J, r)
        move, b = reference.ridge_fit(J, r, 2.0, intercept)
        assert_close(new @ move + b, twin.predict(new))


def any_folds(n: int, folds: int, seed: int) -> Folds:
    """Folds of any sizes, their rows in any order."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.choice(np.arange(1, n), min(folds, n) - 1, replace=False))
    return [torch.from_numpy(part) for part in np.split(rng.permutation(n), ends)]


@settings(max_examples=200, deadline=None)
@given(
    way=st.sampled_from(WAYS),
    n=st.integers(2, 30),
    size=st.one_of(st.integers(1, 20), st.just(60)),
    ridges=st.one_of(st.just(GRID), st.floats(-3, 4).map(lambda exponent: [10.0**exponent])),
    folds=st.integers(2, 16),
    budget=st.sampled_from([1, 3000, MACHINE.budget]),
    in_place=st.booleans(),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_every_number_of_every_model_is_that_of_a_refit_without_its_rows(
    way: str,
    n: int,
    size: int,
    ridges: list[float],
    folds: int,
    budget: int,
    in_place: bool,
    intercept: bool,
    seed: int,
) -> None:
    J, r, new = rows = problem(n, size, seed)
    parts = any_folds(n, folds, seed)
    machine = replace(MACHINE, budget=budget)
    models = solved(way, rows, ridges, parts, intercept, machine=machine, in_place=in_place)
    assert models.ridges.tolist() == [ridges[k % len(ridges)] for k in range(len(models.ridges))]

    sets, model_of = sets_of(way, n, parts), np.empty(n, dtype=int)
    for k, gone in enumerate(sets):
        model_of[gone] = k
    twin = reference.refits(J, r, models.ridges.tolist(), intercept, sets)
    errors = r - twin.moves @ J.T - twin.intercepts[:, None]
    assert_close(moves_of(way, models, J), twin.moves.T, RELATIVE)
    assert_close(models.intercepts, twin.intercepts, RELATIVE)
    assert_close(predicted(way, models, rows), new @ twin.moves.T + twin.intercepts, RELATIVE)
    assert_close(models.residuals, errors[model_of, np.arange(n)], RELATIVE)
    assert_close(models.training_residuals, errors[-1], RELATIVE)
    if way in FOLDED:
        assert models.model_of is not None
        assert models.model_of.tolist() == model_of.tolist()
    elif form_of(way) == "dual":
        assert (models.columns.diagonal() == 0).all()


@pytest.mark.parametrize(
    ("form", "size"), [("dual", 12), ("primal", 20 + (TILE if MACHINE.on_cpu else 0))]
)
def test_every_ridge_sees_the_same_equations_at_the_sizes_in_use(form: str, size: int) -> None:
    """More rows, or more features, than are worked on at once."""
    n = max(250, size + 60)
    J, noise, new = problem(n, size, seed=0)
    r = J.sum(axis=1) + 0.1 * noise
    models = solved(form, (J, r, new), [1e6, 1.0, 1e5])
    values = predicted(form, models, (J, r, new))
    for j in (0, 1, n - 60, n - 1, n):
        kept = np.arange(n) != j
        move, b = reference.ridge_fit(J[kept], r[kept], float(models.ridges[j]), True)
        assert_close(values[:, j], new @ move + b, RELATIVE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_a_large_mean_costs_no_digits_when_there_is_an_intercept(way: str, seed: int) -> None:
    J, r, new = problem(40, 10, seed)
    r = np.round(r * 2**20) / 2**20  # so that the sum with the mean is exact
    parts = draw_folds(40, 5, seed)
    near, far = (solved(way, (J, r + mean, new), [1.0, 1e-2], parts) for mean in (0.0, 2.0**30))
    assert_close(far.residuals, near.residuals, 1e-10)
    assert_close(far.training_residuals, near.training_residuals, 1e-10)
    assert_close(moves_of(way, far, J), moves_of(way, near, J), 1e-10)
    assert_close(far.intercepts, near.intercepts + 2.0**30, 1e-15)


@pytest.mark.parametrize("way", WAYS)
def test_the_equations_are_left_as_they_were(way: str) -> None:
    J, r, _ = problem(8, 3, seed=0)
    equations, twin = (system(form_of(way), J, r, True) for _ in range(2))
    parts = draw_folds(8, 3, seed=0)
    left_out(way, equations, own_ridges(GRID, here(np.zeros(3 if way in FOLDED else 8))), parts)
    for name, value in vars(twin).items():
        if isinstance(value, Tensor):
            assert torch.equal(getattr(equations, name), value)


# What rounding makes of the equations.


def test_a_kernel_that_swallows_the_ridge_still_has_an_answer() -> None:
    K = here(np.full((4, 4), 2.0**60))  # plus λ it is the same, and its second pivot exactly 0
    models = dual_models(K, here(np.arange(4.0)), 1.0, True)
    assert models.residuals.isfinite().all()
    rounding = rounding_of(models, torch.finfo(torch.float64).eps, 1.0)
    assert rounding.undetermined.all()  # and it is not trusted


@pytest.mark.parametrize(
    ("J", "ridge", "intercept"),
    [
        (np.full((4, 2), 2.0**30), 1.0, False),  # one column twice: the second pivot is exactly 0
        (np.full((4, 1), 2.0**30), 1.0, True),
        (1e8 * np.tile(problem(30, 4, seed=0)[0], 2), 1e-6, True),
        (1e9 * problem(4, 12, seed=6)[0], 1e-9, False),
    ],
)
def test_features_that_swallow_the_ridge_are_refused(
    J: Array, ridge: float, intercept: bool
) -> None:
    with pytest.raises(ValueError, match=rf"ridge={ridge:g} is not positive definite in float64"):
        solved("primal", (J, np.arange(len(J)) * 1.0, J), ridge, intercept=intercept)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("entry", [np.inf, -np.inf, np.nan, 1e200])
def test_no_entry_that_is_too_large_is_missed(form: str, entry: float) -> None:
    for place in range(6):
        J = np.eye(6)
        J[place, place] = entry
        with np.errstate(all="ignore"), pytest.raises(ValueError, match="too large for float64"):
            solved(form, (J, np.ones(6), J), 1.0, intercept=False)


def test_residuals_of_folds_are_within_their_rounding_bounds() -> None:
    """A fold with an outlier in x and y: subtracting its rows costs digits, which bounds cover."""
    J, r, new = problem(40, 5, seed=4)
    parts = draw_folds(40, 4, seed=0)
    J[parts[0][0]] *= 1e6
    r[parts[0][0]] *= 1e6
    models = solved("refitted folds", (J, r, new), 1.0, parts)
    rounding = rounding_of(models, GAMMA, float(np.abs(r).max()))
    for fold in parts:
        kept = np.setdiff1d(np.arange(40), fold.numpy())
        move, b = reference.ridge_fit(J[kept], r[kept], 1.0, True)
        off = np.abs((r - J @ move - b)[fold.numpy()] - models.residuals.cpu().numpy()[fold])
        assert (off <= 2 * rounding.own.cpu().numpy()[fold]).all()


# Leaks.


def at_own_ridge(way: str, rows: Rows, folds: Folds) -> RidgeModels:
    """Every model chooses λ on its own rows."""
    J, r, _ = rows
    parts = [part.to(MACHINE.device) for part in folds] if way in FOLDED else None
    columns = [*range(1 + (len(folds) if way in FOLDED else len(r)))]
    own = choose_ridges(here(J @ J.T), here(r), True, 1.0, columns, parts, MACHINE)
    return left_out(way, system(form_of(way), J, r, True), own, folds)


def at_the_ridge_of_all_rows(way: str, rows: Rows, folds: Folds) -> RidgeModels:
    """A mutant that leaks: one λ, chosen with the left-out row among the others."""
    return solved(way, rows, float(at_own_ridge(way, rows, folds).ridges[-1]), folds)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fit", [at_own_ridge, at_the_ridge_of_all_rows])
@pytest.mark.parametrize("way", WAYS)
def test_rows_never_influence_the_model_without_them_but_all_others(
    way: str, fit: Callable[[str, Rows, Folds], RidgeModels], seed: int
) -> None:
    """Neither its predictions nor its λ, however wildly they change."""
    J, r, new = problem(12, 5, seed)
    folds = draw_folds(12, 4, seed)
    before, own, other = fit(way, (J, r, new), folds), 0.0, np.inf
    for k, rows in enumerate(sets_of(way, 12, folds)):
        wild_J, wild_r = J.copy(), r.copy()
        wild_J[rows] = 30 * np.random.default_rng(k).normal(size=(len(rows), 5))
        wild_r[rows] += 200.0 * np.arange(1, 1 + len(rows))
        wild = (wild_J, wild_r, new)
        after = fit(way, wild, folds)
        moved = np.abs(predicted(way, after, wild) - predicted(way, before, (J, r, new)))
        change = moved.max(axis=0)
        own = max(own, change[k], abs(float(after.ridges[k] - before.ridges[k])))
        other = min(other, np.delete(change, k).min())
    if fit is at_the_ridge_of_all_rows:
        assert own > 1e-3
    else:
        assert own < 10 * RELATIVE
        assert other > 1e-6


# Folds.


def test_many_small_folds_use_the_inverse_and_large_ones_a_factor() -> None:
    assert refits_folds(100_000, 512, 10)
    assert not refits_folds(5_000, 512, 5_000)
    assert not refits_folds(5_000, 4_096, 10)


def test_folds_are_a_partition_with_sizes_that_differ_by_one_at_most() -> None:
    for n, folds in ((10, 3), (10, 10), (17, 4), (5, 2)):
        parts = draw_folds(n, folds, seed=n)
        assert torch.cat(parts).sort().values.tolist() == list(range(n))
        sizes = [len(part) for part in parts]
        assert len(sizes) == folds
        assert max(sizes) - min(sizes) <= (n % folds > 0)
    first, again, other = (torch.cat(draw_folds(40, 4, seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, torch.arange(40))  # rows in order may be sorted by something
