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

from lazyknife.base import DPSGD, Perturbed
from lazyknife.base.accountant import (
    CENTRES,
    Mixture,
    _log_masses,
    _where,
    compose,
    discretise,
)
from lazyknife.base.privacy import (
    GRID,
    _distribution,
    calibrate,
    dpsgd_curve,
    dpsgd_delta,
    dpsgd_epsilon,
    l1_total_variation,
    l2_total_variation,
    pure_curve,
)
from lazyknife.records import INDEPENDENT, PrivacyCurve

# n, ε, σ, τ: 10 epochs, δ = .001, batches of 10 at n = 100 and of 32 otherwise.
TABLE = [
    (100, 0.01, 94.0, 0.0042),
    (100, 0.1, 17.5, 0.023),
    (100, 1.0, 2.75, 0.147),
    (1000, 0.01, 53.8, 0.0042),
    (1000, 0.5, 2.78, 0.084),
    (1000, 1.0, 1.68, 0.147),
    (10000, 1.0, 0.79, 0.139),
]


def table_base(n: int, epsilon: float) -> DPSGD:
    return DPSGD(epsilon=epsilon, batch_size=10 if n == 100 else 32)


# --- calibration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon", "sigma", "tau"), TABLE)
def test_sigma_and_total_variation_are_those_of_the_table(n, epsilon, sigma, tau):
    base = table_base(n, epsilon)
    assert base.mechanism(n).noise_multiplier == pytest.approx(sigma, rel=0.01)
    # The table gives two or three digits.
    assert base.dependence(n).total_variation == pytest.approx(tau, rel=0.01, abs=6e-4)


@pytest.mark.parametrize(("n", "epsilon"), [(100, 0.01), (100, 1.0), (1000, 0.5)])
def test_the_calibrated_sigma_is_enough_and_one_percent_less_is_not(n, epsilon):
    run = table_base(n, epsilon).mechanism(n)
    setting = (run.sampling_rate, run.steps, epsilon)
    assert dpsgd_delta(run.noise_multiplier, *setting) <= 1e-3
    assert dpsgd_delta(0.99 * run.noise_multiplier, *setting) > 1e-3


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"),
    [(1e-3, 0.1, 100), (1e-3, 1.0, 10), (4.0, 1.0, 10)],
)
def test_calibration_works_at_extreme_epsilon_and_at_rate_one(epsilon, rate, steps):
    sigma = calibrate(epsilon, 1e-3, rate, steps)
    assert dpsgd_delta(sigma, rate, steps, epsilon) <= 1e-3
    assert dpsgd_delta(0.99 * sigma, rate, steps, epsilon) > 1e-3


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 4.0])
def test_calibration_at_rate_one_inverts_the_closed_form_of_the_gaussian_mechanism(epsilon):
    sigma = calibrate(epsilon, 1e-3, 1.0, 4)
    assert gaussian_delta(2 / sigma, epsilon) == pytest.approx(1e-3, rel=0.01)


def test_epsilon_is_the_inverse_of_delta():
    sigma = calibrate(1.0, 1e-3, 0.1, 100)
    assert dpsgd_epsilon(sigma, 0.1, 100, 1e-3) == pytest.approx(1.0, rel=2e-3)


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


def test_the_curve_starts_at_the_total_variation():
    curve = dpsgd_curve(3.0, 1.0, 7, 1e-3)
    assert curve.total_variation == pytest.approx(curve.deltas[0])
    assert curve.total_variation == pytest.approx(
        2 * stats.norm.cdf(math.sqrt(7) / 6) - 1, rel=1e-3
    )


def test_more_noise_lowers_the_whole_curve():
    epsilons = [0.0, 0.1, 0.5, 1.0]
    less = [dpsgd_delta(2.0, 0.1, 50, epsilon) for epsilon in epsilons]
    more = [dpsgd_delta(3.0, 0.1, 50, epsilon) for epsilon in epsilons]
    assert (np.array(more) < np.array(less)).all()


def test_replace_one_epsilon_of_the_default_base():
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


