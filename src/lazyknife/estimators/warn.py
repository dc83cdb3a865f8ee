"""Warnings of the estimators, and what they refuse to return."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from ..intervals import kappa, rows_needed


def warn_if_infinite(level: float, n: int) -> None:
    """Warn if n rows are too few for the level."""
    if kappa(level, n) < 1:
        warnings.warn(
            f"{n} rows are too few for alpha={level:g}: the intervals are infinite. "
            f"At least {rows_needed(level)} rows are needed",
            stacklevel=3,
        )


def warn_if_outside(outside: int, count: int) -> None:
    """Warn if rows to predict are not in the pool."""
    if outside:
        warnings.warn(
            f"{outside} of {count} rows are not among the rows passed as X_pool: the "
            "certificate does not hold for them. Pass all rows to predict as X_pool to fit",
            stacklevel=4,
        )


def refuse_nan(*ends: Tensor) -> None:
    """Refuse to return ends that are not numbers."""
    if any(bool(torch.isnan(end).any()) for end in ends):
        raise ValueError(
            "the leave-one-out predictions are not finite numbers for some rows of X: scale "
            "the features (scaling='symlog'), use readout='tangent' or a larger ridge"
        )


def warn_if_far(read_out: Tensor, linearised: Tensor) -> None:
    """Warn if left-out predictions are farther from the linearised ones than those are from y.

    With the tangent readout they are the same.
    """
    gap = float((read_out - linearised).square().mean().sqrt())
    error = float(linearised.square().mean().sqrt())
    if not gap <= error:
        warnings.warn(
            "the moved networks are far from the linearised ones that the ridge fitted (left-out "
            f"predictions differ by {gap:.3g}, the linearised errors are {error:.3g}), so the "
            "intervals are valid but wide. Use readout='tangent', divide y by a fixed unit so that "
            "its spread is of order one, or use a larger ridge",
            stacklevel=4,
        )
