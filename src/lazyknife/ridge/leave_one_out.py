"""All leave-one-out models of a problem, each at its own λ, and errors with two rows left out.

The residuals with both i and j left out are

    (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),   i ≠ j,

so one solution of the equations serves all n models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..compute import Machine, blocks, track
from .convex import leave_one_out_newton
from .dual import DualSystem
from .folds import draw_folds, factors_folds, leave_folds_out, leave_folds_out_primal
from .primal import PrimalSystem
from .problem import Problem
from .system import OwnRidges, Ridge, RidgeModels, System, left_out


def leave_rows(problem: Problem) -> RidgeModels:
    """One model without each row: in closed form, or by Newton's method for another loss."""
    system, own = problem.system, _own(problem, len(problem.y))
    if not problem.loss.closed_form:
        assert isinstance(system, DualSystem), "checked where the basis is chosen"
        found = leave_one_out_newton(system, problem.y, own, problem.loss, problem.progress)
    else:
        in_place = problem.visit is None and own.values.unique().numel() == 1
        kept = system.copy() if in_place and problem.widths.needs_system else system
        found = leave_one_out(kept, own, problem.progress, problem.visit)
    return found.first(problem.models)


def leave_folds(problem: Problem) -> RidgeModels:
    """One model without each random fold."""
    folds = draw_folds(problem.models, problem.folds, problem.seed)
    system, own = problem.system, _own(problem, len(folds))
    by_fold = isinstance(system, PrimalSystem) and factors_folds(
        len(system.targets), system.width, len(folds)
    )
    if by_fold:
        assert isinstance(system, PrimalSystem)
        return leave_folds_out_primal(system, own, folds, problem.progress)
    return leave_folds_out(system, own, folds, problem.progress)


def _own(problem: Problem, models: int) -> OwnRidges:
    """λ of every model: the same for all, unless they chose."""
    if problem.own is not None:
        return problem.own
    (ridge,) = problem.ridges
    values = problem.y.new_full((models + 1,), ridge, dtype=torch.float64)
    return OwnRidges(values, problem.y.new_zeros(models))


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
