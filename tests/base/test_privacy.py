"""Privacy curves: calibration, total variation and transfer against independent computations."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, special, stats

from lazyknife.base import DPSGD
from lazyknife.base.accountant import RELATIONS, Mixture, _log_masses, compose, discretise
from lazyknife.base.privacy import (
    GRID,
    _distribution,
    calibrate,
    dpsgd_curve,
    dpsgd_delta,
    dpsgd_epsilon,
    pure_curve,
)
from lazyknife.records import INDEPENDENT, PrivacyCurve

# --- calibration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"),
    [
        *((0.01, 0.1, 100), (1.0, 0.1, 100), (0.5, 0.032, 320), (1e-3, 0.1, 100)),
        *((1e-3, 1.0, 10), (4.0, 1.0, 10), (0.1, 1.0, 4)),
    ],
)
def test_the_calibrated_sigma_is_enough_and_one_percent_less_is_not(epsilon, rate, steps):
    sigma = calibrate(epsilon, 1e-3, rate, steps)
    assert dpsgd_delta(sigma, rate, steps, epsilon) <= 1e-3
    assert dpsgd_delta(0.99 * sigma, rate, steps, epsilon) > 1e-3
    assert dpsgd_epsilon(sigma, rate, steps, 1e-3) == pytest.approx(epsilon, rel=0.01)
    if (epsilon, rate) == (1.0, 0.1):
        assert dpsgd_epsilon(sigma, rate, steps, 1e-3) == pytest.approx(1.0, rel=2e-3)
    if rate == 1.0:  # the closed form of the Gaussian mechanism
        assert gaussian_delta(math.sqrt(steps) / sigma, epsilon) == pytest.approx(1e-3, rel=0.01)


# --- the accountant against quadrature and closed forms -----------------------------------------


def gaussian_delta(shift, epsilon):
    """δ(ε) between N(0, 1) and N(shift, 1)."""
    gap = epsilon / shift
    return special.ndtr(shift / 2 - gap) - np.exp(epsilon) * special.ndtr(-shift / 2 - gap)


def one_step_delta(sigma: float, rate: float, epsilon: float) -> float:
    """δ(ε) of one Poisson-sampled step, the worse of adding and removing, by quadrature."""

    def density(x, mean=0.0):
        return math.exp(-0.5 * ((x - mean) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))

    def mixture(x):
        return (1 - rate) * density(x) + rate * density(x, 1.0)

    def excess(p, q):
        return lambda x: max(p(x) - math.exp(epsilon) * q(x), 0.0)

    def total(f, kink):
        ends = (-15 * sigma, kink, 1 + 15 * sigma)
        return sum(
            integrate.quad(f, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(ends)
        )

    def kink(ratio):
        """Where mixture/density = 1 − rate + rate·exp((x − 1/2)/σ²) is the ratio; it rises in x."""
        weight = (ratio - 1 + rate) / rate
        return sigma**2 * math.log(weight) + 0.5 if weight > 0 else 0.0

    adding = total(excess(density, mixture), kink(math.exp(-epsilon)))
    return max(total(excess(mixture, density), kink(math.exp(epsilon))), adding)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("sigma", "rate"), [(0.6, 0.3), (1.0, 0.1), (2.0, 0.9), (8.0, 0.25)])
def test_one_sampled_step_agrees_with_quadrature(sigma, rate, epsilon):
    exact = one_step_delta(sigma, rate, epsilon)
    found = dpsgd_delta(sigma, rate, 1, epsilon)
    assert found == pytest.approx(exact, rel=2e-3, abs=2e-7)
    assert found >= exact - 1e-9  # the accountant may only err upwards


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (3.0, 7), (20.0, 50), (4.0, 100)])
def test_unsampled_steps_agree_with_the_gaussian_closed_form(sigma, steps, epsilon):
    shift = math.sqrt(steps) / sigma
    exact = gaussian_delta(shift, epsilon)
    if epsilon == 0.0:
        assert exact == pytest.approx(2 * stats.norm.cdf(shift / 2) - 1)
    found = dpsgd_delta(sigma, 1.0, steps, epsilon)
    assert found == pytest.approx(exact, rel=2e-3, abs=2e-7)
    assert found >= exact - 1e-9


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(2.75, 0.1, 100), (94.0, 0.1, 100), (1, 1, 1)]
)
def test_the_curve_falls_and_is_convex_in_the_exponential_of_epsilon(sigma, rate, steps):
    curve = dpsgd_curve(float(sigma), float(rate), steps, 1e-3)
    epsilons, deltas = np.array(curve.epsilons), np.array(curve.deltas)
    assert epsilons[0] == 0.0
    assert (np.diff(epsilons) > 0).all()
    assert (np.diff(deltas) < 0).all()
    assert deltas[-1] <= 1e-9
    slopes = np.diff(deltas) / np.diff(np.exp(epsilons))
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes).max()).all()


def test_the_curve_starts_at_the_total_variation_and_falls_with_the_noise():
    curve = dpsgd_curve(3.0, 1.0, 7, 1e-3)
    exact = 2 * stats.norm.cdf(math.sqrt(7) / 6) - 1
    assert curve.total_variation == pytest.approx(curve.deltas[0])
    assert curve.total_variation == pytest.approx(exact, rel=1e-3)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        assert dpsgd_delta(3.0, 0.1, 50, epsilon) < dpsgd_delta(2.0, 0.1, 50, epsilon)
    epsilon, delta = DPSGD().dependence(100).replace_one
    assert epsilon == pytest.approx(0.0275, abs=5e-4)
    assert delta == 1e-3


# --- the accountant against dp-accounting -------------------------------------------------------


@cache
def peer(sigma: float, rate: float, steps: int, grid: float, **settings):
    """dp-accounting's privacy loss distribution, by default an upper bound."""
    step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=grid, **settings
    )
    return step.self_compose(steps)


