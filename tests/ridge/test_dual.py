"""All leave-one-out ridge models at once, against one explicit refit for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor, nn

import reference
from lazyknife.compute import Machine
from lazyknife.networks import mlp
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.leave_one_out import leave_one_out
from lazyknife.ridge.rounding import rounding_of
from lazyknife.ridge.system import Indefinite, RidgeModels
from lazyknife.tangent import linearise
from machines import MACHINE, here
from reference import Array, assert_close
from systems import chosen_ridges, dual_models

EPSILON = torch.finfo(torch.float64).eps
GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it
Fit = Callable[[Tensor, Array], RidgeModels]


def problem(n: int, size: int, seed: int) -> tuple[Array, Array, Array]:
    """Return the Jacobian of n training rows, the targets and the Jacobian of four new rows."""
    rng = np.random.default_rng(seed)
    J, new = rng.normal(size=(n, size)), rng.normal(size=(4, size))
    return J, J[:, 0] + rng.normal(size=n), new


def kernel(J: Array) -> Tensor:
    return here(J @ J.T)


def predictions(models: RidgeModels, J: Array, new: Array) -> Array:
    """Predictions of all n + 1 models at the new rows, shape (4, n + 1)."""
    return new @ J.T @ coefficients(models) + models.intercepts.cpu().numpy()


def coefficients(models: RidgeModels) -> Array:
    """Columns of the n models and, last, of the full one."""
    return torch.cat([models.columns, models.full[:, None]], dim=1).cpu().numpy()


def fixed(
    K: Tensor, r: Array, ridge: float, intercept: bool, machine: Machine = MACHINE
) -> RidgeModels:
    return dual_models(K, here(r), ridge, intercept, machine)


def auto(
    K: Tensor, r: Array, grid: list[float], intercept: bool, machine: Machine = MACHINE
) -> RidgeModels:
    points = torch.tensor(grid, dtype=torch.float64)
    return dual_models(K, here(r), points, intercept, machine)


def check_against_refits(
    models: RidgeModels, J: Array, r: Array, new: Array, intercept: bool, relative: float = 1e-9
) -> None:
    twin = reference.refits(J, r, models.ridges.tolist(), intercept)
    expected = new @ twin.moves.T + twin.intercepts
    left_out = r - np.einsum("im,im->i", J, twin.moves[:-1]) - twin.intercepts[:-1]
    assert_close(models.residuals, left_out, relative)
    assert_close(J.T @ coefficients(models), twin.moves.T, relative)
    assert_close(models.intercepts, twin.intercepts, relative)
    assert_close(predictions(models, J, new), expected, relative)
    assert (models.columns.diagonal() == 0).all()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 14),
    size=st.integers(1, 20),
    exponent=st.floats(-3, 4),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_every_model_equals_its_explicit_refit(
    n: int, size: int, exponent: float, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    ridge = 10.0**exponent
    models = fixed(kernel(J), r, ridge, intercept)
    assert (models.ridges == ridge).all()
    assert len(models.ridges) == n + 1
    check_against_refits(models, J, r, new, intercept)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "size"), [(30, 4), (12, 60)])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e4])
def test_more_rows_than_weights_and_fewer(n: int, size: int, ridge: float, intercept: bool) -> None:
    J, r, new = problem(n, size, seed=n)
    models = fixed(kernel(J), r, ridge, intercept)
    check_against_refits(models, J, r, new, intercept)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_last_column_is_the_fit_of_all_rows(intercept: bool) -> None:
    J, r, _ = problem(9, 5, seed=0)
    models = fixed(kernel(J), r, 0.7, intercept)
    move, b = reference.ridge_fit(J, r, 0.7, intercept)
    assert_close(J.T @ models.full.cpu().numpy(), move)
    assert abs(float(models.intercepts[-1]) - b) < 1e-12
    assert_close(models.training_residuals, r - J @ move - b)


@pytest.mark.parametrize("start", [0.0, 1.5])
def test_a_linear_network_is_scikit_learns_ridge(start: float) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(15, 4)), rng.normal(size=(6, 4))
    y = 3 + X @ rng.normal(size=4) + rng.normal(size=15)
    module = nn.Linear(4, 1, bias=False).double()
    nn.init.constant_(module.weight, start)
    base = start * X.sum(axis=1)

    tangent = linearise(module, torch.from_numpy(X), machine=MACHINE)
    features, rows = tangent.features(torch.from_numpy(X)), tangent.features(torch.from_numpy(new))
    targets = here(y) - features.outputs
    models = dual_models(tangent.kernel(features, features), targets, 2.0, True, MACHINE)
    across = tangent.kernel(rows, features).cpu().numpy()
    values = across @ coefficients(models) + models.intercepts.cpu().numpy()

    for j in range(16):
        kept = np.arange(15) != j
        twin = Ridge(alpha=2.0, solver="cholesky").fit(X[kept], (y - base)[kept])
        assert_close(values[:, j], twin.predict(new))
        if j < 15:
            assert float(models.residuals[j]) == pytest.approx(
                y[j] - base[j] - twin.predict(X[j : j + 1])[0], rel=1e-9
            )


def test_a_linear_networks_own_bias_is_penalised() -> None:
    X, y = np.random.default_rng(0).normal(size=(2, 12, 3))
    module = mlp(())(3).double()
    tangent = linearise(module, torch.from_numpy(X), machine=MACHINE)
    features = tangent.features(torch.from_numpy(X))
    targets = here(y[:, 0]) - features.outputs
    models = dual_models(tangent.kernel(features, features), targets, 2.0, False, MACHINE)
    J = np.hstack([X, np.ones((12, 1))])
    check_against_refits(models, J, targets.cpu().numpy(), J[:4], intercept=False)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "size"), [(9, 3), (6, 12)])
@pytest.mark.parametrize("seed", range(3))
def test_models_of_different_ridges_equal_the_refits(
    n: int, size: int, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    models = auto(kernel(J), r, GRID, intercept)
    assert len(models.ridges.unique()) == min(len(GRID), n + 1)
    check_against_refits(models, J, r, new, intercept)


def test_a_grid_of_one_point_is_the_fixed_ridge() -> None:
    J, r, _ = problem(8, 3, seed=0)
    chosen, given = auto(kernel(J), r, [0.5], True), fixed(kernel(J), r, 0.5, True)
    for name in ("columns", "full", "intercepts", "ridges", "residuals", "training_residuals"):
        assert_close(getattr(chosen, name), getattr(given, name), 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_large_mean_costs_no_digits_when_there_is_an_intercept(seed: int) -> None:
    J, r, _ = problem(40, 10, seed)
    near = fixed(kernel(J), r, 1e-2, True)
    far = fixed(kernel(J), r + 1e6, 1e-2, True)
    assert_close(far.residuals, near.residuals, 1e-8)
    assert_close(J.T @ coefficients(far), J.T @ coefficients(near), 1e-8)
    assert_close(far.intercepts - 1e6, near.intercepts, 1e-8)


def indefinite(J: Array, ridge: float) -> Array:
    """The kernel of J less what rounding may take: plus λ it is not positive definite."""
    null = np.linalg.qr(J, mode="complete")[0][:, -1]
    broken = J @ J.T - 2 * ridge * np.outer(null, null)
    assert np.linalg.eigvalsh(broken)[0] < -ridge
    return broken


@pytest.mark.parametrize("intercept", [False, True])
def test_a_slightly_indefinite_kernel_counts_as_its_positive_part(intercept: bool) -> None:
    J, r, new = problem(10, 4, seed=0)
    models = fixed(here(indefinite(J, 1e-3)), r, 1e-3, intercept)
    check_against_refits(models, J, r, new, intercept)


def test_an_indefinite_kernel_is_refused_where_its_eigenvectors_do_not_fit() -> None:
    J, r, _ = problem(10, 4, seed=0)
    broken = here(indefinite(J, 1e-3))
    with pytest.raises(ValueError, match=r"ridge=0.001 is not positive definite in float64"):
        fixed(broken, r, 1e-3, True, replace(MACHINE, budget=1))


def test_a_kernel_that_swallows_the_ridge_still_has_an_answer() -> None:
    K = here(np.full((4, 4), 2.0**60))  # plus λ it is the same, and its second pivot exactly 0
    models = fixed(K, np.arange(4.0), 1.0, True)
    assert models.residuals.isfinite().all()
    assert rounding_of(models, EPSILON, 1.0).undetermined.all()  # and it is not trusted


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(5, 14),
    budget=st.sampled_from([1, 3000, 2**30]),
    in_place=st.booleans(),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_blocks_change_nothing(
    n: int, budget: int, in_place: bool, intercept: bool, seed: int
) -> None:
    J, r, new = problem(n, 6, seed)
    machine = replace(MACHINE, budget=budget)
    whole = auto(kernel(J), r, GRID, intercept)
    models = auto(kernel(J), r, GRID, intercept, machine)
    alone = dual_models(kernel(J), here(r), 0.3, intercept, machine, in_place)
    check_against_refits(alone, J, r, new, intercept)
    assert models.ridges.tolist() == whole.ridges.tolist()
    check_against_refits(models, J, r, new, intercept)


def test_an_indefinite_kernel_is_refused_in_place() -> None:
    J, r, _ = problem(10, 4, seed=0)
    with pytest.raises(Indefinite, match=r"ridge=0.001 is not positive definite in float64"):
        dual_models(here(indefinite(J, 1e-3)), here(r), 1e-3, True, in_place=True)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("entry", [np.inf, -np.inf, np.nan])
def test_no_entry_that_is_not_finite_is_missed(place: int, entry: float) -> None:
    K = np.eye(6)
    K[place, place] = entry
    with pytest.raises(ValueError, match="features are too large for float64"):
        fixed(here(K), np.ones(6), 1.0, False)


def test_every_ridge_sees_the_same_kernel() -> None:
    n = 250
    J, r, new = problem(n, 12, seed=0)
    models = auto(kernel(J), r, [1e6, 1.0, 1e5], True)
    values = predictions(models, J, new)
    for j in (0, n - 60, n - 1, n):
        kept = np.arange(n) != j
        move, b = reference.ridge_fit(J[kept], r[kept], float(models.ridges[j]), True)
        assert_close(values[:, j], new @ move + b)


def test_the_models_take_the_kernels_memory() -> None:
    J, r, _ = problem(8, 3, seed=0)
    K = kernel(J)
    models = dual_models(K, here(r), 0.5, True, in_place=True)
    assert models.columns.data_ptr() == K.data_ptr()


def fixed_ridge(K: Tensor, r: Array) -> RidgeModels:
    return fixed(K, r, 0.3, True)


def own_ridge(K: Tensor, r: Array) -> RidgeModels:
    own = chosen_ridges(K, here(r), True)
    return leave_one_out(DualSystem(K, here(r), True, MACHINE), own)


def ridge_chosen_on_all_rows(K: Tensor, r: Array) -> RidgeModels:
    """A mutant that leaks: one λ, chosen with the left-out row among the others."""
    return fixed(K, r, float(own_ridge(K.clone(), r).ridges[-1]), True)


def influence_on_the_model_without_it(fit: Fit, seed: int) -> float:
    """Largest change in model −j, its λ or its predictions, when row j is changed wildly."""
    J, r, new = problem(12, 5, seed)
    before = fit(kernel(J), r)
    changes = []
    for j in range(12):
        wild_J, wild_r = J.copy(), r.copy()
        wild_J[j] = 30 * np.random.default_rng(j).normal(size=5)
        wild_r[j] += 200.0
        after = fit(kernel(wild_J), wild_r)
        moved = predictions(after, wild_J, new)[:, j] - predictions(before, J, new)[:, j]
        changes += [np.abs(moved).max(), abs(float(after.ridges[j] - before.ridges[j]))]
    return float(max(changes))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fit", [fixed_ridge, own_ridge])
def test_a_row_never_influences_the_model_without_it(fit: Fit, seed: int) -> None:
    assert influence_on_the_model_without_it(fit, seed) < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_leak_test_catches_a_ridge_chosen_on_all_rows(seed: int) -> None:
    assert influence_on_the_model_without_it(ridge_chosen_on_all_rows, seed) > 1e-3


def test_a_row_does_influence_the_other_models() -> None:
    J, r, _ = problem(12, 5, seed=0)
    wild = r.copy()
    wild[3] += 200.0
    before, after = (own_ridge(kernel(J), t) for t in (r, wild))
    change = np.abs(coefficients(after) - coefficients(before)).max(axis=0)
    assert change[3] < 1e-9
    assert (change[np.arange(13) != 3] > 1e-3).all()
