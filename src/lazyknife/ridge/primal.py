"""The ridge from feature rows (the primal form), for fewer features than rows.

Φ are the n feature rows, with a last entry 1 where there is an intercept; G = ΦᵀΦ + λI, without λ
at the last entry of its diagonal, and G = LLᵀ; w = G⁻¹Φᵀr, and leverages h_j = φ_jᵀG⁻¹φ_j. As in
system.py, A = (I − ΦG⁻¹Φᵀ)/λ, c = (r − Φw)/λ and d = (1 − h)/λ; a unit of r_j moves w by G⁻¹φ_j; a
new row has b = ΦG⁻¹φ(x) and s = λ(1 + φ(x)ᵀG⁻¹φ(x)). Any row φ, inside or not, has a leverage
φᵀG⁻¹φ, a move G⁻¹φ of w per unit of its target, and the sums that bounds on rounding need
(rounding.py); the normal equations may also be those of all rows but some.

Memory: the n feature rows, which the models may overwrite, and a few matrices of G's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, steps, track
from .rounding import RoundingTerms, fold_terms, product_errors
from .system import Indefinite, Open, Ridge, check_finite, joined

TILE, GPU_TILE = 192, 2048  # columns at a time of products of which only one half is computed


class Passed(NamedTuple):
    """What the equations say of some rows; each has shape (rows,)."""

    errors: Tensor  # r − φᵀw
    leverages: Tensor  # φᵀG⁻¹φ
    spans: Tensor  # |G⁻¹φ|ᵀ√diag G
    wide: Tensor  # |φ|ᵀ|G⁻¹|√diag G
    norms: Tensor  # ‖φ‖²
    summed: Tensor  # |φ|ᵀ|w| + |r|


@dataclass(frozen=True, eq=False)
class Normal:
    """The normal equations at one λ, solved; with the intercept if there is one."""

    ridge: float  # λ
    lower: Tensor  # L, shape (q, q)
    weights: Tensor  # w, shape (q,)
    roots: Tensor  # √diag G; without some rows, of all rows, from which theirs were subtracted
    sums: Tensor  # |G⁻¹|√diag G and |w|, shape (q, 2)
    spread: float  # (Σ_a √(G_aa (G⁻¹)_aa))²: |G⁻¹φ|ᵀ√diag G is at most √(spread·φᵀG⁻¹φ)
    load: Tensor  # |w|ᵀ√diag G + ‖r‖

    def over(self, rows: Tensor, targets: Tensor) -> tuple[Passed, Tensor]:
        """Pass over some rows; return their moves G⁻¹φ too, shape (q, rows)."""
        leverages, moves = self.moves(rows)
        wide, summed = (rows.abs() @ self.sums).unbind(1)
        norms, spans = rows.square().sum(dim=1), self.roots @ moves.abs()
        errors = targets - rows @ self.weights
        return Passed(errors, leverages, spans, wide, norms, summed + targets.abs()), moves

    def moves(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """φᵀG⁻¹φ, shape (rows,), and G⁻¹φ, shape (q, rows)."""
        half = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        moves = torch.linalg.solve_triangular(self.lower.T, half, upper=True)
        return half.square().sum(dim=0), moves


@dataclass(frozen=True, eq=False)
class PrimalRidge(Ridge):
    """The ridge at one λ."""

    normal: Normal
    passed: Passed  # over the rows
    rows: Tensor  # Φ, shape (n, q), with the intercept if there is one
    width: int  # q without the intercept
    machine: Machine
    stored: bool  # whether the models without each row have taken the place of Φ

    @property
    def coefficients(self) -> Tensor:
        return self.normal.weights[: self.width]

    @cached_property
    def terms(self) -> RoundingTerms:
        _, leverages, spans, wide, norms, summed = self.passed
        roots, sizes, open_part = (norms + self.ridge).sqrt(), self.left_out.abs(), 1 - leverages
        load, size = self.normal.load + spans * sizes, open_part.abs()
        own = 2 * spans / open_part * load + product_errors(spans) / size * sizes + summed / size
        reach = torch.maximum(spans, wide) / (open_part * roots)
        return RoundingTerms(reach, roots, load, own, product_errors(wide) / size)

    @property
    def strain(self) -> float:
        """With √(spread·h) for u, which sees every direction and, unlike ``wide``, cancellation."""
        leverages = self.passed.leverages
        spans = (self.normal.spread * leverages).sqrt()
        return float((product_errors(spans) / (1 - leverages).abs()).max())

    @property
    def loose(self) -> float:
        return self.normal.spread

    @property
    def weight(self) -> float:
        """An error of λc is one of Φw and r."""
        return float(self.normal.load) / math.sqrt(self.ridge)

    def inverse_rows(self, rows: Tensor) -> Tensor:
        hat = self.normal.moves(self.rows[rows])[1].T.mul(-1 / self.ridge) @ self.rows.T
        hat[torch.arange(len(rows), device=hat.device), rows] += 1 / self.ridge
        return hat

    def steps(self, rows: Tensor) -> Tensor:
        return self.normal.moves(self.rows[rows])[1][: self.width]

    def fold_terms(self, rows: Tensor, weights: Tensor, moved: Tensor) -> RoundingTerms:
        roots, (_, leverages, own, wide, _, _) = self.normal.roots[: self.width], self.passed
        spans = weights.abs() @ roots / self.ridge
        # New rows may lie off the span of the training rows, where errors of w are largest.
        farthest = spans * (wide / own)[rows].nan_to_num(1.0).clamp(min=1.0)
        load = self.normal.load + moved.abs() @ roots
        lengths = (self.rows[rows, : self.width].square().sum(dim=1) + self.ridge).sqrt()
        return fold_terms(spans, farthest, lengths, load, 1 - leverages[rows])

    def factor(self) -> PrimalRidge:
        return self

    def _columns(self) -> Tensor:
        """The models are w − e_j G⁻¹φ_j."""
        if self.stored:
            return self.rows.T[: self.width]
        columns, residuals = torch.empty_like(self.rows[:, : self.width]), self.left_out
        for part in _row_blocks(self.rows, self.machine):
            moves = self.normal.moves(self.rows[part])[1][: self.width]
            columns[part] = (self.coefficients[:, None] - moves * residuals[part]).T
        return columns.T

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        if coordinates.shape[1] < self.rows.shape[1]:
            coordinates = torch.nn.functional.pad(coordinates, (0, 1), value=1.0)
        leverages, moves = self.normal.moves(coordinates)
        loose = torch.full_like(leverages, self.normal.spread)
        return Open((self.rows @ moves).T, self.ridge * (1 + leverages), loose)


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
        self.gram = check_finite(gram(rows))
        # The intercept absorbs the mean of the targets; subtracting it saves digits.
        self.mean = targets.mean() if intercept else targets.new_zeros(())
        self.centred = targets - self.mean

    @property
    def width(self) -> int:
        return self.rows.shape[1] - self.intercept

    @property
    def norms(self) -> Tensor:
        """‖φ‖² of the rows without the intercept, shape (n,)."""
        norms: Tensor = torch.linalg.vector_norm(self.rows[:, : self.width], dim=1).square()
        return norms

    def coordinates(self, rows: Tensor) -> Tensor:
        return self.rows[rows, : self.width]

    def solve(self, ridge: float, keep_factor: bool = False, in_place: bool = False) -> PrimalRidge:
        """Factor G and pass over all rows once; ``in_place`` stores the models in their memory."""
        rows, normal = self.rows, self.normal(ridge)
        share = torch.zeros_like(self.targets)
        parts, found = list(_row_blocks(rows, self.machine)), list[Passed]()
        for part in track(parts, "leaving out", len(parts), self.progress and len(parts) > 1):
            passed, moves = normal.over(rows[part], self.centred[part])
            share[part] = moves[self.width :].sum(dim=0)
            found.append(passed)
            if in_place:
                residuals = passed.errors / (1 - passed.leverages)
                rows[part] = (normal.weights[:, None] - moves.mul_(residuals)).T
        every = joined(found)
        intercept = self.mean + normal.weights[self.width :].sum()
        errors, open_part = every.errors / ridge, (1 - every.leverages) / ridge
        own = (normal, every, rows, self.width, self.machine, in_place)
        return PrimalRidge(ridge, errors, open_part, intercept, share, *own)

    def again(self, solved: Ridge, targets: Tensor) -> PrimalRidge:
        return PrimalSystem(self.rows, targets, self.intercept, self.machine).solve(solved.ridge)

    def normal(self, ridge: float, out: Tensor | None = None) -> Normal:
        """Solve the normal equations at λ, of all rows or of all but some."""
        penalty = self.gram.new_full((len(self.gram),), ridge)
        penalty[self.width :] = 0.0
        kept, G = torch.ones_like(self.targets), self.gram.clone()
        if out is not None:
            kept[out] = 0.0
            for some in self.picked(out):
                G -= gram(self.rows[some])
        G.diagonal().add_(penalty)
        lower, failed = torch.linalg.cholesky_ex(G)
        if failed:
            raise Indefinite(ridge)
        weights, targets = torch.zeros_like(penalty), kept * self.centred
        for _ in range(2):  # the second time refines
            gradient = (targets - kept * (self.rows @ weights)) @ self.rows - penalty * weights
            weights += torch.cholesky_solve(gradient[:, None], lower)[:, 0]
        roots, inverse = (self.gram.diagonal() + penalty).sqrt(), torch.cholesky_inverse(lower)
        spread = float((inverse.diagonal().sqrt() @ roots).square())
        sums = torch.stack([inverse.abs_() @ roots, weights.abs()], dim=1)
        load = weights.abs() @ roots + targets.norm()
        return Normal(ridge, lower, weights, roots, sums, spread, load)

    def picked(self, rows: Tensor) -> Iterator[Tensor]:
        """Some rows, in blocks whose copies and temporaries stay within the budget."""
        each = 4 * self.machine.item * self.rows.shape[1]
        return (rows[part] for part in blocks(len(rows), each, self.machine.block))


def _row_blocks(rows: Tensor, machine: Machine) -> Iterator[slice]:
    return blocks(len(rows), 3 * machine.item * rows.shape[1], machine.block)


def gram(rows: Tensor) -> Tensor:
    """ΦᵀΦ: products for its lower half alone, mirrored."""
    product = rows.new_zeros(rows.shape[1], rows.shape[1])
    for part in steps(len(product), TILE if rows.device.type == "cpu" else GPU_TILE):
        torch.mm(rows[:, part].T, rows[:, : part.stop], out=product[part, : part.stop])
    return product.tril_().add_(product.tril(-1).T)
