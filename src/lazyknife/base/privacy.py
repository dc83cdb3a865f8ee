"""Privacy curves of the noisy bases: (σ, q, T) ↔ δ(ε), calibration, total variation."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ..records import Array, PrivacyCurve
from .accountant import LEAST_SHIFT, ROUNDING, PrivacyLoss, compose, discretise
from .roots import falling_root

SMALLEST_DELTA = 1e-10  # far below any miss probability of a certificate
LARGEST_EPSILON = 50.0  # beyond it exp(ε) times any miss probability exceeds 1
# Width of the grid in standard deviations of one step's loss; δ(ε) is too large by at most 1e-4.
GRID = 0.015
COARSE = 4.0  # the grid of calibration, relative to this one
MOST_STEPS = 10**7
LEAST_SIGMA = 0.02  # with less noise nothing is accounted for


@lru_cache(maxsize=16)  # one can hold megabytes
def _distribution(
    sigma: float, rate: float, steps: int, coarsening: float = 1.0, replace: bool = False
) -> tuple[PrivacyLoss, ...]:
    """Privacy losses of T sampled steps in each direction; none with too little noise."""
    if sigma < LEAST_SIGMA:
        return ()
    sigma = min(sigma, rate / LEAST_SHIFT)  # more noise only lowers the curve
    found = []
    for relation in ("replace",) if replace else ("add", "remove"):
        step = discretise(sigma, rate, relation, coarsening * GRID)
        loss = None if step is None else compose(step, steps)
        if loss is None:
            return ()
        found.append(loss)
    return tuple(found)


def _deltas(losses: tuple[PrivacyLoss, ...], epsilons: Array) -> Array:
    """δ at several ε: the largest over all directions."""
    every = [loss.delta(epsilons) for loss in losses]
    return np.minimum(np.max(every, axis=0), 1.0) if every else np.ones_like(epsilons)


def dpsgd_delta(
    sigma: float, rate: float, steps: int, epsilon: float, coarsening: float = 1.0
) -> float:
    """Return δ(ε) of DP-SGD under adding or removing one row."""
    losses = _distribution(sigma, rate, steps, coarsening)
    return float(_deltas(losses, np.array([epsilon]))[0])


def dpsgd_epsilon(
    sigma: float, rate: float, steps: int, delta: float, replace: bool = False
) -> float:
    """Return the least ε for δ, under adding or removing one row or with ``replace`` exchanging."""
    losses = _distribution(sigma, rate, steps, replace=replace)
    return max((loss.epsilon(delta) for loss in losses), default=math.inf)


@lru_cache(maxsize=256)
def dpsgd_curve(sigma: float, rate: float, steps: int, delta: float) -> PrivacyCurve:
    """Return the whole privacy curve of T ``steps`` at sampling rate q and noise multiplier σ.

    The replace-one ε is read off at ``delta``.
    """
    most = dpsgd_epsilon(sigma, rate, steps, SMALLEST_DELTA + 2 * ROUNDING * steps)
    if most == math.inf:
        return PrivacyCurve((0.0,), (1.0,), (math.inf, delta))
    most = min(max(most, SMALLEST_DELTA), LARGEST_EPSILON)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-4 * most, most, 600)])
    deltas = _deltas(_distribution(sigma, rate, steps), epsilons)
    replaced = dpsgd_epsilon(sigma, rate, steps, delta, replace=True)
    return PrivacyCurve(tuple(epsilons.tolist()), tuple(deltas.tolist()), (replaced, delta))


@lru_cache(maxsize=256)
def calibrate(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the least σ, to a part in a thousand, that makes DP-SGD (ε, δ)-private.

    log δ(ε) falls smoothly in log σ, and a central limit theorem gives the start, so a bracketed
    root finder needs few evaluations.
    """
    start = _limiting_sigma(epsilon, delta, rate, steps)
    if steps > MOST_STEPS or delta < 2 * ROUNDING * steps or 2 * start > rate / LEAST_SHIFT:
        raise ValueError(
            f"{steps} steps of DP-SGD with epsilon={epsilon:g} and delta={delta:g} are beyond the "
            "accountant's precision: give a larger epsilon or delta, or fewer steps (a larger "
            "batch_size or fewer epochs)"
        )

    def excess(log_sigma: float) -> float:
        found = dpsgd_delta(math.exp(log_sigma), rate, steps, epsilon, COARSE)
        return math.log(max(found, 1e-300)) - math.log(delta)

    enough = falling_root(excess, math.log(start), stride=0.05, tolerance=5e-5) + 4e-4
    while excess(enough) > 0:
        enough += 2e-4
    return math.exp(enough)


def _limiting_sigma(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the σ whose loss is that of N(0, 1) against N(μ, 1) with μ² = q²T(exp(σ⁻²) − 1).

    Many steps with a small rate tend to it (Bu, Dong, Long, Su, arXiv 1911.11607).
    """
    from scipy.special import log_ndtr, ndtr

    def excess(log_inverse: float) -> float:
        shift = math.exp(-log_inverse)
        gap = epsilon / shift
        found = ndtr(shift / 2 - gap) - math.exp(epsilon + log_ndtr(-shift / 2 - gap))
        return math.log(max(found, 1e-300)) - math.log(delta)

    shift = math.exp(-falling_root(excess, -math.log(epsilon), stride=1.0))
    return 1 / math.sqrt(math.log1p(shift**2 / (rate**2 * steps)))


def pure_curve(epsilon: float, total_variation: float) -> PrivacyCurve:
    """Return the curve of an ε-private output whose total variation is known too.

    δ(ε') is convex in e^ε', so the line through its two known points bounds it from above, and
    a certificate, linear in e^ε', is best at one of the two.
    """
    if epsilon > LARGEST_EPSILON:
        return PrivacyCurve((0.0,), (total_variation,), (2 * epsilon, 0.0))
    return PrivacyCurve((0.0, epsilon), (total_variation, 0.0), (2 * epsilon, 0.0))


def l1_total_variation(epsilon: float, n_parameters: int | None = None) -> float:
    """Bound the total variation of independent Laplace noise for an l1 sensitivity.

    1 − τ is the integral of the smaller density, which for independent coordinates is at least
    the product of theirs: exp(−ε s_i / 2s) for coordinate i, shifted by s_i. It holds in every
    dimension.
    """
    return -math.expm1(-epsilon / 2)


def l2_total_variation(epsilon: float, n_parameters: int | None) -> float:
    """Total variation of noise with density ∝ exp(−ε‖ξ‖₂/s) in M dimensions under a shift by s.

    It is P(|ξ₁| ≤ s/2), with ‖ξ‖ ~ Gamma(M, s/ε) in a uniform direction. Without M (None) the
    bound tanh(ε/2), which holds for every ε-private output, is returned.
    """
    from scipy import integrate, special, stats

    if n_parameters is None:
        return math.tanh(epsilon / 2)
    # Given V ~ Gamma((M + 1)/2, 2(s/ε)²), ξ is normal with variance V: a smooth integral in log V.
    shape = (n_parameters + 1) / 2
    law = stats.gamma(shape)
    constant = float(special.gammaln(shape))

    def within(log_v: float) -> float:
        density = math.exp(shape * log_v - math.exp(log_v) - constant)
        return math.erf(epsilon / 4 * math.exp(-log_v / 2)) * density

    ends = math.log(law.ppf(1e-18)), math.log(law.isf(1e-18))
    return float(integrate.quad(within, *ends, epsabs=0.0, epsrel=1e-9, limit=400)[0])
