"""The learnt noise against loops of refits, and the property on which the guarantee rests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from lazyknife.compute import Machine
from lazyknife.estimators.step import LazyStep
from lazyknife.networks import mlp
from lazyknife.solve.noise import FLOOR, noise_scales
from lazyknife.solve.problem import ridge_grid
from lazyknife.solve.scales import NoiseScales
from lazyknife.solve.widths import Noise
from lazyknife.tangent import linearise
from machines import MACHINE, here, tiny_tiles
from reference import Array, assert_close
from rows import linear
from systems import assert_within, problem, system

EPSILON = torch.finfo(torch.float64).eps
GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it


def learnt(
    J: Array,
    r: Array,
    ridges: Sequence[float],
    grid: Sequence[float],
    intercept: bool,
    machine: Machine = MACHINE,
) -> NoiseScales:
    each = torch.tensor(list(ridges), dtype=torch.float64).to(machine.device)
    return noise_scales(system("dual", J, r, intercept, machine), each, grid, EPSILON)


def at(scales: NoiseScales, J: Array, new: Array) -> Array:
    """σ at new rows, shape (m, n)."""
    rows = here(new @ J.T).to(scales.columns.dtype)
    return scales.at(rows, rows[:, 0].abs())[0].double().cpu().numpy()


def check(
    J: Array,
    r: Array,
    new: Array,
    ridges: Sequence[float],
    intercept: bool,
    machine: Machine = MACHINE,
    relative: float = 1e-8,
) -> None:
    scales = learnt(J, r, ridges, GRID, intercept, machine)
    twin = reference.noise(J, r, ridges, GRID, intercept, FLOOR)
    size = relative * np.abs(twin.at(J)).max()
    assert_within(J.T @ scales.columns.cpu().numpy(), twin.moves.T, size)
    assert (scales.columns.diagonal() == 0).all()
    assert_close(scales.floors, twin.floors, relative)
    assert_close(at(scales, J, new), twin.at(new), relative)
    assert_close(scales.own, twin.at(J).diagonal(), relative)
    assert_close(at(scales, J, J).diagonal(), twin.at(J).diagonal(), relative)
    assert_within(scales.intercepts, twin.intercepts, size)


@settings(max_examples=20, deadline=None, derandomize=True)  # no ties but for rounding
@given(
    n=st.integers(3, 11),
    size=st.integers(1, 15),
    intercept=st.booleans(),
    tiles=st.sampled_from([(1, 1), (2, 3), (64, 192)]),
    budget=st.sampled_from([1, MACHINE.budget]),
    seed=st.integers(0, 10**6),
)
def test_scales_equal_loops_of_refits(
    n: int, size: int, intercept: bool, tiles: tuple[int, int], budget: int, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    ridges = np.random.default_rng(seed).choice([0.05, 0.5, 5.0], n).tolist()
    with tiny_tiles(*tiles):
        check(J, r, new, ridges, intercept, replace(MACHINE, budget=budget), 1e-7)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_cases_of_that_test_differ_in_the_second_ridge(intercept: bool) -> None:
    """Otherwise the choice would not be seen, nor which model it is for; nor would the floor."""
    J, r, new = problem(11, 6, seed=0)
    twin = reference.noise(J, r, [0.5] * 11, GRID, intercept, FLOOR)
    assert len(set(twin.ridges)) > 1
    raw = new @ twin.moves.T + twin.intercepts
    assert (raw < twin.floors).any()
    assert (raw > twin.floors).any()
    check(J, r, new, [0.5] * 11, intercept)


@pytest.mark.parametrize("intercept", [False, True])
def test_three_rows_are_enough(intercept: bool) -> None:
    for seed in range(5):
        J, r, new = problem(3, 4, seed)
        check(J, r, new, [0.1, 1.0, 10.0], intercept)


def test_ties_go_to_the_earlier_ridge() -> None:
    """Errors that are all 0 are the same at every λ."""
    J, _, new = problem(6, 3, seed=7)
    first, reverse = (learnt(J, np.zeros(6), [1.0] * 6, grid, True) for grid in (GRID, GRID[::-1]))
    alone = learnt(J, np.zeros(6), [1.0] * 6, GRID[:1], True)
    assert torch.equal(first.columns, alone.columns)
    assert torch.equal(first.columns, reverse.columns)  # all of them 0
    for scales in (first, reverse):
        sigma = at(scales, J, new)
        assert (sigma > 0).all()
        assert (sigma < 1e-300).all()


def test_of_equal_ridges_either_will_do() -> None:
    J, r, new = problem(8, 5, seed=8)
    once, twice = (learnt(J, r, [0.5] * 8, grid, True) for grid in (GRID, GRID + GRID))
    assert_close(at(twice, J, new), at(once, J, new), 1e-12)


def test_constant_errors_give_a_constant() -> None:
    """Rows that say nothing of each other, y of ±1: every error is 1 whatever is left out."""
    J = np.eye(8)
    r = np.array([1.0, -1, 1, 1, -1, 1, -1, -1])
    scales = learnt(J, r, [1e-3] * 8, GRID, False)
    far = np.zeros((1, 8))
    assert_close(at(scales, J, far), np.full((1, 8), FLOOR))  # nothing is known there
    check(J, r, far, [1e-3] * 8, False)
    # With an intercept the errors of the others are of two sizes, and their mean is the constant.
    flat = learnt(np.zeros((8, 1)), r, [1.0] * 8, GRID, True)
    twin = reference.noise(np.zeros((8, 1)), r, [1.0] * 8, GRID, True, FLOOR)
    assert_close(at(flat, np.zeros((8, 1)), np.ones((2, 1))), twin.at(np.ones((2, 1))))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    n=st.integers(3, 20),
    size=st.integers(2, 15),
    intercept=st.booleans(),
    value=st.sampled_from([-3.0, 0.0, 50.0, 1e6]),
    seed=st.integers(0, 10**6),
)
def test_a_rows_own_target_changes_nothing_about_its_scale(
    n: int, size: int, intercept: bool, value: float, seed: int
) -> None:
    """The property on which the guarantee rests."""
    J, r, new = problem(n, size, seed)
    j = seed % n
    changed = r.copy()
    changed[j] = r[j] + value if value else -r[j]
    before, after = (learnt(J, targets, [0.5] * n, GRID, intercept) for targets in (r, changed))
    where = np.vstack([new, J])
    kept, moved = at(before, J, where), at(after, J, where)
    tolerance = 1e-9 * max(1.0, abs(value))
    assert_close(moved[:, j], kept[:, j], tolerance)
    assert_close(after.own[j : j + 1], before.own[j : j + 1], tolerance)
    others = np.delete(np.arange(n), j)
    for i in others:  # while each of the others sees it
        assert np.abs(moved[:, i] - kept[:, i]).max() > 1e-6 * kept[:, i].max()


def engine(y: Tensor, ridge: float | str) -> tuple[Tensor, Tensor, Tensor]:
    """σ at new rows, σ at row j, and λ, by the lazy step."""
    torch.manual_seed(0)
    X = MACHINE.put(torch.from_numpy(linear(20)[0]))
    tangent = linearise(mlp((6,), "tanh")(3), X, machine=MACHINE)
    models = LazyStep(ridge, widths="noise").models(tangent, X, y)
    new = MACHINE.put(torch.from_numpy(linear(5, seed=1)[0]))
    return models.loo.scaled(new).scales, models.loo.scales.own, models.solved.ridges


@pytest.mark.parametrize("value", [-1.0, 100.0, 1e6])
@pytest.mark.parametrize("ridge", [0.5, "auto"])
def test_the_lazy_step_learns_each_scale_without_its_own_row(
    ridge: float | str, value: float
) -> None:
    y = MACHINE.put(torch.from_numpy(linear(20, noise=1.0)[1]))
    sigma, own, ridges = engine(y, ridge)
    for j in (0, 7, 19):
        changed = y.clone()
        changed[j] = value
        other_sigma, other_own, other_ridges = engine(changed, ridge)
        assert ridges[j] == other_ridges[j]
        assert_close(other_sigma[:, j], sigma[:, j], 1e-6)
        assert_close(other_own[j : j + 1], own[j : j + 1], 1e-6)
        others = [i for i in range(20) if i != j]
        assert ((other_sigma / sigma - 1).abs().amax(dim=0)[others] > 1e-4).all()


@pytest.mark.parametrize("ridge", [0.5, "auto"])
def test_the_lazy_step_learns_the_noise_of_its_own_models(ridge: float | str) -> None:
    """With the λ of each model, and every second λ of the grid for the noise."""
    torch.manual_seed(0)
    module = mlp((6,), "tanh")(3)
    X, y = (MACHINE.put(torch.from_numpy(part)) for part in linear(12, noise=1.0))
    new = MACHINE.put(torch.from_numpy(linear(5, seed=1)[0]))
    tangent = linearise(module, X, machine=MACHINE)
    models = LazyStep(ridge, widths="noise", seed=3).models(tangent, X, y)
    J, J_new = (reference.jacobian(module, rows.cpu()) for rows in (X, new))
    r = y.cpu().numpy() - reference.outputs(module, X.cpu())
    ridges = models.solved.ridges[:-1].tolist()
    grid = ridge_grid(tangent, X, 3)[:: Noise.step].tolist()
    twin = reference.noise(J, r, ridges, grid, True, FLOOR)
    assert_close(models.loo.scaled(new).scales, twin.at(J_new), 1e-6)
    assert_close(models.loo.scales.own, twin.at(J).diagonal(), 1e-6)
    assert len(set(ridges)) > (ridge == "auto")
