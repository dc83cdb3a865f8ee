"""What rounding does to solved models: measured at rows, and weighed against the residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .full import FullModels
from .intervals import kappa, kth_largest
from .loo import RidgeModels
from .losses import SQUARED, Loss
from .machine import blocks
from .readout import Readout
from .rounding import gamma_of
from .system import System
from .tangent import Basis, Dual

FEW_ROWS = 16  # whose coordinates are computed again
TINY = 1e-300
# Rows at which the models are checked: this many, or one of so many where that is more.
CHECKED_ROWS, CHECKED_SHARE = 64, 20
# Widening that does not matter, in residuals of the rank that sets the ends, or in units of
# rounding of numbers of the size of y.
SMALL_SHARE, SMALL_UNITS = 0.05, 1e4
REMEDY = (
    "Scale the features (transform='symlog', or 'standardize' with X_pool), use a larger ridge, or "
    "precision='float64' if it is another one."
)
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
    slack = loo.gamma * (float(each.median()) + loo.size)
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
        return (
            f"Rounding may move the ends of intervals by {times} of the residuals that set "
            f"them{cause}. {REMEDY}",
        )
    if conceded > allowed:
        return (f"Rounding decides what {conceded} leave-one-out models are{cause}. {REMEDY}",)
    return ()


def conceded_models(loo: Readout | FullModels) -> int:
    """Return of how many models rounding leaves nothing known."""
    return 0 if isinstance(loo, FullModels) else int(torch.isinf(loo.scores).sum())


@dataclass(frozen=True)
class Kept:
    """Coordinates of a few rows as they entered the equations, shape (rows, q)."""

    rows: Tensor
    coordinates: Tensor

    @classmethod
    def of(cls, system: System) -> Kept:
        """Copy them before the equations are solved in place."""
        rows = checked_rows(system.X, every=False)[:FEW_ROWS]
        return cls(rows, system.matrix[rows, : system.basis.size].clone())

    def gamma(self, system: System) -> float:
        """Return the largest relative error that shows when they are computed again, in float64."""
        basis = exact_basis(system.basis)
        _, again, norms = basis.rows_and_norms(system.X[self.rows])
        sizes = norms.sqrt()[:, None]
        if isinstance(basis, Dual):
            sizes = sizes * basis.tangent.norms(basis.features).sqrt()
        errors = (again - self.coordinates).abs() / sizes.clamp(min=TINY)
        return float(errors.nan_to_num(torch.inf).max())


def measured_errors(system: System, solved: RidgeModels, loss: Loss, rows: Tensor) -> float:
    """Return the largest error of the models' equations at some rows, in units of √k(x, x).

    The models are evaluated as they are for new rows, the network included, in float64. In the
    dual form model j is off at row i ≠ j by λ_j C_ij, and at its own row by the residual in closed
    form; in the primal form, and for other losses, its own row is looked at.
    """
    basis, y = exact_basis(system.basis), system.y.double()
    own = torch.arange(len(rows), device=rows.device)
    models = rows if solved.model_of is None else solved.model_of[rows]
    worst = 0.0
    each = basis.row_bytes + 24 * solved.columns.shape[1]
    for part in blocks(len(rows), each, basis.tangent.machine.block):
        here, own_model = rows[part], models[part]
        outputs, coordinates = basis.rows(system.X[here])
        if isinstance(basis, Dual) and loss == SQUARED:
            values = coordinates @ solved.columns.double()
            values += solved.intercepts[:-1] + outputs[:, None]
            off = y[here, None] - values - solved.ridges[:-1] * solved.columns[here]
            off[own[: len(here)], own_model] -= solved.residuals[here]
        else:
            columns = solved.columns[:, own_model].double()
            values = (coordinates * columns.T).sum(dim=1) + solved.intercepts[own_model] + outputs
            means = loss.mean(values)
            off = ((y[here] - means - solved.residuals[here]) / loss.variance(means))[:, None]
        noise = gamma_of(y.dtype) * largest(y[here], values)
        errors = (off.abs() - noise).clamp(min=0.0) / solved.sensitivity.roots[here, None]
        worst = max(worst, float(errors.nan_to_num(torch.inf).max()))
    return worst


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
    lengths = exact.basis.rows_and_norms(X)[2].sqrt()
    off = (found.each.double() + found.shift - wanted.each - wanted.shift).abs().amax(dim=1)
    slope = COARSE * float((off / lengths.clamp(min=TINY)).nan_to_num(torch.inf).max())
    rounding = coarse.rounding.plus(slope, torch.finfo(found.each.dtype).eps)
    scales = coarse.scales
    if scales is not None and exact.scales is not None:
        scales = scales.looser(COARSE * float((found.scales / wanted.scales - 1).abs().max()))
    return replace(coarse, rounding=rounding, scales=scales)


def in_float64(loo: Readout) -> Readout:
    """Return the same models in float64, without scales that cannot be."""
    exact = loo.of_type(torch.float64) or replace(loo, scales=None).of_type(torch.float64)
    assert exact is not None
    return exact


def largest(*numbers: Tensor) -> float:
    """Return the largest size of any of the numbers."""
    return max(float(part.abs().max()) for part in numbers)


def checked_rows(X: Tensor, every: bool) -> Tensor:
    """Rows, spread evenly: all of them, or a few."""
    count = len(X) if every else min(len(X), max(CHECKED_ROWS, len(X) // CHECKED_SHARE))
    return torch.linspace(0, len(X) - 1, count, device=X.device, dtype=torch.float64).long()
