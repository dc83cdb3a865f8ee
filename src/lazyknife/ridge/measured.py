"""What rounding does to solved models, measured at some rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import blocks
from ..tangent import Basis, Dual
from .problem import Problem
from .rounding import GAMMA
from .system import RidgeModels

FEW_ROWS = 16  # whose coordinates are computed again
TINY = 1e-300
# Rows at which the models are checked: this many, or one for every 20 coordinates if that is more.
CHECKED_ROWS, CHECKED_SHARE = 64, 20
# Factor for errors of outputs that were measured at some rows.
UNSEEN = 4.0


@dataclass(frozen=True)
class Kept:
    """A few rows as they were when the equations were set up.

    Attributes
    ----------
    rows
        Which ones.
    outputs, coordinates
        f(x; θ0), shape (rows,), and coordinates, shape (rows, q).

    """

    rows: Tensor
    outputs: Tensor
    coordinates: Tensor

    @classmethod
    def of(cls, problem: Problem) -> Kept:
        """Copy them before the equations are solved in place."""
        rows = checked_rows(problem.X, 0, every=False)[:FEW_ROWS]
        return cls(rows, problem.outputs[rows], problem.system.kept_rows(rows))

    def errors(self, problem: Problem) -> tuple[float, float]:
        """Return γ and the error of outputs, measured by computing both again.

        The first row alone and the others together: through rounding, the output for a row may
        depend on the size of its batch.
        """
        basis, X = problem.basis, problem.X[self.rows]
        again = [basis.at(part) for part in (X[:1], X[1:]) if len(part)]
        outputs, coordinates, norms = (torch.cat(part) for part in zip(*again, strict=True))
        sizes = norms.sqrt()[:, None]
        if isinstance(basis, Dual):
            sizes = sizes * basis.tangent.norms(basis.features).sqrt()
        errors = (coordinates - self.coordinates).abs() / sizes.clamp(min=TINY)
        # y less the targets is the outputs but for a rounding of y.
        off = (outputs - self.outputs).abs() - GAMMA * largest(problem.y)
        return float(errors.nan_to_num(torch.inf).max()), UNSEEN * max(0.0, float(off.max()))


class Values(NamedTuple):
    """Predictions, on the scale of the link, of some models at some rows, shape (rows, models)."""

    rows: slice
    models: slice
    values: Tensor


def predicted_values(basis: Basis, solved: RidgeModels, X: Tensor) -> Iterator[Values]:
    """Yield what all models predict, in blocks."""
    count, limit = solved.columns.shape[1], basis.tangent.machine.block
    for rows in blocks(len(X), basis.row_bytes + 24 * CHECKED_ROWS, limit):
        outputs, coordinates = basis.at(X[rows])[:2]
        for models in blocks(count, 8 * basis.size + 24 * len(outputs), limit):
            values = coordinates @ solved.columns[:, models]
            values += solved.intercepts[:-1][models] + outputs[:, None]
            yield Values(rows, models, values)


def own_residuals(problem: Problem, solved: RidgeModels, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals of each row by the model without it, through the readout, and values.

    Both have the shape of ``rows``.
    """
    basis = problem.basis
    models = rows if solved.model_of is None else solved.model_of[rows]
    each = basis.row_bytes + 24 * basis.size
    found = []
    for part in blocks(len(rows), each, basis.tangent.machine.block):
        outputs, coordinates = basis.at(problem.X[rows[part]])[:2]
        own = solved.columns[:, models[part]].T
        found.append((coordinates * own).sum(dim=1) + solved.intercepts[models[part]] + outputs)
    values = torch.cat(found)
    return problem.y[rows] - problem.loss.mean(values), values


def measured_errors(problem: Problem, solved: RidgeModels, rows: Tensor) -> float:
    """Return the largest error of the models' equations at some rows, in units of √k(x, x).

    The models are evaluated as they are for new rows, the network included. In the dual form
    model j is off at row i ≠ j by λ_j C_ij, and at its own row by the residual in closed form; in
    the primal form, and for other losses, only its own row is checked.
    """
    loss, y = problem.loss, problem.y[rows]
    roots, residuals = solved.sensitivity.roots, solved.residuals[rows]
    if not (problem.dual and loss.closed_form):
        found, values = own_residuals(problem, solved, rows)
        off = (found - residuals) / loss.variance(loss.mean(values))
        return _largest_error(off, largest(y, values), roots[rows])
    worst = 0.0
    models = rows if solved.model_of is None else solved.model_of[rows]
    for part in predicted_values(problem.basis, solved, problem.X[rows]):
        here, owner = rows[part.rows], models[part.rows]
        columns = solved.columns[here, part.models]
        off = y[part.rows, None] - part.values - solved.ridges[:-1][part.models] * columns
        mine = (owner >= part.models.start) & (owner < part.models.stop)
        place = torch.arange(len(here), device=here.device)[mine]
        off[place, owner[mine] - part.models.start] -= residuals[part.rows][mine]
        worst = max(worst, _largest_error(off, largest(y, part.values), roots[here, None]))
    return worst


def _largest_error(off: Tensor, size: float, roots: Tensor) -> float:
    """Return the largest of the errors beyond those of numbers of this size, over √k(x, x)."""
    errors = (off.abs() - GAMMA * size).clamp(min=0.0) / roots
    return float(errors.nan_to_num(torch.inf).max())


def largest(*numbers: Tensor) -> float:
    """Return the largest absolute value."""
    return max(float(part.abs().max()) for part in numbers)


def checked_rows(X: Tensor, size: int, every: bool) -> Tensor:
    """Evenly spread rows: all of them, or as many as cost little next to ``size`` coordinates."""
    count = len(X) if every else min(len(X), max(CHECKED_ROWS, size // CHECKED_SHARE))
    return torch.linspace(0, len(X) - 1, count, device=X.device, dtype=torch.float64).long()
