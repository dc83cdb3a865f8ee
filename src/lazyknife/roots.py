"""Root of a falling function whose scale is not known in advance."""

from __future__ import annotations

from collections.abc import Callable


def falling_root(function: Callable[[float], float], start: float, stride: float) -> float:
    """Zero of a decreasing function, to 2e-4: bracket outwards from ``start``, then Brent."""
    from scipy.optimize import brentq

    low = high = start
    while function(low) < 0:
        high, low, stride = low, low - stride, 2 * stride
    while function(high) > 0:
        low, high, stride = high, high + stride, 2 * stride
    return low if low == high else float(brentq(function, low, high, xtol=2e-4))
