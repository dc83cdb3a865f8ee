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

Rounding, in the notation of rounding.py: γ·strain bounds the relative error of every d_i, strain
being the largest u_i²/d_i; γ·loose(x) that of s(x), loose = (|b|ᵀ√g + √k(x, x))²/s; and an error of
the dual coefficients or of bᵀr, in units of √(s/d_i) or √s, is at most γ·weight times the root of
strain or loose, weight = |c|ᵀ√g. As |A_ik| ≤ √(d_i d_k), strain is at most (Σ_k √(d_k g_k))²: that
is taken where it is small enough, and the sum itself elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks
from .primal import Indefinite
from .rounding import gamma_of

# A relative error that need not be known more exactly.
SMALL = 1e-6


class Factor(Protocol):
    """One λ, factored."""

    @property
    def strain(self) -> float:
        """γ times it bounds the relative errors of d."""

    @property
    def weight(self) -> float:
        """|c|ᵀ√g."""

    @property
    def roots(self) -> Tensor:
        """√diag G, in the coordinates of the basis, shape (q,)."""

    @property
    def ground(self) -> float:
        """What besides |w|ᵀ√diag G an error of the model w is relative to."""

    @property
    def unit(self) -> float:
        """What d is multiplied with to be free of the unit of k."""

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

    def at(self, rows: Tensor, norms: Tensor) -> Open:
        """What the training rows leave open of new rows.

        Parameters
        ----------
        rows
            Their coordinates z(x) in the basis, shape (m, q).
        norms
            Their k(x, x), shape (m,).

        """


class Open(NamedTuple):
    """New rows at one λ: weights b, shape (m, n); s, shape (m,); loose, shape (m,)."""

    weights: Tensor
    left_open: Tensor
    loose: Tensor


@dataclass(frozen=True)
class DualFactor:
    """K + λI = LLᵀ. ``half_ones`` is g, zero without an intercept; ``roots`` are √diag(K + λI)."""

    ridge: float
    dual: Tensor
    diagonal: Tensor
    intercept: Tensor
    lower: Tensor
    half_ones: Tensor
    share: Tensor  # v, zero without an intercept
    roots: Tensor
    strain: float
    weight: float
    ground: float = 0.0
    unit: float = 1.0

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
        lower, definite = _cholesky(kernel, ridge)
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
        if definite:  # once more with what is left: a difference may have cost digits
            left = targets - mean - kernel @ dual - ridge * dual
            more = torch.cholesky_solve(left[:, None], lower)[:, 0]
            if intercept:
                more, mean = more - row_sums * (share @ left), mean + share @ left
            dual = dual + more
        roots = (kernel.diagonal() + ridge).sqrt()
        strain = float((diagonal.abs().sqrt() @ roots).square())
        if gamma_of(kernel.dtype) * strain > SMALL:
            inverse = torch.cholesky_inverse(lower).addr_(row_sums, share, alpha=-1)
            strain = float(((inverse.abs_() @ roots).square() / diagonal.abs()).max())
        # With an intercept d is a difference: its parts count where it cancels.
        strain += float((1 + 2 * (row_sums * share / diagonal).abs()).max())
        weight, half_ones = float(dual.abs() @ roots), half[:, 1].contiguous()
        return cls(ridge, dual, diagonal, mean, lower, half_ones, share, roots, strain, weight)

    def at(self, rows: Tensor, norms: Tensor) -> Open:
        """Two triangular solves."""
        half = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        # Exactly, s is at least λ.
        left_open = (norms + self.ridge - half.square().sum(dim=0)).clamp(min=self.ridge)
        total = self.half_ones.square().sum()
        if total:
            missing = (1 - self.half_ones @ half) / total
            left_open = left_open + total * missing.square()
            half = half.addr_(self.half_ones, missing)
        weights: Tensor = torch.linalg.solve_triangular(self.lower.T, half, upper=True).T
        reach = weights.abs() @ self.roots + norms.sqrt()
        return Open(weights, left_open, reach.square() / left_open)

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
    roots: Tensor
    strain: float
    ground: float
    spread: float  # (Σ_a √(G_aa (G⁻¹)_aa))², which bounds loose

    @property
    def weight(self) -> float:
        """(|w|ᵀ√diag G + ‖r‖)/√λ, an error of λc being one of Φw and r."""
        return (float(self.coefficients.abs() @ self.roots) + self.ground) / math.sqrt(self.ridge)

    @property
    def unit(self) -> float:
        """λ."""
        return self.ridge

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
        roots = gram.diagonal().sqrt()
        spread = float((_inverse_diagonal(lower, machine).sqrt() @ roots).square())
        # |G⁻¹φ_i|ᵀ√diag G is at most the root of spread times the leverage.
        lengths = (spread * torch.cat(leverages)).sqrt()
        strain = float(((lengths.square() + 2 * lengths) / (ridge * diagonal).abs()).max())
        ground = float(targets.norm())
        if intercept:
            ground += float(weights[-1].abs() * roots[-1])
            weights, mean, roots = weights[:-1], mean + weights[-1], roots[:-1]
        return cls(ridge, dual, diagonal, weights, mean, lower, rows, roots, strain, ground, spread)

    def at(self, rows: Tensor, norms: Tensor) -> Open:
        """Two triangular solves with few features, and one product with the training rows."""
        if rows.shape[1] < len(self.lower):
            rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        half = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        left_open = self.ridge * (1 + half.square().sum(dim=0))
        back = torch.linalg.solve_triangular(self.lower.T, half, upper=True)
        loose = torch.full_like(left_open, self.spread)
        return Open(back.T @ self.rows.T, left_open, loose)

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


def _cholesky(kernel: Tensor, ridge: float) -> tuple[Tensor, bool]:
    """L of K + λI; where that is indefinite (False), with K's negative eigenvalues at 0."""
    shifted = kernel.clone()
    shifted.diagonal().add_(ridge)
    lower, failed = torch.linalg.cholesky_ex(shifted)
    if not failed:
        return lower, True
    values, vectors = torch.linalg.eigh(kernel)
    root = vectors * (values.clamp(min=0.0) + ridge).sqrt()
    upper: Tensor = torch.linalg.qr(root.T, mode="r").R
    return upper.T.contiguous(), False
