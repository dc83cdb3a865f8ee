"""The factored ridge against refits to unit targets, with rows really added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from lazyknife.compute import Machine
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.system import Ridge
from machines import MACHINE, here
from reference import Array, assert_close
from systems import FORMS, assert_within, factor, problem, system

RELATIVE = 1e-8


def at(found: Ridge, form: str, J: Array, new: Array) -> tuple[Tensor, Tensor]:
    """Weights b and s of new rows."""
    rows = here(new @ J.T if form == "dual" else new)
    return found.at(rows, here(np.square(new).sum(axis=1)))[:2]


def assert_relatively_close(actual: Tensor, expected: Array, relative: float) -> None:
    """Every entry within ``relative`` of itself."""
    assert_close(actual.cpu().numpy() / expected, np.ones_like(expected), relative)


def check(
    form: str,
    J: Array,
    r: Array,
    new: Array,
    ridge: float,
    intercept: bool,
    machine: Machine = MACHINE,
) -> None:
    equations = system(form, J, r, intercept, machine)
    found = equations.solve(ridge, keep_factor=True)
    check_solution(form, equations.solve(ridge), J, r, intercept)
    check_solution(form, equations.again(found, here(r)), J, r, intercept)
    check_solution(form, found, J, r, intercept)

    units = reference.unit_fits(J, ridge, intercept)
    weights, left_open = at(found, form, J, new)
    expected = new @ units.moves.T + units.intercepts
    assert_within(weights, expected, RELATIVE * (1 + np.abs(expected).max()))
    twin = reference.left_open(J, new, ridge, intercept)
    assert_relatively_close(left_open, twin, 100 * RELATIVE)


def check_solution(form: str, found: Ridge, J: Array, r: Array, intercept: bool) -> None:
    ridge = found.ridge
    units = reference.unit_fits(J, ridge, intercept)
    inverse = reference.inverse(J, ridge, intercept)
    move, b = reference.ridge_fit(J, r, ridge, intercept)

    # c, d and A in units of 1/λ, their natural size: with an intercept they may be exactly 0.
    scale = np.abs(r).max()
    full = found.coefficients.cpu().numpy()
    assert_within(ridge * found.dual, r - J @ move - b, RELATIVE * scale)
    assert_within(ridge * found.diagonal, ridge * inverse.diagonal(), RELATIVE)
    assert_within(J.T @ full if form == "dual" else full, move, RELATIVE * scale)
    assert_within(found.intercept, np.array(b), RELATIVE * scale)

    some = np.random.default_rng(0).permutation(len(r))[: 1 + len(r) // 2]
    rows = torch.from_numpy(some).to(MACHINE.device)
    assert_within(ridge * found.inverse_rows(rows), ridge * inverse[some], RELATIVE)
    moves, shares = found.steps(rows), found.share[rows]
    assert moves.shape == (len(full), len(some))
    steps = moves.cpu().numpy()
    size = 1 + np.abs(units.moves).max()
    assert_within(J.T @ steps if form == "dual" else steps, units.moves[some].T, RELATIVE * size)
    assert_within(shares, units.intercepts[some], RELATIVE)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    size=st.integers(1, 25),
    exponent=st.floats(-3, 3),
    intercept=st.booleans(),
    form=st.sampled_from(FORMS),
    budget=st.sampled_from([1, MACHINE.budget]),
    seed=st.integers(0, 10**6),
)
def test_every_quantity_equals_its_refit(
    n: int, size: int, exponent: float, intercept: bool, form: str, budget: int, seed: int
) -> None:
    J, r, new = problem(n, size, seed)
    machine = replace(MACHINE, budget=budget)
    check(form, J, r, new, 10.0**exponent, intercept, machine)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "size"), [(1, 1), (1, 4), (2, 1), (40, 2), (30, 60)])
def test_the_edges_of_the_shapes(n: int, size: int, form: str, intercept: bool) -> None:
    J, r, new = problem(n, size, seed=n)
    for ridge in (1e-3, 1.0, 1e3):
        check(form, J, r, new, ridge, intercept, MACHINE)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_occur_twice_and_rows_of_zeros(form: str, intercept: bool) -> None:
    J, r, new = problem(12, 20, seed=1)
    J[6:9] = J[:3]
    J[9] = 0.0
    new[0], new[1] = J[0], 0.0
    check(form, J, r, new, 0.01, intercept)


def test_what_is_left_open_keeps_its_digits_at_a_tiny_ridge() -> None:
    """At λ/‖K‖ = 2e-8 an explicit inverse has lost them; the truth is from the few features."""
    J, r, new = problem(40, 4, seed=4)
    kernel = J @ J.T
    ridge = 2e-8 * float(np.linalg.norm(kernel, 2))
    norms, across = np.square(new).sum(axis=1), new @ J.T
    gram = J.T @ J + ridge * np.eye(4)
    truth = ridge * (1 + np.einsum("mi,im->m", new, np.linalg.solve(gram, new.T)))
    explicit = (
        norms
        + ridge
        - np.einsum("mi,ij,mj->m", across, np.linalg.inv(kernel + ridge * np.eye(40)), across)
    )
    dual = at(factor("dual", J, r, ridge, False), "dual", J, new)[1]
    assert_relatively_close(dual, truth, 1e-6)
    assert np.abs(explicit / truth - 1).max() > 1e-5
    # With an intercept: the same features and a constant that bears no penalty.
    extended = np.hstack([new, np.ones((3, 1))])
    features = np.hstack([J, np.ones((40, 1))])
    gram = features.T @ features + ridge * np.diag([1.0, 1, 1, 1, 0])
    truth = ridge * (1 + np.einsum("mi,im->m", extended, np.linalg.solve(gram, extended.T)))
    for form in FORMS:
        found = at(factor(form, J, r, ridge, True), form, J, new)[1]
        assert_relatively_close(found, truth, 1e-6)


def test_what_is_left_open_is_at_least_the_ridge() -> None:
    """A training row whose k(x, x) was rounded down leaves λ open."""
    J, r, _ = problem(40, 4, seed=4)
    found = factor("dual", J, r, 1e-6, False)
    rows, norms = here(J @ J.T), here((1 - 1e-5) * np.square(J).sum(axis=1))
    assert_close(found.at(rows, norms)[1], np.full(40, 1e-6), 1e-12)


def test_features_that_are_nearly_collinear_cost_few_digits() -> None:
    """One step of refinement leaves 1e-13 where the normal equations alone leave 1e-10."""
    J, _, _ = problem(30, 5, seed=0)
    J[:, 1] = J[:, 0] + J[:, 1] / 1e3
    J *= 10
    r = J[:, 0] + np.random.default_rng(1).normal(size=30)
    move, _ = reference.ridge_fit(J, r, 1e-4, False)
    assert_close(factor("primal", J, r, 1e-4, False).coefficients, move, 5e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_kernel_that_rounding_made_indefinite(intercept: bool) -> None:
    """Its negative eigenvalues are 0 at best, and are taken so."""
    J, r, new = problem(12, 5, seed=5)
    vectors = np.linalg.svd(J)[0]
    off = vectors[:, -1]  # no row has a share in it
    kernel, ridge = J @ J.T, 1e-2
    broken = kernel - 0.5 * np.outer(off, off)
    assert np.linalg.eigvalsh(broken + ridge * np.eye(12)).min() < 0
    found, right = (
        DualSystem(here(each), here(r), intercept, MACHINE).solve(ridge, keep_factor=True)
        for each in (broken, kernel)
    )
    rows = torch.arange(12, device=MACHINE.device)
    assert_close(found.dual, right.dual, 1e-8)
    assert_close(found.diagonal, right.diagonal, 1e-8)
    assert_close(found.intercept, right.intercept, 1e-8)
    assert_close(found.inverse_rows(rows), right.inverse_rows(rows), 1e-8)
    for got, wanted in zip(at(found, "dual", J, new), at(right, "dual", J, new), strict=True):
        assert_close(got, wanted, 1e-8)
