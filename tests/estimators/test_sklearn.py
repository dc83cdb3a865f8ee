"""scikit-learn's own checks. None is skipped but the one that wants SCIPY_ARRAY_API set."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import lazyknife as lk


@pytest.mark.filterwarnings("ignore")  # the checks use data that deserve warnings
@parametrize_with_checks(
    [
        lk.LazyJackknifeRegressor(),
        lk.LazyJackknifeRegressor(base=lk.Split(), readout="network", scaling="standardize"),
        lk.LazyJackknifeRegressor(base=lk.Public(), construction="full", n_starts=2),
        lk.LazyJackknifeRegressor(lk.mlp((64, 64), skip=True), widths="leverage"),
        lk.LazyJackknifeRegressor(base=lk.Public(), loss="huber"),
        lk.SplitConformalRegressor(),
        lk.LazyJackknifeClassifier(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        lk.LazyJackknifeRegressor(construction="cv+", folds=2),
        lk.DPLazyPI(),
        lk.JackknifeRegressor(),
        lk.CVPlusRegressor(),
    ]
)
def test_scikit_learn_checks_of_slow_estimators(estimator, check):
    check(estimator)