@pytest.mark.parametrize(("sigma", "rate", "steps", "grid", "epsilon"), RUNS)
def test_deltas_are_those_of_dp_accounting(sigma, rate, steps, grid, epsilon):
    theirs = peer(sigma, rate, steps, grid)
    for factor in (0.0, 0.5, 1.0, 2.0):
        found = dpsgd_delta(sigma, rate, steps, factor * epsilon)
        expected = float(theirs.get_delta_for_epsilon(factor * epsilon))
        assert found == pytest.approx(expected, rel=2e-3, abs=1e-9)
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("sigma", "rate", "steps", "grid", "epsilon"), RUNS)
def test_no_delta_is_below_the_lower_bound_of_dp_accounting(sigma, rate, steps, grid, epsilon):
    below = peer(sigma, rate, steps, grid / 2, pessimistic_estimate=False, use_connect_dots=False)
    for factor in (0.0, 0.5, 1.0, 2.0):
        lower = float(below.get_delta_for_epsilon(factor * epsilon))
        assert dpsgd_delta(sigma, rate, steps, factor * epsilon) >= lower - 1e-12


@pytest.mark.parametrize(("sigma", "rate", "steps", "grid", "epsilon"), RUNS)
def test_replacing_a_row_costs_what_dp_accounting_says(sigma, rate, steps, grid, epsilon):
    theirs = peer(
        sigma, rate, steps, grid, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).get_epsilon_for_delta(1e-3)
    found = dpsgd_epsilon(sigma, rate, steps, 1e-3, replace=True)
    assert found == pytest.approx(theirs, rel=1e-3)
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
    (94.0, 0.1, 100),
    (2.75, 0.1, 100),
    (1.1, 0.1, 100),
    (29.7, 0.01, 1000),
    (0.63, 0.01, 1000),
    (0.467, 0.001, 10_000),
    (0.2, 0.01, 100),
    (0.2, 0.001, 1000),
    (0.4, 0.0001, 100),
    (1.0, 0.5, 1),
]


@pytest.mark.parametrize("miss", [0.1, 0.2])
@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS)
def test_a_certificate_is_that_of_a_fine_grid_to_1e_4_and_on_the_safe_side(
    sigma, rate, steps, miss
):
    found = dpsgd_curve(sigma, rate, steps, 1e-3).transfer(miss)
    fine = best(composed(steps, sigma, rate, GRID / 5), miss)
    assert -1e-7 <= found - fine <= 1e-4


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


@pytest.mark.parametrize("relation", CENTRES)
@pytest.mark.parametrize(("sigma", "rate"), [(0.03, 0.2), (0.5, 1.0), (1.0, 0.01), (100.0, 0.3)])
def test_outputs_are_found_by_their_privacy_loss(sigma, rate, relation):
    x = np.linspace(-4 * sigma, 1 + 4 * sigma, 41)
    upper, lower = (Mixture(sigma, rate, centres) for centres in CENTRES[relation])
    loss = upper.log_density(x) - lower.log_density(x)
    again = _where(loss, sigma, rate, relation)
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


@pytest.mark.parametrize("relation", CENTRES)
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
    for setting in (
        {"epsilon": 1e-6},
        {"epsilon": 1e-6, "delta": 1e-10},
        {"epsilon": 500.0, "delta": 1e-10},
        {"noise_multiplier": 1e-6},
        {"noise_multiplier": 0.03},
        {"noise_multiplier": 1e9},
    ):
        base = DPSGD(**setting)
        curve = base.dependence(100)
        assert 0.1 < curve.transfer(0.1) <= 1.1
        assert base.spent(100) <= setting.get("epsilon", math.inf)


def test_next_to_no_noise_is_not_accounted_for():
    base = DPSGD(noise_multiplier=0.01)
    assert base.spent(100) == math.inf
    assert base.dependence(100).deltas == (1.0,)
    assert base.dependence(100).total_variation == 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "steps"), [(1.0, 1e-3, 10**8), (1.0, 1e-10, 10**6), (1e-6, 1e-9, 10**5)]
)
def test_what_is_beyond_the_accountants_precision_is_refused(epsilon, delta, steps):
    with pytest.raises(ValueError, match=r"precision.*larger epsilon or delta, or fewer steps"):
        calibrate(epsilon, delta, 1e-4, steps)


