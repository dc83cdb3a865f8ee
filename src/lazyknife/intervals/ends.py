"""From leave-one-out models to the ends of intervals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..records import Ends, LeaveOneOut, Predictions
from .order import kth_largest, kth_smallest
from .window import Bounded, Elsewhere, extremes, windowed_plus

# Relative error of the sums behind an end: four rounded operations.
SUMS = 4 * torch.finfo(torch.float64).eps
# Units of rounding by which two evaluations of the same model may differ.
ROUNDED = 32.0


def plus(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+: order statistics of f_{−j}(x) ± R_j σ_{−j}(x), R the scores."""
    if isinstance(loo, Bounded | Elsewhere):
        return _outwards(*windowed_plus(loo, X, ranks))
    found = loo.scaled(X)
    margins = _stretched(loo.scores, found)
    lower = kth_smallest(found.each - margins, ranks)
    return _outwards(found, lower, kth_largest(found.each + margins, ranks))


def minmax(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife-minmax: the extremes of f_{−j}(x) ± Q σ_{−j}(x), Q an order statistic of scores."""
    if isinstance(loo, Bounded):
        return _outwards(*_extreme_ends(loo, X, ranks))
    found = loo.scaled(X)
    lowers, uppers = [], []
    for score in kth_largest(loo.scores, ranks):
        margins = _stretched(score, found)
        lowers.append((found.each - margins).amin(dim=1))
        uppers.append((found.each + margins).amax(dim=1))
    return _outwards(found, torch.stack(lowers, dim=1), torch.stack(uppers, dim=1))


def _extreme_ends(
    loo: Bounded, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Jackknife-minmax of models that are never all in memory, and whose σ(x) is the same."""
    found, least, most = extremes(loo, X)
    margins = kth_largest(loo.scores, ranks) * found.scales[:, None] * (1 + found.stretch)
    return found, least[:, None] - margins, most[:, None] + margins


def _stretched(scores: Tensor, found: Predictions) -> Tensor:
    """R σ, rounded up."""
    margins = scores * found.scales
    if found.stretch.dim():
        margins *= (1 + found.stretch)[:, None]
    return margins


def _outwards(found: Predictions, lower: Tensor, upper: Tensor) -> Ends:
    """Widen the ends by the bounds on rounding, so that ties are covered."""
    slack = found.slack.expand(len(lower))[:, None]
    return (
        found.point,
        lower - (slack + SUMS * lower.abs()),
        upper + (slack + SUMS * upper.abs()),
    )


def evaluation_slack(spread: Tensor, size: Tensor, unit: float) -> Tensor:
    """Bound what rounding changes from batch to batch in models whose insides are unknown.

    Parameters
    ----------
    spread
        Distance of predictions and errors from the centre of y.
    size
        Of predictions and ends themselves, which are rounded in float64.
    unit
        Rounding relative to the spread. Above that of float64 it allows for sums of numbers that
        are larger than their result.

    """
    return ROUNDED * (unit * spread + torch.finfo(torch.float64).eps * size)


def around_point(point: Tensor, residuals: Tensor, ranks: Sequence[int]) -> Ends:
    """Point predictions ± an order statistic of the sizes of residuals."""
    margin = kth_largest(residuals.abs(), ranks)
    return point, point[:, None] - margin, point[:, None] + margin
