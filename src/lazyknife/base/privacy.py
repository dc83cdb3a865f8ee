"""Privacy curves: of DP-SGD by dp-accounting, its calibration, and of several outputs together.

One step of DP-SGD is the Gaussian mechanism on a Poisson sample. In units of the clipping norm its
output has the law (1 − q)·N(0, σ²) + q·N(1, σ²) with a row and N(0, σ²) without it; the privacy
loss is the logarithm of their ratio. dp-accounting puts it on a grid by "connect the dots"
(Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, arXiv 2207.04380), which makes the two laws easier to
tell apart, and composes T steps by a Fourier transform: every δ and ε below is an upper bound, for
adding a row, which the certificate needs, as for removing one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records import INDEPENDENT, Array, PrivacyCurve

SMALLEST_DELTA = 1e-10  # far below any miss probability of a certificate
LARGEST_EPSILON = 25.0  # beyond it exp(ε) times any miss probability exceeds 1
# Width of the grid in standard deviations of one step's loss, and its bounds. Certificates are too
# low by less than 1e-4, unless there are so many steps or so little noise that cells run out.
FINENESS = 0.03
WIDEST_GRID = 0.004
MOST_CELLS = 2**15
REACH = 10.0  # standard deviations after which dp-accounting cuts off a normal law
ROUNDING = 1e-15  # of a probability, in every step
LEAST_SHIFT = 1e-9  # smaller displacements, in units of the noise, and losses are rounding
MOST_STEPS = 10**7
LEAST_SIGMA = 0.02  # with less noise nothing is accounted for
CURVE_POINTS = 200  # of a curve of DP-SGD
MOST_POINTS = 600  # of a composed curve; leaving points out only weakens a bound
LARGEST_EXPONENT = 300.0  # of a number whose square is finite


# --- DP-SGD -------------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # one can hold megabytes
def _privacy_loss(sigma: float, rate: float, steps: int, replace: bool) -> Any:
    """dp-accounting's distribution of the privacy loss of T sampled steps.

    It is the worse of adding and removing a row, or with ``replace`` that of exchanging one.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise ImportError(
            "private training needs dp_accounting: pip install 'lazyknife[dp]'"
        ) from error
    sigma = min(sigma, rate / LEAST_SHIFT)  # more noise only lowers the curve
    one_step = pld.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=(1 + replace) * _grid(sigma, rate, steps),
        neighboring_relation=pld.NeighborRel["REPLACE_ONE" if replace else "ADD_OR_REMOVE_ONE"],
    )
    return one_step.self_compose(steps)


def _grid(sigma: float, rate: float, steps: int) -> float:
    """Width of the grid, from the standard deviation of one step's loss when a row is removed."""
    x = np.linspace(-REACH * sigma, 1 + REACH * sigma, 2001)
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    loss = np.logaddexp(stays, math.log(rate) + (x - 0.5) / sigma**2)
    weights = np.exp(loss - 0.5 * (x / sigma) ** 2)
    deviation = max(math.sqrt(np.cov(loss, aweights=weights)), LEAST_SHIFT)
    # A cell's probability is a second difference divided by its width, so fine cells have rounding
    # errors of some 1e-15/(fineness²·deviation) in a step; those of the grid are fineness²/12.
    fineness = max(FINENESS, (1e-14 * steps / deviation) ** 0.25)
    reach = max(loss[-1] - loss[0], 4 * deviation * math.sqrt(steps))  # a quarter of all steps'
    return float(max(min(fineness * deviation, WIDEST_GRID), reach / MOST_CELLS))


def dpsgd_delta(sigma: float, rate: float, steps: int, epsilon: float) -> float:
    """Return δ(ε) of DP-SGD under adding or removing one row."""
    if sigma < LEAST_SIGMA:
        return 1.0
    found = _privacy_loss(sigma, rate, steps, False).get_delta_for_epsilon(epsilon)
    return min(float(found) + ROUNDING * steps, 1.0)


def dpsgd_epsilon(
    sigma: float, rate: float, steps: int, delta: float, replace: bool = False
) -> float:
    """Return the least ε for δ, under adding or removing one row or with ``replace`` exchanging."""
    if sigma < LEAST_SIGMA:
        return math.inf
    loss = _privacy_loss(sigma, rate, steps, replace)
    return float(loss.get_epsilon_for_delta(delta - ROUNDING * steps))


@lru_cache(maxsize=256)
def dpsgd_curve(sigma: float, rate: float, steps: int, delta: float) -> PrivacyCurve:
    """Return the whole privacy curve of T ``steps`` at sampling rate q and noise multiplier σ.

    The replace-one ε is read off at ``delta``.
    """
    most = dpsgd_epsilon(sigma, rate, steps, SMALLEST_DELTA + 3 * ROUNDING * steps)
    if most == math.inf:
        return PrivacyCurve((0.0,), (1.0,), (math.inf, delta))
    most = min(max(most, SMALLEST_DELTA), LARGEST_EPSILON)
    # One call for each ε is faster than one for all of them, which loops over the losses.
    epsilons = most * np.linspace(0, 1, CURVE_POINTS + 1) ** 2
    deltas = [dpsgd_delta(sigma, rate, steps, epsilon) for epsilon in epsilons.tolist()]
    replaced = dpsgd_epsilon(sigma, rate, steps, delta, replace=True)
    return PrivacyCurve(tuple(epsilons.tolist()), tuple(deltas), (replaced, delta))


