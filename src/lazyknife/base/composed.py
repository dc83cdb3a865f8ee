"""The privacy curve of several independent outputs together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..records import INDEPENDENT, Array, PrivacyCurve

MOST_POINTS = 600  # of a curve; leaving points out only weakens a bound
LARGEST_EXPONENT = 300.0  # of a number whose square is finite


def composed(curves: Sequence[PrivacyCurve | None]) -> PrivacyCurve | None:
    """The curve of independent outputs together; None if one of them has none.

    Two outputs have ε + ε' and δ + δ' for any two points of their curves. Given the first output,
    an event has at most the probability min(1, e^ε'·p') + δ', where p' is its probability with the
    one more data point; the expectation of that minimum, a function with values in [0, 1], changes
    by e^ε and δ.
    """
    total = INDEPENDENT
    for curve in curves:
        if curve is None:
            return None
        total = _both(total, curve)
    return total


def _both(one: PrivacyCurve, other: PrivacyCurve) -> PrivacyCurve:
    epsilons = np.add.outer(one.epsilons, other.epsilons).ravel()
    deltas = np.minimum(np.add.outer(one.deltas, other.deltas).ravel(), 1.0)
    kept = useful(epsilons, deltas)
    (epsilon, delta), (more, rest) = one.replace_one, other.replace_one
    replaced = (epsilon + more, min(delta + rest, 1.0))
    return PrivacyCurve(tuple(epsilons[kept].tolist()), tuple(deltas[kept].tolist()), replaced)


def useful(epsilons: Array, deltas: Array) -> NDArray[np.intp]:
    """Places of the points that some bound uses, in order of ε, and at most ``MOST_POINTS``.

    Bounds on events are minima of e^ε·m + δ over the points, the total variation of
    1 − (1 − δ)/e^ε: both are attained at corners of the lower hull of the points (e^ε, δ).
    """
    order = np.lexsort((deltas, epsilons))
    best = np.minimum.accumulate(deltas[order])
    falls = np.append(True, best[1:] < best[:-1])
    corners = _lower_hull(epsilons, deltas, order[falls])
    spread = np.linspace(0, len(corners) - 1, min(MOST_POINTS, len(corners))).round()
    return np.asarray(corners, dtype=np.intp)[spread.astype(np.intp)]


def _lower_hull(epsilons: Array, deltas: Array, falling: NDArray[np.intp]) -> list[int]:
    """Corners of the lower hull of points in order of ε (Andrew's monotone chain)."""
    x = np.exp(np.minimum(epsilons, LARGEST_EXPONENT)).tolist()
    y, found = deltas.tolist(), list[int]()
    for k in falling.tolist():
        while len(found) > 1 and _above(x, y, found[-2], found[-1], k):
            found.pop()
        found.append(k)
    return found


def _above(x: list[float], y: list[float], left: int, middle: int, right: int) -> bool:
    """Whether the middle point is not below the line through the other two."""
    rise = (y[middle] - y[left]) * (x[right] - x[left])
    return rise >= (y[right] - y[left]) * (x[middle] - x[left])
