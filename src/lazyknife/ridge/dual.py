"""The ridge from one kernel matrix (the dual form); system.py has the notation.

G = K + λI is inverted in one of two ways. Swept: in place, in the kernel's own lower tiles, where
whole rows of A are needed. Factored: G = LLᵀ in new memory, for new rows: h = L⁻¹k(x) gives
s = k(x, x) + λ − ‖h‖², which is accurate where an explicit inverse is not, and b = L⁻ᵀh.

With an unpenalised intercept A is G⁻¹ − (G⁻¹1)(G⁻¹1)ᵀ/t, t = 1ᵀG⁻¹1. With v = G⁻¹1/t the intercept
without row j is β − v_j e_j, and ω = (1 − 1ᵀG⁻¹k(x))/t adds tω² to s and ωL⁻¹1 to h.

Memory: the kernel's own n×n array, which the inverse and then the models overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks
from .inverse import (
    Factored,
    Inverse,
    Swept,
    check_size,
    cholesky,
    diagonal_tiles,
    invert_lower_,
    invert_positive_part_,
    mirror_lower_,
    restore_lower_,
    upper_product,
)
from .rounding import GAMMA, SMALL_ERROR, Sensitivity
from .system import Indefinite, Open, RidgeModels, left_out


@dataclass(frozen=True)
class DualRidge:
    """The ridge at one λ. ``share`` is v, and ``row_sums`` are G⁻¹1; 0 without an intercept."""

    ridge: float
    inverse: Inverse
    dual: Tensor
    diagonal: Tensor
    intercept: Tensor
    row_sums: Tensor
    share: Tensor
    roots: Tensor
    ground = 0.0
    unit = 1.0

    @property
    def coefficients(self) -> Tensor:
        return self.dual

    @property
    def widening(self) -> Tensor:
        return torch.ones_like(self.dual)

    @property
    def weight(self) -> float:
        return float(self.dual.abs() @ self.roots)

    @cached_property
    def strain(self) -> float:
        """The largest u_i²/d_i; as |A_ik| ≤ √(d_i d_k) it is at most (Σ_k √(d_k g_k))²."""
        most = (self.diagonal.abs().sqrt() @ self.roots).square()
        if GAMMA * float(most) > SMALL_ERROR:
            inverse = self.inverse.whole().addr_(self.row_sums, self.share, alpha=-1)
            most = ((inverse.abs_() @ self.roots).square() / self.diagonal.abs()).max()
        # With an intercept d is a difference, whose parts count.
        return float(most + (1 + 2 * (self.row_sums * self.share / self.diagonal).abs()).max())

    def inverse_rows(self, rows: slice | Tensor) -> Tensor:
        return self.inverse.rows(rows).addr_(self.row_sums[rows], self.share, alpha=-1)

    def steps(self, rows: slice | Tensor, inverse_rows: Tensor) -> Tensor:
        return inverse_rows.T

    def without(self, rows: slice, inverse_rows: Tensor) -> tuple[Tensor, Tensor]:
        own = left_out(self)[rows]
        models = torch.addcmul(self.dual, inverse_rows, own[:, None], value=-1)
        models[:, rows].fill_diagonal_(0.0)  # exactly, not to rounding
        return models, self.intercept - self.share[rows] * own

    def spans(self, rows: slice, inverse_rows: Tensor) -> Tensor:
        return inverse_rows.abs() @ self.roots

    def sensitivity(self, spans: Tensor) -> Sensitivity:
        residuals, total = left_out(self), self.dual.abs() @ self.roots
        found = Sensitivity.of(spans, total, residuals, self.diagonal, self.roots, self.ridge)
        sums, shares = self.row_sums.abs(), self.share.abs()
        inverse, spans = self.diagonal + 2 * sums * shares, spans + 2 * shares * (sums @ self.roots)
        return found.with_differences(self.diagonal, residuals, inverse, spans)

    def refined(self, left: Tensor) -> Self:
        """One step of iterative refinement: eliminating an intercept may cost digits."""
        more = self.share @ left
        dual = self.dual + self.inverse.product(left) - self.row_sums * more
        return replace(self, dual=dual, intercept=self.intercept + more)


@dataclass(frozen=True)
class FactoredRidge(DualRidge):
    """The ridge at one λ, ready for new rows."""

    inverse: Factored

    @property
    def loose(self) -> float:
        return self.strain

    @cached_property
    def half_ones(self) -> Tensor:
        """L⁻¹1, shape (n, 1); 0 without an intercept."""
        ones = torch.full_like(self.dual[:, None], float(self.row_sums.any()))
        return self.inverse.half(ones)

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        """Two triangular solves."""
        lower = self.inverse.lower
        half = self.inverse.half(coordinates.T)
        left_open = (norms + self.ridge - half.square().sum(dim=0)).clamp(min=self.ridge)  # ≥ λ
        total = self.half_ones.square().sum()
        if total:
            missing = (1 - self.half_ones.T @ half) / total
            left_open = left_open + total * missing[0].square()
            half = half + self.half_ones * missing
        weights: Tensor = torch.linalg.solve_triangular(lower.T, half, upper=True).T
        reach = weights.abs() @ self.roots + norms.sqrt()
        return Open(weights, left_open, reach.square() / left_open)


Solved = TypeVar("Solved", bound=DualRidge)


class DualSystem:
    """K and r; ``at`` works in the kernel's memory, whose upper tiles keep K for the next λ."""

    def __init__(
        self,
        kernel: Tensor,
        targets: Tensor,
        intercept: bool,
        machine: Machine = PROCESSOR,
        progress: bool = False,
    ) -> None:
        self.kernel, self.targets, self.intercept = kernel, targets, intercept
        self.machine, self.progress = machine, progress
        self.size = check_size(kernel)
        self.norms = kernel.diagonal().clone()
        self._tiles = diagonal_tiles(kernel)
        self._swept = False

    @property
    def width(self) -> int:
        return len(self.targets)

    def copy(self) -> DualSystem:
        kernel = self.restored().clone()
        return DualSystem(kernel, self.targets, self.intercept, self.machine, self.progress)

    def kept_rows(self, rows: Tensor) -> Tensor:
        return self.restored()[rows]

    def restored(self) -> Tensor:
        """Return K, restored in its memory."""
        if self._swept:
            restore_lower_(self.kernel, self._tiles)
        self._swept = False
        return self.kernel

    def at(self, ridge: float) -> DualRidge:
        kernel = self.restored()
        self._swept = True
        solved = self._right_hand_sides()
        kernel.diagonal().add_(ridge)
        definite = invert_lower_(kernel, solved, self.progress)
        if not definite:
            if 4 * kernel.nbytes > self.machine.budget:
                raise Indefinite(ridge)
            restore_lower_(kernel, self._tiles)
            solved = self._right_hand_sides() @ invert_positive_part_(kernel, ridge)
        found = self._solution(DualRidge, Swept(kernel), solved, ridge)
        if not definite:
            return found
        product = upper_product(kernel, self._tiles, found.dual)
        return found.refined(self._left(found, product))

    def again(self, solved: DualRidge, targets: Tensor) -> DualRidge:
        """The solution that ``at`` left in this memory, for other targets: nothing is inverted."""
        mean = targets.mean() if self.intercept else targets.new_zeros(())
        dual = solved.inverse.product(targets - mean)
        if self.intercept:
            slope = dual.sum() / solved.row_sums.sum()
            dual, mean = dual - slope * solved.row_sums, mean + slope
        product = upper_product(self.kernel, self._tiles, dual)
        found = replace(solved, dual=dual, intercept=mean)
        return found.refined(targets - mean - product - solved.ridge * dual)

    def factor(self, ridge: float) -> FactoredRidge:
        kernel = self.restored()
        lower, definite = cholesky(kernel, ridge)
        solved = torch.cholesky_solve(self._right_hand_sides().T, lower).T
        found = self._solution(FactoredRidge, Factored(lower, self.machine.tile), solved, ridge)
        return found.refined(self._left(found, kernel @ found.dual)) if definite else found

    def models(self, ridge: float) -> RidgeModels:
        """All models; the dual coefficients of model j are c − A_·j e_j, 0 at j."""
        solved = self.at(ridge)
        n, columns, residuals = len(self.targets), self.kernel, left_out(solved)
        spans = [
            solved.spans(rows, solved.inverse_rows(rows))
            for rows in blocks(n, self.machine.item * n, self.machine.tile)
        ]
        mirror_lower_(columns)
        columns.mul_(-residuals)
        columns.addmm_(
            torch.stack([solved.dual, solved.row_sums], dim=1),
            torch.stack([torch.ones_like(residuals), solved.share * residuals]),
        )
        columns.fill_diagonal_(0.0)  # exactly, not to rounding
        each = solved.intercept - solved.share * residuals
        return RidgeModels(
            columns=columns,
            full=solved.dual,
            intercepts=torch.cat([each, solved.intercept[None]]),
            ridges=residuals.new_full((n + 1,), ridge),
            residuals=residuals,
            training_residuals=ridge * solved.dual,  # (K + λI)c + β = r
            sensitivity=solved.sensitivity(torch.cat(spans)),
        )

    @property
    def _mean(self) -> Tensor:
        """The mean of the targets, which the intercept absorbs; subtracting it saves digits."""
        return self.targets.mean() if self.intercept else self.targets.new_zeros(())

    def _right_hand_sides(self) -> Tensor:
        return torch.stack([self.targets - self._mean, torch.ones_like(self.targets)])

    def _solution(
        self, kind: type[Solved], inverse: Inverse, solved: Tensor, ridge: float
    ) -> Solved:
        """Eliminate the intercept."""
        dual, row_sums = solved
        mean, share = self._mean, torch.zeros_like(dual)
        if self.intercept:
            total = row_sums.sum()
            share, slope = row_sums / total, dual.sum() / total
            dual, mean = dual - slope * row_sums, mean + slope
        else:
            row_sums = share
        diagonal, roots = inverse.diagonal() - row_sums * share, (self.norms + ridge).sqrt()
        return kind(ridge, inverse, dual, diagonal, mean, row_sums, share, roots)

    def _left(self, solved: DualRidge, product: Tensor) -> Tensor:
        return self.targets - solved.intercept - product - solved.ridge * solved.dual
