"""Root of a falling function whose scale is not known in advance."""

from __future__ import annotations

from collections.abc import Callable

MOST_STRIDES = 60


def falling_root(
    function: Callable[[float], float], start: float, stride: float, tolerance: float = 2e-4
) -> float:
    """Zero of a decreasing function, to ``tolerance``: bracket from ``start`` on, then Brent."""
    from scipy.optimize import brentq

    low = high = start
    for _ in range(MOST_STRIDES):
        if function(low) >= 0:
            break
        high, low, stride = low, low - stride, 2 * stride
    for _ in range(MOST_STRIDES):
        if function(high) <= 0:
            break
        low, high, stride = high, high + stride, 2 * stride
    return low if low == high else float(brentq(function, low, high, xtol=tolerance))
