"""Privacy curves: calibration, total variation and transfer against independent computations."""

import math
from functools import cache

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lazyknife.base import DPSGD
from lazyknife.base.perturbed import pure_curve
from lazyknife.base.privacy import (
    MOST_POINTS,
    calibrate,
    composed,
    dpsgd_curve,
    dpsgd_delta,
    dpsgd_epsilon,
    useful,
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


# --- the accountant against closed forms --------------------------------------------------------


def gaussian_delta(shift, epsilon):
    """δ(ε) between N(0, 1) and N(shift, 1)."""
    gap = epsilon / shift
    return special.ndtr(shift / 2 - gap) - np.exp(epsilon) * special.ndtr(-shift / 2 - gap)


def gaussian_curve(shift, epsilons):
    deltas = np.clip(gaussian_delta(shift, epsilons), 0, 1)
    return PrivacyCurve(tuple(epsilons), tuple(deltas), (1.0, 1e-3))


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


# --- whole runs against dp-accounting's finest grids and a composition by brute force ------------


@cache
def peer(sigma: float, rate: float, steps: int, grid: float, **settings):
    """dp-accounting's privacy loss distribution, an upper bound."""
    step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=grid, **settings
    )
    return step.self_compose(steps)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "grid"), [(2.75, 0.1, 100, 1e-4), (0.63, 0.01, 1000, 1e-3)]
)
def test_exchanging_a_row_is_accounted_on_a_fine_grid_too(sigma, rate, steps, grid):
    relation = NeighboringRelation.REPLACE_ONE
    fine = peer(sigma, rate, steps, grid, neighboring_relation=relation)
    found = dpsgd_epsilon(sigma, rate, steps, 1e-3, replace=True)
    assert found == pytest.approx(fine.get_epsilon_for_delta(1e-3), rel=1e-3)
    assert dpsgd_curve(sigma, rate, steps, 1e-3).replace_one == (found, 1e-3)
    assert found > dpsgd_epsilon(sigma, rate, steps, 1e-3)


@pytest.mark.parametrize("epsilon", [10.0, 100.0, 500.0])
@pytest.mark.parametrize(("rate", "steps"), [(0.1, 100), (0.01, 1000), (1.0, 2)])
def test_a_large_epsilon_is_what_the_noise_found_for_it_spends(epsilon, rate, steps):
    """On a fine grid, and by Rényi privacy, which can only say more."""
    sigma = calibrate(epsilon, 1e-3, rate, steps)
    grid = 1e-5 * max(epsilon, 100.0)
    spent = peer(sigma, rate, steps, grid).get_epsilon_for_delta(1e-3)
    assert 0.996 * epsilon <= spent <= epsilon
    assert peer(0.99 * sigma, rate, steps, grid).get_epsilon_for_delta(1e-3) > epsilon
    renyi = RdpAccountant(orders=[1.5, *range(2, 64)])
    renyi.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
    assert renyi.get_epsilon(1e-3) >= spent


POINTS = np.concatenate([[0.0], np.geomspace(1e-6, 20.0, 5000)])


def brute_force(sigma, rate, steps, fineness=0.003, shift=0.0):
    """δ at ``POINTS``, the worse of adding and removing, by midpoints and a Fourier transform.

    The loss of many small cells of the output is divided between the two nearest points of a grid,
    of ``fineness`` standard deviations, such that its mean stays the same. It is an estimate, no
    bound. ``shift``, in widths of the grid, is a mistake.
    """
    edges = np.linspace(-10 * sigma, 1 + 10 * sigma, 400_001)
    x = (edges[1:] + edges[:-1]) / 2
    without = np.exp(-0.5 * (x / sigma) ** 2)
    ratio = np.log1p(rate * np.expm1((x - 0.5) / sigma**2)) if rate < 1 else (x - 0.5) / sigma**2
    found = []
    for law, loss in ((without * np.exp(ratio), ratio), (without, -ratio)):
        law = law / law.sum()
        deviation = math.sqrt(np.cov(loss, aweights=law))
        grid = min(max(fineness * deviation, np.ptp(loss) / 2**20), 0.02)
        places = loss / grid + shift
        first = math.floor(places.min())
        left = np.floor(places).astype(int) - first
        up = places - np.floor(places)
        cells = np.bincount(left, law * (1 - up), left.max() + 2)
        cells += np.bincount(left + 1, law * up, len(cells))
        # Of the sum of losses, keep 12 standard deviations, and a single loss of any size.
        room = 12 * math.sqrt(steps) * deviation / grid + len(cells)
        size = 2 ** math.ceil(math.log2(2 * room))
        whole = np.fft.irfft(np.fft.rfft(cells, size) ** steps, size)
        mean = round(steps * float(np.arange(len(cells)) @ cells))
        order = np.arange(mean - size // 2, mean + size // 2)
        losses, law = (steps * first + order) * grid, np.maximum(whole[order % size], 0.0)
        falling, values = law[losses > 0][::-1], losses[losses > 0][::-1]
        tail = np.append(np.cumsum(falling)[::-1], 0.0)
        lower = np.append(np.cumsum(falling * np.exp(-values))[::-1], 0.0)
        j = np.searchsorted(values[::-1], POINTS)
        found.append(tail[j] - np.exp(POINTS) * lower[j])
    return np.max(found, axis=0)


def best(deltas, miss: float) -> float:
    """The certificate's bound, over many more points than a curve has."""
    return float(np.min(np.exp(POINTS) * miss + deltas))


# From the defaults at several ε to settings in which few draws make up the whole loss.
SETTINGS = [
    *((94.0, 0.1, 100), (2.75, 0.1, 100), (1.1, 0.1, 100), (29.7, 0.01, 1000)),
    *((0.63, 0.01, 1000), (0.467, 0.001, 10_000), (0.2, 0.01, 100), (0.2, 0.001, 1000)),
    *((0.4, 0.0001, 100), (1.0, 0.5, 1)),
]


@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS)
def test_a_certificate_is_that_of_brute_force_to_1e_4_and_on_the_safe_side(sigma, rate, steps):
    curve, fine = dpsgd_curve(sigma, rate, steps, 1e-3), brute_force(sigma, rate, steps)
    for miss in (0.001, 0.05, 0.1, 0.19, 0.2):
        gap = curve.transfer(miss) - best(fine, miss)
        assert -2e-7 <= gap <= 1e-4
        if sigma == 2.75:
            assert curve.transfer(miss) == pytest.approx(best(fine, miss), rel=1e-3)


