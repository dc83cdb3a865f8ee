"""``target`` and ``bounds`` of every estimator with intervals."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone

import lazyknife as lk
from lazyknife import sentences
from rows import linear

LAZY = {"network": lk.mlp((6,)), "ridge": 1.0, "random_state": 0}
BRIEF = {"network": lk.mlp((6,)), "epochs": 2, "random_state": 0}
ESTIMATORS = [
    lk.LazyJackknifeRegressor(random_state=0),
    lk.LazyJackknifeRegressor(**LAZY),
    lk.LazyJackknifeRegressor(**LAZY, construction="full"),
    lk.LazyJackknifeRegressor(**LAZY, loss=lk.Huber()),
    lk.DPLazyPI(network=lk.mlp((6,)), epsilon=1.0, random_state=0),
    lk.JackknifeRegressor(**BRIEF),
    lk.CVPlusRegressor(**BRIEF, folds=5),
    lk.SplitConformalRegressor(**BRIEF),
]
IDS = ["default", "one network", "full", "huber", "paper", "jackknife", "cv+", "split"]


def positive(n, seed=0):
    """Targets above 0 with errors in proportion to its size."""
    X, z = linear(n, seed=seed)
    return X, np.exp(z)


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=IDS)
def test_a_log_target_is_a_fit_to_the_logarithm(estimator):
    (X, y), X_new = positive(40), linear(15, seed=1)[0]
    found = clone(estimator).set_params(target_transform="log").fit(X, y)
    twin = clone(estimator).fit(X, np.log(y))
    result, logs = found.predict_interval(X_new), twin.predict_interval(X_new)
    for name in ("point", "lower", "upper"):
        np.testing.assert_allclose(getattr(result, name), np.exp(getattr(logs, name)), rtol=1e-9)
    np.testing.assert_allclose(found.predict(X_new), np.exp(twin.predict(X_new)), rtol=1e-9)
    assert found.certificate_.coverage == twin.certificate_.coverage
    stated = set(found.certificate_.assumptions) - set(twin.certificate_.assumptions)
    assert stated == {"y is always above 0."}
    labels = result.upper * np.where(np.arange(15) % 2, 0.9999, 1.0001)
    np.testing.assert_array_equal(result.covers(labels), logs.covers(np.log(labels)))


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=IDS)
def test_bounds_cut_the_intervals_and_are_an_assumption(estimator):
    X, z = linear(40)
    y = z.clip(-1, 1)
    free = clone(estimator).fit(X, y)
    bound = clone(estimator).set_params(bounds=(-1, 1)).fit(X, y)
    wide, cut = free.predict_interval(X, alpha=[0.1, 0.3]), bound.predict_interval(X, [0.1, 0.3])
    assert wide.upper.max() > 1
    np.testing.assert_array_equal(cut.lower, wide.lower.clip(-1, 1))
    np.testing.assert_array_equal(cut.upper, wide.upper.clip(-1, 1))
    np.testing.assert_array_equal(bound.predict(X), free.predict(X).clip(-1, 1))
    np.testing.assert_array_equal(cut.covers(y), wide.covers(y))
    stated = sentences.BOUNDED.format(bounds=(-1.0, 1.0))
    assert set(bound.certificate_.assumptions) - set(free.certificate_.assumptions) == {stated}
    with pytest.raises(ValueError, match=r"bounds=\(0.0, None\), but y has -"):
        clone(estimator).set_params(bounds=(0, None)).fit(X, y)


def test_the_lower_ends_of_counts_are_not_negative():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.poisson(np.exp(0.5 + X[:, 0])).astype(float)
    settings = {**LAZY, "loss": "poisson"}
    free = lk.LazyJackknifeRegressor(**settings).fit(X, y).predict_interval(X)
    cut = lk.LazyJackknifeRegressor(**settings, bounds=(0, None)).fit(X, y).predict_interval(X)
    assert free.lower.min() < 0
    assert cut.lower.min() == 0
    np.testing.assert_array_equal(cut.upper, free.upper)


@pytest.mark.parametrize(
    ("settings", "stated"),
    [
        ({"target_transform": "log1p"}, {"y is always above -1."}),
        ({"target_transform": "logit"}, {"y is always above 0 and below 1."}),
        ({"target_transform": "symlog"}, set()),
        ({"loss": "poisson"}, {"y is always 0 or more."}),
        ({"loss": "logistic"}, {"y is always 0 or 1."}),
        ({"loss": "huber"}, set()),
    ],
)
def test_the_values_that_y_may_have_are_an_assumption(settings, stated):
    """Other values of y are refused, and a refused fit counts as covered."""
    X, z = linear(30)
    y = (z > 0).astype(float) if "loss" in settings else 1 / (1 + np.exp(-z))
    model = lk.LazyJackknifeRegressor(**LAZY, **settings).fit(X, y)
    assert set(model.certificate_.assumptions[2:]) == stated


def test_too_few_rows_give_the_limits_of_y():
    X, y = linear(8)
    y = 1 / (1 + np.exp(-y))
    model = lk.LazyJackknifeRegressor(**LAZY, target_transform="logit", alpha=0.05).fit(X, y)
    with pytest.warns(UserWarning, match="too few"):
        result = model.predict_interval(X)
    assert (result.lower == 0).all()
    assert (result.upper == 1).all()


def _falling(y):
    return -np.log(y)


def _rising(z):
    return np.exp(-z)


@pytest.mark.parametrize(("pair", "sign"), [((np.log, np.exp), 1), ((_falling, _rising), -1)])
def test_a_pair_of_the_user_is_a_fit_on_its_scale_and_may_fall(pair, sign):
    (X, y), X_new = positive(30), linear(9, seed=1)[0]
    model = lk.LazyJackknifeRegressor(**LAZY, target_transform=pair).fit(X, y)
    twin = lk.LazyJackknifeRegressor(**LAZY).fit(X, sign * np.log(y))
    np.testing.assert_allclose(model.predict(X_new), np.exp(sign * twin.predict(X_new)))
    ends = twin.predict_interval(X_new).to_numpy()[:, ::sign]
    np.testing.assert_allclose(model.predict_interval(X_new).to_numpy(), np.exp(sign * ends))
    stated = set(model.certificate_.assumptions) - set(twin.certificate_.assumptions)
    assert stated == {sentences.OWN_TARGET}
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))


def test_nu_is_on_the_scale_of_the_target_and_tensors_stay_tensors():
    X, y = (torch.from_numpy(part) for part in positive(20))
    plain, wider = (
        lk.LazyJackknifeRegressor(**LAZY, target_transform="log", nu=nu)
        .fit(X, y)
        .predict_interval(X)
        for nu in (0.0, 0.5)
    )
    torch.testing.assert_close(wider.upper, plain.upper * np.exp(0.5))
    torch.testing.assert_close(wider.lower, plain.lower * np.exp(-0.5))
    assert (wider.lower > 0).all()


@pytest.mark.parametrize("target", ["log", (np.log, np.exp)])
def test_coverage_is_kept_where_errors_are_multiplicative(target):
    """False alarms: 1,000 rows of 10 training sets; 4 standard errors below .9, about 1e-4."""
    covered = []
    for seed in range(10):
        X, y = positive(150, seed)
        model = lk.LazyJackknifeRegressor(**LAZY, target_transform=target).fit(X[:50], y[:50])
        covered.append(model.predict_interval(X[50:]).covers(y[50:]).mean())
    assert np.mean(covered) > 0.9 - 4 * np.std(covered, ddof=1) / np.sqrt(10)


def test_the_audit_fits_the_same_scale():
    X, y = positive(20)
    settings = {"refits": 2, "nu": 0.5, "random_state": 0}
    model = lk.LazyJackknifeRegressor(lk.mlp((4,)), lk.DPSGD(epochs=1), 1.0, random_state=0)
    logs = lk.audit_stability(model, X, np.log(y), X[:3], **settings)
    model.set_params(target_transform="log")
    found = lk.audit_stability(model, X, y, X[:3], **settings)
    np.testing.assert_array_equal(found.eta, logs.eta)
