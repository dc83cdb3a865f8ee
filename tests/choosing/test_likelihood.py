"""The likelihood of all models against refits, its rounding against 50 digits, its gradient."""

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazyknife.choosing import likelihood
from lazyknife.choosing.likelihood import (
    PairKernel,
    leave_one_out_values,
    value_and_derivative,
    value_and_gradient,
    values_of_ridges,
)
from lazyknife.networks import KINDS
from machines import here
from reference import Array, assert_close
from rows import mixed


def bordered(kernel: Tensor, ridge: Tensor | float, intercept: bool) -> Tensor:
    """K + λI with a border of ones, or without."""
    m = len(kernel)
    system = kernel + ridge * torch.eye(m).to(kernel)
    if not intercept:
        return system
    ones = kernel.new_ones(m, 1)
    return torch.cat([torch.cat([system, ones], dim=1), torch.cat([ones, 0 * ones[:1]]).T])


def brute_force(kernel: Tensor, ridge: Tensor | float, y: Tensor, intercept: bool) -> Tensor:
    """−2 log restricted likelihood of some rows over their degrees of freedom."""
    freedom, system = len(y) - int(intercept), bordered(kernel, ridge, intercept)
    side = torch.nn.functional.pad(y, (0, int(intercept)))
    quadratic = side @ torch.linalg.solve(system, side)
    return (quadratic / freedom).log() + torch.linalg.slogdet(system).logabsdet / freedom


def sets_of(n: int, folds: Sequence[Array] | None) -> list[Array]:
    """Rows that each model leaves out; last, none."""
    each = [np.array([j]) for j in range(n)] if folds is None else list(folds)
    return [*each, np.array([], dtype=int)]


def without(rows: Array, kernel: Array, targets: Array) -> tuple[Array, Array]:
    kept = np.setdiff1d(np.arange(len(targets)), rows)
    return kernel[np.ix_(kept, kept)], targets[kept]


def found_for(
    kernels: Array, ridges: Array, targets: Array, intercept: bool, folds: list[Array] | None
) -> tuple[Array, Array]:
    parts = None if folds is None else [here(rows) for rows in folds]
    found = leave_one_out_values(here(kernels), here(ridges), here(targets), intercept, parts)
    return found.values.cpu().numpy(), found.noise.cpu().numpy()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 11),
    count=st.integers(1, 3),
    intercept=st.booleans(),
    folds=st.sampled_from([None, 2, 3]),
)
@settings(max_examples=60, deadline=None)
def test_values_equal_those_of_the_rows_alone(
    seed: int, n: int, count: int, intercept: bool, folds: int | None
) -> None:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(count, n, n))
    kernels, ridges = factors @ factors.swapaxes(1, 2), 10 ** rng.uniform(-2, 2, size=count)
    targets = rng.normal(size=(count, n)) + 3
    parts = (
        None if folds is None else [np.sort(p) for p in np.array_split(rng.permutation(n), folds)]
    )
    values, noise = found_for(kernels, ridges, targets, intercept, parts)
    sets = sets_of(n, parts)
    assert values.shape == noise.shape == (count, len(sets))
    for k in range(count):
        for j, rows in enumerate(sets):
            own = without(rows, kernels[k], targets[k])
            expected = brute_force(here(own[0]), ridges[k], here(own[1]), intercept)
            assert values[k, j] == pytest.approx(float(expected), rel=1e-8, abs=1e-8)


def gaussian(X: Array, width: float) -> Array:
    return np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / (2 * width**2))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", [1, 3, 64])
def test_some_models_alone_have_the_values_that_they_have_among_all(
    columns: int, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "COLUMNS", columns)
    rng = np.random.default_rng(0)
    kernels = np.stack([gaussian(rng.normal(size=(9, 2)), width) for width in (0.5, 2.0)])
    ridges, targets = here(np.array([0.1, 0.01])), here(rng.normal(size=(2, 3, 9)) ** 5)
    every = leave_one_out_values(here(kernels), ridges, targets, intercept)
    for rows in ([], [0, 8], [2, 5, 6, 7]):
        some = leave_one_out_values(
            here(kernels), ridges, targets, intercept, torch.tensor(rows).long()
        )
        own = [part[:, :, [*rows, 9]].cpu().numpy() for part in every]
        assert_close(some.values, own[0], 1e-12)
        assert (some.noise.cpu().numpy() >= (1 - 1e-12) * own[1]).all()


