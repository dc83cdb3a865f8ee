"""From a problem to models with bounds on rounding, and when rounding leaves no guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from ..records import RoundedModels
from ..ridge.problem import Problem
from ..ridge.readout import READOUTS, LinearModels
from ..ridge.rounding import SavedRows
from ..ridge.system import RidgeModels
from ..sentences import (
    ROUNDING_DECIDES,
    ROUNDING_MOVES,
    SCALE,
    SCALED_ALREADY,
    UNSURE_OF_WIDTHS,
)
from .chosen import ChosenModels
from .order import kappa, kth_largest
from .streamed import CompactModels
from .window import bounded

# Negligible widening, in units of the residual that sets the ends, or in units of rounding of
# numbers of the size of y.
SMALL_SHARE, SMALL_UNITS = 0.05, 1e4


def fit_models(
    problem: Problem, solve: Callable[[Problem], RidgeModels], readout: str
) -> LinearModels:
    """Solve the models, bound what rounding may have changed in them, and read them out."""
    saved = SavedRows.of(problem)
    solved = solve(problem)
    rounding = saved.bounds(problem, solved)
    own = problem.widths.scales
    scales = own and own(solved, rounding.epsilon)
    solved = replace(solved, factors=())
    read = READOUTS[readout](problem.basis, solved, scales, problem.loss, rounding)
    return bounded(read.evaluated(problem.X, problem.y), problem)


def rounding_share(loo: RoundedModels, alpha: float, size: float) -> float:
    """Return by how much rounding may widen intervals at a typical row.

    In units of the residual of the rank that sets the ends. Errors of the order of the rounding of
    y itself, whose largest absolute value is ``size``, are negligible.
    """
    slack, relative = loo.typical_error()
    if slack <= SMALL_UNITS * torch.finfo(torch.float64).eps * size:
        return relative
    rank = max(kappa(alpha, len(loo.residuals)), 1)
    residual = (
        loo.among(rank, 0.0).size
        if isinstance(loo, CompactModels)
        else float(kth_largest(loo.residuals.abs(), [rank])[0])
    )
    return max(relative, slack / residual if residual > 0 else math.inf)


def rounding_objections(
    loo: RoundedModels, tolerated: int, alpha: float, size: float, columns: str | None
) -> tuple[str, ...]:
    """Return why rounding leaves no guarantee; empty if there is one.

    The guarantee allows ``tolerated`` undetermined models; ``size`` is the largest |y|.
    ``columns`` is a clause that names columns as a possible cause, or empty; None where models
    scale the features.
    """
    share, undetermined = rounding_share(loo, alpha, size), loo.undetermined
    cause = f"; {columns}" if columns else ""
    remedy = SCALED_ALREADY if columns is None else SCALE
    if not share <= SMALL_SHARE:
        times = f"{share:.0%} of" if share < 10 else "many times"
        return (ROUNDING_MOVES.format(times=times, cause=cause, remedy=remedy),)
    if undetermined > tolerated:
        unsure = isinstance(loo, ChosenModels) and loo.unsure_of_widths
        remedy = UNSURE_OF_WIDTHS if unsure else remedy
        return (ROUNDING_DECIDES.format(count=undetermined, cause=cause, remedy=remedy),)
    return ()
