"""Predictions that are no numbers are an error, never a result."""

from __future__ import annotations

from torch import Tensor


def check_finite(point: Tensor, *ends: Tensor) -> None:
    """Raise an error for predictions that are not finite, or ends of intervals that are NaN."""
    lost = ~point.isfinite()
    for end in ends:
        lost |= end.isnan().any(dim=1)
    if lost.any():
        raise ValueError(
            f"the predictions are not finite numbers for {int(lost.sum())} of {len(lost)} rows of "
            f"X, first for row {int(lost.nonzero()[0])}: remove such rows, scale the features "
            "(scaling='symlog'), use readout='tangent' or a larger ridge"
        )
