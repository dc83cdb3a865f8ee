"""The ridge from feature rows (the primal form), for fewer features than rows.

Φ are the n feature rows, with a last entry 1 where there is an intercept; G = ΦᵀΦ + λI, without λ
at the last entry of its diagonal, and G = LLᵀ; w = G⁻¹Φᵀr, and leverages h_j = φ_jᵀG⁻¹φ_j. As in
system.py, A = (I − ΦG⁻¹Φᵀ)/λ, c = (r − Φw)/λ and d = (1 − h)/λ; a unit of r_j moves w by G⁻¹φ_j; a
new row has b = ΦG⁻¹φ(x) and s = λ(1 + φ(x)ᵀG⁻¹φ(x)). Any row φ, inside or not, has a leverage
φᵀG⁻¹φ, a move G⁻¹φ of w per unit of its target, and the sums that bounds on rounding need
(rounding.py); the normal equations may also be those of all rows but some.

Memory: the n feature rows, which the models overwrite, and a few matrices of G's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, track
from .inverse import check_size, gram
from .rounding import Sensitivity
from .system import Indefinite, Open, RidgeModels, left_out


class Passed(NamedTuple):
    """What the equations say of some rows; each has shape (rows,).

    Attributes
    ----------
    errors, leverages
        r − φᵀw and φᵀG⁻¹φ.
    spans, wide
        |G⁻¹φ|ᵀ√diag G and |φ|ᵀ|G⁻¹|√diag G.
    norms, terms
        ‖φ‖², and |φ|ᵀ|w| + |r|.

    """

    errors: Tensor
    leverages: Tensor
    spans: Tensor
    wide: Tensor
    norms: Tensor
    terms: Tensor


class Left(NamedTuple):
    """What is left without some rows: ΦᵀΦ, shape (q, q), and 1 at the others, shape (n,)."""

    gram: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Normal:
    """The equations at one λ, solved.

    Attributes
    ----------
    lower, weights
        L, shape (q, q), and w, shape (q,), both with the intercept if there is one.
    roots
        √diag G; without some rows, of all rows, from which theirs were subtracted.
    sums
        |G⁻¹|√diag G and |w|, shape (q, 2).
    spread
        (Σ_a √(G_aa (G⁻¹)_aa))².
    size
        ‖r‖.

    """

    ridge: float
    lower: Tensor
    weights: Tensor
    roots: Tensor
    sums: Tensor
    spread: float
    size: float

    def over(self, rows: Tensor, targets: Tensor) -> tuple[Passed, Tensor]:
        """Pass over some rows; return their moves G⁻¹φ too, shape (q, rows)."""
        leverages, moves = solved_rows(self.lower, rows)
        wide, terms = (rows.abs() @ self.sums).unbind(1)
        norms, spans = rows.square().sum(dim=1), self.roots @ moves.abs()
        errors = targets - rows @ self.weights
        return Passed(errors, leverages, spans, wide, norms, terms + targets.abs()), moves


def solve_normal(
    rows: Tensor,
    targets: Tensor,
    gram: Tensor,
    penalty: Tensor,
    ridge: float,
    left: Left | None = None,
) -> Normal:
    """Solve at λ.

    Parameters
    ----------
    rows, targets
        Φ, shape (n, q), and r, shape (n,).
    gram, penalty
        ΦᵀΦ, shape (q, q), and what is added to its diagonal, shape (q,).
    ridge
        λ.
    left
        What is left if some rows are left out.

    """
    roots = (gram.diagonal() + penalty).sqrt()
    G, kept = (gram, torch.ones_like(targets)) if left is None else left
    G = G.clone()
    G.diagonal().add_(penalty)
    lower, failed = torch.linalg.cholesky_ex(G)
    if failed:
        raise Indefinite(ridge)
    weights = torch.zeros_like(penalty)
    for _ in range(2):  # the second time refines
        gradient = (kept * (targets - rows @ weights)) @ rows - penalty * weights
        weights += torch.cholesky_solve(gradient[:, None], lower)[:, 0]
    inverse = torch.cholesky_inverse(lower)
    spread = float((inverse.diagonal().sqrt() @ roots).square())
    sums = torch.stack([inverse.abs_() @ roots, weights.abs()], dim=1)
    return Normal(ridge, lower, weights, roots, sums, spread, float((kept * targets).norm()))


def solved_rows(lower: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """φᵀG⁻¹φ, shape (rows,), and G⁻¹φ, shape (q, rows)."""
    half = torch.linalg.solve_triangular(lower, rows.T, upper=False)
    return half.square().sum(dim=0), torch.linalg.solve_triangular(lower.T, half, upper=True)


@dataclass(frozen=True)
class PrimalRidge:
    """The ridge at one λ.

    Attributes
    ----------
    rows, lower
        Φ, shape (n, q), and L, shape (q, q), both with the intercept if there is one.
    weights
        w, shape (q,).
    all_spans
        u of the training rows, |G⁻¹φ|ᵀ√diag G, shape (n,).
    wide
        |φ|ᵀ|G⁻¹|√diag G, shape (n,): what u may be where rounding of G has hidden directions that
        it hardly sees.
    spread
        (Σ_a √(G_aa (G⁻¹)_aa))²: |G⁻¹φ|ᵀ√diag G is at most the root of it times φᵀG⁻¹φ.
    lengths, terms
        √(‖φ‖² + λ), and |φ|ᵀ|w| + |r|, the sizes that r − φᵀw is a sum of, each (n,).

    """

    ridge: float
    rows: Tensor
    lower: Tensor
    weights: Tensor
    mean: Tensor
    dual: Tensor
    diagonal: Tensor
    all_roots: Tensor
    all_spans: Tensor
    wide: Tensor
    lengths: Tensor
    terms: Tensor
    spread: float
    size: float  # ‖r‖
    width: int  # q without the intercept

    @property
    def unit(self) -> float:
        return self.ridge

    @property
    def coefficients(self) -> Tensor:
        return self.weights[: self.width]

    @property
    def intercept(self) -> Tensor:
        return self.mean + self.weights[self.width :].sum()

    @property
    def roots(self) -> Tensor:
        return self.all_roots[: self.width]

    @property
    def ground(self) -> float:
        return self.size + float(self.weights[self.width :].abs() @ self.all_roots[self.width :])

    @property
    def weight(self) -> float:
        """(|w|ᵀ√diag G + ‖r‖)/√λ, an error of λc being one of Φw and r."""
        return (float(self.weights.abs() @ self.all_roots) + self.size) / math.sqrt(self.ridge)

    @property
    def widening(self) -> Tensor:
        """New rows may lie off the span of the training rows, where errors of w are largest."""
        return (self.wide / self.all_spans).nan_to_num(1.0).clamp(min=1.0)

    @property
    def strain(self) -> float:
        leverages = (1 - self.ridge * self.diagonal).clamp(min=0.0)
        return float(self._strains((self.spread * leverages).sqrt()).max())

    @property
    def loose(self) -> float:
        return self.spread

    @cached_property
    def share(self) -> Tensor:
        last = torch.zeros_like(self.lower[:, self.width :])
        last[self.width :] = 1.0
        return (self.rows @ torch.cholesky_solve(last, self.lower)).sum(dim=1)

    def _strains(self, spans: Tensor) -> Tensor:
        """Here d is a difference from 1, and spans are the products' own errors too."""
        return (spans.square() + 2 * spans) / (self.ridge * self.diagonal).abs()

    def inverse_rows(self, rows: slice | Tensor) -> Tensor:
        hat = self._moves(rows).T.mul(-1 / self.ridge) @ self.rows.T
        place = torch.arange(len(self.rows), device=hat.device)[rows]
        hat[torch.arange(len(place), device=hat.device), place] += 1 / self.ridge
        return hat

    def steps(self, rows: slice | Tensor, inverse_rows: Tensor) -> Tensor:
        return self._moves(rows)[: self.width]

    def without(self, rows: slice, inverse_rows: Tensor) -> tuple[Tensor, Tensor]:
        own, moves = left_out(self)[rows], self.steps(rows, inverse_rows)
        return self.coefficients - (moves * own).T, self.intercept - self.share[rows] * own

    def spans(self, rows: slice, inverse_rows: Tensor) -> Tensor:
        return self.all_spans[rows]

    def sensitivity(self, spans: Tensor) -> Sensitivity:
        diagonal, errors = self.ridge * self.diagonal, left_out(self)
        total = self.weights.abs() @ self.all_roots + self.size
        found = Sensitivity.of(spans, total, errors, diagonal, self.lengths, self.ridge)
        # G, unlike a kernel, is a sum over all rows, with errors of its own.
        strain = self._strains(self.wide)
        own = 2 * found.own + self._strains(spans) * errors.abs() + self.terms / diagonal.abs()
        reach = found.reach * self.widening
        return replace(found, reach=reach, strain=strain, own=own)

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        if coordinates.shape[1] < len(self.lower):
            coordinates = torch.cat([coordinates, torch.ones_like(coordinates[:, :1])], dim=1)
        leverages, moves = solved_rows(self.lower, coordinates)
        loose = torch.full_like(leverages, self.spread)
        return Open((self.rows @ moves).T, self.ridge * (1 + leverages), loose)

    def _moves(self, rows: slice | Tensor) -> Tensor:
        """G⁻¹φ of these rows, shape (q, rows)."""
        return solved_rows(self.lower, self.rows[rows])[1]


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
