"""All leave-one-out models of a problem."""

from __future__ import annotations

import torch

from .choose import leave_one_out
from .dual import DualSystem
from .folds import draw_folds, leave_folds_out
from .newton import leave_one_out_newton
from .primal import PrimalSystem
from .primal_folds import factors_folds, leave_folds_out_primal
from .problem import Problem
from .ridge import OwnRidges, RidgeModels


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