# σ, q, T, a grid fine enough for dp-accounting, and the ε to look at.
RUNS = [
    (94.0, 0.1, 100, 2e-6, 0.01),
    (17.5, 0.1, 100, 2e-5, 0.1),
    (2.75, 0.1, 100, 1e-4, 1.0),
    (1.08, 0.01, 1000, 1e-4, 1.0),
    (0.63, 0.01, 1000, 1e-3, 4.0),
    (0.7, 1.0, 3, 1e-3, 8.0),
    (0.3, 0.2, 5, 1e-3, 20.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "rate", "steps", "grid", "epsilon"), RUNS)
def test_the_accountant_agrees_with_dp_accounting(sigma, rate, steps, grid, epsilon):
    """With its upper bounds, for either relation, and never below its lower bound."""
    theirs = peer(sigma, rate, steps, grid)
    below = peer(sigma, rate, steps, grid / 2, pessimistic_estimate=False, use_connect_dots=False)
    for factor in (0.0, 0.5, 1.0, 2.0):
        found = dpsgd_delta(sigma, rate, steps, factor * epsilon)
        expected = float(theirs.get_delta_for_epsilon(factor * epsilon))
        assert found == pytest.approx(expected, rel=2e-3, abs=1e-9)
        assert found == pytest.approx(expected, abs=1e-4)
        assert found >= float(below.get_delta_for_epsilon(factor * epsilon)) - 1e-12
    relation = NeighboringRelation.REPLACE_ONE
    replaced = peer(sigma, rate, steps, grid, neighboring_relation=relation)
    found = dpsgd_epsilon(sigma, rate, steps, 1e-3, replace=True)
    assert found == pytest.approx(replaced.get_epsilon_for_delta(1e-3), rel=1e-3)
    assert dpsgd_curve(sigma, rate, steps, 1e-3).replace_one == (found, 1e-3)
    assert found > dpsgd_epsilon(sigma, rate, steps, 1e-3)


@pytest.mark.parametrize("epsilon", [10.0, 100.0, 500.0])
@pytest.mark.parametrize(("rate", "steps"), [(0.1, 100), (0.01, 1000), (1.0, 2)])
def test_a_large_epsilon_is_what_the_noise_found_for_it_spends(epsilon, rate, steps):
    """By dp-accounting, and by Rényi privacy, which can only say more."""
    sigma = calibrate(epsilon, 1e-3, rate, steps)
    grid = 1e-5 * max(epsilon, 100.0)
    spent = peer(sigma, rate, steps, grid).get_epsilon_for_delta(1e-3)
    assert 0.996 * epsilon <= spent <= epsilon
    assert peer(0.99 * sigma, rate, steps, grid).get_epsilon_for_delta(1e-3) > epsilon
    renyi = RdpAccountant(orders=[1.5, *range(2, 64)])
    renyi.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
    assert renyi.get_epsilon(1e-3) >= spent


# --- how fine the grid is -----------------------------------------------------------------------


