"""Warnings of the estimators, and what they refuse to return."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from ..errors import warn
from ..intervals import kappa, rows_needed
from ..losses import Loss
from ..shift import Shift, ShiftWarning

LARGEST_SHARE = 1.0  # of what rounding may move the ends of a loss without a closed form


def warn_of(objections: Iterable[str]) -> None:
    """Warn that rounding leaves no guarantee."""
    for objection in objections:
        warn(f"no coverage is guaranteed. {objection}")


def warn_if_infinite(level: float, n: int, total: int, in_all: Callable[[int], int]) -> None:
    """Warn if n left-out rows, of so many in all, are too few for the level.

    ``in_all`` gives how many rows in all it takes for so many to be left out.
    """
    if kappa(level, n) >= 1:
        return
    needed = rows_needed(level)
    rows = in_all(needed)
    if n == total:
        warn(
            f"{n} rows are too few for alpha={level:g}: the intervals are infinite. "
            f"At least {rows} rows are needed",
        )
    else:
        warn(
            f"{n} left-out rows are too few for alpha={level:g}: the intervals are infinite. At "
            f"least {needed} are needed, which takes {rows} rows in all, not {total}",
        )


def warn_if_outside(outside: int, count: int) -> None:
    """Warn if rows to predict are not in the pool."""
    if outside:
        warn(
            f"{outside} of {count} rows are not among the rows passed as X_pool: the "
            "certificate does not hold for them. Pass all rows to predict as X_pool to fit",
        )


def refuse_nan(point: Tensor, *ends: Tensor) -> None:
    """Refuse to return points that are not finite, or ends that are not numbers."""
    lost = ~point.isfinite()
    for end in ends:
        lost |= end.isnan().any(dim=1)
    if lost.any():
        raise ValueError(
            f"the predictions are not finite numbers for {int(lost.sum())} of {len(lost)} rows of "
            f"X, first for row {int(lost.nonzero()[0])}: remove such rows, scale the features "
            "(scaling='symlog'), use readout='tangent' or a larger ridge"
        )


def refuse_lost(share: float, ridge: object, loss: Loss) -> None:
    """Refuse models whose equations rounding leaves open: their intervals would be nonsense."""
    if not loss.closed_form and not share <= LARGEST_SHARE:
        raise ValueError(
            f"ridge={ridge!r} is too small for loss={loss.name!r} and these rows: rounding errors "
            "may move the ends of intervals by more than the errors of the models. Give a larger "
            "ridge, or scale the features (scaling='symlog', or 'standardize' with X_pool)"
        )


def warn_if_far(read_out: Tensor, linearised: Tensor) -> None:
    """Warn if left-out predictions are farther from the linearised ones than those are from y.

    With the tangent readout they are the same.
    """
    gap = float((read_out - linearised).square().mean().sqrt())
    error = float(linearised.square().mean().sqrt())
    if not gap <= error:
        warn(
            "the moved networks are far from the linearised ones that the ridge fitted (left-out "
            f"predictions differ by {gap:.3g}, the linearised errors are {error:.3g}), so the "
            "intervals are valid but wide. Use readout='tangent', divide y by a fixed unit so that "
            "its spread is of order one, or use a larger ridge",
        )


def warn_if_shifted(shift: Shift) -> None:
    """Warn if the rows of the pool do not look like the training rows."""
    if shift.clear:
        warn(
            f"{shift} The certificate assumes exchangeable rows. With those, this warning appears "
            "in at most 1 % of the fits",
            ShiftWarning,
        )
