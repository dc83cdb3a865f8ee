"""The inverse of a positive definite G = K + λI, swept in place or factored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..compute import blocks
from .symmetric import lower_product, lower_rows, mirror_lower_, tiles


class Inverse(Protocol):
    """G⁻¹."""

    def diagonal(self) -> Tensor: ...
    def rows(self, rows: slice | Tensor) -> Tensor: ...
    def product(self, vector: Tensor) -> Tensor: ...
    def whole(self) -> Tensor:
        """G⁻¹ as a new matrix."""


@dataclass(frozen=True)
class Swept:
    """G⁻¹ in the lower tiles of a matrix."""

    matrix: Tensor

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()

    def rows(self, rows: slice | Tensor) -> Tensor:
        return lower_rows(self.matrix, rows)

    def product(self, vector: Tensor) -> Tensor:
        return lower_product(self.matrix, vector)

    def whole(self) -> Tensor:
        copy = self.matrix.clone()
        mirror_lower_(copy)
        return copy


@dataclass(frozen=True)
class Factored:
    """G = LLᵀ."""

    lower: Tensor
    tile: int

    def diagonal(self) -> Tensor:
        """Squared lengths of the columns of L⁻¹, which is 0 above its diagonal."""
        n = len(self.lower)
        diagonal = self.lower.new_empty(n)
        # Narrow blocks: each one skips the zeros above it.
        for part in blocks(n, 3 * self.lower.element_size() * n, self.tile):
            ones = self.lower.new_zeros(n - part.start, part.stop - part.start)
            below = self.lower[part.start :, part.start :]
            half = torch.linalg.solve_triangular(below, ones.fill_diagonal_(1.0), upper=False)
            diagonal[part] = half.square().sum(dim=0)
        return diagonal

    def half(self, columns: Tensor) -> Tensor:
        """L⁻¹ times these columns."""
        half: Tensor = torch.linalg.solve_triangular(self.lower, columns, upper=False)
        return half

    def rows(self, rows: slice | Tensor) -> Tensor:
        return self.whole()[rows]

    def product(self, vector: Tensor) -> Tensor:
        solved: Tensor = torch.cholesky_solve(vector[:, None], self.lower)[:, 0]
        return solved

    def whole(self) -> Tensor:
        return torch.cholesky_inverse(self.lower)


def cholesky(kernel: Tensor, ridge: float) -> tuple[Tensor, bool]:
    """L of K + λI; where that is indefinite (False), with K's negative eigenvalues set to 0."""
    shifted = kernel.clone()
    shifted.diagonal().add_(ridge)
    lower, failed = torch.linalg.cholesky_ex(shifted)
    if not failed:
        return lower, True
    values, vectors = torch.linalg.eigh(kernel)
    root = vectors * (values.clamp(min=0.0) + ridge).sqrt()
    upper: Tensor = torch.linalg.qr(root.T, mode="r").R
    return upper.T.contiguous(), False


def invert_positive_part_(kernel: Tensor, ridge: float) -> Tensor:
    """Where rounding made K + λI indefinite: its inverse with negative eigenvalues of K set to 0.

    It is also left in the kernel's lower tiles.
    """
    values, vectors = torch.linalg.eigh(kernel)
    inverse: Tensor = (vectors / (values.clamp(min=0.0) + ridge)) @ vectors.T
    for rows in tiles(kernel):
        kernel[rows, : rows.stop] = inverse[rows, : rows.stop]
    return inverse
