"""The ridge from one kernel matrix (the dual form); system.py has the notation.

G = K + λI = LLᵀ gives G⁻¹ for the models, and L for new rows: h = L⁻¹k(x) gives
s = k(x, x) + λ − ‖h‖², which is accurate where an explicit inverse is not, and b = L⁻ᵀh.

With an unpenalised intercept A is G⁻¹ − (G⁻¹1)(G⁻¹1)ᵀ/t, t = 1ᵀG⁻¹1. With v = G⁻¹1/t the intercept
without row j is β − v_j e_j, and ω = (1 − 1ᵀG⁻¹k(x))/t adds tω² to s and ωL⁻¹1 to h.

Memory: a matrix beside the kernel, or the kernel's own, which L, A and the models overwrite in
turn; one more where L is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks
from .rounding import RoundingTerms, fold_terms
from .system import Indefinite, Open, Ridge, check_finite


@dataclass(frozen=True, eq=False)
class DualRidge(Ridge):
    """The ridge at one λ."""

    inverse: Tensor  # A, shape (n, n); empty where it is not kept
    lower: Tensor  # L, shape (n, n); empty where it is not kept
    total: Tensor  # t, a single number; 0 without an intercept
    roots: Tensor  # √g of rounding.py, shape (n,)
    spans: Tensor  # u of rounding.py, shape (n,)
    definite: bool  # False where the kernel counts as its positive part

    @property
    def coefficients(self) -> Tensor:
        return self.dual

    @cached_property
    def terms(self) -> RoundingTerms:
        roots, spans, sizes = self.roots, self.spans, self.left_out.abs()
        shares, sums = self.share.abs(), (self.total * self.share).abs()  # 0 without an intercept
        weights, direct = spans / self.diagonal, 1 + 2 * sums * shares / self.diagonal
        load = self.dual.abs() @ roots + 2 * (spans + shares * (sums @ roots)) * sizes
        own = weights * load + direct * sizes
        return RoundingTerms(weights / roots, roots, load, own, spans * weights + direct)

    @property
    def weight(self) -> float:
        return float(self.dual.abs() @ self.roots)

    def inverse_rows(self, rows: Tensor) -> Tensor:
        return self.inverse[rows]

    def steps(self, rows: Tensor) -> Tensor:
        return self.inverse[:, rows]

    def fold_terms(self, rows: Tensor, weights: Tensor, moved: Tensor) -> RoundingTerms:
        spans, load = weights.abs() @ self.roots, (self.dual.abs() + moved.abs()) @ self.roots
        return fold_terms(spans, spans, self.roots[rows], load, self.diagonal[rows])

    def factor(self) -> DualRidge:
        return replace(self, inverse=self.inverse.new_empty(0))

    def _columns(self) -> Tensor:
        """The models are c − A_·j e_j, 0 at j."""
        columns = self.inverse.mul_(-self.left_out).add_(self.dual[:, None])
        return columns.fill_diagonal_(0.0)  # exactly, not to rounding

    @cached_property
    def _half_ones(self) -> Tensor:
        """L⁻¹1, shape (n, 1)."""
        ones = torch.ones_like(self.dual[:, None])
        half: Tensor = torch.linalg.solve_triangular(self.lower, ones, upper=False)
        return half

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        half = torch.linalg.solve_triangular(self.lower, coordinates.T, upper=False)
        left_open = (norms + self.ridge - half.square().sum(dim=0)).clamp(min=self.ridge)  # ≥ λ
        if self.total:
            total = self._half_ones.square().sum()
            missing = (1 - self._half_ones.T @ half) / total
            left_open = left_open + total * missing[0].square()
            half = half + self._half_ones * missing
        weights: Tensor = torch.linalg.solve_triangular(self.lower.T, half, upper=True).T
        reach = weights.abs() @ self.roots + norms.sqrt()
        return Open(weights, left_open, reach.square() / left_open)


@dataclass(frozen=True, eq=False)
class DualSystem:
    """K, shape (n, n), and r, shape (n,)."""

    kernel: Tensor
    targets: Tensor
    intercept: bool
    machine: Machine = PROCESSOR

    def __post_init__(self) -> None:
        check_finite(self.kernel)

    @property
    def width(self) -> int:
        return len(self.targets)

    @cached_property
    def norms(self) -> Tensor:
        """k(x, x) of the rows, shape (n,)."""
        return self.kernel.diagonal().clone()

    def coordinates(self, rows: Tensor) -> Tensor:
        return self.kernel[rows]

    def solve(self, ridge: float, keep_factor: bool = False, in_place: bool = False) -> DualRidge:
        """Solve; ``keep_factor`` keeps what new rows need, ``in_place`` overwrites the kernel."""
        roots = (self.norms + ridge).sqrt()
        lower, definite = self._cholesky(ridge, in_place)
        ones = torch.ones_like(self.targets)
        # The intercept absorbs the mean of the targets; subtracting it saves digits.
        beta = self.targets.mean() if self.intercept else self.targets.new_zeros(())
        sides = torch.stack([self.targets - beta, ones], dim=1)
        dual, row_sums = _solved(lower, sides).unbind(1)
        total, share = torch.zeros_like(beta), torch.zeros_like(dual)
        if self.intercept:
            total = row_sums.sum()
            share = row_sums / total
            dual, beta = _balanced(dual, beta, row_sums, total)
        if definite:  # refine: eliminating an intercept may cost digits
            known = lower @ (lower.T @ dual) if in_place else self.kernel @ dual + ridge * dual
            dual = dual + _solved(lower, (self.targets - beta - known)[:, None])[:, 0]
        if self.intercept:  # Σc = 0 is an equation too
            dual, beta = _balanced(dual, beta, row_sums, total)
        inverse = lower.T.clone().T if keep_factor else lower
        inverse = torch.cholesky_inverse(inverse, out=inverse).T
        inverse.addr_(total * share, share, alpha=-1)
        diagonal, lower = inverse.diagonal().clone(), lower if keep_factor else lower.new_empty(0)
        parts = blocks(len(dual), self.machine.item * len(dual), self.machine.tile)
        spans = torch.cat([inverse[rows].abs() @ roots for rows in parts])
        found = (ridge, dual, diagonal, beta, share, inverse, lower, total, roots, spans, definite)
        return DualRidge(*found)

    def again(self, solved: Ridge, targets: Tensor) -> DualRidge:
        """A solution of these equations for other targets: nothing is inverted."""
        assert isinstance(solved, DualRidge)
        beta = targets.mean() if self.intercept else targets.new_zeros(())
        dual = torch.zeros_like(targets)
        for _ in range(2 if solved.definite else 1):  # the second time refines
            left = targets - beta - (self.kernel @ dual + solved.ridge * dual)
            dual, beta = dual + solved.inverse @ left, beta + solved.share @ left
        if self.intercept:
            dual, beta = _balanced(dual, beta, solved.total * solved.share, solved.total)
        return replace(solved, dual=dual, intercept=beta)

    def factored(self, solved: DualRidge) -> DualRidge:
        """A solution of these equations whose factor was not kept, ready for new rows."""
        return replace(solved, lower=self._cholesky(solved.ridge)[0])

    def _cholesky(self, ridge: float, in_place: bool = False) -> tuple[Tensor, bool]:
        """L of K + λI; where that is indefinite (False), with K's negative eigenvalues set to 0."""
        shifted = self.kernel if in_place else self.kernel.clone()
        shifted.diagonal().add_(ridge)
        # The transpose has the order of entries that LAPACK works on in place.
        lower, failed = shifted.T, torch.empty((), dtype=torch.int32, device=shifted.device)
        torch.linalg.cholesky_ex(lower, out=(lower, failed))
        if not failed:
            return lower, True
        if in_place or 4 * shifted.nbytes > self.machine.budget:
            raise Indefinite(ridge)
        values, vectors = torch.linalg.eigh(self.kernel)
        root = vectors * (values.clamp(min=0.0) + ridge).sqrt()
        upper: Tensor = torch.linalg.qr(root.T, mode="r").R
        return upper.T, False


def _balanced(dual: Tensor, beta: Tensor, row_sums: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Make Σc 0 and keep Gc + β; ``row_sums`` are G⁻¹1."""
    slope = dual.sum() / total
    return dual - slope * row_sums, beta + slope


def _solved(lower: Tensor, sides: Tensor) -> Tensor:
    """(LLᵀ)⁻¹ times columns; torch.cholesky_solve would copy L."""
    half = torch.linalg.solve_triangular(lower, sides, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(lower.T, half, upper=True)
    return solved
