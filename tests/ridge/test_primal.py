"""All leave-one-out ridge models from feature rows, against refits and against the dual form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from lazyknife.compute import Machine
from lazyknife.ridge.leave_one_out import leave_one_out
from lazyknife.ridge.primal import TILE, PrimalSystem
from lazyknife.ridge.system import RidgeModels
from machines import MACHINE, here
from reference import Array, assert_close
from systems import chosen_ridges, dual_models, primal_models

GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it
Fit = Callable[[Array, Array], RidgeModels]


def problem(n: int, size: int, seed: int) -> tuple[Array, Array, Array]:
    """Return the features of n training rows, the targets and the features of four new rows."""
    rng = np.random.default_rng(seed)
    J, new = rng.normal(size=(n, size)), rng.normal(size=(4, size))
    return J, 2 + J[:, 0] + rng.normal(size=n), new


def feature_rows(J: Array, intercept: bool) -> Tensor:
    """Φ: with an intercept a last column of ones."""
    return here(np.hstack([J, np.ones((len(J), int(intercept)))]))


def fixed(
    J: Array, r: Array, ridge: float, intercept: bool, machine: Machine = MACHINE
) -> RidgeModels:
    return primal_models(feature_rows(J, intercept), here(r), ridge, intercept, machine)


def auto(
    J: Array, r: Array, grid: list[float], intercept: bool, machine: Machine = MACHINE
) -> RidgeModels:
    rows, points = feature_rows(J, intercept), torch.tensor(grid, dtype=torch.float64)
    return primal_models(rows, here(r), points, intercept, machine)


def weights(models: RidgeModels) -> Array:
    """Columns of the n models and, last, of the full one, shape (size, n + 1)."""
    return torch.cat([models.columns, models.full[:, None]], dim=1).cpu().numpy()


def predictions(models: RidgeModels, new: Array) -> Array:
    """Predictions of all n + 1 models at the new rows, shape (4, n + 1)."""
    return new @ weights(models) + models.intercepts.cpu().numpy()


def check_against_refits(
    models: RidgeModels, J: Array, r: Array, new: Array, intercept: bool, relative: float = 1e-8
) -> None:
    twin = reference.refits(J, r, models.ridges.tolist(), intercept)
    at_training = J @ twin.moves.T + twin.intercepts
    assert_close(weights(models), twin.moves.T, relative)
    assert_close(models.intercepts, twin.intercepts, relative)
    assert_close(models.residuals, r - at_training[:, :-1].diagonal(), relative)
    assert_close(models.training_residuals, r - at_training[:, -1], relative)
    assert_close(predictions(models, new), new @ twin.moves.T + twin.intercepts, relative)


def check_against_the_dual_form(
    primal: RidgeModels, dual: RidgeModels, J: Array, new: Array
) -> None:
    columns = torch.cat([dual.columns, dual.full[:, None]], dim=1).cpu().numpy()
    values = new @ J.T @ columns + dual.intercepts.cpu().numpy()
    assert_close(predictions(primal, new), values, 1e-8)
    assert primal.ridges.tolist() == dual.ridges.tolist()
    for name in ("residuals", "training_residuals", "intercepts"):
        assert_close(getattr(primal, name), getattr(dual, name), 1e-8)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 30),
    size=st.integers(1, 12),
    exponent=st.floats(-2, 4),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_every_model_equals_its_explicit_refit_and_the_dual_form(
    n: int, size: int, exponent: float, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    ridge = 10.0**exponent
    models = fixed(J, r, ridge, intercept)
    assert models.ridges.tolist() == [ridge] * (n + 1)
    check_against_refits(models, J, r, new, intercept)
    dual = dual_models(here(J @ J.T), here(r), ridge, intercept, MACHINE)
    check_against_the_dual_form(models, dual, J, new)


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(5, 11),
    size=st.integers(1, 7),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_models_of_different_ridges_equal_the_refits_and_the_dual_form(
    n: int, size: int, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    models = auto(J, r, GRID, intercept)
    check_against_refits(models, J, r, new, intercept)
    grid = torch.tensor(GRID, dtype=torch.float64)
    dual = dual_models(here(J @ J.T), here(r), grid, intercept, MACHINE)
    check_against_the_dual_form(models, dual, J, new)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(5, 20),
    size=st.integers(1, 12),
    budget=st.sampled_from([1, 3000, 2**30]),
    in_place=st.booleans(),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_blocks_change_nothing(
    n: int, size: int, budget: int, in_place: bool, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    machine = replace(MACHINE, budget=budget)
    whole = auto(J, r, GRID, intercept)
    models = auto(J, r, GRID, intercept, machine)
    alone = primal_models(feature_rows(J, intercept), here(r), 0.3, intercept, machine, in_place)
    check_against_refits(alone, J, r, new, intercept)
    assert models.ridges.tolist() == whole.ridges.tolist()
    check_against_refits(models, J, r, new, intercept)


def test_more_features_than_a_tile_at_the_sizes_in_use() -> None:
    size = 20 + (TILE if MACHINE.on_cpu else 0)
    J, noise, new = problem(size + 60, size, seed=0)
    r = J.sum(axis=1) + 0.1 * noise
    models = auto(J, r, [1e6, 1.0, 1e5], True)
    values = predictions(models, new)
    for j in (0, 1, len(r) - 1, len(r)):
        kept = np.arange(len(r)) != j
        move, b = reference.ridge_fit(J[kept], r[kept], float(models.ridges[j]), True)
        assert_close(values[:, j], new @ move + b, 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_models_take_the_rows_memory(intercept: bool) -> None:
    J, r, _ = problem(8, 3, seed=0)
    rows = feature_rows(J, intercept)
    models = primal_models(rows, here(r), 0.5, intercept, MACHINE, in_place=True)
    assert models.columns.data_ptr() == rows.data_ptr()


@pytest.mark.parametrize("intercept", [False, True])
def test_choosing_a_ridge_leaves_the_rows_alone(intercept: bool) -> None:
    J, r, _ = problem(8, 3, seed=0)
    rows, grid = feature_rows(J, intercept), torch.tensor(GRID, dtype=torch.float64)
    primal_models(rows, here(r), grid, intercept, MACHINE)
    assert torch.equal(rows, feature_rows(J, intercept))


@pytest.mark.parametrize("seed", range(4))
def test_a_large_mean_costs_no_digits_when_there_is_an_intercept(seed: int) -> None:
    J, r, _ = problem(40, 10, seed)
    r = np.round(r * 2**20) / 2**20  # so that the sum with the mean is exact
    for fit, ridges in ((fixed, 1e-2), (auto, [1.0, 1e-2])):
        near, far = fit(J, r, ridges, True), fit(J, r + 2.0**30, ridges, True)
        assert_close(far.residuals, near.residuals, 1e-10)
        assert_close(far.training_residuals, near.training_residuals, 1e-10)
        assert_close(weights(far), weights(near), 1e-10)
        assert_close(far.intercepts, near.intercepts + 2.0**30, 1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_nearly_equal_features_cost_few_digits(seed: int) -> None:
    J, r, _ = problem(40, 8, seed)
    J[:, 1] = J[:, 0] + 1e-4 * J[:, 1]
    move, _ = reference.ridge_fit(J, r, 1e-6, True)
    assert_close(fixed(J, r, 1e-6, True).full, move, 3e-10)


@pytest.mark.parametrize(("size", "intercept"), [(2, False), (1, True)])
def test_features_that_swallow_the_ridge_are_refused(size: int, intercept: bool) -> None:
    """The same column twice, λ lost in it: the second pivot is 0, in powers of 2 exactly."""
    J, r = np.full((4, size), 2.0**30), np.arange(4.0)
    with pytest.raises(ValueError, match=r"ridge=1 is not positive definite in float64"):
        fixed(J, r, 1.0, intercept)


@pytest.mark.parametrize("entry", [1e200, np.inf])
def test_features_that_are_too_large_are_refused(entry: float) -> None:
    J, r, _ = problem(8, 5, seed=0)
    J[3, 4] = entry
    for fit, ridges in ((fixed, 1.0), (auto, [1.0])):
        with pytest.raises(ValueError, match="features are too large for float64"):
            fit(J, r, ridges, False)


def fixed_ridge(J: Array, r: Array) -> RidgeModels:
    return fixed(J, r, 0.3, True)


def own_ridge(J: Array, r: Array) -> RidgeModels:
    own = chosen_ridges(here(J @ J.T), here(r), True)
    return leave_one_out(PrimalSystem(feature_rows(J, True), here(r), True, MACHINE), own)


def ridge_chosen_on_all_rows(J: Array, r: Array) -> RidgeModels:
    """A mutant that leaks: one λ, chosen with the left-out row among the others."""
    return fixed(J, r, float(own_ridge(J, r).ridges[-1]), True)


def influence_on_the_model_without_it(fit: Fit, seed: int) -> float:
    """Largest change in model −j, its λ or its predictions, when row j is changed wildly."""
    J, r, new = problem(12, 5, seed)
    before = fit(J, r)
    changes = []
    for j in range(12):
        wild_J, wild_r = J.copy(), r.copy()
        wild_J[j] = 30 * np.random.default_rng(j).normal(size=5)
        wild_r[j] += 200.0
        after = fit(wild_J, wild_r)
        moved = predictions(after, new)[:, j] - predictions(before, new)[:, j]
        changes += [np.abs(moved).max(), abs(float(after.ridges[j] - before.ridges[j]))]
    return float(max(changes))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fit", [fixed_ridge, own_ridge])
def test_a_row_never_influences_the_model_without_it(fit: Fit, seed: int) -> None:
    assert influence_on_the_model_without_it(fit, seed) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_the_leak_test_catches_a_ridge_chosen_on_all_rows(seed: int) -> None:
    assert influence_on_the_model_without_it(ridge_chosen_on_all_rows, seed) > 1e-3


def test_a_row_does_influence_the_other_models() -> None:
    J, r, _ = problem(12, 5, seed=0)
    wild = r.copy()
    wild[3] += 200.0
    before, after = (own_ridge(J, targets) for targets in (r, wild))
    change = np.abs(weights(after) - weights(before)).max(axis=0)
    assert change[3] < 1e-9
    assert (change[np.arange(13) != 3] > 1e-3).all()


def test_a_ridge_that_rounding_outweighs_is_refused() -> None:
    J, r, _ = problem(30, 4, seed=0)
    J = 1e8 * np.hstack([J, J])  # twice the same features: no digits left below 1
    with pytest.raises(ValueError, match="not positive definite"):
        fixed(J, r, 1e-6, True)
