"""What rounding does to solved models, measured at some rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import blocks
from ..tangent import Dual, Rows
from .problem import Problem
from .rounding import GAMMA, RoundingBounds, rounding_of
from .system import RidgeModels

FEW_ROWS = 16  # whose coordinates are computed again
TINY = 1e-300
# Rows at which the models are checked: this many, or one for every 20 coordinates if that is more.
CHECKED_ROWS, CHECKED_SHARE = 64, 20
# Factors for errors that were measured at some rows: of outputs, and of equations.
UNSEEN, MEASURED = 4.0, 2.0


@dataclass(frozen=True)
class SavedRows:
    """The rows to check, and the first few of them as they were when the equations were set up."""

    rows: Tensor  # to check
    outputs: Tensor  # f(x; θ0), shape (few,)
    coordinates: Tensor  # shape (few, q)

    @classmethod
    def of(cls, problem: Problem) -> SavedRows:
        """Copy them before the equations are solved in place."""
        every = problem.dual and (problem.own is not None or problem.widths.needs_factors)
        rows = _checked_rows(problem.X[: problem.models], problem.basis.size, every)
        few = rows[:FEW_ROWS]
        return cls(rows, problem.outputs[few], problem.system.coordinates(few))

    def errors(self, problem: Problem) -> tuple[float, float]:
        """Return γ and a bound on errors of outputs, measured by computing the few rows again."""
        few = self.rows[: len(self.outputs)]
        found = [self._errors(problem, *part) for part in _evaluated(problem, few, 0)]
        gammas, errors = zip(*found, strict=True)
        return max(GAMMA, *gammas), UNSEEN * max(errors)

    def bounds(self, problem: Problem, solved: RidgeModels) -> RoundingBounds:
        """Bounds on what rounding may have changed in the models; their epsilon is γ."""
        every = problem.dual and problem.loss.closed_form
        columns = solved.columns.shape[1] if every else len(solved.columns)
        gamma, feature_error, off = GAMMA, 0.0, 0.0
        for part, found in _evaluated(problem, self.rows, 24 * columns):
            if part.start < len(self.outputs):
                more, error = self._errors(problem, part, found)
                gamma, feature_error = max(gamma, more), max(feature_error, UNSEEN * error)
            off = max(off, equation_error(problem, solved, self.rows[part], found))
        size = largest(problem.y, problem.system.targets, solved.intercepts)
        return rounding_of(solved, gamma, size, MEASURED * off, feature_error)

    def _errors(self, problem: Problem, part: slice, found: Rows) -> tuple[float, float]:
        """Relative error of coordinates, and error of outputs, of those rows that were copied."""
        mine = slice(part.start, min(part.stop, len(self.outputs)))
        outputs, coordinates, norms = (field[: mine.stop - mine.start] for field in found)
        sizes = norms.sqrt()[:, None]
        if isinstance(problem.basis, Dual):
            sizes = sizes * problem.basis.tangent.norms(problem.basis.features).sqrt()
        errors = (coordinates - self.coordinates[mine]).abs() / sizes.clamp(min=TINY)
        # y less the targets is the outputs but for a rounding of y.
        off = (outputs - self.outputs[mine]).abs() - GAMMA * largest(problem.y)
        return float(errors.nan_to_num(torch.inf).max()), max(0.0, float(off.max()))


def _evaluated(problem: Problem, rows: Tensor, row_bytes: int) -> Iterator[tuple[slice, Rows]]:
    """Evaluate some rows as new rows are, in blocks: the first row alone, and the others together.

    Through rounding, the output for a row may depend on the size of its batch.
    """
    basis = problem.basis
    rest = blocks(len(rows) - 1, basis.row_bytes + row_bytes, problem.machine.block)
    for part in [slice(0, 1), *(slice(some.start + 1, some.stop + 1) for some in rest)]:
        yield part, basis.at(problem.X[rows[part]])


def equation_error(problem: Problem, solved: RidgeModels, rows: Tensor, found: Rows) -> float:
    """Return the largest error of the models' equations at some rows, in units of √k(x, x).

    In the dual form model j is off at row i ≠ j by λ_j C_ij, and at its own row by the residual in
    closed form; in the primal form, and for other losses, only its own row is checked.
    """
    loss, y, (outputs, coordinates, _) = problem.loss, problem.y[rows], found
    roots, residuals = solved.terms.roots[rows], solved.residuals[rows]
    models = rows if solved.model_of is None else solved.model_of[rows]
    if problem.dual and loss.closed_form:
        values = coordinates @ solved.columns
        values += solved.intercepts[:-1] + outputs[:, None]
        off = y[:, None] - values - solved.ridges[:-1] * solved.columns[rows]
        off[torch.arange(len(rows), device=rows.device), models] -= residuals
        roots = roots[:, None]
    else:
        values = (coordinates * solved.columns[:, models].T).sum(dim=1)
        values += solved.intercepts[:-1][models] + outputs
        mean = loss.mean(values)
        off = (y - mean - residuals) / loss.variance(mean)
    # Beyond the errors of numbers of this size.
    errors = (off.abs() - GAMMA * largest(y, values)).clamp(min=0.0) / roots
    return float(errors.nan_to_num(torch.inf).max())


def largest(*numbers: Tensor) -> float:
    """Return the largest absolute value."""
    return max(float(part.abs().max()) for part in numbers)


def _checked_rows(X: Tensor, size: int, every: bool) -> Tensor:
    """Evenly spread rows: all of them, or as many as cost little next to ``size`` coordinates."""
    count = len(X) if every else min(len(X), max(CHECKED_ROWS, size // CHECKED_SHARE))
    return torch.linspace(0, len(X) - 1, count, device=X.device, dtype=torch.float64).long()
