"""Privacy curves of the noisy bases: (σ, q, T) ↔ δ(ε), calibration, total variation."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from .records import PrivacyCurve
from .roots import falling_root

# Far below any miss probability that a certificate could be about.
SMALLEST_DELTA = 1e-10
# A run whose privacy loss spreads this far protects nothing; the accountant need not be asked.
HOPELESS = 20.0


def _loss_scale(sigma: float, rate: float, steps: int) -> float:
    """Standard deviation of the composed privacy loss, to first order in q/σ."""
    return rate * math.sqrt(steps * math.expm1(min(sigma**-2.0, 50.0)))


def _discretisation(sigma: float, rate: float, steps: int, coarsening: float) -> float:
    """Grid of the accountant: at most 1e-4, and fine against the whole run's privacy loss.

    At ε = .01 the composed loss is about .01, and a grid of 1e-4 would overstate δ by percents.
    A loss of 2 and more allows a coarser one. Any grid errs on the safe side.
    """
    scale = _loss_scale(sigma, rate, steps)
    finest = np.clip(scale / 2000, 1e-9, max(1e-4, scale / 20_000))
    return float(coarsening * finest)


@lru_cache(maxsize=8)  # one can hold megabytes
def _distribution(
    sigma: float, rate: float, steps: int, coarsening: float = 1.0, replace: bool = False
) -> Any:
    """Privacy loss distribution of T Poisson-sampled Gaussian steps (dp-accounting)."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=_discretisation(sigma, rate, steps, coarsening),
        neighboring_relation=relation,
    )
    return step.self_compose(steps)


def dpsgd_delta(
    sigma: float, rate: float, steps: int, epsilon: float, coarsening: float = 1.0
) -> float:
    """Return δ(ε) of DP-SGD under adding or removing one row."""
    if _loss_scale(sigma, rate, steps) > HOPELESS:
        return 1.0
    return float(_distribution(sigma, rate, steps, coarsening).get_delta_for_epsilon(epsilon))


def dpsgd_epsilon(sigma: float, rate: float, steps: int, delta: float) -> float:
    """Return the least ε with which DP-SGD is (ε, δ)-private under adding or removing one row."""
    if _loss_scale(sigma, rate, steps) > HOPELESS:
        return math.inf
    return float(_distribution(sigma, rate, steps).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def dpsgd_curve(sigma: float, rate: float, steps: int, delta: float) -> PrivacyCurve:
    """Return the whole privacy curve of DP-SGD.

    Parameters
    ----------
    sigma
        Noise multiplier: the noise has standard deviation σ·C for clipping norm C.
    rate
        Poisson sampling rate q.
    steps
        Number of steps T.
    delta
        The δ at which the replace-one ε is read off.

    """
    if _loss_scale(sigma, rate, steps) > HOPELESS:
        return PrivacyCurve((0.0,), (1.0,), (math.inf, delta))
    distribution = _distribution(sigma, rate, steps)
    most = max(float(distribution.get_epsilon_for_delta(SMALLEST_DELTA)), SMALLEST_DELTA)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3 * most, most, 600)])
    deltas = distribution.get_delta_for_epsilon(epsilons)
    replace = _distribution(sigma, rate, steps, replace=True).get_epsilon_for_delta(delta)
    return PrivacyCurve(
        tuple(epsilons.tolist()), tuple(np.asarray(deltas).tolist()), (float(replace), delta)
    )


@lru_cache(maxsize=256)
def calibrate(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the least σ, to a part in a thousand, that makes DP-SGD (ε, δ)-private.

    δ(ε) falls smoothly in σ, so a bracketed root finder on log δ needs few evaluations. It starts
    from the σ of a Gaussian mechanism with the same total loss, which works at any scale of ε,
    where a search over a fixed range of σ does not. A cheap search with a coarse accountant finds
    the neighbourhood, the fine accountant decides.
    """

    def excess(log_sigma: float, coarsening: float) -> float:
        found = dpsgd_delta(math.exp(log_sigma), rate, steps, epsilon, coarsening)
        return math.log(max(found, 1e-300)) - math.log(delta)

    start = math.log(rate * math.sqrt(steps) / epsilon)
    near = falling_root(lambda x: excess(x, 10.0), start, stride=1.0)
    return math.exp(falling_root(lambda x: excess(x, 1.0), near, stride=0.005) + 4e-4)


def pure_curve(epsilon: float, total_variation: float) -> PrivacyCurve:
    """Return the curve of an ε-private output whose total variation is known too.

    δ(ε') is convex in e^ε', so the line through its two known points bounds it from above, and
    a certificate, linear in e^ε', is best at one of the two.
    """
    return PrivacyCurve((0.0, epsilon), (total_variation, 0.0), (2 * epsilon, 0.0))


def l1_total_variation(epsilon: float) -> float:
    """Bound the total variation of independent Laplace noise for an l1 sensitivity.

    Coordinate i, shifted by s_i, has 1 − exp(−ε s_i / 2s); independent coordinates multiply.
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
