"""All leave-one-out models of a problem, each at its own λ, and errors with two rows left out.

The residuals with both i and j left out are

    (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),   i ≠ j,

so one solution of the equations serves all n models.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..compute import track
from .convex import leave_one_out_newton
from .dual import DualSystem
from .folds import draw_folds, leave_folds_out, refits_folds
from .primal import PrimalSystem
from .problem import Problem, System, Visit, make_system
from .system import Indefinite, OwnRidges, Ridge, RidgeModels


def leave_rows(problem: Problem) -> RidgeModels:
    """One model without each row: in closed form, or by Newton's method for another loss."""
    system, own = problem.system, problem.own_ridges(len(problem.y))
    if not problem.loss.closed_form:
        assert isinstance(system, DualSystem), "checked where the basis is chosen"
        found = leave_one_out_newton(system, problem.y, own, problem.loss, problem.progress)
        return _first(found, problem.models)
    settings = (own, problem.progress, problem.visit, problem.widths.needs_factors)
    in_place = not (problem.visit or problem.widths.needs_factors)
    try:
        found = leave_one_out(system, *settings, in_place=in_place)
    except Indefinite:
        if not (in_place and problem.dual):
            raise
        again = make_system(problem.basis, problem.X, problem.y, system.intercept)
        found = leave_one_out(again, *settings)
    return _first(found, problem.models)


def _first(models: RidgeModels, count: int) -> RidgeModels:
    """The models without each of the first rows."""
    rows = slice(count)
    return replace(models.some(rows), training_residuals=models.training_residuals[rows])


def leave_folds(problem: Problem) -> RidgeModels:
    """One model without each random fold."""
    folds = draw_folds(problem.models, problem.folds, problem.seed)
    system, own = problem.system, problem.own_ridges(len(folds))
    sizes = (len(system.targets), system.width, len(folds))
    refit = isinstance(system, PrimalSystem) and refits_folds(*sizes)
    return leave_folds_out(system, own, folds, problem.progress, refit)


def leave_one_out(
    system: System,
    own: OwnRidges,
    progress: bool = False,
    visit: Visit | None = None,
    keep_factors: bool = False,
    in_place: bool = False,
) -> RidgeModels:
    """All n leave-one-out models, and the full one, each at its own λ.

    ``visit`` is called with the system and its solution at every λ, and with a mask of the models
    that have it, (n + 1,). ``keep_factors`` keeps what new rows need of the solutions. With
    ``in_place`` models of a single λ overwrite the system.
    """
    distinct, factors = own.values.unique().tolist(), list[Ridge]()
    in_place = in_place and len(distinct) == 1
    found: RidgeModels | None = None
    for ridge in track(distinct, "leaving rows out", len(distinct), progress):
        solved, which = system.solve(ridge, keep_factors, in_place), own.values == ridge
        if visit is not None:
            visit(system, solved, which)
        factors += [solved.factor()] if keep_factors else []
        models = solved.models()
        found = models if found is None else found.updated(which, models)
    assert found is not None
    return replace(found, doubtful=own.doubtful, factors=tuple(factors))


def two_left_out(solved: Ridge, members: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals at row i with i and j left out, for some j, and d_i − A_ij²/d_j, each (n, members).

    0 and infinite at i = j.
    """
    inverse = solved.inverse_rows(members).T
    open_part = solved.diagonal[:, None] - inverse.square() / solved.diagonal[members]
    open_part[members, torch.arange(len(members), device=members.device)] = torch.inf
    errors = inverse.mul_(-solved.left_out[members]).add_(solved.dual[:, None])
    return errors.div_(open_part), open_part
