"""The solvers as functions of plain tensors, which they may overwrite."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lazyknife.choosing.per_model import choose_ridges
from lazyknife.compute import Machine
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.leave_one_out import leave_one_out
from lazyknife.ridge.primal import PrimalSystem
from lazyknife.ridge.system import OwnRidges, Ridge, RidgeModels
from machines import MACHINE
from reference import Array

FORMS = ["dual", "primal"]
Ridges = float | Tensor | Sequence[float]


def own_ridges(ridges: Ridges, targets: Tensor) -> OwnRidges:
    """λ of n models and the full one: the same, or those given in turn."""
    given = torch.as_tensor(ridges, dtype=torch.float64).reshape(-1)
    turns = torch.arange(len(targets) + 1) % len(given)
    return OwnRidges(given[turns].to(targets.device), torch.zeros_like(targets))


def chosen_ridges(kernel: Tensor, targets: Tensor, intercept: bool) -> OwnRidges:
    """λ that every model chooses on its own rows."""
    columns = [*range(len(targets) + 1)]
    return choose_ridges(kernel.clone(), targets, intercept, 1.0, columns, None, MACHINE)


def dual_models(kernel: Tensor, targets: Tensor, ridges: Ridges, intercept: bool) -> RidgeModels:
    system = DualSystem(kernel, targets, intercept, MACHINE)
    return leave_one_out(system, own_ridges(ridges, targets))


def system(
    form: str, J: Array, r: Array, intercept: bool, machine: Machine = MACHINE
) -> DualSystem | PrimalSystem:
    """The equations of feature rows J in one of the two forms."""
    targets = machine.put(torch.from_numpy(r))
    if form == "dual":
        return DualSystem(machine.put(torch.from_numpy(J @ J.T)), targets, intercept, machine)
    rows = np.hstack([J, np.ones((len(J), 1))])[:, : J.shape[1] + intercept]
    return PrimalSystem(machine.put(torch.from_numpy(rows)), targets, intercept, machine)


def problem(n: int, size: int, seed: int) -> tuple[Array, Array, Array]:
    """Return the Jacobian of n training rows, the targets and the Jacobian of three new rows."""
    rng = np.random.default_rng(seed)
    J, new = rng.normal(size=(n, size)), 2 * rng.normal(size=(3, size))
    return J, 3 + J[:, 0] + rng.normal(size=n), new


def factor(
    form: str, J: Array, r: Array, ridge: float, intercept: bool, machine: Machine = MACHINE
) -> Ridge:
    return system(form, J, r, intercept, machine).solve(ridge, keep_factor=True)


def assert_within(actual: Tensor | Array, expected: Array, error: float) -> None:
    """Equal shapes, and every entry off by no more than ``error``."""
    got = actual.cpu().numpy() if isinstance(actual, Tensor) else actual
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= error
