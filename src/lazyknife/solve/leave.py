"""All leave-one-out models of a problem."""

from __future__ import annotations

from .choose import leave_one_out
from .dual import DualSystem
from .folds import draw_folds, leave_folds_out
from .newton import leave_one_out_newton
from .parted import leave_one_out_parted, part_of
from .primal import PrimalSystem
from .primal_folds import factors_folds, leave_folds_out_primal
from .problem import Problem
from .ridge import RidgeModels


def leave_rows(problem: Problem) -> RidgeModels:
    """One model without each row: in closed form, or by Newton's method for another loss."""
    system = problem.system
    if not problem.loss.closed_form:
        assert isinstance(system, DualSystem), "checked where the basis is chosen"
        return leave_one_out_newton(
            system, problem.y, problem.ridges, problem.loss, problem.progress
        )
    if len(problem.ridges) == 1 and problem.widths.needs_system:
        system = system.copy()
    if isinstance(system, PrimalSystem) and len(problem.ridges) > 1:
        part = part_of(system, problem.seed)
        return leave_one_out_parted(system, problem.ridges, part, problem.progress)
    return leave_one_out(system, problem.ridges, problem.progress)


def leave_folds(problem: Problem) -> RidgeModels:
    """One model without each random fold."""
    folds = draw_folds(len(problem.y), problem.folds, problem.seed)
    system, ridges, progress = problem.system, problem.ridges, problem.progress
    if isinstance(system, PrimalSystem) and factors_folds(
        len(system.targets), system.width, len(folds)
    ):
        part = part_of(system, problem.seed)
        return leave_folds_out_primal(system, ridges, folds, part, progress)
    return leave_folds_out(system, ridges, folds, progress)
