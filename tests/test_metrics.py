"""Scores of intervals, estimates with their errors, and scorers for scikit-learn."""

import pickle
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import lazyknife as lk
from lazyknife import Estimate
from rows import linear

ENDS = np.array([[1.0, 2.0]] * 4)
LEVELS = lk.Intervals(np.zeros(4), -ENDS, ENDS, (0.5, 0.25))
ONE = lk.Intervals(LEVELS.point, LEVELS.lower[:, 0], LEVELS.upper[:, 0], 0.5)
Y = np.array([0.0, 1.0, 1.5, -4.0])


def test_coverage_widths_and_scores_equal_their_definitions():
    assert tuple(lk.coverage(Y, ONE)) == (0.5, pytest.approx(0.25))  # the ends count
    value, error = lk.coverage(Y, LEVELS)
    np.testing.assert_allclose(value, [0.5, 0.75])
    np.testing.assert_allclose(error, np.sqrt([0.25 / 4, 0.1875 / 4]))
    assert lk.mean_width(ONE) == 2.0
    np.testing.assert_allclose(lk.mean_width(LEVELS), [2.0, 4.0])
    half = np.array([1.0, 2.0, 3.0, 6.0])
    value, error = lk.mean_width(lk.Intervals(np.zeros(4), -half, half, 0.1))
    assert (value, error) == (6.0, pytest.approx(np.std(2 * half, ddof=1) / 2))
    # Of one row and of infinite widths there is no error.
    assert np.isnan([lk.mean_width(ONE[0]).error, *lk.mean_width(LEVELS[:1]).error]).all()
    half[0] = np.inf
    value, error = lk.mean_width(lk.Intervals(np.zeros(4), -half, half, 0.1))
    assert value == np.inf
    assert np.isnan(error)
    assert lk.interval_score(Y, ONE) == pytest.approx(2 + (0.5 + 3.0) * (2 / 0.5) / 4)
    value, error = lk.interval_score(Y, LEVELS)
    scores = 4 + np.array([0, 0, 0, 2.0]) * (2 / 0.25)
    assert (value[1], error[1]) == pytest.approx((scores.mean(), np.std(scores, ddof=1) / 2))
    crossed = lk.Intervals(np.zeros(1), np.array([1.0]), np.array([-1.0]), 0.9)
    assert crossed.width == 0.0
    assert not crossed.covers([0.0])
    assert lk.interval_score([0.0], crossed) == pytest.approx(2 / 0.9 * 2.0)  # outside both ends


def test_the_interval_score_is_best_at_the_true_quantiles():
    """A proper score: moving either end away from its quantile costs."""
    y = np.random.default_rng(0).normal(size=20_000)
    z = 1.6448536

    def score(lower: float, upper: float) -> float:
        ones = np.ones_like(y)
        return lk.interval_score(y, lk.Intervals(0 * ones, lower * ones, upper * ones, 0.1))

    best = score(-z, z)
    assert all(score(-z + a, z + b) > best for a, b in ((0.3, 0), (-0.3, 0), (0, 0.3), (0, -0.3)))


def test_coverage_by_bin_of_width_and_of_a_feature():
    half = np.repeat([1.0, 3.0], 50)
    intervals = lk.Intervals(np.zeros(100), -half, half, 0.1)
    y = np.random.default_rng(1).uniform(-2, 2, 100)
    bins = lk.coverage_by_bin(y, intervals, bins=2)
    np.testing.assert_array_equal(bins.rows, [50, 50])
    np.testing.assert_allclose(bins.width, [2.0, 6.0])
    np.testing.assert_allclose(bins.coverage, [np.mean(np.abs(y[:50]) <= 1), 1.0])
    assert bins.error[1] == 0.0
    by_feature = lk.coverage_by_bin(y, intervals, by=np.arange(100), bins=4)
    np.testing.assert_array_equal(by_feature.rows, [25] * 4)
    assert by_feature.rows @ by_feature.coverage == pytest.approx(intervals.covers(y).sum())
    same = lk.coverage_by_bin(Y, ONE, bins=3)  # equal values share a bin
    assert (same.rows.tolist(), same.coverage.tolist()) == ([4], [0.5])
    starts = lk.coverage_by_bin(Y, ONE, by=[0.0, 1.0, 2.0, 4.0], bins=3)  # a bin has its lower edge
    assert starts.rows.tolist() == [1, 1, 2]


def test_bad_arguments_are_refused():
    for changed, message in (
        ({"intervals": LEVELS}, "several levels"),
        ({"by": "height"}, "by='height': choose from 'width'"),
        ({"by": [1.0, 2.0]}, r"by has shape \(2,\)"),
        ({"bins": 0}, "bins=0"),
        ({"y": Y[:, None]}, "there are 4 intervals"),
    ):
        with pytest.raises(ValueError, match=message):
            lk.coverage_by_bin(**{"y": Y, "intervals": ONE} | changed)
    for metric in (lk.coverage, lk.interval_score, lk.coverage_by_bin):
        with pytest.raises(ValueError, match="intervals has no rows"):
            metric([], ONE[:0])
        with pytest.raises(TypeError, match="is of type list: give what predict_interval returns"):
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