@lru_cache(maxsize=256)
def calibrate(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the least σ, to a part in a thousand, that makes DP-SGD (ε, δ)-private.

    Many steps at a small rate are as private as telling N(0, 1) from N(μ, 1) with
    μ² = q²T(exp(σ⁻²) − 1) (Bu, Dong, Long, Su, arXiv 1911.11607). From the σ of that limit on, σ
    is corrected by the μ that its δ has: 1/μ is about proportional to σ, so a secant in logarithms
    requires few distributions. A bracketed root finder serves settings far from the limit.
    """
    goal = _gaussian_shift(epsilon, delta)
    sigma = 1 / math.sqrt(math.log1p(goal**2 / (rate**2 * steps)))
    if steps > MOST_STEPS or delta < 2 * ROUNDING * steps or 2 * sigma > rate / LEAST_SHIFT:
        raise ValueError(
            f"{steps} steps of DP-SGD with epsilon={epsilon:g} and delta={delta:g} are beyond the "
            "accountant's precision: give a larger epsilon or delta, or fewer steps (a larger "
            "batch_size or fewer epochs)"
        )
    sigma *= 1.001  # the limit is too low by somewhat less, often enough for the first σ to do
    slope, before = 1.0, (sigma, math.nan)
    for _ in range(12):
        found = dpsgd_delta(sigma, rate, steps, epsilon)
        gap = math.log(_gaussian_shift(epsilon, min(found, 0.99)) / (0.9998 * goal))
        if found <= delta and gap >= -5e-4:
            return sigma
        if abs(before[1] - gap) > 0:  # not in the first round
            slope = min(max(math.log(sigma / before[0]) / (before[1] - gap), 0.2), 2.0)
        before, sigma = (sigma, gap), sigma * math.exp(slope * gap)

    def excess(log_sigma: float) -> float:
        return math.log(dpsgd_delta(math.exp(log_sigma), rate, steps, epsilon) / delta)

    enough = falling_root(excess, math.log(sigma), stride=0.02, tolerance=1e-4) + 2e-4
    while excess(enough) > 0:
        enough += 2e-4
    return math.exp(enough)


def _gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the μ for which N(0, 1) against N(μ, 1) is (ε, δ)-private."""
    from scipy.special import log_ndtr, ndtr

    def excess(log_inverse: float) -> float:
        shift = math.exp(-log_inverse)
        gap = epsilon / shift
        found = ndtr(shift / 2 - gap) - math.exp(epsilon + log_ndtr(-shift / 2 - gap))
        return math.log(max(found, 1e-300)) - math.log(delta)

    return math.exp(-falling_root(excess, -math.log(epsilon), stride=1.0, tolerance=1e-6))


def falling_root(
    function: Callable[[float], float], start: float, stride: float, tolerance: float = 2e-4
) -> float:
    """Zero of a decreasing function, to ``tolerance``: bracket from ``start`` on, then Brent."""
    from scipy.optimize import brentq

    low = high = start
    for _ in range(60):
        if function(low) >= 0:
            break
        high, low, stride = low, low - stride, 2 * stride
    for _ in range(60):
        if function(high) <= 0:
            break
        low, high, stride = high, high + stride, 2 * stride
    return low if low == high else float(brentq(function, low, high, xtol=tolerance))


# --- several outputs together -------------------------------------------------------------------


def composed(curves: Sequence[PrivacyCurve | None]) -> PrivacyCurve | None:
    """The curve of independent outputs together; None if one of them has none.

    Two outputs have ε + ε' and δ + δ' for any two points of their curves. Given the first output,
    an event has at most the probability min(1, e^ε'·p') + δ', where p' is its probability with the
    one more data point; the expectation of that minimum, a function with values in [0, 1], changes
    by e^ε and δ.
    """
    if None in curves:
        return None
    dependent = [curve for curve in curves if curve is not None and curve != INDEPENDENT]
    if len(dependent) < 2:  # as it is, with all of its points
        return dependent[0] if dependent else INDEPENDENT
    total = INDEPENDENT
    for curve in dependent:
        epsilons = np.add.outer(total.epsilons, curve.epsilons).ravel()
        deltas = np.minimum(np.add.outer(total.deltas, curve.deltas).ravel(), 1.0)
        kept = useful(epsilons, deltas)
        (epsilon, delta), (more, rest) = total.replace_one, curve.replace_one
        replaced = (epsilon + more, min(delta + rest, 1.0))
        total = PrivacyCurve(tuple(epsilons[kept].tolist()), tuple(deltas[kept].tolist()), replaced)
    return total


def useful(epsilons: Array, deltas: Array) -> NDArray[np.intp]:
    """Places of the points that some bound uses, in order of ε, and at most ``MOST_POINTS``.

    Bounds on events are minima of e^ε·m + δ over the points, the total variation of
    1 − (1 − δ)/e^ε: both are attained at corners of the lower hull of the points (e^ε, δ), which
    Andrew's monotone chain finds.
    """
    order = np.lexsort((deltas, epsilons))
    best = np.minimum.accumulate(deltas[order])
    falling = order[np.append(True, best[1:] < best[:-1])]
    x = np.exp(np.minimum(epsilons, LARGEST_EXPONENT)).tolist()
    y, corners = deltas.tolist(), list[int]()
    for k in falling.tolist():
        while len(corners) > 1:
            left, middle = corners[-2:]
            rise = (y[middle] - y[left]) * (x[k] - x[left])
            if rise < (y[k] - y[left]) * (x[middle] - x[left]):
                break  # the last corner is below the line from the one before it to this point
            corners.pop()
        corners.append(k)
    spread = np.linspace(0, len(corners) - 1, min(MOST_POINTS, len(corners))).round()
    return np.asarray(corners, dtype=np.intp)[spread.astype(np.intp)]
