"""The ridge at one λ in factored form, for whatever needs more than predictions.

With A, c, d as in the dual form (A' with an intercept), a new row x has two more quantities: its
weights b(x), with which the training targets enter its prediction f(x; θ0) + bᵀr, and

    s(x) = k(x, x) + λ − k(x)ᵀA k(x),

how much of x the training rows leave open: 1/s is its entry in the inverse of all n + 1 rows, and
−b/s the entries beside it. Without row j, s becomes s + b_j²/d_j, which at row j is 1/d_j.

Dual: G = K + λI = LLᵀ and h = L⁻¹k(x) give s = k(x, x) + λ − ‖h‖², which keeps its digits where an
explicit inverse loses them, and b = L⁻ᵀh: two triangular solves, one product's worth of work. With
an intercept, g = L⁻¹1, t = ‖g‖² and ω = (1 − gᵀh)/t add tω² to s and gω to h.
Primal: G = ΦᵀΦ + λI = LLᵀ and h = L⁻¹φ(x) give s = λ(1 + ‖h‖²) and b = ΦL⁻ᵀh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .machine import PROCESSOR, Machine, blocks
from .primal import Indefinite


class Factor(Protocol):
    """One λ, factored."""

    @property
    def ridge(self) -> float:
        """λ."""

    @property
    def dual(self) -> Tensor:
        """c, shape (n,)."""

    @property
    def diagonal(self) -> Tensor:
        """d, shape (n,)."""

    @property
    def coefficients(self) -> Tensor:
        """The full model in the basis, shape (q,)."""

    @property
    def intercept(self) -> Tensor:
        """β, a single number."""

    def inverse_columns(self, rows: Tensor) -> Tensor:
        """Columns of A' for these training rows, shape (n, rows)."""

    def steps(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """What a unit of these rows' targets moves: the model, (q, rows), and β, (rows,).

        ``columns`` are those of A' for these rows.
        """

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Weights b, shape (m, n), and s, shape (m,), of new rows.

        Parameters
        ----------
        rows
            Their coordinates z(x) in the basis, shape (m, q).
        norms
            Their k(x, x), shape (m,).

        """


@dataclass(frozen=True)
class DualFactor:
    """K + λI = LLᵀ. ``half_ones`` is g, zero without an intercept."""

    ridge: float
    dual: Tensor
    diagonal: Tensor
    intercept: Tensor
    lower: Tensor
    half_ones: Tensor
    share: Tensor  # v, zero without an intercept

    @property
    def coefficients(self) -> Tensor:
        """The dual coefficients themselves."""
        return self.dual

    @classmethod
    def of(
        cls,
        kernel: Tensor,
        targets: Tensor,
        ridge: float,
        intercept: bool,
        machine: Machine = PROCESSOR,
    ) -> DualFactor:
        """Factor K + λI; the kernel is left alone."""
        lower = _cholesky(kernel, ridge)
        # The intercept takes up any constant; taking the mean out first keeps the digits.
        mean = targets.mean() if intercept else targets.new_zeros(())
        wanted = torch.stack([targets - mean, torch.full_like(targets, float(intercept))], dim=1)
        half = torch.linalg.solve_triangular(lower, wanted, upper=False)
        dual, row_sums = torch.linalg.solve_triangular(lower.T, half, upper=True).unbind(1)
        diagonal, share = _inverse_diagonal(lower, machine), row_sums
        if intercept:
            share = row_sums / half[:, 1].square().sum()
            slope = share @ (targets - mean)
            dual, mean = dual - row_sums * slope, mean + slope
            diagonal = diagonal - row_sums * share
        return cls(ridge, dual, diagonal, mean, lower, half[:, 1].contiguous(), share)

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Two triangular solves."""
        half = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        # Exactly, s is at least λ.
        left_open = (norms + self.ridge - half.square().sum(dim=0)).clamp(min=self.ridge)
        total = self.half_ones.square().sum()
        if total:
            missing = (1 - self.half_ones @ half) / total
            left_open = left_open + total * missing.square()
            half = half.addr_(self.half_ones, missing)
        return torch.linalg.solve_triangular(self.lower.T, half, upper=True).T, left_open

    def inverse_columns(self, rows: Tensor) -> Tensor:
        """Columns of A, less those of (A1)(A1)ᵀ/t."""
        columns: Tensor = torch.cholesky_solve(_unit_columns(self.dual, rows), self.lower)
        total = self.half_ones.square().sum()
        return columns.addr_(self.share * total, self.share[rows], alpha=-1)

    def steps(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The same columns, and v."""
        return columns, self.share[rows]


@dataclass(frozen=True)
class PrimalFactor:
    """ΦᵀΦ + λI = LLᵀ; with an intercept the last feature is 1 and bears no λ."""

    ridge: float
    dual: Tensor
    diagonal: Tensor
    coefficients: Tensor
    intercept: Tensor
    lower: Tensor
    rows: Tensor

    @classmethod
    def of(
        cls,
        rows: Tensor,
        targets: Tensor,
        ridge: float,
        intercept: bool,
        machine: Machine = PROCESSOR,
    ) -> PrimalFactor:
        """Factor ΦᵀΦ + λI for rows whose last column is 1 where there is an intercept."""
        gram, mean = rows.T @ rows, targets.new_zeros(())
        penalty = gram.new_full((len(gram),), ridge)
        if intercept:
            penalty[-1], mean = 0.0, targets.mean()
        targets = targets - mean
        gram.diagonal().add_(penalty)
        lower, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise Indefinite(ridge, machine.precision)
        weights = torch.zeros_like(penalty)
        for _ in range(2):  # the second time refines
            gradient = (targets - rows @ weights) @ rows - penalty * weights
            weights += torch.cholesky_solve(gradient[:, None], lower)[:, 0]
        leverages = [
            torch.linalg.solve_triangular(lower, rows[part].T, upper=False).square().sum(dim=0)
            for part in blocks(len(rows), 3 * machine.item * len(gram), machine.block)
        ]
        dual, diagonal = (targets - rows @ weights) / ridge, (1 - torch.cat(leverages)) / ridge
        if intercept:
            weights, mean = weights[:-1], mean + weights[-1]
        return cls(ridge, dual, diagonal, weights, mean, lower, rows)

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Two triangular solves with few features, and one product with the training rows."""
        if rows.shape[1] < len(self.lower):
            rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        half = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        left_open = self.ridge * (1 + half.square().sum(dim=0))
        back = torch.linalg.solve_triangular(self.lower.T, half, upper=True)
        return back.T @ self.rows.T, left_open

    def inverse_columns(self, rows: Tensor) -> Tensor:
        """(I − ΦG⁻¹Φᵀ)/λ."""
        return (_unit_columns(self.dual, rows) - self.rows @ self._moves(rows)) / self.ridge

    def steps(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """G⁻¹Φᵀ; the intercept is its last row."""
        moves, size = self._moves(rows), len(self.coefficients)
        return moves[:size], moves[size:].sum(dim=0)

    def _moves(self, rows: Tensor) -> Tensor:
        moves: Tensor = torch.cholesky_solve(self.rows[rows].T.contiguous(), self.lower)
        return moves


def _unit_columns(like: Tensor, rows: Tensor) -> Tensor:
    """Columns of the identity, shape (n, rows)."""
    units = like.new_zeros(len(like), len(rows))
    units[rows, torch.arange(len(rows), device=rows.device)] = 1.0
    return units


def _inverse_diagonal(lower: Tensor, machine: Machine) -> Tensor:
    """Diagonal of (LLᵀ)⁻¹: squared lengths of the columns of L⁻¹, which is 0 above its diagonal."""
    n = len(lower)
    diagonal = lower.new_empty(n)
    # Narrow blocks: each one leaves out the zeros above it.
    for part in blocks(n, 3 * machine.item * n, machine.tile):
        ones = lower.new_zeros(n - part.start, part.stop - part.start)
        ones.fill_diagonal_(1.0)
        below = lower[part.start :, part.start :]
        half = torch.linalg.solve_triangular(below, ones, upper=False)
        diagonal[part] = half.square().sum(dim=0)
    return diagonal


def _cholesky(kernel: Tensor, ridge: float) -> Tensor:
    """L of K + λI; where rounding made it indefinite, with K's negative eigenvalues at 0."""
    shifted = kernel.clone()
    shifted.diagonal().add_(ridge)
    lower, failed = torch.linalg.cholesky_ex(shifted)
    if not failed:
        found: Tensor = lower
        return found
    values, vectors = torch.linalg.eigh(kernel)
    root = vectors * (values.clamp(min=0.0) + ridge).sqrt()
    upper: Tensor = torch.linalg.qr(root.T, mode="r").R
    return upper.T.contiguous()
