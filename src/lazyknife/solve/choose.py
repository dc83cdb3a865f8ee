"""All leave-one-out models of a system, each at its own λ, and errors with two rows left out.

The residuals with both i and j left out are

    (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),   i ≠ j,

so one solution of the equations serves all n models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..compute import Machine, blocks, track
from .ridge import OwnRidges, Ridge, RidgeModels, System, left_out

# A λ is large enough for a kernel if it is at least this share of its trace.
LEAST_SHARE = 1e-10


Visit = Callable[[System, Ridge, Tensor], None]


def leave_one_out(
    system: System, own: OwnRidges, progress: bool = False, visit: Visit | None = None
) -> RidgeModels:
    """All n leave-one-out models, and the full one, each at its own λ.

    Parameters
    ----------
    system
        The equations. If all models have the same λ and nobody visits, they are stored in its
        memory; otherwise it can be used again.
    own
        λ of each model.
    progress
        Whether to show a progress bar.
    visit
        Called with the system and its solution at every λ, and with a mask of the models that have
        it, (n + 1,).

    """
    distinct = own.values.unique().tolist()
    if len(distinct) == 1 and visit is None:
        found = system.models(distinct[0])
    else:
        columns = system.targets.new_empty(len(system.targets), system.width).T
        found = RidgeModels.empty(columns, system.targets)
        for ridge in track(distinct, "leaving rows out", len(distinct), progress):
            solved, which = system.at(ridge), own.values == ridge
            _take_(found, solved, which, system.machine)
            if visit is not None:
                visit(system, solved, which)
    found.sensitivity.doubtful.copy_(own.doubtful)
    return found


def _take_(models: RidgeModels, solved: Ridge, which: Tensor, machine: Machine) -> None:
    """Store those of the n + 1 models that have the λ of a solution."""
    models.ridges[which] = solved.ridge
    if which[-1]:
        models.intercepts[-1] = solved.intercept
        models.full.copy_(solved.coefficients)
        models.training_residuals.copy_(solved.ridge * solved.dual)
    left, spans = which[:-1], torch.empty_like(solved.dual)
    for rows in strips(len(left), machine):
        strip, mine = solved.inverse_rows(rows), left[rows]
        spans[rows] = solved.spans(rows, strip)
        if mine.any():
            found, intercepts = solved.without(rows, strip)
            models.columns.T[rows][mine] = found[mine]
            models.intercepts[:-1][rows][mine] = intercepts[mine]
    models.residuals[left] = left_out(solved)[left]
    models.sensitivity.take_(left, solved.sensitivity(spans))


def without_each(values: Tensor) -> Tensor:
    """Sums of all but one of the numbers, and last of all of them, shape (n + 1,).

    The number that a sum leaves out is never part of it: nothing is subtracted.
    """
    zero = values.new_zeros(1)
    before = torch.cat([zero, values.cumsum(dim=0)])
    after = torch.cat([values.flip(0).cumsum(dim=0).flip(0), zero])
    return torch.cat([before[:-1] + after[1:], before[-1:]])


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
