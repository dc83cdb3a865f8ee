"""From a problem to leave-one-out models whose intervals account for rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ..records import RoundedModels
from ..solve.guard import (
    Kept,
    checked_rows,
    largest,
    measured_errors,
    own_residuals,
    with_coarse_predictions,
    with_own_errors,
)
from ..solve.problem import Problem
from ..solve.reading import Read
from ..solve.readout import READOUTS
from ..solve.ridge import RidgeModels
from ..solve.rounding import MEASURED, Rounding, gamma_of, rounding_of
from ..solve.scales import Scales
from .bounded import bounded
from .rounded import rounding_share

# Largest widening by predictions in a coarser type, in units of the residual that sets the ends.
COARSE_SHARE = 0.01


@dataclass(frozen=True)
class LazyModels:
    """Models behind a readout, and the ridge models themselves.

    Attributes
    ----------
    loo
        The models that intervals are computed from.
    solved
        The ridge models; for full conformal only the full one.

    """

    loo: RoundedModels
    solved: RidgeModels


def fit_left_out(
    problem: Problem,
    solve: Callable[[Problem], RidgeModels],
    readout: str,
    alpha: float,
    windows: bool = False,
) -> LazyModels:
    """Solve the models, bound what rounding may have changed in them, and read them out.

    ``windows``: whether the construction needs few of the models for each new row.
    """
    machine = problem.machine
    with machine.exact.products():  # TF32 is for predictions only
        kept = Kept.of(problem)
        solved = solve(problem)
        every = problem.dual and (problem.own is not None or problem.widths.needs_system)
        rows = checked_rows(problem.X[: problem.models], problem.basis.size, every)
        solved, scales, rounding = _rounded(problem, solved, *kept.errors(problem), rows)
        given = (problem.basis, problem.X, problem.y, solved, scales, problem.loss, rounding)
        loo = READOUTS[readout].of(*given)
    if windows and (near := bounded(loo, problem.system)) is not None:
        return LazyModels(near, solved)
    if machine.predicting is not None:
        loo = _predicting_in(machine.predicting, loo, problem, rows, alpha)
    elif machine.dtype != torch.float64:
        loo = with_own_errors(loo, problem.X[rows])
    return LazyModels(loo, solved)


def _rounded(
    problem: Problem, solved: RidgeModels, measured: float, shaken: float, rows: torch.Tensor
) -> tuple[RidgeModels, Scales | None, Rounding]:
    """Return the models, their σ, and what rounding may have changed in them."""
    machine, loss = problem.machine, problem.loss
    off = MEASURED * measured_errors(problem, solved, rows)
    gamma = gamma_of(machine.dtype, measured)
    system, progress = problem.system, problem.progress
    scales = problem.widths.scales(system, solved, gamma, progress)
    if machine.dtype != torch.float64 and problem.dual and loss.closed_form:
        # All equations were checked in float64; compute all residuals in float64 too.
        all_rows = torch.arange(len(problem.y), device=problem.y.device)
        solved = replace(solved, residuals=own_residuals(problem, solved, all_rows)[0])
        gamma = gamma_of(torch.float64)
    size = largest(problem.y, system.targets, solved.intercepts)
    rounding = rounding_of(solved.sensitivity, gamma, size, off, solved.unsolved, shaken)
    return solved, scales, rounding


def _predicting_in(
    dtype: torch.dtype, loo: Read, problem: Problem, rows: torch.Tensor, alpha: float
) -> Read:
    """Return the models predicting in another type, or as they are where that is too coarse."""
    other = loo.of_type(dtype)
    if other is None:
        return loo
    other = with_coarse_predictions(other, loo, problem.X[rows])
    return other if rounding_share(other, alpha, largest(problem.y)) <= COARSE_SHARE else loo
