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
ESTIMATORS = {
    "default": lk.LazyJackknifeRegressor(random_state=0),
    "one network": lk.LazyJackknifeRegressor(**LAZY),
    "full": lk.LazyJackknifeRegressor(**LAZY, construction="full"),
    "huber": lk.LazyJackknifeRegressor(**LAZY, loss=lk.Huber()),
    "jackknife": lk.JackknifeRegressor(**BRIEF),
    "cv+": lk.CVPlusRegressor(**BRIEF, folds=5),
    "split": lk.SplitConformalRegressor(**BRIEF),
}


def positive(n, seed=0):
    """Targets above 0 with errors in proportion to its size."""
    X, z = linear(n, seed=seed)
    return X, np.exp(z)


def falling(y):
    return -np.log(y)


def rising(z):
    return np.exp(-z)


OWN = sentences.OWN_TARGET
PAIRS = [
    ("log", 1, "y is always above 0."),
    ((np.log, np.exp), 1, OWN),
    ((falling, rising), -1, OWN),
]


@pytest.mark.parametrize(("target", "sign", "assumption"), PAIRS)
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_a_target_on_another_scale_is_a_fit_on_its_scale(estimator, target, sign, assumption):
    """Also of a pair of the user's, which may fall."""
    (X, y), X_new = positive(40), linear(15, seed=1)[0]
    found = clone(estimator).set_params(target_transform=target).fit(X, y)
    twin = clone(estimator).fit(X, sign * np.log(y))
    result, logs = found.predict_interval(X_new), twin.predict_interval(X_new)
    np.testing.assert_allclose(result.point, np.exp(sign * logs.point), rtol=1e-9)
    ends = np.exp(sign * logs.to_numpy()[:, ::sign])
    np.testing.assert_allclose(result.to_numpy(), ends, rtol=1e-9)
    np.testing.assert_allclose(found.predict(X_new), result.point, rtol=1e-9)
    assert found.certificate_.coverage == twin.certificate_.coverage
    stated = set(found.certificate_.assumptions) - set(twin.certificate_.assumptions)
    assert stated == {assumption}
    labels = result.upper * np.where(np.arange(15) % 2, 0.9999, 1.0001)
    np.testing.assert_array_equal(result.covers(labels), logs.covers(sign * np.log(labels)))
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(X_new), found.predict(X_new))


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
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


def test_nu_is_on_the_scale_of_y_and_too_few_rows_give_its_limits():
    X, y = (torch.from_numpy(part) for part in positive(20))
    plain, wider = (
        lk.LazyJackknifeRegressor(**LAZY, target_transform="log", nu=nu)
        .fit(X, y)
        .predict_interval(X)
        for nu in (0.0, 0.5)
    )
    torch.testing.assert_close(wider.upper, plain.upper * np.exp(0.5))
    torch.testing.assert_close(wider.lower, plain.lower * np.exp(-0.5))
    X, y = X[:8], y[:8] / (1 + y[:8])
    model = lk.LazyJackknifeRegressor(**LAZY, target_transform="logit", alpha=0.05).fit(X, y)
    with pytest.warns(UserWarning, match="too few"):
        result = model.predict_interval(X)
    assert (result.lower == 0).all()
    assert (result.upper == 1).all()


def test_the_audit_fits_the_same_scale():
    X, y = positive(20)
    settings = {"refits": 2, "nu": 0.5, "random_state": 0}
    model = lk.LazyJackknifeRegressor(lk.mlp((4,)), lk.DPSGD(epochs=1), 1.0, random_state=0)
    logs = lk.audit_stability(model, X, np.log(y), X[:3], **settings)
    model.set_params(target_transform="log")
    found = lk.audit_stability(model, X, y, X[:3], **settings)
    np.testing.assert_array_equal(found.eta, logs.eta)
