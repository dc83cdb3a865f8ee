"""How noisy y is around x, learnt for each left-out row from the other rows alone.

For model j the targets are the sizes of the errors with two rows left out,

    T_ij = |(d_j c_i − A_ij c_j) / (d_i d_j − A_ij²)|   at i ≠ j,   T_jj = 0,

all at j's own λ. A second ridge on the same kernel smooths column j over the rows without j: with
C = A T and x_j = C_jj/d_j its coefficients are C_ij − A_ij x_j and its prediction at row j is −x_j
(what stands at T_jj does not matter). Sizes of errors are far noisier than y, so its λ is chosen
anew, by the same leave-two-out rule on T. Everything about j is a function of the rows without j.

It takes n³ operations for an inverse and 2n³ for A T at each λ of the grid. Memory: four n×n
arrays, the kernel's among them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, track
from .loo import Solution, inverse_rows, solve, strips
from .rounding import Contest, Sensitivity, rounding_of, without_each
from .scales import NoiseScales
from .symmetric import diagonal_tiles, restore_lower_

# The least σ, in units of the mean of T_ij: one small error must not make an interval vanish.
FLOOR = 0.25


def noise_scales(
    kernel: Tensor,
    targets: Tensor,
    ridges: Tensor,
    grid: Tensor,
    intercept: bool,
    gamma: float,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> NoiseScales:
    """Scales from a second ridge on the sizes of left-out errors.

    Parameters
    ----------
    kernel
        K, shape (n, n). Its memory is used.
    targets
        r, shape (n,).
    ridges
        λ of each leave-one-out model, shape (n,), each chosen without its row.
    grid
        λ of the second ridge to choose from.
    intercept
        Whether both ridges have an unpenalised intercept.
    gamma
        The relative error of the kernel.
    machine
        Where the kernel lives.
    progress
        Whether to show a progress bar.

    """
    inverse = _Inverse(kernel, targets, intercept, machine)
    sizes, errors = _left_out_sizes(inverse, ridges)
    chosen, second = _choose(inverse, sizes, errors, grid, gamma, progress)
    columns, intercepts, own = (torch.empty_like(part) for part in (sizes, targets, targets))
    for ridge in chosen.unique().tolist():
        models, solution = chosen == ridge, inverse.at(ridge)
        kinks = _kinks(inverse, solution, sizes)
        for rows in inverse.strips():
            strip = _coefficients(inverse, solution, sizes, kinks, rows)[0]
            columns[rows, models] = strip[:, models]
        intercepts[models] = (solution.share @ sizes - solution.share * kinks)[models]
        own[models] = -kinks[models]
    columns.fill_diagonal_(0.0)
    floors = FLOOR * sizes.sum(dim=0) / (len(targets) - 1)
    floors.clamp_(min=torch.finfo(floors.dtype).tiny)  # of errors that are all 0
    rounding = rounding_of(second, gamma, float(sizes.max()))
    return NoiseScales(columns, intercepts, floors, torch.maximum(own, floors), rounding)


class _Inverse:
    """A at one λ after another, in the kernel's own array."""

    def __init__(self, kernel: Tensor, targets: Tensor, intercept: bool, machine: Machine) -> None:
        self.kernel, self.targets = kernel, targets
        self.intercept, self.machine = intercept, machine
        self.diagonal = diagonal_tiles(kernel)
        self.traces = without_each(kernel.diagonal())[:-1]
        self.used = False

    def at(self, ridge: float) -> Solution:
        """Invert K + λI."""
        if self.used:
            restore_lower_(self.kernel, self.diagonal)
        self.used = True
        return solve(self.kernel, self.diagonal, self.targets, ridge, self.intercept, self.machine)

    def strips(self) -> list[slice]:
        """Strips of rows."""
        return list(strips(len(self.targets), self.machine))


class _Errors(NamedTuple):
    """What rounding may have changed of T, in units of γ.

    Attributes
    ----------
    rows
        Of the rows, for each λ that some model has, shape (n, λ).
    place
        Which of these each model has, shape (n,).

    """

    rows: Tensor
    place: Tensor


