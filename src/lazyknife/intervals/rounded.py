"""What rounding does to intervals, weighed against the residuals that set their ends."""

from __future__ import annotations

import math

import torch

from ..records import RoundedModels
from ..sentences import ROUNDING_DECIDES, ROUNDING_MOVES
from .order import kappa, kth_largest

# Widening that does not matter, in residuals of the rank that sets the ends, or in units of
# rounding of numbers of the size of y.
SMALL_SHARE, SMALL_UNITS = 0.05, 1e4


def rounding_share(loo: RoundedModels, alpha: float, size: float) -> float:
    """Return by how much rounding may widen intervals at a typical row.

    In units of the residual of the rank that sets the ends. As good as nothing are also errors that
    numbers of the size of y, ``size``, have by themselves.
    """
    slack, relative = loo.typical_error()
    if slack <= SMALL_UNITS * torch.finfo(torch.float64).eps * size:
        return relative
    rank = max(kappa(alpha, len(loo.residuals)), 1)
    residual = float(kth_largest(loo.residuals.abs(), [rank])[0])
    return max(relative, slack / residual if residual > 0 else math.inf)


def rounding_objections(
    loo: RoundedModels, tolerated: int, alpha: float, size: float, columns: str
) -> tuple[str, ...]:
    """Return why rounding leaves no guarantee, if so.

    Parameters
    ----------
    loo
        The models.
    tolerated
        Of how many models nothing need be known.
    alpha
        Level of the intervals.
    size
        Of y, its largest.
    columns
        A clause that names what may be the cause, or nothing.

    """
    share, conceded = rounding_share(loo, alpha, size), loo.conceded
    cause = f"; {columns}" if columns else ""
    if not share <= SMALL_SHARE:
        times = f"{share:.0%}" if share < 10 else "many times"
        return (ROUNDING_MOVES.format(times=times, cause=cause),)
    if conceded > tolerated:
        return (ROUNDING_DECIDES.format(count=conceded, cause=cause),)
    return ()
