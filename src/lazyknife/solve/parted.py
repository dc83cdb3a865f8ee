"""Choosing λ in the primal form: every model by errors on a part of the rows, if there are many.

The part takes each row with the same probability, by a coin of its own, so that model j chooses as
any model without row j would: by the sum of squared errors of the rows of the part without row j,
each left out with j. Bounds from one eigendecomposition decide most choices (screen.py). The errors
that are left, and the models, come from a Cholesky factorisation at each λ that some model needs:

    (m_i e_i + h_ij e_j)/(m_i − h_ij²/m_j),   h_ij = φ_iᵀG⁻¹φ_j,   m_i = 1 − h_ii.

Memory: the rows, the models, and a few matrices of G's size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import blocks
from .choose import TIE, Contest, choose, without_each
from .normal import Left, Normal
from .part import COMPARED, SEED_SALT, draw_part
from .primal import PrimalSystem
from .ridge import Indefinite, RidgeModels, left_out
from .rounding import gamma_of
from .screen import Decided, Screen
from .spectrum import Spectrum

# Errors on a part of the rows that differ by less than this share are a tie.
PART_TIE = 1e-4
COLUMNS = 24  # numbers for each row and λ that bounds need at a time


@dataclass(frozen=True)
class Part:
    """The rows whose errors choose λ, and the share by which an error must be smaller."""

    rows: Tensor
    tie: float


def part_of(system: PrimalSystem, seed: int, size: int = COMPARED) -> Part:
    """All rows, or a part of ``size`` rows on average if there are more."""
    n = len(system.targets)
    rows = draw_part(n, seed ^ SEED_SALT, size).to(system.targets.device)
    return Part(rows, TIE if n <= size else PART_TIE)


def leave_one_out_parted(
    system: PrimalSystem, ridges: Sequence[float], part: Part, progress: bool = False
) -> RidgeModels:
    """All n leave-one-out models and the full one, each at the λ that it chooses."""
    n = len(system.targets)
    columns = system.targets.new_empty(n, system.width).T
    best = RidgeModels.empty(columns, system.targets)
    contest = Contest(without_each(system.norms), max(ridges), part.tie)
    admitted = solvable(contest, ridges, system.is_definite)
    decided = screened(system, ridges, admitted, part)
    narrowed = Narrowed(contest, ridges, decided)
    choose(
        narrowed,
        ridges,
        lambda ridge: RowsOut.at(system, ridge, part.rows, narrowed.open(ridge)),
        lambda found, better: found.take_(best, better, system),
        progress,
    )
    if not torch.isfinite(best.residuals).all():
        raise Indefinite(max(ridges), system.machine.precision)
    best.sensitivity.doubtful.copy_(narrowed.doubtful[:-1])
    return best


def solvable(
    contest: Contest, ridges: Sequence[float], is_definite: Callable[[float], bool]
) -> Tensor:
    """Which λ each model may choose and rounding does not outweigh, shape (models, L)."""
    admitted = torch.stack([contest.admits(ridge) for ridge in ridges], dim=1)
    for k in sorted(range(len(ridges)), key=lambda k: ridges[k]):
        if not admitted[:, k].any():
            continue
        if is_definite(ridges[k]):
            break  # and so it is at every larger one
        contest.fail(admitted[:, k])
        admitted[:, k] = False
    if not admitted.any(dim=1).all():
        raise Indefinite(max(ridges), str(contest.sizes.dtype).removeprefix("torch."))
    return admitted


def spectrum_of(
    system: PrimalSystem, ridges: Sequence[float], left: Left | None = None
) -> Spectrum:
    """Diagonalise the equations of all rows, or of those that are left, in float64."""
    targets = system.centred if left is None else system.centred * left.kept
    products = system.gram if left is None else left.gram
    moments, square = targets @ system.rows, targets.square().sum()
    if products.dtype != torch.float64:
        products, moments, square = _sums(system, targets, left)
    grid = torch.tensor(ridges, dtype=torch.float64, device=targets.device)
    return Spectrum.of(products, moments, square, grid, system.intercept)


def _sums(
    system: PrimalSystem, targets: Tensor, left: Left | None
) -> tuple[Tensor, Tensor, Tensor]:
    """ΦᵀΦ, Φᵀr and ‖r‖² in float64."""
    targets, products = targets.double(), torch.zeros_like(system.gram, dtype=torch.float64)
    moments = torch.zeros_like(products[0])
    for block in system.blocks():
        rows = system.rows[block].double()
        products += rows.T @ (rows if left is None else rows * left.kept[block, None])
        moments += targets[block] @ rows
    return products, moments, targets.square().sum()


def screened(
    system: PrimalSystem, ridges: Sequence[float], admitted: Tensor, part: Part
) -> Decided:
    """Decide by bounds, for the models without each row and last the full one."""
    rows, targets, machine = system.rows, system.centred, system.machine
    spectrum = spectrum_of(system, ridges)
    compared = spectrum.at(rows[part.rows], targets[part.rows])
    screen = Screen.of(spectrum, part.rows, compared, part.tie, machine.block)
    each, found = 8 * (3 * rows.shape[1] + COLUMNS * len(ridges)), []
    models = torch.arange(len(rows), device=rows.device)
    for block in blocks(len(rows), each, machine.block):
        seen = spectrum.at(rows[block], targets[block])
        found.append(screen.decide(models[block], seen, admitted[:-1][block]))
    found.append(screen.decide_whole(admitted[-1:]))
    return Decided(*map(torch.cat, zip(*found, strict=True)))


class Narrowed(Contest):
    """The same contest, in which a model enters only the λ that can be its best.

    A model whose bounds decide enters one λ; its error is not needed there, and is set to 1.
    """

    def __init__(self, contest: Contest, ridges: Sequence[float], decided: Decided) -> None:
        super().__init__(contest.sizes, contest.largest, contest.tie)
        self.failed, self.doubtful = contest.failed, contest.doubtful
        self.ridges, self.decided = tuple(ridges), decided

    def admits(self, ridge: float) -> Tensor:
        k, (winner, sure, _) = self.ridges.index(ridge), self.decided
        return (sure & (winner == k)) | self.open(ridge)

    def open(self, ridge: float) -> Tensor:
        """Models whose errors at λ are needed, shape (models,)."""
        return self.decided.open[:, self.ridges.index(ridge)]


@dataclass(frozen=True)
class RowsOut:
    """The models that enter at one λ."""

    normal: Normal
    errors: Tensor
    change: Tensor

    @classmethod
    def at(cls, system: PrimalSystem, ridge: float, part: Tensor, needed: Tensor) -> RowsOut:
        """Solve at λ, with the errors of the models that need them, shape (models,)."""
        normal, errors = system.normal(ridge), torch.ones_like(needed, dtype=system.gram.dtype)
        if not needed.any():
            return cls(normal, errors, torch.zeros_like(errors))
        own, moves = system.over(normal, part)
        noise = own.sensitivity(own.all_spans).noise(gamma_of(errors.dtype))
        errors[-1] = left_out(own).square().sum()
        for some in system.picked(needed[:-1].nonzero()[:, 0], 4 * len(part)):
            seen, _ = system.over(normal, some)
            hat = seen.rows @ moves
            outer = ridge * seen.diagonal[:, None]
            numerator = torch.addcmul(ridge * own.dual, hat, left_out(seen)[:, None])
            denominator = ridge * own.diagonal - hat.square_() / outer
            denominator[some[:, None] == part] = torch.inf
            errors[:-1][some] = numerator.div_(denominator).square_().sum(dim=1)
        return cls(normal, errors, torch.where(needed, noise, 0.0))

    def take_(self, best: RidgeModels, better: Tensor, system: PrimalSystem) -> None:
        """Store the models, (n + 1,), that are better here."""
        normal, width = self.normal, system.width
        best.ridges[better] = normal.ridge
        if better[-1]:
            best.full.copy_(normal.weights[:width])
            best.intercepts[-1] = system.mean + normal.weights[width:].sum()
            best.training_residuals.copy_(system.centred - system.rows @ normal.weights)
        for some in system.picked(better[:-1].nonzero()[:, 0]):
            seen, moves = system.over(normal, some)
            residuals = left_out(seen)
            models = normal.weights[:, None] - moves.mul_(residuals)
            best.columns[:, some] = models[:width]
            best.intercepts[some] = system.mean + models[width:].sum(dim=0)
            best.residuals[some] = residuals
            best.sensitivity.put_(some, seen.sensitivity(seen.all_spans))