def test_the_comparison_with_brute_force_notices_a_coarse_grid_and_rounding_down():
    sigma, rate, steps, miss = 1.1, 0.1, 100, 0.1
    fine = best(brute_force(sigma, rate, steps), miss)
    coarse = peer(sigma, rate, steps, 0.02).get_delta_for_epsilon(POINTS)
    assert best(coarse, miss) - fine > 1e-4
    down = brute_force(sigma, rate, steps, 0.015, shift=-1.0)
    assert best(down, miss) - fine < -1e-4


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


# --- several private networks together ----------------------------------------------------------

MISSES = [0.0, 1e-9, 1e-3, 0.05, 0.1, 0.4, 1.0]


def every_pair(one, other):
    """The naive twin: all pairs of points."""
    epsilons = np.add.outer(one.epsilons, other.epsilons).ravel()
    deltas = np.add.outer(one.deltas, other.deltas).ravel().clip(max=1.0)
    return PrivacyCurve(tuple(epsilons), tuple(deltas), (0.0, 0.0))


@given(st.integers(0, 10**6))
def test_points_that_are_left_out_change_no_bound(seed):
    rng = np.random.default_rng(seed)

    def curve():
        size = rng.integers(1, 12)
        return PrivacyCurve(
            tuple(rng.exponential(size=size)), tuple(rng.random(size) ** 4), (1.0, 0.1)
        )

    one, other = curve(), curve()
    found, expected = composed([one, other]), every_pair(one, other)
    assert found.total_variation == pytest.approx(expected.total_variation, abs=1e-12)
    for miss in MISSES:
        assert found.transfer(miss) == pytest.approx(expected.transfer(miss), abs=1e-12)


@pytest.mark.parametrize("shift", [0.1, 0.5, 1.5])
def test_the_curve_bounds_two_outputs_whose_law_is_known(shift):
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 10, 300)])
    one = gaussian_curve(shift, grid)
    finer = np.concatenate([[0.0], np.geomspace(1e-4, 30, 5000)])
    found, exact = composed([one, one]), gaussian_curve(math.sqrt(2) * shift, finer)
    for miss in MISSES:
        assert found.transfer(miss) >= exact.transfer(miss) - 1e-9
    assert found.total_variation >= exact.total_variation - 1e-9
    # It is not vacuous: about the sum of two, not more.
    assert found.total_variation <= 2 * one.total_variation + 1e-9


def test_three_private_networks_have_few_points_public_ones_add_nothing():
    """And unknown ones leave nothing."""
    curve = DPSGD(epsilon=0.5, epochs=2, batch_size=10).dependence(100)
    assert len(curve.epsilons) ** 2 > MOST_POINTS
    three = composed([curve] * 3)
    assert len(three.epsilons) <= MOST_POINTS
    assert three.transfer(0.1) < 0.1 + 3 * (curve.transfer(0.1) - 0.1) + 0.05
    assert three.replace_one == pytest.approx((3 * curve.replace_one[0], 3 * curve.replace_one[1]))
    assert composed([]) == INDEPENDENT
    assert composed([INDEPENDENT, curve, INDEPENDENT]) == curve
    assert composed([curve, None]) is None


def test_huge_epsilons_overflow_nowhere():
    kept = useful(np.array([0.0, 900.0, 1e6]), np.array([0.5, 0.1, 0.0]))
    assert kept[0] == 0
