"""The problem to solve: training rows in their basis, the equations for them, and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import Machine, blocks
from ..losses import SQUARED, Loss
from ..tangent import Basis, Dual, Linear
from .dual import DualSystem
from .primal import PrimalSystem
from .system import OwnRidges, Ridge
from .widths import WIDTHS, Widths

PROBES = 64

System = DualSystem | PrimalSystem
Visit = Callable[[System, Ridge, Tensor], None]


@dataclass(frozen=True)
class Problem:
    """Training rows in their basis, and settings."""

    basis: Basis
    X: Tensor
    y: Tensor
    system: System  # the equations for y − f(X; θ0)
    ridges: tuple[float, ...]  # λ; for full conformal prediction those that it compares
    loss: Loss = SQUARED
    widths: Widths = WIDTHS["constant"]
    folds: int | tuple[Tensor, ...] = 10  # their number, or the rows of each
    seed: int = 0  # that folds are drawn with
    progress: bool = False
    own: OwnRidges | None = None  # λ of every model, where they chose it themselves
    # The first so many rows are left out; the others train every model. None: all.
    left_out: int | None = None
    visit: Visit | None = None  # called with solutions, as by ``leave_one_out``

    @property
    def models(self) -> int:
        """Number of rows that are left out."""
        return len(self.y) if self.left_out is None else self.left_out

    @property
    def machine(self) -> Machine:
        return self.basis.tangent.machine

    @property
    def outputs(self) -> Tensor:
        """f(X; θ0), up to a rounding of y, shape (n,)."""
        return self.y - self.system.targets

    @property
    def dual(self) -> bool:
        """Whether coordinates are kernel rows."""
        return isinstance(self.basis, Dual)

    def own_ridges(self, models: int) -> OwnRidges:
        """λ of every model: the same for all, unless they chose."""
        if self.own is not None:
            return self.own
        (ridge,) = self.ridges
        return OwnRidges(self.y.new_full((models + 1,), ridge), self.y.new_zeros(models))


def make_system(
    basis: Basis, X: Tensor, y: Tensor, intercept: bool, progress: bool = False
) -> System:
    """Return the equations of these rows: a kernel (dual) or feature rows (primal), and targets."""
    machine = basis.tangent.machine
    if isinstance(basis, Dual):
        features = basis.features
        kernel = basis.tangent.gram(features)
        return DualSystem(kernel, y - features.outputs, intercept, machine)
    # With an intercept, a last column of 1.
    rows = torch.ones(len(X), basis.size + intercept, dtype=torch.float64, device=machine.device)
    outputs = rows.new_empty(len(X))
    for part in blocks(len(X), basis.row_bytes, machine.block):
        outputs[part], rows[part, : basis.size] = basis.at(X[part])[:2]
    return PrimalSystem(rows, y - outputs, intercept, machine, progress)


def typical_size(tangent: Linear, X: Tensor, seed: int) -> float:
    """Mean of k(x, x) at synthetic standard-normal rows of the shape of X's."""
    if not X.is_floating_point():
        return 1.0
    generator = torch.Generator().manual_seed(seed)
    probes = torch.randn(PROBES, *X.shape[1:], dtype=torch.float64, generator=generator)
    try:
        return float(tangent.gram(tangent.features(probes)).diagonal().mean()) or 1.0
    except IndexError:  # a network that reads codes from some of its columns
        return 1.0
