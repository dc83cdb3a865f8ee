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

import torch
from torch import Tensor

from .loo import Solution, inverse_rows, solve, strips
from .machine import PROCESSOR, Machine
from .progress import track
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
    machine
        Where the kernel lives.
    progress
        Whether to show a progress bar.

    """
    inverse = _Inverse(kernel, targets, intercept, machine)
    sizes = _left_out_sizes(inverse, ridges)
    chosen = _choose(inverse, sizes, grid, progress)
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
    return NoiseScales(columns, intercepts, floors, torch.maximum(own, floors))


class _Inverse:
    """A at one λ after another, in the kernel's own array."""

    def __init__(self, kernel: Tensor, targets: Tensor, intercept: bool, machine: Machine) -> None:
        self.kernel, self.targets = kernel, targets
        self.intercept, self.machine = intercept, machine
        self.diagonal = diagonal_tiles(kernel)
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


def _left_out_sizes(inverse: _Inverse, ridges: Tensor) -> Tensor:
    """T."""
    sizes = torch.empty_like(inverse.kernel)
    for ridge in ridges.unique().tolist():
        models, solution = ridges == ridge, inverse.at(ridge)
        for rows in inverse.strips():
            strip = inverse_rows(inverse.kernel, solution, rows)
            numerator = solution.dual[rows, None] - strip * solution.residuals
            errors = numerator / _denominator(strip, solution, rows)
            sizes[rows, models] = errors[:, models].abs()
    return sizes


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


def _choose(inverse: _Inverse, sizes: Tensor, grid: Tensor, progress: bool) -> Tensor:
    """λ of each of the n second ridges, shape (n,): the least error with two rows left out."""
    best = torch.full_like(inverse.targets, torch.inf)
    chosen = torch.zeros_like(best, dtype=torch.float64)
    for ridge in track(grid.tolist(), "learning the noise", len(grid), progress):
        solution = inverse.at(ridge)
        kinks, errors = _kinks(inverse, solution, sizes), torch.zeros_like(best)
        for rows in inverse.strips():
            numerator, strip = _coefficients(inverse, solution, sizes, kinks, rows)
            ratio = numerator.div_(_denominator(strip, solution, rows))
            errors += ratio.square_().sum(dim=0)
        better = errors < best
        best = torch.where(better, errors, best)
        chosen = torch.where(better, ridge, chosen)
    return chosen
