"""What rounding does to solved models: measured at rows, and weighed against the residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import blocks
from ..intervals import kappa, kth_largest
from ..losses import SQUARED, Loss
from ..sentences import ROUNDING_DECIDES, ROUNDING_MOVES
from ..tangent import Basis, Dual
from .full import FullModels
from .loo import RidgeModels
from .readout import Readout, TangentReadout
from .rounding import gamma_of
from .system import System

FEW_ROWS = 16  # whose coordinates are computed again
TINY = 1e-300
# Rows at which the models are checked: this many, or one for so many coordinates if that is more.
CHECKED_ROWS, CHECKED_SHARE = 64, 20
# Widening that does not matter, in residuals of the rank that sets the ends, or in units of
# rounding of numbers of the size of y.
SMALL_SHARE, SMALL_UNITS = 0.05, 1e4
# The most that predictions in a coarser type may add, and times their errors at some rows.
COARSE_SHARE, COARSE = 0.01, 4.0


def rounding_share(loo: Readout | FullModels, alpha: float, size: float) -> float:
    """Return by how much rounding may widen intervals at a typical row.

    In units of the residual of the rank that sets the ends. As good as nothing are also errors that
    numbers of the size of y, ``size``, have by themselves.
    """
    slack, relative = _full_slack(loo) if isinstance(loo, FullModels) else _slack(loo)
    if slack <= SMALL_UNITS * torch.finfo(torch.float64).eps * size:
        return relative
    rank = max(kappa(alpha, len(loo.residuals)), 1)
    residual = float(kth_largest(loo.residuals.abs(), [rank])[0])
    return max(relative, slack / residual if residual > 0 else math.inf)


def _slack(loo: Readout) -> tuple[float, float]:
    """Typical error of predictions and residuals; relative error of widths."""
    rounding = loo.rounding
    known = ~rounding.conceded
    if not known.any():
        return math.inf, math.inf
    each = rounding.slope * loo.models.sensitivity.roots + rounding.own
    relative = 0.0
    if loo.scales is not None:
        relative = float(loo.scales.own_error.expand(len(known)).median())
    return float(each[known].median()) + rounding.constant, relative


def _full_slack(loo: FullModels) -> tuple[float, float]:
    factor = loo.factors[loo.place]
    each = factor.weight * (factor.strain / factor.diagonal.abs()).sqrt()
    slack = loo.gamma * (float(each.median()) + loo.size) + loo.shaken
    return slack, loo.gamma * factor.strain


def rounding_objections(
    loo: Readout | FullModels, construction: str, alpha: float, size: float, columns: str
) -> tuple[str, ...]:
    """Return why rounding leaves no guarantee, if so.

    Parameters
    ----------
    loo
        The models.
    construction, alpha
        Of the intervals.
    size
        Of y, its largest.
    columns
        A clause that names what may be the cause, or nothing.

    """
    share, conceded = rounding_share(loo, alpha, size), conceded_models(loo)
    allowed = max(kappa(alpha, len(loo.residuals)) - 1, 0) if construction == "plus" else 0
    cause = f"; {columns}" if columns else ""
    if not share <= SMALL_SHARE:
        times = f"{share:.0%}" if share < 10 else "many times"
        return (ROUNDING_MOVES.format(times=times, cause=cause),)
    if conceded > allowed:
        return (ROUNDING_DECIDES.format(count=conceded, cause=cause),)
    return ()


def conceded_models(loo: Readout | FullModels) -> int:
    """Return of how many models rounding leaves nothing known."""
    return 0 if isinstance(loo, FullModels) else int(torch.isinf(loo.scores).sum())


@dataclass(frozen=True)
class Kept:
    """A few rows as they entered the equations.

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
    def of(cls, system: System) -> Kept:
        """Copy them before the equations are solved in place."""
        rows = checked_rows(system.X, 0, every=False)[:FEW_ROWS]
        outputs = (system.y - system.targets)[rows]
        return cls(rows, outputs, system.matrix[rows, : system.basis.size].clone())

    def errors(self, system: System) -> tuple[float, float]:
        """Return γ and the error of outputs that show when they are computed again.

        In float64, the first row alone and the others together: what a network makes of a row may
        depend on the size of its batch, by rounding.
        """
        basis = exact_basis(system.basis)
        X = system.X[self.rows]
        again = [basis.rows_and_norms(part) for part in (X[:1], X[1:]) if len(part)]
        outputs, coordinates, norms = (torch.cat(part) for part in zip(*again, strict=True))
        sizes = norms.sqrt()[:, None]
        if isinstance(basis, Dual):
            sizes = sizes * basis.tangent.norms(basis.features).sqrt()
        errors = (coordinates - self.coordinates).abs() / sizes.clamp(min=TINY)
        # y less the targets is the outputs but for a rounding of y.
        off = (outputs - self.outputs).abs() - gamma_of(outputs.dtype) * largest(system.y)
        return float(errors.nan_to_num(torch.inf).max()), COARSE * max(0.0, float(off.max()))


class Values(NamedTuple):
    """Predictions, on the scale of the link, of some models at some rows, shape (rows, models)."""

    rows: slice
    models: slice
    values: Tensor
    coordinates: Tensor


