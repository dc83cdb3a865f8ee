"""How noisy y is around x, learnt for each left-out row from the other rows alone.

For model j the targets are the sizes of the errors with two rows left out,

    T_ij = |(d_j c_i − A_ij c_j) / (d_i d_j − A_ij²)|   at i ≠ j,   T_jj = 0,

all at j's own λ. A second ridge on the same kernel smooths column j over the rows without j: with
C = A T and x_j = C_jj/d_j its coefficients are C_ij − A_ij x_j and its prediction at row j is −x_j
(the value of T_jj does not matter). Sizes of errors are far noisier than y, so its λ is chosen
separately, by the same leave-two-out rule on T. Everything about j is a function of the rows
without j.

It takes n³ operations for an inverse and 2n³ for A T at each λ of the grid. Memory: four n×n
arrays, the kernel's among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .choose import Contest, choose, strips, two_left_out, two_left_out_diagonal, without_each
from .ridge import Ridge, System
from .rounding import Sensitivity, rounding_of
from .scales import NoiseScales

# The smallest σ, in units of the mean of T_ij: no interval collapses because of a small error.
FLOOR = 0.25


def noise_scales(
    system: System, ridges: Tensor, grid: Sequence[float], gamma: float, progress: bool = False
) -> NoiseScales:
    """Scales from a second ridge on the sizes of left-out errors.

    Parameters
    ----------
    system
        The equations in the dual form.
    ridges
        λ of each leave-one-out model, shape (n,), each chosen without its row.
    grid
        λ of the second ridge to choose from.
    gamma
        The relative error of the kernel.
    progress
        Whether to show a progress bar.

    """
    sizes = _left_out_sizes(system, ridges)
    chosen, second = _choose(system, sizes, grid, gamma, progress)
    T, targets = sizes.values, system.targets
    columns, intercepts, own = (torch.empty_like(part) for part in (T, targets, targets))
    for ridge in chosen.unique().tolist():
        found, models = _Smoothed.of(system, T, ridge), chosen == ridge
        share = found.solved.share
        for rows in found.strips:
            columns[rows, models] = found.coefficients(rows)[0][:, models]
        intercepts[models] = (share @ T - share * found.kinks)[models]
        own[models] = -found.kinks[models]
    columns.fill_diagonal_(0.0)
    floors = FLOOR * T.sum(dim=0) / (len(targets) - 1)
    floors.clamp_(min=torch.finfo(floors.dtype).tiny)  # of errors that are all 0
    rounding = rounding_of(second, gamma, float(T.max()))
    return NoiseScales(columns, intercepts, floors, torch.maximum(own, floors), rounding)


@dataclass(frozen=True)
class _Sizes:
    """T, and what rounding may have changed in it, in units of γ.

    Attributes
    ----------
    values
        T, shape (n, n).
    errors
        Of the rows, for each λ that some model has, shape (n, λ).
    place
        Which of these each model has, shape (n,).

    """

    values: Tensor
    errors: Tensor
    place: Tensor


def _left_out_sizes(system: System, ridges: Tensor) -> _Sizes:
    n, distinct = len(ridges), ridges.unique()
    place = torch.searchsorted(distinct, ridges)
    values, errors = system.targets.new_empty(n, n), system.targets.new_empty(n, len(distinct))
    for k, ridge in enumerate(distinct.tolist()):
        solved, models = system.at(ridge), place == k
        spans = torch.empty_like(solved.dual)
        for rows in strips(n, system.machine):
            strip = solved.inverse_rows(rows)
            spans[rows] = solved.spans(rows, strip)
            values[rows, models] = two_left_out(strip, rows, solved)[:, models].abs()
        errors[:, k] = 2 * solved.sensitivity(spans).own
    return _Sizes(values, errors, place)


@dataclass(frozen=True)
class _Smoothed:
    """The second ridges of all n models at one λ; ``kinks`` are the entries x of the docstring."""

    solved: Ridge
    T: Tensor
    kinks: Tensor
    strips: list[slice]

    @classmethod
    def of(cls, system: System, T: Tensor, ridge: float) -> _Smoothed:
        solved, parts = system.at(ridge), list(strips(len(T), system.machine))
        sums = [(solved.inverse_rows(rows) * T[:, rows].T).sum(dim=1) for rows in parts]
        return cls(solved, T, torch.cat(sums) / solved.diagonal, parts)

    def coefficients(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Rows of A T − A·diag(x), and the same rows of A."""
        strip = self.solved.inverse_rows(rows)
        return torch.addcmul(strip @ self.T, strip, self.kinks, value=-1), strip


@dataclass(frozen=True)
class _Candidate:
    """Errors of the second ridges at one λ, as in ``choose.Candidate``."""

    ridge: float
    errors: Tensor
    change: Tensor
    sensitivity: Sensitivity


def _candidate(system: System, sizes: _Sizes, ridge: float, gamma: float) -> _Candidate:
    found = _Smoothed.of(system, sizes.values, ridge)
    roots, diagonal = found.solved.roots, found.solved.diagonal
    weights = torch.cat([roots[:, None], sizes.errors], dim=1)
    spans = torch.empty_like(weights)
    errors, load = torch.zeros_like(diagonal), torch.zeros_like(diagonal)
    for rows in found.strips:
        numerator, strip = found.coefficients(rows)
        spans[rows] = strip.abs() @ weights
        load += roots[rows] @ numerator.abs()
        ratio = numerator.div_(two_left_out_diagonal(strip, rows, diagonal))
        errors += ratio.square_().sum(dim=0)
    load += spans[:, 0] @ sizes.values  # |A||T| bounds the terms of A T, which may cancel
    norms = (spans / diagonal[:, None]).norm(dim=0)
    change = 2 * gamma * (norms[0] * load + norms[1:][sizes.place])
    # Errors of T enter as if the load were larger.
    moved = spans[:, 1:].gather(1, sizes.place[:, None])[:, 0] / spans[:, 0]
    kinks = found.kinks
    sensitivity = Sensitivity.of(spans[:, 0], load + moved, kinks, diagonal, roots, ridge)
    return _Candidate(ridge, errors, change, sensitivity)


def _choose(
    system: System, sizes: _Sizes, grid: Sequence[float], gamma: float, progress: bool
) -> tuple[Tensor, Sensitivity]:
    """λ of each of the n second ridges, shape (n,): the smallest error with two rows left out."""
    contest = Contest(without_each(system.norms)[:-1], max(grid))
    chosen = torch.zeros_like(system.targets, dtype=torch.float64)
    found = Sensitivity.unknown(len(chosen), system.targets)

    def keep(candidate: _Candidate, better: Tensor) -> None:
        found.take_(better, candidate.sensitivity)
        chosen[better] = candidate.ridge

    choose(
        contest,
        grid,
        lambda ridge: _candidate(system, sizes, ridge, gamma),
        keep,
        progress,
        "learning the noise",
    )
    found.doubtful.copy_(contest.doubtful)
    return chosen, found
