"""The solvers as functions of plain tensors, which they may overwrite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lazyknife.compute import PROCESSOR, Machine
from lazyknife.losses import Loss
from lazyknife.solve.choose import leave_one_out
from lazyknife.solve.dual import DualSystem, FactoredRidge
from lazyknife.solve.newton import leave_one_out_newton
from lazyknife.solve.primal import PrimalRidge, PrimalSystem
from lazyknife.solve.ridge import RidgeModels
from reference import Array

Ridges = float | Tensor | Sequence[float]


def listed(ridges: Ridges) -> list[float]:
    if isinstance(ridges, Tensor):
        return [float(ridge) for ridge in ridges.tolist()]
    return [float(ridge) for ridge in ridges] if isinstance(ridges, Sequence) else [float(ridges)]


def dual_models(
    kernel: Tensor,
    targets: Tensor,
    ridges: Ridges,
    intercept: bool,
    machine: Machine = PROCESSOR,
) -> RidgeModels:
    return leave_one_out(DualSystem(kernel, targets, intercept, machine), listed(ridges))


def primal_models(
    rows: Tensor, targets: Tensor, ridges: Ridges, intercept: bool, machine: Machine = PROCESSOR
) -> RidgeModels:
    return leave_one_out(PrimalSystem(rows, targets, intercept, machine), listed(ridges))


def newton_models(
    kernel: Tensor,
    y: Tensor,
    offsets: Tensor,
    ridges: Ridges,
    intercept: bool,
    loss: Loss,
    machine: Machine = PROCESSOR,
) -> RidgeModels:
    system = DualSystem(kernel, y - offsets, intercept, machine)
    return leave_one_out_newton(system, y, listed(ridges), loss)


def system(
    form: str, J: Array, r: Array, intercept: bool, machine: Machine = PROCESSOR
) -> DualSystem | PrimalSystem:
    """The equations of feature rows J in one of the two forms."""
    targets = machine.put(torch.from_numpy(r))
    if form == "dual":
        return DualSystem(machine.put(torch.from_numpy(J @ J.T)), targets, intercept, machine)
    rows = np.hstack([J, np.ones((len(J), 1))])[:, : J.shape[1] + intercept]
    return PrimalSystem(machine.put(torch.from_numpy(rows)), targets, intercept, machine)


def dual_factor(
    kernel: Tensor,
    targets: Tensor,
    ridge: float,
    intercept: bool,
    machine: Machine = PROCESSOR,
) -> FactoredRidge:
    return DualSystem(kernel, targets, intercept, machine).factor(ridge)


def primal_factor(
    rows: Tensor, targets: Tensor, ridge: float, intercept: bool, machine: Machine = PROCESSOR
) -> PrimalRidge:
    return PrimalSystem(rows, targets, intercept, machine).factor(ridge)
