"""The factored ridge and widths from it against refits, with rows really added or deleted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import reference
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.networks import mlp
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.primal import PrimalSystem
from lazyknife.ridge.system import Indefinite, Ridge
from lazyknife.ridge.widths import LeverageScales
from lazyknife.tangent import Dual, Primal, linearise
from machines import MACHINE, here
from reference import Array, assert_close
from rows import linear
from systems import FORMS, assert_within, factor, problem, system

RELATIVE, EPSILON = 1e-8, torch.finfo(torch.float64).eps
Rows = tuple[Array, Array, Array]  # Jacobian rows, targets, Jacobian of new rows


def coordinates(form: str, J: Array, new: Array) -> tuple[Tensor, Tensor]:
    """z(x) and k(x, x) of new rows."""
    return here(new @ J.T if form == "dual" else new), here(np.square(new).sum(axis=1))


def check(form: str, equations: DualSystem | PrimalSystem, ridge: float, rows: Rows) -> None:
    """Every number of every way to solve the equations is that of refits to units."""
    (J, r, new), intercept = rows, equations.intercept
    found = equations.solve(ridge, keep_factor=True)
    for solution in (equations.solve(ridge), found):
        check_solution(form, solution, J, r, intercept)
    other = equations.again(equations.solve(ridge), here(r[::-1].copy()))
    check_solution(form, other, J, r[::-1], intercept)

    units = reference.unit_fits(J, ridge, intercept)
    weights, left_open, _ = found.at(*coordinates(form, J, new))
    expected = new @ units.moves.T + units.intercepts
    assert_within(weights, expected, RELATIVE * (1 + np.abs(expected).max()))
    twin = reference.left_open(J, new, ridge, intercept)
    assert_close(left_open.cpu().numpy() / twin, np.ones(len(new)), 100 * RELATIVE)


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


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 40),
    size=st.one_of(st.integers(1, 4), st.integers(5, 60)),
    exponent=st.floats(-3, 3),
    intercept=st.booleans(),
    form=st.sampled_from(FORMS),
    budget=st.sampled_from([1, MACHINE.budget]),
    repeated=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_every_quantity_equals_its_refit(
    n: int,
    size: int,
    exponent: float,
    intercept: bool,
    form: str,
    budget: int,
    repeated: bool,
    seed: int,
) -> None:
    J, r, new = problem(n, size, seed)
    if repeated:  # rows that occur twice, and rows of zeros
        J[n // 2 : n // 2 * 2] = J[: n // 2]
        J[-1] = 0.0
        new[0], new[1] = J[0], 0.0
    machine = replace(MACHINE, budget=budget)
    check(form, system(form, J, r, intercept, machine), 10.0**exponent, (J, r, new))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_left_open_keeps_its_digits_at_a_tiny_ridge(form: str, intercept: bool) -> None:
    """At λ/‖K‖ = 2e-8 an explicit inverse has lost them; the truth is from the few features."""
    J, r, new = problem(40, 4, seed=4)
    kernel = J @ J.T
    ridge = 2e-8 * float(np.linalg.norm(kernel, 2))
    # An intercept is a feature that bears no penalty.
    rows, at_new = (np.hstack([Z, np.ones((len(Z), 1))])[:, : 4 + intercept] for Z in (J, new))
    gram = rows.T @ rows + ridge * np.diag([1.0, 1, 1, 1, 0][: 4 + intercept])
    truth = ridge * (1 + (at_new * np.linalg.solve(gram, at_new.T).T).sum(axis=1))
    found = factor(form, J, r, ridge, intercept).at(*coordinates(form, J, new)).left_open
    assert_close(found.cpu().numpy() / truth, np.ones(3), 1e-6)
    across, inverse = new @ J.T, np.linalg.inv(kernel + ridge * np.eye(40))
    explicit = np.square(new).sum(axis=1) + ridge - (across @ inverse * across).sum(axis=1)
    assert intercept or np.abs(explicit / truth - 1).max() > 1e-5


def test_what_is_left_open_is_at_least_the_ridge() -> None:
    """A training row whose k(x, x) was rounded down leaves λ open."""
    J, r, _ = problem(40, 4, seed=4)
    found = factor("dual", J, r, 1e-6, False)
    rows, norms = here(J @ J.T), here((1 - 1e-5) * np.square(J).sum(axis=1))
    assert_close(found.at(rows, norms)[1], np.full(40, 1e-6), 1e-12)


def indefinite(J: Array, ridge: float) -> Tensor:
    """The kernel of J less what rounding may take: plus λ it is not positive definite."""
    null = np.linalg.qr(J, mode="complete")[0][:, -1]  # no row has a share in it
    broken = J @ J.T - 2 * ridge * np.outer(null, null)
    assert np.linalg.eigvalsh(broken)[0] < -ridge
    return here(broken)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_slightly_indefinite_kernel_counts_as_its_positive_part(intercept: bool) -> None:
    J, r, new = problem(12, 5, seed=5)
    equations = DualSystem(indefinite(J, 1e-2), here(r), intercept, MACHINE)
    check("dual", equations, 1e-2, (J, r, new))


@pytest.mark.parametrize(("budget", "in_place"), [(1, False), (MACHINE.budget, True)])
def test_it_is_refused_where_its_eigenvectors_do_not_fit(budget: int, in_place: bool) -> None:
    J, r, _ = problem(10, 4, seed=0)
    machine = replace(MACHINE, budget=budget)
    with pytest.raises(Indefinite, match=r"ridge=0.001 is not positive definite in float64"):
        DualSystem(indefinite(J, 1e-3), here(r), True, machine).solve(1e-3, in_place=in_place)


# Widths.


def own_leverage(J: Array, ridges: Sequence[float], intercept: bool) -> Array:
    """σ_{−j}(X_j) with row j deleted, shape (n,)."""
    each = [
        reference.left_open(np.delete(J, j, axis=0), J[j : j + 1], ridge, intercept)
        for j, ridge in enumerate(ridges)
    ]
    return np.sqrt(np.concatenate(each))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 15),
    size=st.integers(1, 20),
    count=st.integers(1, 3),
    intercept=st.booleans(),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 10**6),
)
def test_leverage_is_what_the_rows_without_j_leave_open(
    n: int, size: int, count: int, intercept: bool, form: str, seed: int
) -> None:
    J, _, new = problem(n, size, seed)
    ridges = np.random.default_rng(seed).choice([0.02, 1.0, 50.0][:count], n).tolist()
    targets = np.zeros(n)  # σ never looks at them
    factors = tuple(factor(form, J, targets, each, intercept) for each in sorted(set(ridges)))
    scales = LeverageScales(factors, here(np.array(ridges)), EPSILON)
    found, _ = scales.at(*coordinates(form, J, new))
    expected = reference.leverage(J, new, ridges, intercept)
    assert_close(found.cpu().numpy() / expected, np.ones((3, n)), 1e-7)

    own = own_leverage(J, ridges, intercept)
    assert_close(scales.own.cpu().numpy() / own, np.ones(n), 1e-7)
    at_training = scales.at(*coordinates(form, J, J))[0].diagonal()
    assert_close(at_training.cpu().numpy() / own, np.ones(n), 1e-6)


class Problem(NamedTuple):
    """A network, its rows, and what the lazy step made of them."""

    module: nn.Module
    X: Tensor
    new: Tensor
    models: Any


def solved(step: LazyStep, n: int, widths: tuple[int, ...], budget: int) -> Problem:
    torch.manual_seed(0)
    module, machine = mlp(widths, "tanh")(3), replace(MACHINE, budget=budget)
    X, y = (machine.put(torch.from_numpy(part)) for part in linear(n))
    new = machine.put(torch.from_numpy(2 * linear(6, seed=1)[0]))
    return Problem(module, X, new, step.models(linearise(module, X, machine=machine), X, y))


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("ridge", [0.5, "auto"])
@pytest.mark.parametrize(("n", "widths", "form"), [(9, (5,), Dual), (13, (2,), Primal)])
@pytest.mark.parametrize(
    ("readout", "budget"), [("tangent", MACHINE.budget), ("tangent", 4000), ("network", 2**28)]
)
def test_leverage_divides_scores_and_leaves_predictions_alone(
    readout: str, budget: int, n: int, widths: tuple[int, ...], form: type, ridge: float | str
) -> None:
    plain, found = (
        solved(LazyStep(ridge, readout=readout, widths=kind), n, widths, budget)
        for kind in ("constant", "leverage")
    )
    J, J_new = (reference.jacobian(found.module, part.cpu()) for part in (found.X, found.new))
    models, ridges = found.models, found.models.models.ridges
    each = ridges[:-1].tolist()
    point, values, sigma, *_ = models.scaled(found.new)
    assert type(models.basis) is form
    assert_close(sigma, reference.leverage(J, J_new, each, True), 1e-6)
    own = own_leverage(J, each, True)
    assert_close(models.scores, np.abs(models.residuals.cpu().numpy()) / own, 1e-7)
    same = plain.models.scaled(plain.new)
    assert_close(point, same.point, 1e-10)
    assert_close(values, same.each, 1e-10)
    assert same.scales.shape == ()
    assert_close(plain.models.scores, plain.models.residuals.abs(), 1e-10)
    assert torch.equal(plain.models.models.ridges, ridges)
