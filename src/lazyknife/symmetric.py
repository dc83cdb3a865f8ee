"""Symmetric matrices worked on in place, in the tiles on and below the diagonal.

The inverse leaves the tiles above the diagonal alone, so a kernel and its inverse share one n×n
array, and the kernel can be had back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .machine import steps
from .progress import track

# Rows eliminated at a time, and rows of a tile: products that run at the full rate, on tiles that
# stay in a processor's caches.
PIVOTS, TILE = 96, 256
GPU_PIVOTS, GPU_TILE = 1024, 2048


def invert_lower_(matrix: Tensor, rows: Tensor, progress: bool = False) -> bool:
    """Invert a positive definite A in place, in its lower tiles; ``rows`` (b, n) become rows·A⁻¹.

    Sweeps one block of rows k after another: with P = A_kk⁻¹,

        A_ij ← A_ij − A_ik P A_kj,   A_ik ← A_ik P,   A_kk ← −P,

    and after the last one A is minus the inverse. That is n³ operations, as many as Cholesky's
    way takes, all of them matrix products. Returns whether the matrix was positive definite to
    rounding; if not, the tiles hold nothing of use.
    """
    n = len(matrix)
    pivots = PIVOTS if matrix.device.type == "cpu" else GPU_PIVOTS
    failures = []
    parts = list(steps(n, pivots))
    for k in track(parts, "inverting", len(parts), progress and len(parts) > 1):
        inverse, failed = _inverse(matrix[k, k])
        failures.append(failed)
        panel = matrix.new_zeros(n, k.stop - k.start)  # A_ik, and 0 for i = k
        panel[: k.start] = matrix[k, : k.start].T
        panel[k.stop :] = matrix[k.stop :, k]
        scaled = panel @ inverse
        for i in tiles(matrix):
            matrix[i, : i.stop].addmm_(scaled[i], panel[: i.stop].T, alpha=-1)
        matrix[k, : k.start] = scaled[: k.start].T
        matrix[k.stop :, k] = scaled[k.stop :]
        matrix[k, k] = -inverse
        solved = rows[:, k] @ inverse
        rows.addmm_(solved, panel.T, alpha=-1)
        rows[:, k] = solved
    for i in tiles(matrix):
        matrix[i, : i.stop].neg_()
    return not bool(torch.stack(failures).any())


def _inverse(block: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of a small block from its lower triangle, and whether that failed."""
    factor, failed = torch.linalg.cholesky_ex(block)
    if block.device.type == "cpu":
        return torch.cholesky_inverse(factor), failed
    identity = torch.eye(len(block), dtype=block.dtype, device=block.device)
    root = torch.linalg.solve_triangular(factor, identity, upper=False)
    return root.T @ root, failed


def tiles(matrix: Tensor) -> list[slice]:
    """Return the rows of each tile."""
    return list(steps(len(matrix), TILE if matrix.device.type == "cpu" else GPU_TILE))


def diagonal_tiles(matrix: Tensor) -> list[Tensor]:
    """Copies of the tiles on the diagonal: what an inverse overwrites and nothing else holds."""
    return [matrix[i, i].clone() for i in tiles(matrix)]


def restore_lower_(matrix: Tensor, diagonal: list[Tensor]) -> None:
    """Undo an inverse: mirror the upper tiles, and put the diagonal ones back."""
    for i, tile in zip(tiles(matrix), diagonal, strict=True):
        matrix[i, : i.start] = matrix[: i.start, i].T
        matrix[i, i] = tile


def mirror_lower_(matrix: Tensor) -> None:
    """Copy the lower triangle onto the upper one."""
    for i in tiles(matrix):
        matrix[i, i] = _symmetric(matrix[i, i])
        matrix[: i.start, i] = matrix[i, : i.start].T


def lower_rows(matrix: Tensor, rows: slice) -> Tensor:
    """Whole rows of the symmetric matrix whose lower triangle is here, shape (rows, n)."""
    middle = _symmetric(matrix[rows, rows])
    return torch.cat([matrix[rows, : rows.start], middle, matrix[rows.stop :, rows].T], dim=1)


def _symmetric(tile: Tensor) -> Tensor:
    return tile.tril() + tile.tril(-1).T


def largest_row_sum(matrix: Tensor) -> float:
    """Return the largest sum of absolute values in a row, the matrix's infinity norm."""
    return max(float(matrix[i].abs().sum(dim=1).max()) for i in tiles(matrix))