def exact(kernel: Array, ridge: float, targets: Array, intercept: bool) -> Any:
    """The same as ``brute_force`` in 50 digits."""
    with mpmath.workdps(50):
        n, freedom = len(targets), len(targets) - int(intercept)
        system = mpmath.matrix(bordered(here(kernel), 0.0, intercept).tolist())
        for i in range(n):
            system[i, i] += mpmath.mpf(ridge)
        side = mpmath.matrix([*targets.tolist(), *[0] * int(intercept)])
        dual = mpmath.lu_solve(system, side)
        quadratic = sum(side[i] * dual[i] for i in range(n))
        logs = mpmath.log(abs(mpmath.det(system)))
        return mpmath.log(quadratic / freedom) + logs / freedom


def ill_conditioned(width: float, ridge: float, mean: float) -> tuple[Array, float, Array]:
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(7, 2)), [[25.0, 0.0]]])
    return gaussian(X, width), ridge, mean + np.sin(X[:, 0]) + 0.1 * rng.normal(size=8)


def with_a_huge_target(huge: float, unit: float) -> tuple[Array, float, Array]:
    rng = np.random.default_rng(1)
    kernel, targets = gaussian(rng.normal(size=(8, 2)), 1.0), rng.normal(size=8)
    targets[5] = huge
    return kernel, 0.01, unit * targets


WIDTHS = [(0.5, 1e-3), (2.0, 1e-6), (5.0, 1e-10), (20.0, 1e-13)]
HUGE = [(1e6, 1.0), (1e12, 1e-9), (1.0, 1e150), (1e9, 1e140)]
HARD = [
    *((ill_conditioned(*terms, mean), np.inf) for terms in WIDTHS for mean in (0.0, 1e4)),
    *((with_a_huge_target(*terms), 1e-8) for terms in HUGE),  # costs the others no digits
]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("folds", [None, 4])
@pytest.mark.parametrize(("rows", "most"), HARD)
def test_the_bound_on_rounding_holds_and_a_huge_target_costs_no_digits(
    rows: tuple[Array, float, Array], most: float, folds: int | None, intercept: bool
) -> None:
    kernel, ridge, targets = rows
    parts = None if folds is None else np.array_split(np.arange(8), folds)
    found = [found_for(kernel[None], np.array([ridge]), targets[None], intercept, parts)]
    sets = sets_of(8, parts)
    if folds is None:  # all models, and some of them alone
        terms = (here(kernel[None]), here(np.array([ridge])), here(targets[None]), intercept)
        some = leave_one_out_values(*terms, torch.tensor([1, 5]))
        found.append((some.values.cpu().numpy(), some.noise.cpu().numpy()))
        sets += [sets[1], sets[5], sets[8]]
    values, noise = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
    assert noise.max() < most
    for j, left_out in enumerate(sets):
        own = without(left_out, kernel, targets)
        expected = exact(own[0], ridge, own[1], intercept)
        assert abs(float(mpmath.mpf(values[0, j]) - expected)) <= noise[0, j]


@pytest.mark.parametrize("others", [0.0, 0.1, 1e6])
def test_nothing_to_explain_is_the_same_for_all_kernels(others: float) -> None:
    """The targets of one model are all equal: no kernel is better but for its determinant."""
    rng, n = np.random.default_rng(1), 8
    kernels = np.stack([gaussian(rng.normal(size=(n, 2)), width) for width in (0.5, 1.0, 2.0)])
    targets, ridges = np.full((3, n), others), np.full(3, 0.1)
    targets[:, 2] = others + 1
    values, _ = found_for(kernels, ridges, targets, True, None)
    for k in range(3):
        own = np.delete(np.delete(kernels[k], 2, 0), 2, 1)
        logs = float(bordered(here(own), 0.1, True).slogdet().logabsdet) / (n - 2)
        assert values[k, 2] - logs == pytest.approx(np.log(np.finfo(float).tiny / (n - 2)))


def test_targets_that_a_kernel_explains_to_the_last_digit_are_in_doubt() -> None:
    """Rounding makes the sum of squares of the full model negative."""
    x = np.array([0.0, 0.0, -2e9, 0.0, -1e9, -2e9])
    _, noise = found_for((np.outer(x, x) + 1)[None], np.array([0.1]), x[None], True, None)
    assert np.isposinf(noise).all()