def test_noise_without_effect_on_the_curve_is_no_less_private():
    loud, louder = (dpsgd_curve(sigma, 0.1, 10, 1e-3) for sigma in (1e8, 1e9))
    assert loud.transfer(0.1) == pytest.approx(louder.transfer(0.1), rel=1e-12)
    assert loud.transfer(0.1) < 0.1 + 1e-8


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
    assert curve.transfer(0.01) == pytest.approx(math.e * 0.01)
    assert curve.transfer(0.9) == pytest.approx(1.2)


def test_transfer_of_a_sampled_curve_is_as_good_as_a_finer_one():
    curve = dpsgd_curve(2.75, 0.1, 100, 1e-3)
    for miss in (0.001, 0.05, 0.19):
        fine = min(
            math.exp(e) * miss + dpsgd_delta(2.75, 0.1, 100, e) for e in np.linspace(0, 4, 401)
        )
        assert curve.transfer(miss) == pytest.approx(fine, rel=1e-3)


def test_no_dependence_transfers_nothing():
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


def test_pure_curve_uses_total_variation_or_epsilon_whichever_is_better():
    curve = pure_curve(1.0, 0.05)
    assert curve.transfer(0.001) == pytest.approx(math.e * 0.001)
    assert curve.transfer(0.2) == pytest.approx(0.25)
    assert curve.total_variation == pytest.approx(0.05)


# --- Perturbed ----------------------------------------------------------------------------------


def first_coordinate_density(z: float, dimension: int) -> float:
    """Density of ξ₁ where that of ξ is ∝ exp(−‖ξ‖₂): z^{M/2} K_{M/2}(z) up to a constant."""
    half = dimension / 2
    log_density = half * math.log(z / 2) + math.log(special.kve(half, z)) - z
    return math.exp(log_density - special.gammaln(half + 0.5)) / math.sqrt(math.pi)


def l2_by_density(epsilon: float, dimension: int) -> float:
    """P(|ξ₁| ≤ s/2)."""
    density = integrate.quad(
        first_coordinate_density, 0, epsilon / 2, args=(dimension,), epsabs=1e-14
    )
    return 2 * density[0]


@pytest.mark.parametrize("dimension", [2, 3, 10, 50])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_l2_total_variation_is_the_integral_of_the_first_coordinates_density(dimension, epsilon):
    found = l2_total_variation(epsilon, dimension)
    assert found == pytest.approx(l2_by_density(epsilon, dimension), rel=1e-5)


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
def test_l2_total_variation_is_right_to_seven_digits_at_every_epsilon(dimension):
    for epsilon in np.geomspace(1e-3, 30, 25):
        found = l2_total_variation(float(epsilon), dimension)
        assert found == pytest.approx(l2_by_density(epsilon, dimension), rel=1e-7)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_l2_total_variation_in_one_dimension_is_that_of_laplace_noise(epsilon):
    assert l2_total_variation(epsilon, 1) == pytest.approx(1 - math.exp(-epsilon / 2))


def test_l2_total_variation_of_a_large_network():
    assert l2_total_variation(1.0, 5313) == pytest.approx(0.0055, abs=5e-5)


def test_l2_total_variation_shrinks_with_the_dimension_and_grows_with_epsilon():
    by_dimension = [l2_total_variation(1.0, m) for m in (None, 1, 2, 10, 100, 5313, 10**6)]
    assert by_dimension == sorted(by_dimension, reverse=True)
    by_epsilon = [l2_total_variation(e, 10) for e in (0.01, 0.1, 1.0, 10.0)]
    assert by_epsilon == sorted(by_epsilon)


