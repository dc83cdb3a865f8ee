"""Choosing λ, for every model on its own rows: the one loop over candidates.

A model may decide anything on its own rows without a leak. Candidates of a model are the λ that are
large enough relative to the trace of its own kernel; the winner has the smallest sum of squared
errors on its own rows, each left out in turn. Without row j these are

    (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),   i ≠ j,

the residuals with both i and j left out, so one solution of the equations serves all n models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ..compute import Machine, blocks, track
from .ridge import Indefinite, Ridge, RidgeModels, System, left_out
from .rounding import GAMMA, Sensitivity

# A λ is a candidate of a model if it is at least this share of the trace of the model's own kernel.
LEAST_SHARE = 1e-10
# An error wins only if it is smaller by this share: exact ties go to the earlier λ.
TIE = 1e-6


def without_each(values: Tensor) -> Tensor:
    """Sums of all but one of the numbers, and last of all of them, shape (n + 1,).

    The number that a sum leaves out is never part of it: nothing is subtracted.
    """
    zero = values.new_zeros(1)
    before = torch.cat([zero, values.cumsum(dim=0)])
    after = torch.cat([values.flip(0).cumsum(dim=0).flip(0), zero])
    return torch.cat([before[:-1] + after[1:], before[-1:]])


class Contest:
    """The smallest error so far of each of several models, while λ runs through a grid.

    An error wins if it is smaller than the best so far by a share ``tie``, so exact ties go to the
    earlier λ. A model is doubtful where rounding could have decided instead.

    Parameters
    ----------
    sizes
        Traces of the models' kernels, shape (models,).
    largest
        The largest λ of the grid.
    tie
        Share by which an error must be smaller.

    """

    def __init__(self, sizes: Tensor, largest: float, tie: float = TIE) -> None:
        self.sizes, self.largest, self.tie = sizes, largest, tie
        self.errors = torch.full_like(sizes, torch.inf)
        self.noise = torch.zeros_like(sizes)
        self.doubtful = torch.zeros_like(sizes)
        self.failed = torch.zeros_like(sizes, dtype=torch.bool)

    def admits(self, ridge: float) -> Tensor:
        """Whether λ is large enough for each model; the largest one of a grid always is.

        Smaller ones would be dominated by rounding. The rule uses the model's own rows only, so
        nothing leaks.
        """
        least = LEAST_SHARE * self.sizes
        return ridge >= least.clamp(max=self.largest)

    def enter(self, errors: Tensor, change: Tensor | float, admitted: Tensor) -> Tensor:
        """Enter sums of squared errors at one λ; return the models for which they are the best.

        ``change`` is the norm of what rounding may have changed in the errors.
        """
        noise = 2 * change * errors.sqrt() + change**2
        margin = errors - (1 - self.tie) * self.errors
        unsure = admitted & (margin.abs() <= noise + self.noise)
        better = admitted & (margin < 0)
        # Smaller than all before by so much that none of them could have won instead.
        clear = better & (margin < -2 * self.tie * self.errors)
        self.doubtful = torch.where(clear, 0.0, self.doubtful)
        self.doubtful = torch.where(unsure | self.failed, 1.0, self.doubtful)
        self.errors = torch.where(better, errors, self.errors)
        self.noise = torch.where(better, noise, self.noise)
        return better

    def fail(self, admitted: Tensor) -> None:
        """Record a λ that could not be solved: models with that candidate stay doubtful."""
        self.failed |= admitted
        self.doubtful = torch.where(self.failed, 1.0, self.doubtful)


class Candidate(Protocol):
    """All models at one λ."""

    @property
    def errors(self) -> Tensor:
        """For each model the sum of squared errors on its own rows, shape (models,)."""

    @property
    def change(self) -> Tensor | float:
        """Norm of what rounding may have changed in the errors."""


Found = TypeVar("Found", bound=Candidate)


def choose(
    contest: Contest,
    ridges: Sequence[float],
    solve: Callable[[float], Found],
    keep: Callable[[Found, Tensor], None],
    progress: bool = False,
) -> None:
    """Let every model choose its λ.

    Parameters
    ----------
    contest
        The models.
    ridges
        The λ to choose from.
    solve
        From a λ to its candidate.
    keep
        Called with a candidate and a mask, (models,), of the models whose best it is so far.
    progress
        Whether to show a progress bar.

    """
    failure: Indefinite | None = None
    for ridge in track(ridges, "choosing ridges", len(ridges), progress and len(ridges) > 1):
        admitted = contest.admits(ridge)
        if not admitted.any():
            continue
        try:
            found = solve(ridge)
        except Indefinite as error:
            failure = error
            contest.fail(admitted)
            continue
        keep(found, contest.enter(found.errors, found.change, admitted))
    if not torch.isfinite(contest.errors).all():
        raise failure or ValueError(
            "no λ of the grid gives finite errors for every leave-one-out model: scale the "
            "features (scaling='symlog', or 'standardize' with X_pool), or give a number for ridge"
        )


def leave_one_out(system: System, ridges: Sequence[float], progress: bool = False) -> RidgeModels:
    """All n leave-one-out models, and the full one.

    With one λ they are stored in the memory of the system. With several, every model chooses its
    own by the errors with two rows left out, a function of the rows without j, and the full model
    by the plain leave-one-out error; the system can be used again.
    """
    if len(ridges) == 1:
        return system.models(ridges[0])
    n, machine = len(system.targets), system.machine
    columns = system.targets.new_empty(n, system.width).T
    best = RidgeModels.empty(columns, system.targets)
    contest = Contest(without_each(system.norms), max(ridges))
    choose(
        contest,
        ridges,
        lambda ridge: without_each_row(system.at(ridge), machine),
        lambda found, better: found.take_(best, better, machine),
        progress,
    )
    best.sensitivity.doubtful.copy_(contest.doubtful[:-1])
    return best


@dataclass(frozen=True)
class RowsOut:
    """All models without one row, and last the full one, at one λ."""

    solved: Ridge
    errors: Tensor
    sensitivity: Sensitivity

    @property
    def change(self) -> float:
        return self.sensitivity.noise(GAMMA)

    def take_(self, best: RidgeModels, better: Tensor, machine: Machine) -> None:
        """Store the models, (n + 1,), that are better here."""
        solved, residuals, left = self.solved, left_out(self.solved), better[:-1]
        best.ridges[better] = solved.ridge
        best.residuals[left] = residuals[left]
        best.sensitivity.take_(left, self.sensitivity)
        if better[-1]:
            best.intercepts[-1] = solved.intercept
            best.full.copy_(solved.coefficients)
            best.training_residuals.copy_(solved.ridge * solved.dual)
        for rows in strips(len(residuals), machine) if left.any() else ():
            models, intercepts = solved.without(rows, solved.inverse_rows(rows))
            won, columns, old = left[rows], best.columns.T[rows], best.intercepts[:-1][rows]
            torch.where(won[:, None], models, columns, out=columns)
            torch.where(won, intercepts, old, out=old)


def without_each_row(solved: Ridge, machine: Machine) -> RowsOut:
    """Return all models at one λ, with their errors on their own rows."""
    errors, spans = torch.zeros_like(solved.dual), torch.empty_like(solved.dual)
    for rows in strips(len(errors), machine):
        strip = solved.inverse_rows(rows)
        spans[rows] = solved.spans(rows, strip)
        errors += two_left_out(strip, rows, solved).square_().sum(dim=0)
    own = left_out(solved).square().sum()[None]
    return RowsOut(solved, torch.cat([errors, own]), solved.sensitivity(spans))


def two_left_out(inverse_rows: Tensor, rows: slice, solved: Ridge) -> Tensor:
    """Residuals at these rows i with i and j left out, shape (rows, n); 0 at i = j.

    ``inverse_rows`` are rows i of A; they are overwritten.
    """
    diagonal, residuals = solved.diagonal, left_out(solved)
    numerator = torch.addcmul(solved.dual[rows, None], inverse_rows, residuals, value=-1)
    return numerator.div_(two_left_out_diagonal(inverse_rows, rows, diagonal))


def two_left_out_diagonal(inverse_rows: Tensor, rows: slice, diagonal: Tensor) -> Tensor:
    """d_i − A_ij²/d_j in the memory of the rows of A; infinite at i = j."""
    square = inverse_rows.square_()
    torch.addcmul(diagonal[rows, None], square, 1 / diagonal, value=-1, out=square)
    square[:, rows].fill_diagonal_(torch.inf)
    return square


def strips(n: int, machine: Machine) -> Iterator[slice]:
    """Strips of rows whose temporaries stay within a tile."""
    return blocks(n, machine.item * n, machine.tile)