def test_kernels_that_are_not_positive_definite_are_infinitely_bad() -> None:
    kernels = np.stack([np.eye(4), -np.eye(4)])
    found = found_for(kernels, np.array([0.5, 0.5]), np.ones((2, 4)) * [1, 2, 3, 5], True, None)
    assert np.isfinite(found[0][0]).all()
    assert np.isposinf(found[0][1]).all()
    assert np.isposinf(found[1][1]).all()  # in doubt
    bad, y = here(-np.eye(3)), here(np.arange(3.0))
    assert value_and_derivative(bad, 0.5, y, True)[0] == np.inf
    each = values_of_ridges(bad, y.new_tensor([0.5, 2.0]), y, True)
    assert each.isfinite().tolist() == [False, True]
    assert values_of_ridges(bad * np.nan, y[:1], y, True).tolist() == [np.inf]


# One kernel: its value, derivative and gradient.

SMOOTH = [name for name, kind in KINDS.items() if kind.has_slopes]
NOMINAL = [False, False, False, True]
WEIGHTS, RIDGE = np.array([0.5, 0.4, 0.7, 0.3]), 0.2


def table(n: int = 70) -> tuple[Tensor, Tensor]:
    X, y, _ = mixed(n)
    return here(X), here(y)


def distances(X: Tensor) -> tuple[Tensor, Tensor]:
    """|x_f − x'_f| of all pairs, and the second part of it at gaps, each (m, m, features)."""
    gaps = X.isnan().double()
    filled = X.nan_to_num()
    each = (filled[:, None] - filled[None]).abs()
    each[:, :, 3] = (X[:, None, 3] != X[None, :, 3]).double()
    return each, (gaps[:, None] - gaps[None]).abs()


def plain_kernel(name: str, weights: Tensor, X: Tensor) -> Tensor:
    """Kernels from their formulas, in arrays (m, m, features)."""
    one, two = distances(X)
    squares = (weights**2 * (one**2 + two**2)).sum(dim=2)
    if name == "laplace":
        return torch.exp(-(weights * (one + two)).sum(dim=2))
    if name == "gaussian":
        return torch.exp(-squares / 2)
    if name.startswith("matern"):
        far = (int(name[-2]) * squares + 1e-300).sqrt()
        return (1 + far + (far**2 / 3 if name == "matern52" else 0)) * torch.exp(-far)
    single = torch.exp(-(one + two) if "laplace" in name else -(one**2 + two**2) / 2)
    return ((1 + weights * single) / (1 + weights)).prod(dim=2)


@pytest.mark.parametrize("used", [[0, 1, 2, 3], [0, 3]])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("entries", [None, 8 * 70])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_equal_those_of_the_plain_formula(
    name: str, entries: int | None, intercept: bool, used: list[int]
) -> None:
    """Features that are not used have none."""
    X, y = table()
    logs = here(np.log([*WEIGHTS, RIDGE])).requires_grad_()
    weights = logs[:4].exp() * here(np.isin(range(4), used))
    expected = brute_force(plain_kernel(name, weights, X), logs[4].exp(), y, intercept)
    (slopes,) = torch.autograd.grad(expected, logs)
    value = float(expected.detach())
    pairs = PairKernel(KINDS[name], X, NOMINAL, entries)
    for _ in range(2):  # the second time from kept kernels of single features
        found = value_and_gradient(pairs, here(WEIGHTS), RIDGE, y, intercept, used)
        assert found[0] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found[1].tolist(), slopes[:4].tolist(), rtol=1e-10, atol=1e-13)
        assert found[2] == pytest.approx(float(slopes[4]), rel=1e-11)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_equal_rows_are_finite(name: str) -> None:
    X, y = table(12)
    X[4:] = X[0]
    _, slopes, _ = value_and_gradient(
        PairKernel(KINDS[name], X, NOMINAL), here(WEIGHTS), RIDGE, y, True, range(4)
    )
    assert bool(slopes.isfinite().all())


@pytest.mark.parametrize("intercept", [True, False])
def test_all_ridges_at_once_have_the_value_of_each(intercept: bool) -> None:
    X, y = table()
    kernel, ridges = plain_kernel("laplace", here(WEIGHTS), X), [0.01, 0.3, 5.0]
    found = values_of_ridges(kernel, X.new_tensor(ridges), y, intercept)
    expected = [value_and_derivative(kernel, ridge, y, intercept)[0] for ridge in ridges]
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-9)
