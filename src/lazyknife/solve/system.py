"""The equations of the lazy step: a kernel (dual) or feature rows (primal), and targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import blocks
from ..tangent import Basis, Dual
from .factors import DualFactor, Factor, PrimalFactor


@dataclass(frozen=True)
class System:
    """The equations of the lazy step: a kernel (dual) or feature rows (primal), and targets."""

    basis: Basis
    X: Tensor
    y: Tensor
    matrix: Tensor
    targets: Tensor
    intercept: bool

    def factor(self, ridge: float) -> Factor:
        """Factor the ridge at one λ."""
        kind = DualFactor if isinstance(self.basis, Dual) else PrimalFactor
        machine = self.basis.tangent.machine
        return kind.of(self.matrix, self.targets, ridge, self.intercept, machine)

    @property
    def norms(self) -> Tensor:
        """k(x, x) of the rows, shape (n,); only while the matrix is as it was."""
        if isinstance(self.basis, Dual):
            return self.matrix.diagonal()
        rows = self.matrix[:, : self.basis.size]
        norms: Tensor = torch.linalg.vector_norm(rows, dim=1).square()
        return norms

    def with_matrix(self, matrix: Tensor) -> System:
        """Return the same equations with another matrix."""
        return replace(self, matrix=matrix)


def make_system(basis: Basis, X: Tensor, y: Tensor, intercept: bool) -> System:
    """Return the equations of these rows."""
    if isinstance(basis, Dual):
        features = basis.features
        matrix, outputs = basis.tangent.gram(features), features.outputs
    else:
        matrix, outputs = _feature_rows(basis, X, intercept)
    return System(basis, X, y, matrix, y - outputs, intercept)


def _feature_rows(basis: Basis, X: Tensor, intercept: bool) -> tuple[Tensor, Tensor]:
    """Feature rows (n, size), with a last column of 1 for an intercept, and outputs (n,)."""
    machine = basis.tangent.machine
    rows = torch.ones(len(X), basis.size + intercept, dtype=machine.dtype, device=machine.device)
    outputs = rows.new_empty(len(X))
    for part in blocks(len(X), basis.row_bytes, machine.block):
        outputs[part], rows[part, : basis.size] = basis.rows(X[part])
    return rows, outputs
