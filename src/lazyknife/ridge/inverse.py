"""Symmetric matrices worked on in place, in the tiles on and below the diagonal.

The inverse leaves the tiles above the diagonal alone, so a kernel and its inverse share one n×n
array, and the kernel can be restored. The inverse of a positive definite G = K + λI is swept in
place in this way, or factored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..compute import blocks, steps, track

# Rows eliminated at a time, and rows of a tile: products that run at the full rate, on tiles that
# stay in a processor's caches.
PIVOTS, TILE = 64, 192
GPU_PIVOTS, GPU_TILE = 1024, 2048


def invert_lower_(matrix: Tensor, rows: Tensor, progress: bool = False) -> bool:
    """Invert a positive definite A in place, in its lower tiles; ``rows`` (b, n) become rows·A⁻¹.

    Sweeps one block of rows k after another: with A_kk = L Lᵀ and T = L⁻¹ A_k·,

        A_ij ← A_ij − (TᵀT)_ij,   A_ik ← (TᵀL⁻¹)_i,   A_kk ← −L⁻ᵀL⁻¹,   for i, j ≠ k,

    and after the last one A is minus the inverse. On the rows to come this is Cholesky's
    elimination, with its stability. It takes n³ operations, as many as a factorisation and an
    inversion after it, nearly all of them in large matrix products. Returns whether the matrix was
    positive definite up to rounding; if not, the contents of the tiles are undefined.
    """
    n, end = len(matrix), len(matrix) + len(rows)
    failures = []
    parts = _pivots(matrix)
    for k in track(parts, "inverting", len(parts), progress and len(parts) > 1):
        size = k.stop - k.start
        factor, failed = torch.linalg.cholesky_ex(matrix[k, k])
        failures.append(failed)
        panel = matrix.new_zeros(size, end + size)  # A_kj, 0 for j = k; rows_kᵀ; the identity
        panel[:, : k.start] = matrix[k, : k.start]
        panel[:, k.stop : n] = matrix[k.stop :, k].T
        panel[:, n:end] = rows[:, k].T
        panel[:, end:].fill_diagonal_(1.0)
        half = torch.linalg.solve_triangular(factor, panel, upper=False)  # T, and L⁻¹ at its end
        whole = half[:, end:].T @ half
        for i in tiles(matrix):
            matrix[i, : i.stop].addmm_(half[:, i].T, half[:, : i.stop], alpha=-1)
        matrix[k, : k.start] = whole[:, : k.start]
        matrix[k.stop :, k] = whole[:, k.stop : n].T
        matrix[k, k] = -whole[:, end:]
        rows.addmm_(half[:, n:end].T, half[:, :n], alpha=-1)
        rows[:, k] = whole[:, n:end].T
    for i in tiles(matrix):
        matrix[i, : i.stop].neg_()
    return not bool(torch.stack(failures).any())


def _pivots(matrix: Tensor) -> list[slice]:
    """Return the blocks of rows to eliminate at a time; no block crosses a tile."""
    size = PIVOTS if matrix.device.type == "cpu" else GPU_PIVOTS
    return [
        slice(tile.start + part.start, tile.start + part.stop)
        for tile in tiles(matrix)
        for part in steps(tile.stop - tile.start, size)
    ]


def tiles(matrix: Tensor) -> list[slice]:
    """Return the rows of each tile."""
    return list(steps(len(matrix), TILE if matrix.device.type == "cpu" else GPU_TILE))


def diagonal_tiles(matrix: Tensor) -> list[Tensor]:
    """Copies of the tiles on the diagonal, which an inverse overwrites."""
    return [matrix[i, i].clone() for i in tiles(matrix)]


def restore_lower_(matrix: Tensor, diagonal: list[Tensor]) -> None:
    """Undo an inverse: mirror the upper tiles, and restore the diagonal ones."""
    for i, tile in zip(tiles(matrix), diagonal, strict=True):
        matrix[i, : i.start] = matrix[: i.start, i].T
        matrix[i, i] = tile


def upper_product(matrix: Tensor, diagonal: list[Tensor], vector: Tensor) -> Tensor:
    """Product with the symmetric matrix of these upper tiles and diagonal tiles."""
    product = torch.empty_like(vector)
    for i, tile in zip(tiles(matrix), diagonal, strict=True):
        product[i] = tile @ vector[i] + matrix[i, i.stop :] @ vector[i.stop :]
        product[i] += vector[: i.start] @ matrix[: i.start, i]
    return product


def lower_product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Product with the symmetric matrix given by its lower triangle."""
    product = torch.zeros_like(vector)
    for i in tiles(matrix):
        below = matrix[i, : i.start]
        product[i] += below @ vector[: i.start] + _symmetric(matrix[i, i]) @ vector[i]
        product[: i.start] += vector[i] @ below
    return product


def mirror_lower_(matrix: Tensor) -> None:
    """Copy the lower triangle onto the upper one."""
    for i in tiles(matrix):
        matrix[i, i] = _symmetric(matrix[i, i])
        matrix[: i.start, i] = matrix[i, : i.start].T


def lower_rows(matrix: Tensor, rows: slice | Tensor) -> Tensor:
    """Whole rows of the symmetric matrix given by its lower triangle, shape (rows, n)."""
    if isinstance(rows, Tensor):
        below = torch.arange(len(matrix), device=rows.device) <= rows[:, None]
        return torch.where(below, matrix[rows], matrix[:, rows].T)
    middle = _symmetric(matrix[rows, rows])
    return torch.cat([matrix[rows, : rows.start], middle, matrix[rows.stop :, rows].T], dim=1)


def _symmetric(tile: Tensor) -> Tensor:
    return tile.tril() + tile.tril(-1).T


def largest_row_sum(matrix: Tensor) -> float:
    """Return the largest sum of absolute values in a row, the matrix's infinity norm."""
    # torch's maximum, unlike Python's, is NaN wherever one of them is.
    return float(torch.stack([matrix[i].abs().sum(dim=1).max() for i in tiles(matrix)]).max())


def check_size(matrix: Tensor) -> float:
    """Return the matrix's norm; raise an error if it is not finite."""
    size = largest_row_sum(matrix)
    if not math.isfinite(size):
        raise ValueError(
            "the network's tangent features are too large for float64 on these rows: "
            "scale the features (scaling='symlog', or 'standardize' with X_pool)"
        )
    return size


def gram(rows: Tensor) -> Tensor:
    """ΦᵀΦ, its lower tiles mirrored."""
    q = rows.shape[1]
    product = rows.new_zeros(q, q)
    for i in tiles(product):
        torch.mm(rows[:, i].T, rows[:, : i.stop], out=product[i, : i.stop])
    mirror_lower_(product)
    return product


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