def _left_out_sizes(inverse: _Inverse, ridges: Tensor) -> tuple[Tensor, _Errors]:
    """T, and its errors."""
    sizes = torch.empty_like(inverse.kernel)
    distinct, place = ridges.unique(return_inverse=True)
    errors = sizes.new_empty(len(sizes), len(distinct))
    for k, ridge in enumerate(distinct.tolist()):
        models, solution = place == k, inverse.at(ridge)
        spans = torch.empty_like(solution.dual)
        for rows in inverse.strips():
            strip = inverse_rows(inverse.kernel, solution, rows)
            spans[rows] = strip.abs() @ solution.roots
            numerator = solution.dual[rows, None] - strip * solution.residuals
            ratios = numerator / _denominator(strip, solution, rows)
            sizes[rows, models] = ratios[:, models].abs()
        errors[:, k] = 2 * solution.sensitivity(spans).own
    return sizes, _Errors(errors, place)


def _denominator(strip: Tensor, solution: Solution, rows: slice) -> Tensor:
    """d_i − A_ij²/d_j; infinite at i = j."""
    denominator = solution.diagonal[rows, None] - strip.square() / solution.diagonal
    denominator[:, rows].fill_diagonal_(torch.inf)
    return denominator


def _kinks(inverse: _Inverse, solution: Solution, sizes: Tensor) -> Tensor:
    """Entries x of the docstring above: diag(A T)/d, shape (n,)."""
    parts = [
        (inverse_rows(inverse.kernel, solution, rows) * sizes[:, rows].T).sum(dim=1)
        for rows in inverse.strips()
    ]
    return torch.cat(parts) / solution.diagonal


def _coefficients(
    inverse: _Inverse, solution: Solution, sizes: Tensor, kinks: Tensor, rows: slice
) -> tuple[Tensor, Tensor]:
    """Rows of A T − A·diag(x), and the same rows of A."""
    strip = inverse_rows(inverse.kernel, solution, rows)
    return torch.addcmul(strip @ sizes, strip, kinks, value=-1), strip


def _choose(
    inverse: _Inverse, sizes: Tensor, given: _Errors, grid: Tensor, gamma: float, progress: bool
) -> tuple[Tensor, Sensitivity]:
    """λ of each of the n second ridges, shape (n,): the least error with two rows left out."""
    contest = Contest(inverse.traces, float(grid.max()))
    chosen = torch.zeros_like(inverse.targets, dtype=torch.float64)
    found = Sensitivity.unknown(len(chosen), inverse.targets)
    for ridge in track(grid.tolist(), "learning the noise", len(grid), progress):
        admitted = contest.admits(ridge)
        if not admitted.any():
            continue
        solution = inverse.at(ridge)
        kinks = _kinks(inverse, solution, sizes)
        errors, load = torch.zeros_like(kinks), torch.zeros_like(kinks)
        weights = torch.cat([solution.roots[:, None], given.rows], dim=1)
        spans = torch.empty_like(weights)
        for rows in inverse.strips():
            numerator, strip = _coefficients(inverse, solution, sizes, kinks, rows)
            spans[rows] = strip.abs() @ weights
            load += solution.roots[rows] @ numerator.abs()
            ratio = numerator.div_(_denominator(strip, solution, rows))
            errors += ratio.square_().sum(dim=0)
        load += spans[:, 0] @ sizes  # A T is a sum of |A||T|, whatever is left of it
        left_out = (spans / solution.diagonal[:, None]).norm(dim=0)
        change = 2 * gamma * (left_out[0] * load + left_out[1:][given.place])
        better = contest.enter(errors, change, admitted)
        # Errors of T enter as if the load were larger.
        moved = spans[:, 1:].gather(1, given.place[:, None])[:, 0] / spans[:, 0]
        here = Sensitivity.of(
            spans[:, 0], load + moved, kinks, solution.diagonal, solution.roots, ridge
        )
        found.take_(better, here)
        chosen[better] = ridge
    found.doubtful.copy_(contest.doubtful)
    return chosen, found
