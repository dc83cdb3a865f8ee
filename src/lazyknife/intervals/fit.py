"""From a problem to leave-one-out models whose intervals account for rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..records import RoundedModels
from ..ridge.measured import Kept, checked_rows, largest, measured_errors
from ..ridge.problem import Problem
from ..ridge.readout import READOUTS
from ..ridge.rounding import GAMMA, MEASURED, rounding_of
from ..ridge.system import RidgeModels
from .window import bounded


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
    windows: bool = False,
) -> LazyModels:
    """Solve the models, bound what rounding may have changed in them, and read them out.

    ``windows``: whether the construction needs few of the models for each new row.
    """
    kept = Kept.of(problem)
    solved = solve(problem)
    every = problem.dual and (problem.own is not None or problem.widths.needs_system)
    rows = checked_rows(problem.X[: problem.models], problem.basis.size, every)
    measured, shaken = kept.errors(problem)
    off = MEASURED * measured_errors(problem, solved, rows)
    gamma, system = max(GAMMA, measured), problem.system
    scales = problem.widths.scales(system, solved, gamma)
    size = largest(problem.y, system.targets, solved.intercepts)
    rounding = rounding_of(solved.sensitivity, gamma, size, off, solved.unsolved, shaken)
    given = (problem.basis, problem.X, problem.y, solved, scales, problem.loss, rounding)
    loo = READOUTS[readout].of(*given)
    near = bounded(loo, system) if windows else None
    return LazyModels(loo if near is None else near, solved)
