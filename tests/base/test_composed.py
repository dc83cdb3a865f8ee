"""Several private networks together: the curve of all of them, with few points."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from lazyknife.base import DPSGD
from lazyknife.base.privacy import MOST_POINTS, composed, useful
from lazyknife.records import INDEPENDENT, PrivacyCurve

MISSES = [0.0, 1e-9, 1e-3, 0.05, 0.1, 0.4, 1.0]


def gaussian(shift, epsilons):
    """The curve of N(0, 1) against N(shift, 1)."""
    left = norm.cdf(shift / 2 - epsilons / shift)
    deltas = left - np.exp(epsilons) * norm.cdf(-shift / 2 - epsilons / shift)
    return PrivacyCurve(tuple(epsilons), tuple(np.clip(deltas, 0, 1)), (1.0, 1e-3))


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
    one = gaussian(shift, grid)
    finer = np.concatenate([[0.0], np.geomspace(1e-4, 30, 5000)])
    found, exact = composed([one, one]), gaussian(math.sqrt(2) * shift, finer)
    for miss in MISSES:
        assert found.transfer(miss) >= exact.transfer(miss) - 1e-9
    assert found.total_variation >= exact.total_variation - 1e-9
    # It is not vacuous: about the sum of two, not more.
    assert found.total_variation <= 2 * one.total_variation + 1e-9


def test_three_private_networks_have_few_points():
    curve = DPSGD(epsilon=0.5, epochs=2, batch_size=10).dependence(100)
    assert len(curve.epsilons) ** 2 > MOST_POINTS
    three = composed([curve] * 3)
    assert len(three.epsilons) <= MOST_POINTS
    assert curve.total_variation < three.total_variation <= 3 * curve.total_variation + 1e-9
    assert three.transfer(0.1) < 0.1 + 3 * (curve.transfer(0.1) - 0.1) + 0.05
    assert list(three.epsilons) == sorted(three.epsilons)
    assert three.replace_one == pytest.approx((3 * curve.replace_one[0], 3 * curve.replace_one[1]))


def test_public_networks_add_nothing_and_unknown_ones_leave_nothing():
    curve = PrivacyCurve.from_dp(0.3, 0.01)
    assert composed([]) == INDEPENDENT
    assert composed([INDEPENDENT, curve, INDEPENDENT]) == curve
    assert composed([curve, None]) is None


def test_huge_epsilons_overflow_nowhere():
    kept = useful(np.array([0.0, 900.0, 1e6]), np.array([0.5, 0.1, 0.0]))
    assert kept[0] == 0
