import numpy as np
import pytest

import lazyknife as lk

ENDS = np.array([[1.0, 2.0]] * 4)
LEVELS = lk.Intervals(np.zeros(4), -ENDS, ENDS, (0.5, 0.25))
ONE = lk.Intervals(LEVELS.point, LEVELS.lower[:, 0], LEVELS.upper[:, 0], 0.5)
Y = np.array([0.0, 1.0, 1.5, -4.0])


def test_coverage_counts_the_ends_and_has_a_monte_carlo_error():
    assert tuple(lk.coverage(Y, ONE)) == (0.5, pytest.approx(0.25))
    value, error = lk.coverage(Y, LEVELS)
    np.testing.assert_allclose(value, [0.5, 0.75])
    np.testing.assert_allclose(error, np.sqrt([0.25 / 4, 0.1875 / 4]))


def test_mean_width():
    assert lk.mean_width(ONE) == 2.0
    np.testing.assert_allclose(lk.mean_width(LEVELS), [2.0, 4.0])
    half = np.array([1.0, 2.0, 3.0, 6.0])
    value, error = lk.mean_width(lk.Intervals(np.zeros(4), -half, half, 0.1))
    assert value == 6.0
    assert error == pytest.approx(np.std(2 * half, ddof=1) / 2)


def test_means_of_one_row_or_of_infinite_widths_have_no_error():
    assert np.isnan(lk.mean_width(ONE[0]).error)
    assert np.isnan(lk.mean_width(LEVELS[:1]).error).all()
    infinite = lk.Intervals(np.zeros(2), np.array([-np.inf, 0]), np.array([np.inf, 1]), 0.1)
    value, error = lk.mean_width(infinite)
    assert value == np.inf
    assert np.isnan(error)


def test_interval_score_charges_misses_by_their_distance():
    assert lk.interval_score(Y, ONE) == pytest.approx(2 + (0.5 + 3.0) * (2 / 0.5) / 4)
    second = 4 + 2.0 * (2 / 0.25) / 4
    value, error = lk.interval_score(Y, LEVELS)
    np.testing.assert_allclose(value[1], second)
    scores = 4 + np.array([0, 0, 0, 2.0]) * (2 / 0.25)
    np.testing.assert_allclose(error[1], np.std(scores, ddof=1) / 2)


def test_the_interval_score_is_best_at_the_true_quantiles():
    """A proper score: moving either end away from its quantile costs."""
    y = np.random.default_rng(0).normal(size=20_000)
    z = 1.6448536

    def score(lower: float, upper: float) -> float:
        ones = np.ones_like(y)
        return lk.interval_score(y, lk.Intervals(0 * ones, lower * ones, upper * ones, 0.1))

    best = score(-z, z)
    assert all(score(-z + a, z + b) > best for a, b in ((0.3, 0), (-0.3, 0), (0, 0.3), (0, -0.3)))


def test_empty_intervals_have_no_width():
    crossed = lk.Intervals(np.zeros(1), np.array([1.0]), np.array([-1.0]), 0.9)
    assert crossed.width == 0.0
    assert not crossed.covers([0.0])
    assert lk.interval_score([0.0], crossed) == pytest.approx(2 / 0.9 * 2.0)  # outside both ends


def test_coverage_by_bin_of_width_and_of_a_feature():
    rng = np.random.default_rng(1)
    half = np.repeat([1.0, 3.0], 50)
    intervals = lk.Intervals(np.zeros(100), -half, half, 0.1)
    y = np.concatenate([rng.uniform(-2, 2, 50), rng.uniform(-2, 2, 50)])
    bins = lk.coverage_by_bin(y, intervals, bins=2)
    np.testing.assert_array_equal(bins.rows, [50, 50])
    np.testing.assert_allclose(bins.width, [2.0, 6.0])
    np.testing.assert_allclose(bins.coverage, [np.mean(np.abs(y[:50]) <= 1), 1.0])
    assert bins.error[1] == 0.0
    feature = np.arange(100)
    by_feature = lk.coverage_by_bin(y, intervals, by=feature, bins=4)
    np.testing.assert_array_equal(by_feature.rows, [25] * 4)
    assert by_feature.rows @ by_feature.coverage == pytest.approx(intervals.covers(y).sum())


def test_equal_values_share_a_bin():
    bins = lk.coverage_by_bin(Y, ONE, bins=3)
    assert bins.rows.tolist() == [4]
    assert bins.coverage.tolist() == [0.5]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="several levels"):
        lk.coverage_by_bin(Y, LEVELS)
    with pytest.raises(ValueError, match="by='height': choose from 'width'"):
        lk.coverage_by_bin(Y, ONE, by="height")
    with pytest.raises(ValueError, match=r"by has shape \(2,\)"):
        lk.coverage_by_bin(Y, ONE, by=[1.0, 2.0])
    with pytest.raises(ValueError, match="bins=0"):
        lk.coverage_by_bin(Y, ONE, bins=0)
    with pytest.raises(ValueError, match="there are 4 intervals"):
        lk.coverage(Y[:, None], ONE)


@pytest.mark.parametrize("metric", [lk.coverage, lk.interval_score, lk.coverage_by_bin])
def test_no_rows_and_no_intervals_are_refused(metric):
    with pytest.raises(ValueError, match="intervals has no rows"):
        metric([], ONE[:0])
    with pytest.raises(TypeError, match="give what predict_interval returns"):
        metric(Y, [0.5] * 4)
    with pytest.raises(ValueError, match="intervals has no rows"):
        lk.mean_width(ONE[:0])


@pytest.mark.parametrize("infinite", [5, 50, 100])
def test_infinite_widths_are_binned_too(infinite):
    width = np.linspace(1, 2, 100)
    width[100 - infinite :] = np.inf
    intervals = lk.Intervals(np.zeros(100), -width / 2, width / 2, 0.1)
    found = lk.coverage_by_bin(np.full(100, 0.9), intervals, bins=4)
    assert found.rows.sum() == 100
    assert found.upper[-1] == np.inf
    assert found.width[-1] == np.inf
    finite = found.upper < np.inf
    assert np.isfinite(found.lower[finite]).all()
    assert (found.coverage * found.rows).sum() == pytest.approx(intervals.covers([0.9] * 100).sum())
