"""MAPIE behind ``predict_interval``: against explicit numpy."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold

from lazyknife import compare_methods
from lazyknife.data.scaling import symlog
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor
from lazyknife.intervals import CONSTRUCTIONS, kappa
from rows import linear

pytest.importorskip("mapie")
MODELS = {
    "mean": DummyRegressor(),
    "ridge": RidgeCV(np.logspace(-3, 6, 37)),
    "forest": RandomForestRegressor(5),
    "boosting": HistGradientBoostingRegressor(),
}
NEW = linear(6, seed=1)[0]


def mapie(model="mean", **settings):
    return MapieRegressor(MODELS[model], **settings)


def seeded(model, seed):
    found = clone(MODELS[model])
    names = [name for name in found.get_params() if name.endswith("random_state")]
    return found.set_params(**dict.fromkeys(names, seed))


def cv_plus_by_hand(model, X, y, new, alpha, random_state):
    """Point, lower and upper end by one loop over the folds and one over the rows of a fold."""
    seeds, n = Seeds.of(random_state), len(y)
    lows, highs = np.empty((2, len(new), n))
    folds = KFold(min(10, n), shuffle=True, random_state=seeds.rows)
    for train, out in folds.split(X):
        fitted = seeded(model, seeds.base).fit(X[train], y[train])
        for j in out:
            error = abs(y[j] - fitted.predict(X[j : j + 1])[0])
            lows[:, j], highs[:, j] = fitted.predict(new) - error, fitted.predict(new) + error
    point, k = seeded(model, seeds.base).fit(X, y).predict(new), kappa(alpha, n)
    if k == 0:
        return point, np.full(len(new), -np.inf), np.full(len(new), np.inf)
    return point, np.sort(lows, axis=1)[:, k - 1], np.sort(highs, axis=1)[:, n - k]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*rows are too few")
@given(
    n=st.integers(4, 60),
    p=st.integers(1, 4),
    alpha=st.sampled_from([0.1, 0.15, 0.2, 0.3]),  # MAPIE's ranks are those of jackknife+
    model=st.sampled_from(["mean", "ridge"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_intervals_are_those_computed_by_hand(n, p, alpha, model, seed):
    X, y = linear(n, p, seed)
    new = linear(7, p, seed + 1)[0]
    found = mapie(model, alpha=alpha, random_state=seed).fit(X, y).predict_interval(new)
    expected = cv_plus_by_hand(model, X, y, new, alpha, seed)
    ours = np.stack([found.point, found.lower, found.upper])
    assert ours.shape == (3, 7)
    np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-7)
    assert found.alpha == alpha


@pytest.mark.parametrize("model", ["forest", "boosting"])
def test_models_with_a_seed_use_it_and_no_global_state(model):
    X, y = linear(60)
    before = np.random.get_state()
    fitted = mapie(model, random_state=4).fit(X, y)
    found = fitted.predict_interval(NEW)
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    assert before[2] == np.random.get_state()[2]
    expected = cv_plus_by_hand(model, X, y, NEW, 0.1, 4)
    np.testing.assert_allclose((found.point, found.lower, found.upper), expected, rtol=1e-7)
    np.testing.assert_array_equal(fitted.predict(NEW), found.point)
    other = clone(fitted).set_params(random_state=5).fit(X, y).predict_interval(NEW)
    assert not np.allclose(other.upper, found.upper)


@pytest.mark.parametrize("n", [10, 100, 101])
def test_certificates_of_folds(n):
    certificate = mapie("mean", random_state=0).fit(*linear(n)).certificate_
    assert certificate.coverage == 1 - CONSTRUCTIONS["cv+"].bound(0.1, n, 10, independent=True).miss
    assert list(certificate.bounds) == ["cv_plus"]
    assert f"CV+, DummyRegressor, 10 folds, n = {n}, alpha = 0.1" in certificate.subject


def test_a_transform_leaks_or_not_as_for_the_other_methods():
    X, y = linear(20)
    assert mapie("ridge", scaling="standardize").fit(X, y).certificate_.coverage is None
    pooled = mapie("ridge", scaling="standardize").fit(X, y, X_pool=NEW)
    assert pooled.certificate_.coverage > 0.7
    with pytest.warns(UserWarning, match="1 of 1 rows are not among"):
        pooled.predict_interval(X[:1])
    found, by_hand = (
        mapie("ridge", scaling=scaling, random_state=0)
        .fit(change(X), y)
        .predict_interval(change(NEW))
        for scaling, change in (("symlog", np.asarray), (None, symlog))
    )
    np.testing.assert_allclose(found.to_numpy(), by_hand.to_numpy(), rtol=1e-12)


def test_too_few_rows_give_infinite_intervals_and_a_warning():
    X, y = linear(8)
    fitted = mapie("boosting", random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="too few for alpha=0.1.*At least 9 "):
        found = fitted.predict_interval(X)
    assert (np.abs(found.to_numpy()) == np.inf).all()
    np.testing.assert_array_equal(found.point, fitted.predict(X))
    assert fitted.certificate_.coverage == 1.0
    for alpha, n in ((0.1, 9), (0.05, 59), (0.29, 99), (0.45, 99)):  # where floats move a rank
        X, y = linear(n)
        found = mapie("mean", alpha=alpha, random_state=0).fit(X, y).predict_interval(X[:1])
        _, lower, upper = cv_plus_by_hand("mean", X, y, X[:1], alpha, 0)
        assert np.isfinite(found.to_numpy()).all()
        assert found.lower[0] <= lower[0] + 1e-9
        assert found.upper[0] >= upper[0] - 1e-9


def test_another_level_needs_another_fit():
    X, y = linear(20)
    model = mapie("mean").fit(X, y)
    for alpha in (0.2, [0.1, 0.2]):
        with pytest.raises(ValueError, match=r"MAPIE was fitted for alpha=0\.1. Set alpha first"):
            model.predict_interval(X, alpha=alpha)
    with pytest.raises(ValueError, match=r"alpha=0\.3: MAPIE was fitted for"):
        model.set_params(alpha=0.3).predict_interval(X)
    assert model.fit(X, y).predict_interval(X).alpha == 0.3


def test_without_mapie_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mapie.regression", None)
    with pytest.raises(ImportError, match=r"pip install mapie"):
        mapie().fit(*linear(20))


def test_peers_can_be_compared_on_a_table():
    models = {name: mapie(name, scaling="standardize") for name in ("ridge", "mean")}
    found = compare_methods(*linear(60), models, folds=2, jobs=1)
    assert (found[["error", "warning"]] == "").all(axis=None)
    assert found["certified"].notna().all()  # the pooled scaling is no leak
