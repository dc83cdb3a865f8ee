"""The evidence of all models in closed form against refits, and its error against 50 digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.solve.evidence import evidence
from machines import here
from reference import Array


def bordered(kernel: Array, ridge: float, intercept: bool) -> Array:
    """K + λI with a border of ones, or without."""
    n = len(kernel)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = kernel + ridge * np.eye(n)
    system[n, n] = 0.0
    return system if intercept else system[:n, :n]


def brute_force(kernel: Array, ridge: float, targets: Array, intercept: bool) -> float:
    """−2 log restricted likelihood of some rows over their degrees of freedom."""
    system, n = bordered(kernel, ridge, intercept), len(targets)
    freedom = n - int(intercept)
    dual = np.linalg.solve(system, np.append(targets, [0.0] * int(intercept)))[:n]
    return float(np.log(targets @ dual / freedom) + np.linalg.slogdet(system)[1] / freedom)


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
    found = evidence(here(kernels), here(ridges), here(targets), intercept, parts)
    return found.values.cpu().numpy(), found.noise.cpu().numpy()


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 11),
    count=st.integers(1, 3),
    intercept=st.booleans(),
    folds=st.sampled_from([None, 2, 3]),
)
@settings(max_examples=60, deadline=None)
def test_evidence_equals_that_of_the_rows_alone(
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
            expected = brute_force(own[0], ridges[k], own[1], intercept)
            assert values[k, j] == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("folds", [None, 3])
def test_evidence_of_a_model_ignores_the_rows_that_it_leaves_out(
    intercept: bool, folds: int | None
) -> None:
    rng, n = np.random.default_rng(0), 9
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    parts = None if folds is None else np.array_split(np.arange(n), folds)
    for j, rows in enumerate(sets_of(n, parts)[:-1]):
        other, labels = X.copy(), y.copy()
        other[rows] += 1.5
        labels[rows] -= 7.0
        both = [
            found_for(gaussian(Z, 1.0)[None], np.array([0.1]), z[None], intercept, parts)[0]
            for Z, z in ((X, y), (other, labels))
        ]
        assert both[0][0, j] == pytest.approx(both[1][0, j], abs=1e-10)
        assert both[0][0, -1] != pytest.approx(both[1][0, -1], abs=1e-3)


def gaussian(X: Array, width: float) -> Array:
    return np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / (2 * width**2))


def exact(kernel: Array, ridge: float, targets: Array, intercept: bool) -> Any:
    """The same as ``brute_force`` in 50 digits."""
    with mpmath.workdps(50):
        n, freedom = len(targets), len(targets) - int(intercept)
        system = mpmath.matrix(bordered(kernel, 0.0, intercept).tolist())
        for i in range(n):
            system[i, i] += mpmath.mpf(ridge)
        side = mpmath.matrix([*targets.tolist(), *[0] * int(intercept)])
        dual = mpmath.lu_solve(system, side)
        quadratic = sum(side[i] * dual[i] for i in range(n))
        logs = mpmath.log(abs(mpmath.det(system)))
        return mpmath.log(quadratic / freedom) + logs / freedom


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("folds", [None, 4])
@pytest.mark.parametrize(("width", "ridge"), [(0.5, 1e-3), (2.0, 1e-6), (5.0, 1e-10), (20, 1e-13)])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_the_bound_on_rounding_holds(
    intercept: bool, folds: int | None, width: float, ridge: float, mean: float
) -> None:
    rng, n = np.random.default_rng(1), 8
    X = np.vstack([rng.normal(size=(n - 1, 2)), [[25.0, 0.0]]])
    kernel, targets = gaussian(X, width), mean + np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    parts = None if folds is None else np.array_split(np.arange(n), folds)
    ridges, sides = np.array([ridge]), targets[None]
    values, noise = found_for(kernel[None], ridges, sides, intercept, parts)
    for j, rows in enumerate(sets_of(n, parts)):
        expected = exact(
            *without(rows, kernel, targets)[:1],
            ridge,
            targets[np.setdiff1d(np.arange(n), rows)],
            intercept,
        )
        assert abs(float(mpmath.mpf(values[0, j]) - expected)) <= noise[0, j]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("folds", [None, 4])
@pytest.mark.parametrize(("huge", "unit"), [(1e6, 1.0), (1e12, 1e-9), (1.0, 1e150), (1e9, 1e140)])
def test_a_huge_target_costs_the_model_without_it_no_digits(
    intercept: bool, folds: int | None, huge: float, unit: float
) -> None:
    rng, n = np.random.default_rng(1), 8
    kernel, targets = gaussian(rng.normal(size=(n, 2)), 1.0), rng.normal(size=n)
    targets[5] = huge
    targets *= unit
    parts = None if folds is None else np.array_split(np.arange(n), folds)
    values, noise = found_for(kernel[None], np.array([0.01]), targets[None], intercept, parts)
    assert noise.max() < 1e-8
    for j, rows in enumerate(sets_of(n, parts)):
        own = without(rows, kernel, targets)
        assert abs(float(values[0, j] - exact(own[0], 0.01, own[1], intercept))) <= noise[0, j]


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
        logs = np.linalg.slogdet(bordered(own, 0.1, True))[1] / (n - 2)
        assert values[k, 2] - logs == pytest.approx(np.log(np.finfo(float).tiny / (n - 2)))


def test_the_bound_on_rounding_is_small_where_nothing_is_ill_conditioned() -> None:
    rng = np.random.default_rng(1)
    kernel, y = gaussian(rng.normal(size=(30, 2)), 1.0), rng.normal(size=30)
    _, noise = found_for(kernel[None], np.array([0.1]), y[None], True, None)
    assert noise.max() < 1e-9


def test_an_indefinite_kernel_is_infinitely_bad() -> None:
    kernels = np.stack([np.eye(4), -np.eye(4)])
    found = found_for(kernels, np.array([0.5, 0.5]), np.ones((2, 4)) * [1, 2, 3, 5], True, None)
    assert np.isfinite(found[0][0]).all()
    assert np.isposinf(found[0][1]).all()
    assert np.isposinf(found[1][1]).all()  # in doubt