QUARTER = Estimate(0.25, 0.0125)
PAIR = Estimate(np.array([1.0, 3.0]), np.array([0.5, np.nan]))


def test_an_estimate_is_its_value_where_a_number_is_needed():
    assert f"{QUARTER:.1%}" == "25.0%"
    assert float(QUARTER) == QUARTER == 0.25
    assert Estimate(0.25, 3.0) == QUARTER
    assert 0.2 < QUARTER <= 0.25
    assert 2 * QUARTER + 1 == 1.5
    assert QUARTER / Estimate(0.5, 0.0) == np.sqrt(QUARTER) == 0.5
    assert type(QUARTER - 1) is np.float64
    assert pytest.approx(QUARTER) == 0.25
    assert (PAIR > 2).tolist() == [False, True]
    np.testing.assert_allclose(PAIR, [1.0, 3.0])
    assert np.mean(PAIR) == 2.0
    with pytest.raises(TypeError):
        float(PAIR)


def test_an_estimate_has_and_prints_both_numbers_is_frozen_and_can_be_pickled():
    value, error = QUARTER
    assert (value, error) == (0.25, 0.0125) == tuple(pickle.loads(pickle.dumps(QUARTER)))
    assert f"{QUARTER}" == str(QUARTER) == repr(QUARTER) == "0.25 ± 0.013"
    assert str(PAIR) == "1 ± 0.5, 3 ± nan"
    with pytest.raises(AttributeError):
        QUARTER.value = 1.0  # type: ignore[misc]


# Scorers of intervals in scikit-learn's own tools.


X, TARGETS = linear(45)
MODEL = lk.LazyJackknifeRegressor(lk.mlp((4,)), ridge=1.0, alpha=0.2, random_state=0)


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_scores_are_those_of_the_metrics_also_of_pipelines(alpha):
    fitted = MODEL.fit(X, TARGETS)
    intervals = fitted.predict_interval(X, alpha=alpha)
    for model in (fitted, make_pipeline(FunctionTransformer(), fitted)):
        assert lk.coverage_scorer(alpha)(model, X, TARGETS) == lk.coverage(TARGETS, intervals).value
        score = lk.interval_score_scorer(alpha)(model, X, TARGETS)
        assert type(score) is float
        assert score == -lk.interval_score(TARGETS, intervals).value


def test_greater_is_better_in_cross_validation_and_grids():
    scoring = {"c": lk.coverage_scorer(), "s": lk.interval_score_scorer(0.2)}
    noise = np.random.default_rng(0).normal(size=(len(TARGETS), 1))
    check = partial(cross_validate, MODEL, y=TARGETS, cv=3, scoring=scoring)
    found, worse = check(X), check(noise)
    assert ((found["test_c"] > 0) & (found["test_c"] <= 1)).all()
    assert worse["test_s"].mean() < found["test_s"].mean() < 0
    search = GridSearchCV(MODEL, {"ridge": [0.1, 1e6]}, scoring=scoring["s"], cv=3)
    assert search.fit(X, TARGETS).best_params_ == {"ridge": 0.1}


def test_scorers_compare_pickle_and_refuse():
    scorer = lk.interval_score_scorer(0.1)
    assert pickle.loads(pickle.dumps(scorer)) == scorer == lk.interval_score_scorer(alpha=0.1)
    assert scorer != lk.coverage_scorer(0.1)
    with pytest.raises(ValueError, match="alpha=2"):
        lk.coverage_scorer(2)
    with pytest.raises(TypeError, match="model is of type Ridge: give a fitted Pipeline"):
        scorer(Ridge(), X, TARGETS)


def test_the_interval_score_of_ends_that_another_library_made():
    rng = np.random.default_rng(0)
    y, lower = rng.normal(size=(2, 30))
    upper = lower + rng.uniform(0, 3, size=30)
    ours = lk.Intervals(y, lower, upper, 0.2)
    assert float(lk.interval_score(y, lower, upper, 0.2)) == float(lk.interval_score(y, ours))
    both = lk.Intervals(
        y, np.stack([lower, lower - 1], 1), np.stack([upper, upper + 1], 1), (0.2, 0.1)
    )
    found = lk.interval_score(list(y), both.lower, both.upper, [0.2, 0.1])
    assert np.array_equal(found.value, lk.interval_score(y, both).value)
    for wrong, message in (
        ((y, lower, upper, 2), "alpha=2"),
        ((y, lower[:3], upper, 0.2), r"lower has shape \(3,\): give numbers of shape \(30,\)"),
        ((y, lower, np.full(30, np.nan), 0.2), "upper has NaN"),
        ((y, both.lower, both.upper, 0.2), r"lower has shape \(30, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            lk.interval_score(*wrong)
    with pytest.raises(TypeError, match=r"interval_score\(y, lower, upper, alpha\)"):
        lk.interval_score(y, lower, upper)