def exact_values(basis: Basis, solved: RidgeModels, X: Tensor) -> Iterator[Values]:
    """Yield what all models predict, in float64 and in blocks; the basis is in float64."""
    count, limit = solved.columns.shape[1], basis.tangent.machine.block
    for rows in blocks(len(X), basis.row_bytes + 24 * CHECKED_ROWS, limit):
        outputs, coordinates = basis.rows(X[rows])
        for models in blocks(count, 8 * basis.size + 24 * len(outputs), limit):
            values = coordinates @ solved.columns[:, models].double()
            values += solved.intercepts[:-1][models] + outputs[:, None]
            yield Values(rows, models, values, coordinates)


def own_residuals(
    system: System, solved: RidgeModels, loss: Loss, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Residuals of each row by the model without it, through the read-out in float64, and values.

    Both have the shape of ``rows``.
    """
    basis = exact_basis(system.basis)
    models = rows if solved.model_of is None else solved.model_of[rows]
    each = basis.row_bytes + 24 * basis.size
    found = []
    for part in blocks(len(rows), each, basis.tangent.machine.block):
        outputs, coordinates = basis.rows(system.X[rows[part]])
        own = solved.columns[:, models[part]].double().T
        found.append((coordinates * own).sum(dim=1) + solved.intercepts[models[part]] + outputs)
    values = torch.cat(found)
    return system.y[rows].double() - loss.mean(values), values


def measured_errors(system: System, solved: RidgeModels, loss: Loss, rows: Tensor) -> float:
    """Return the largest error of the models' equations at some rows, in units of √k(x, x).

    The models are evaluated as they are for new rows, the network included, in float64. In the
    dual form model j is off at row i ≠ j by λ_j C_ij, and at its own row by the residual in closed
    form; in the primal form, and for other losses, its own row is looked at.
    """
    basis, y, roots = exact_basis(system.basis), system.y[rows].double(), solved.sensitivity.roots
    residuals = solved.residuals[rows].double()
    if not isinstance(basis, Dual) or loss != SQUARED:
        found, values = own_residuals(system, solved, loss, rows)
        off = (found - residuals) / loss.variance(loss.mean(values))
        return _largest_error(off, largest(y, values), roots[rows])
    worst = 0.0
    models = rows if solved.model_of is None else solved.model_of[rows]
    for part in exact_values(basis, solved, system.X[rows]):
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
    errors = (off.abs() - gamma_of(off.dtype) * size).clamp(min=0.0) / roots.double()
    return float(errors.nan_to_num(torch.inf).max())


def exact_basis(basis: Basis) -> Basis:
    """Return the basis in float64."""
    exact = basis.tangent.machine.dtype == torch.float64
    return basis if exact else basis.of_type(torch.float64)


def predicting_in(
    dtype: torch.dtype, loo: Readout, X: Tensor, alpha: float, size: float
) -> Readout:
    """Return the models predicting in another type, or as they are where that is too coarse."""
    other = loo.of_type(dtype)
    if other is None:
        return loo
    other = with_coarse_predictions(other, loo, X)
    return other if rounding_share(other, alpha, size) <= COARSE_SHARE else loo


def with_coarse_predictions(coarse: Readout, exact: Readout, X: Tensor) -> Readout:
    """Return the coarse ones of the same models, with the errors that they have at some rows."""
    found, wanted = coarse.scaled(X), exact.scaled(X)
    off = (found.each.double() + found.shift - wanted.each - wanted.shift).abs().amax(dim=1)
    scales = coarse.scales
    if scales is not None and exact.scales is not None:
        scales = scales.looser(COARSE * float((found.scales / wanted.scales - 1).abs().max()))
    return replace(_looser(coarse, exact.basis, off, X), scales=scales)


def with_own_errors(loo: Readout, X: Tensor) -> Readout:
    """Return models that predict in their own coarse type with the errors that they have."""
    basis = exact_basis(loo.basis)
    if isinstance(loo, TangentReadout) and loo.models.model_of is None and loo.scales is None:
        each, off = loo.scaled(X), X.new_zeros(len(X), dtype=torch.float64)
        for part in exact_values(basis, loo.models, X):
            found = each.each[part.rows, part.models].double() + each.shift
            gap = (found - loo.loss.mean(part.values)).abs().amax(dim=1)
            off[part.rows] = torch.maximum(off[part.rows], gap)
        return _looser(loo, basis, off, X)
    exact = loo.of_type(torch.float64) or replace(loo, scales=None).of_type(torch.float64)
    assert exact is not None
    return with_coarse_predictions(loo, exact, X)


def _looser(loo: Readout, basis: Basis, off: Tensor, X: Tensor) -> Readout:
    """Return the models with errors of their predictions, (m,), counted several times."""
    lengths = basis.rows_and_norms(X)[2].double().sqrt()
    slope = COARSE * float((off / lengths.clamp(min=TINY)).nan_to_num(torch.inf).max())
    rounding = loo.rounding.plus(slope, COARSE * torch.finfo(loo.basis.tangent.machine.dtype).eps)
    return replace(loo, rounding=rounding)


def largest(*numbers: Tensor) -> float:
    """Return the largest size of any of the numbers."""
    return max(float(part.abs().max()) for part in numbers)


def checked_rows(X: Tensor, size: int, every: bool) -> Tensor:
    """Rows, spread evenly: all of them, or as many as cost little beside ``size`` coordinates."""
    count = len(X) if every else min(len(X), max(CHECKED_ROWS, size // CHECKED_SHARE))
    return torch.linspace(0, len(X) - 1, count, device=X.device, dtype=torch.float64).long()
