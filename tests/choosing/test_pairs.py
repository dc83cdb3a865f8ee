"""Errors with two rows left out, against refits without the two."""

from __future__ import annotations

import numpy as np
import pytest

from lazyknife.choosing.shape import errors_of
from lazyknife.ridge.dual import DualSystem
from machines import MACHINE, here
from reference import Array

N, RIDGE = 12, 0.05
OUTPUTS = np.linspace(-1, 1, N)  # of the network before the lazy step


def rows(seed: int) -> tuple[Array, Array]:
    """A kernel and targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    gaps = np.square(X[:, None] - X).sum(axis=2)
    return np.exp(-gaps / 2), np.sin(X[:, 0]) + 0.3 * rng.normal(size=N)


def refit(kernel: Array, y: Array, gone: list[int], intercept: bool) -> tuple[Array, Array]:
    """Predictions, and their leverage widths, at the rows left out."""
    kept = np.setdiff1d(np.arange(N), gone)
    system = np.ones((len(kept) + 1, len(kept) + 1))
    system[:-1, :-1], system[-1, -1] = kernel[np.ix_(kept, kept)] + RIDGE * np.eye(len(kept)), 0.0
    border = np.ones((len(kept) + 1, len(gone)))
    border[:-1] = kernel[np.ix_(kept, gone)]
    if not intercept:
        system, border = system[:-1, :-1], border[:-1]
    weights = np.linalg.solve(system, border)
    open_part = kernel[gone, gone] + RIDGE - (weights * border).sum(axis=0)
    moved = weights[: len(kept)].T @ (y - OUTPUTS)[kept]
    return OUTPUTS[gone] + moved, np.sqrt(open_part)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("huge", [None, 1e6, 1e12, 1e200])
def test_a_huge_target_costs_the_model_without_it_no_digits(
    intercept: bool, huge: float | None
) -> None:
    kernel, y = rows(1)
    y[4] = y[4] if huge is None else huge
    members = [7, 4, 0]
    system = DualSystem(here(kernel), here(y - OUTPUTS), intercept, MACHINE)
    found = errors_of(system, system.solve(RIDGE), here(OUTPUTS), here(np.array(members)))
    assert (found.noise < 1e-9).all()
    assert found.members.tolist() == members
    for k, j in enumerate(members):
        expected, sizes = np.empty(N), np.zeros(N)
        for i in set(range(N)) - {j}:
            predicted, width = refit(kernel, y, [i, j], intercept)
            expected[i], sizes[i] = predicted[0], abs(y[i] - predicted[0]) / width[0]
        kept = np.arange(N) != j
        largest = np.abs(expected[kept]).max()
        got = found.sizes[:, k].cpu().numpy()
        np.testing.assert_allclose(got, sizes, rtol=0, atol=1e-10 * sizes.mean())
        got = found.predicted[kept, k].cpu().numpy()
        np.testing.assert_allclose(got, expected[kept], rtol=0, atol=1e-10 * largest)
        own = refit(kernel, y, [j], intercept)[0][0]
        assert float(found.own[k]) == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("others", [0.0, 0.1, 1e6])
def test_where_the_others_are_equal_there_are_no_errors(others: float) -> None:
    """Not even by rounding, which would choose a factor."""
    kernel, y = rows(1)
    y[:], y[4] = others, others + 1e9
    system = DualSystem(here(kernel), here(y), True, MACHINE)
    found = errors_of(system, system.solve(RIDGE), here(OUTPUTS), here(np.array([4])))
    assert (found.sizes == 0).all()
    assert (found.noise < 1e-9).all()