def best(curve, miss: float) -> float:
    """The certificate's bound, over many more points than a curve has."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-6, 20.0, 5000)])
    return float(np.min(np.exp(epsilons) * miss + curve(epsilons)))


def composed(steps, sigma, rate, fineness, change=lambda step: step):
    """δ(ε) from a grid of another width, or from a changed step."""
    made = [compose(change(discretise(sigma, rate, r, fineness)), steps) for r in ("add", "remove")]
    return lambda epsilons: np.max([loss.delta(epsilons) for loss in made], axis=0)


# From the defaults at several ε to settings in which few draws make up the whole loss.
SETTINGS = [
    *((94.0, 0.1, 100), (2.75, 0.1, 100), (1.1, 0.1, 100), (29.7, 0.01, 1000)),
    *((0.63, 0.01, 1000), (0.467, 0.001, 10_000), (0.2, 0.01, 100), (0.2, 0.001, 1000)),
    *((0.4, 0.0001, 100), (1.0, 0.5, 1)),
]


@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS)
def test_a_certificate_is_that_of_a_fine_grid_to_1e_4_and_on_the_safe_side(sigma, rate, steps):
    curve, fine = dpsgd_curve(sigma, rate, steps, 1e-3), composed(steps, sigma, rate, GRID / 5)
    for miss in (0.001, 0.05, 0.1, 0.19, 0.2):
        assert -1e-7 <= curve.transfer(miss) - best(fine, miss) <= 1e-4
        if sigma == 2.75:
            assert curve.transfer(miss) == pytest.approx(best(fine, miss), rel=1e-3)


def test_the_comparison_with_a_fine_grid_notices_a_coarse_one_and_rounding_down():
    sigma, rate, steps, miss = 1.1, 0.1, 100, 0.1
    fine = best(composed(steps, sigma, rate, GRID / 5), miss)
    assert best(composed(steps, sigma, rate, 10 * GRID), miss) - fine > 1e-4
    down = composed(steps, sigma, rate, GRID, lambda step: replace(step, first=step.first - 1))
    assert best(down, miss) - fine < -1e-4


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_few_distributions_are_computed(n, epsilon):
    for cached in (calibrate, dpsgd_curve, _distribution):
        cached.cache_clear()
    DPSGD(epsilon=epsilon).dependence(n)
    assert _distribution.cache_info().misses <= 10


# --- pieces of the accountant -------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("sigma", "rate"), [(0.03, 0.2), (0.5, 1.0), (1.0, 0.01), (100.0, 0.3)])
def test_outputs_are_found_by_their_privacy_loss(sigma, rate, relation):
    x = np.linspace(-4 * sigma, 1 + 4 * sigma, 41)
    *centres, outputs = RELATIONS[relation]
    upper, lower = (Mixture(sigma, rate, each) for each in centres)
    loss = upper.log_density(x) - lower.log_density(x)
    again = outputs(loss, sigma, rate)
    known = np.isfinite(again)  # far out the loss is constant to all digits
    assert known.sum() > 20
    seen = upper.log_density(again[known]) - lower.log_density(again[known])
    np.testing.assert_allclose(seen, loss[known], rtol=1e-9, atol=1e-10)
    assert (np.diff(loss) >= -1e-12).all()


def test_masses_far_out_are_precise():
    z = np.array([-41.0, -40.0, -1.0, 1.0, 40.0, 41.0])
    found = _log_masses(z)
    assert found[0] == pytest.approx(found[-1], rel=1e-13)
    assert found[0] == pytest.approx(stats.norm.logcdf(-40), abs=1e-12)
    assert found[2] == pytest.approx(math.log(special.erf(math.sqrt(0.5))), rel=1e-12)
    infinite = _log_masses(np.array([-np.inf, 0.0, np.inf, np.inf]))
    np.testing.assert_allclose(np.exp(infinite), [0.5, 0.5, 0.0], atol=1e-16)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_step_keeps_the_probabilities_of_both_laws(relation):
    step = discretise(0.8, 0.1, relation, GRID)
    losses = (step.first + np.arange(len(step.probabilities))) * step.grid
    assert step.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (step.probabilities * np.exp(-losses)).sum() == pytest.approx(1.0, abs=1e-9)


def test_the_rounding_of_many_steps_is_within_its_allowance():
    """A Gaussian mechanism of 10,000 steps, where δ is next to nothing."""
    sigma, steps = 100.0, 10_000
    for epsilon in (5.5, 6.5, 7.5):
        exact = gaussian_delta(1.0, epsilon)
        found = dpsgd_delta(sigma, 1.0, steps, epsilon)
        assert exact <= found <= 1.01 * exact + 1.1e-15 * steps


def test_settings_at_the_limits_give_a_curve_and_no_warning():
    epsilons = [{"epsilon": e, "delta": d} for e, d in ((1e-6, 1e-3), (1e-6, 1e-10), (500, 1e-10))]
    for setting in (*epsilons, *({"noise_multiplier": s} for s in (1e-6, 0.03, 1e9))):
        base = DPSGD(**setting)
        curve = base.dependence(100)
        assert 0.1 < curve.transfer(0.1) <= 1.1
        assert base.spent(100) <= setting.get("epsilon", math.inf)


def test_next_to_no_noise_is_not_accounted_for_and_much_is_no_less_private():
    base = DPSGD(noise_multiplier=0.01)
    assert base.spent(100) == math.inf
    assert base.dependence(100).deltas == (base.dependence(100).total_variation,) == (1.0,)
    loud, louder = (dpsgd_curve(sigma, 0.1, 10, 1e-3).transfer(0.1) for sigma in (1e8, 1e9))
    assert loud == pytest.approx(louder, rel=1e-12)
    assert loud < 0.1 + 1e-8


@pytest.mark.parametrize(
    ("epsilon", "delta", "steps"), [(1.0, 1e-3, 10**8), (1.0, 1e-10, 10**6), (1e-6, 1e-9, 10**5)]
)
def test_what_is_beyond_the_accountants_precision_is_refused(epsilon, delta, steps):
    with pytest.raises(ValueError, match=r"precision.*larger epsilon or delta, or fewer steps"):
        calibrate(epsilon, delta, 1e-4, steps)


# --- PrivacyCurve -------------------------------------------------------------------------------


@pytest.mark.parametrize("miss", [1e-4, 0.01, 19 / 101, 0.5, 0.9])
@pytest.mark.parametrize("shift", [0.05, 0.5, 2.0])
def test_transfer_finds_the_best_point_of_the_curve(miss, shift):
    """For a Gaussian shift the best point gives Φ(Φ⁻¹(miss) + shift), by Neyman and Pearson.

    With a miss so large that their test would accept a ratio below 1, ε = 0 is the best left.
    """
    curve = dpsgd_curve(1 / shift, 1.0, 1, 1e-3)
    grid = np.linspace(0, 20 * shift, 50_001)
    brute = (np.exp(grid) * miss + gaussian_delta(shift, grid)).min()
    assert curve.transfer(miss) == pytest.approx(brute, rel=2e-3)
    assert curve.transfer(miss) >= brute - 1e-7
    best = stats.norm.cdf(stats.norm.ppf(miss) + shift)
    if stats.norm.ppf(miss) < -shift / 2:
        assert curve.transfer(miss) == pytest.approx(best, rel=2e-3)
    else:
        assert curve.transfer(miss) == pytest.approx(miss + curve.total_variation)


def test_transfer_is_the_minimum_over_the_points_given():
    curve = PrivacyCurve((0.0, 0.5, 1.0), (0.3, 0.1, 0.0), (2.0, 0.0))
    for miss in np.linspace(0, 1, 21):
        points = [math.exp(e) * miss + d for e, d in zip(curve.epsilons, curve.deltas, strict=True)]
        assert curve.transfer(miss) == pytest.approx(min(points), rel=1e-13)
    pure = pure_curve(1.0, 0.05)  # uses the total variation or ε, whichever is better
    assert pure.transfer(0.001) == pytest.approx(math.e * 0.001)
    assert pure.transfer(0.2) == pytest.approx(0.25)
    assert pure.total_variation == pytest.approx(0.05)
    assert INDEPENDENT.transfer(0.123) == 0.123
    assert INDEPENDENT.total_variation == 0.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (1.0, 0.0), (0.3, 0.02)])
def test_from_dp_keeps_one_point_and_the_usual_replace_one_bound(epsilon, delta):
    curve = PrivacyCurve.from_dp(epsilon, delta)
    assert curve.transfer(0.1) == pytest.approx(math.exp(epsilon) * 0.1 + delta)
    assert curve.replace_one == pytest.approx((2 * epsilon, (1 + math.exp(epsilon)) * delta))
    assert curve.total_variation == pytest.approx(1 - math.exp(-epsilon) * (1 - delta))


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.5])
def test_total_variation_from_one_point_is_a_bound_for_a_gaussian(epsilon):
    shift = 0.8
    one_point = PrivacyCurve.from_dp(epsilon, gaussian_delta(shift, epsilon))
    assert one_point.total_variation >= 2 * stats.norm.cdf(shift / 2) - 1 - 1e-12
