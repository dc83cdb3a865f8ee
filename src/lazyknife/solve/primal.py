"""The ridge from feature rows (the primal form), for fewer features than rows.

Φ are the n feature rows, with a last entry 1 where there is an intercept; G = ΦᵀΦ + λI, without λ
at the last entry of its diagonal, and G = LLᵀ; w = G⁻¹Φᵀr, and leverages h_j = φ_jᵀG⁻¹φ_j. As in
ridge.py, A = (I − ΦG⁻¹Φᵀ)/λ, c = (r − Φw)/λ and d = (1 − h)/λ; a unit of r_j moves w by G⁻¹φ_j; a
new row has b = ΦG⁻¹φ(x) and s = λ(1 + φ(x)ᵀG⁻¹φ(x)).

Memory: the n feature rows, which the models overwrite, and a few matrices of G's size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, track
from .normal import Left, Normal, Passed, solve_normal
from .primal_ridge import PrimalRidge
from .ridge import RidgeModels, left_out
from .symmetric import check_size, gram


class PrimalSystem:
    """Φ and r; with an intercept the last column of Φ is 1."""

    def __init__(
        self,
        rows: Tensor,
        targets: Tensor,
        intercept: bool,
        machine: Machine = PROCESSOR,
        progress: bool = False,
    ) -> None:
        self.rows, self.targets, self.intercept = rows, targets, intercept
        self.machine, self.progress = machine, progress
        self.gram = gram(rows)
        check_size(self.gram)
        # The intercept absorbs the mean of the targets; subtracting it saves digits.
        self.mean = targets.mean() if intercept else targets.new_zeros(())
        self.centred = targets - self.mean

    @property
    def width(self) -> int:
        return self.rows.shape[1] - self.intercept

    @property
    def norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.rows[:, : self.width], dim=1).square()
        return norms

    def copy(self) -> PrimalSystem:
        rows = self.rows.clone()
        return PrimalSystem(rows, self.targets, self.intercept, self.machine, self.progress)

    def kept_rows(self, rows: Tensor) -> Tensor:
        return self.rows[rows, : self.width]

    def at(self, ridge: float) -> PrimalRidge:
        return self._solve(ridge)

    factor = at

    def again(self, solved: PrimalRidge, targets: Tensor) -> PrimalRidge:
        """The solution for other targets."""
        return PrimalSystem(self.rows, targets, self.intercept, self.machine).at(solved.ridge)

    def models(self, ridge: float) -> RidgeModels:
        """All models, w − e_j G⁻¹φ_j, in the memory of the rows."""
        solved = self._solve(ridge, in_place=True)
        columns, residuals = self.rows.T, left_out(solved)
        own = columns[self.width :].sum(dim=0) + solved.mean
        return RidgeModels(
            columns=columns[: self.width],
            full=solved.coefficients,
            intercepts=torch.cat([own, solved.intercept[None]]),
            ridges=residuals.new_full((len(residuals) + 1,), ridge),
            residuals=residuals,
            training_residuals=ridge * solved.dual,
            sensitivity=solved.sensitivity(solved.all_spans),
        )

    def left(self, out: Tensor) -> Left:
        """What is left without some rows."""
        kept, products = torch.ones_like(self.targets), self.gram.clone()
        kept[out] = 0.0
        for some in self.picked(out):
            products -= gram(self.rows[some])
        return Left(products, kept)

    def normal(self, ridge: float, left: Left | None = None) -> Normal:
        """Solve the normal equations at λ, of all rows or of all but some."""
        given = (self.rows, self.centred, self.gram, self._penalty(ridge))
        return solve_normal(*given, ridge, left)

    def _penalty(self, ridge: float) -> Tensor:
        penalty = self.gram.new_full((len(self.gram),), ridge)
        penalty[self.width :] = 0.0
        return penalty

    def _ridge(self, normal: Normal, rows: Tensor, passed: Passed) -> PrimalRidge:
        ridge, (errors, leverages, spans, wide, norms, terms) = normal.ridge, passed
        return PrimalRidge(
            *(ridge, rows, normal.lower, normal.weights, self.mean),
            *(errors / ridge, (1 - leverages) / ridge, normal.roots, spans, wide),
            *((norms + ridge).sqrt(), terms, normal.spread, normal.size, self.width),
        )

    def _solve(self, ridge: float, in_place: bool = False) -> PrimalRidge:
        """Factor G and pass over all rows once; ``in_place`` stores the models in their memory."""
        rows, normal = self.rows, self.normal(ridge)
        parts, found = list(self.blocks()), list[Passed]()
        for part in track(parts, "leaving out", len(parts), self.progress and len(parts) > 1):
            passed, moves = normal.over(rows[part], self.centred[part])
            found.append(passed)
            if in_place:
                residuals = passed.errors / (1 - passed.leverages)
                rows[part] = (normal.weights[:, None] - moves.mul_(residuals)).T
        return self._ridge(normal, rows, Passed(*map(torch.cat, zip(*found, strict=True))))

    def blocks(self) -> Iterator[slice]:
        """Blocks of rows whose temporaries stay within the budget."""
        width = self.rows.shape[1]
        return blocks(len(self.rows), 3 * self.machine.item * width, self.machine.block)

    def picked(self, rows: Tensor, columns: int = 0) -> Iterator[Tensor]:
        """The same of copies of some rows, with as many numbers more for each row."""
        each = self.machine.item * (4 * self.rows.shape[1] + columns)
        return (rows[part] for part in blocks(len(rows), each, self.machine.block))