def l2_shift_excess(epsilon: float, dimension: int, draws: int, seed: int) -> tuple[float, float]:
    """Total variation by Monte Carlo, E max(1 − p(ξ − s)/p(ξ), 0), and its standard error."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal((draws, dimension))
    radius = rng.gamma(dimension, 1 / epsilon, draws)
    first = radius * direction[:, 0] / np.linalg.norm(direction, axis=1)
    moved = np.sqrt(np.maximum(radius**2 - 2 * first + 1, 0))  # ‖ξ − e₁‖
    value = np.maximum(-np.expm1(epsilon * (radius - moved)), 0)
    return value.mean(), value.std() / math.sqrt(draws)


@pytest.mark.parametrize("dimension", [2, 5, 50])
def test_l2_total_variation_agrees_with_monte_carlo(dimension):
    """Each case raises a false alarm with probability 1e-6 (4.9 standard errors)."""
    mean, error = l2_shift_excess(1.0, dimension, 40_000, seed=dimension)
    assert abs(mean - l2_total_variation(1.0, dimension)) <= 4.9 * error


@pytest.mark.parametrize("dimension", [2, 5, 50])
def test_monte_carlo_rejects_the_total_variation_of_another_dimension(dimension):
    mean, error = l2_shift_excess(1.0, dimension, 40_000, seed=dimension)
    assert abs(mean - l2_total_variation(1.0, dimension + dimension // 2)) > 4.9 * error
    assert abs(mean - math.tanh(0.5)) > 4.9 * error


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_l1_bound_is_exact_for_one_coordinate(epsilon):
    def excess(x):
        p, q = (epsilon / 2 * math.exp(-epsilon * abs(x - c)) for c in (0, 1))
        return max(p - q, 0.0)

    exact = integrate.quad(excess, -60 / epsilon, 0.5, points=[0.0], limit=200)[0]
    assert l1_total_variation(epsilon) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.7, 0.2, 0.1), (0.1,) * 10])
def test_l1_bound_is_never_passed_when_several_coordinates_share_the_shift(shares):
    """Each case raises a false alarm with probability below 1e-6 (4.8 standard errors)."""
    epsilon, draws = 1.0, 100_000
    noise = np.random.default_rng(3).laplace(scale=1 / epsilon, size=(draws, len(shares)))
    log_ratio = epsilon * (np.abs(noise) - np.abs(noise - np.array(shares))).sum(axis=1)
    value = np.maximum(-np.expm1(log_ratio), 0)
    error = value.std() / math.sqrt(draws)
    assert value.mean() <= l1_total_variation(epsilon) + 4.8 * error


@pytest.mark.parametrize("first", [0.5, 0.8, 0.95])
def test_l1_bound_by_quadrature_over_two_coordinates(first):
    """The overlap of the two laws is at least the product of the coordinates' overlaps."""
    epsilon, shifts = 1.0, (first, 1.0 - first)
    x = np.linspace(-20.0, 21.0, 2051)
    step = x[1] - x[0]
    without, shifted = (
        [epsilon / 2 * np.exp(-epsilon * np.abs(x - s)) for s in moved]
        for moved in ((0.0, 0.0), shifts)
    )
    overlap = np.minimum(np.outer(*without), np.outer(*shifted)).sum() * step**2
    product = math.prod(math.exp(-epsilon * s / 2) for s in shifts)
    assert overlap >= product - 2e-4
    assert 1 - overlap <= l1_total_variation(epsilon) + 2e-4
    assert 1 - overlap > 0.6 * l1_total_variation(epsilon)


def test_monte_carlo_refutes_an_l1_bound_a_tenth_lower():
    noise = np.random.default_rng(3).laplace(size=100_000)
    value = np.maximum(-np.expm1(np.abs(noise) - np.abs(noise - 1.0)), 0)
    error = value.std() / math.sqrt(len(value))
    assert value.mean() > 0.9 * l1_total_variation(1.0) + 4.8 * error


def test_the_noise_of_perturbed_is_as_private_as_its_curve_says():
    base = Perturbed(sensitivity=2.0, epsilon=1.0)
    assert base.dependence(100, 50) == pure_curve(1.0, l2_total_variation(1.0, 50))
    assert base.dependence(100) == pure_curve(1.0, math.tanh(0.5))
    l1 = Perturbed(sensitivity=2.0, epsilon=1.0, norm="l1")
    assert l1.dependence(100, 50) == pure_curve(1.0, l1_total_variation(1.0))
    assert base.dependence(100, 50).replace_one == (2.0, 0.0)


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_no_total_variation_passes_the_bound_of_every_private_output(dimension):
    for epsilon in (0.01, 1.0, 5.0):
        assert l2_total_variation(epsilon, dimension) <= math.tanh(epsilon / 2)
    assert l2_total_variation(1.0, None) == math.tanh(0.5)
