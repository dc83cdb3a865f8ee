"""What studies put MAPIE around, and its schemes, against explicit numpy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from research.study import METHODS, Setting
from research.study.methods import PEERS, STRONG
from research.study.own import FunctionRegressor
from research.study.peers import MODELS, RIDGES, mapie, seeded
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor
from lazyknife.intervals import kappa
from rows import linear

pytest.importorskip("mapie")
X, Y = linear(80)
NEW = linear(5, seed=1)[0]
half = partial(train_test_split, test_size=0.5)


def fitted(scheme, model, alpha=0.1, n=80):
    made = mapie(scheme, model)(Setting(alpha=alpha))
    return made.set_params(random_state=2).fit(X[:n], Y[:n])


def test_ridge_is_standardised_and_chosen_within_the_rows_it_is_fitted_to():
    X, y = linear(12, noise=2.0)
    X, new = X * [1, 1000, 1e-3] + [0, 5e4, 0], linear(4, seed=1)[0] * [1, 1000, 1e-3]
    Z, centre, scale = (X - X.mean(axis=0)) / X.std(axis=0), X.mean(axis=0), X.std(axis=0)

    def loss(ridge):
        left = (np.delete(np.arange(12), i) for i in range(12))
        fits = (Ridge(ridge).fit(Z[rows], y[rows]) for rows in left)
        return sum((y[i] - fit.predict(Z[i : i + 1])[0]) ** 2 for i, fit in enumerate(fits))

    best = min(RIDGES, key=loss)
    assert RIDGES[0] < best < RIDGES[-1]
    expected = Ridge(best).fit(Z, y).predict((new - centre) / scale)
    np.testing.assert_allclose(seeded("ridge", 0).fit(X, y).predict(new), expected, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("model", ["ridge", "forest", "boosting"])
def test_split_conformal_is_that_computed_by_hand(model, alpha):
    before = np.random.get_state()
    made = fitted("split", model, alpha)
    found, seeds = made.predict_interval(NEW), Seeds.of(2)
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    learn, kept = half(np.arange(80), random_state=seeds.rows)
    twin = seeded(model, seeds.base).fit(X[learn], Y[learn])
    errors = np.sort(np.abs(Y[kept] - twin.predict(X[kept])))
    reach = errors[40 - kappa(alpha, 40)]
    np.testing.assert_allclose(found.point, twin.predict(NEW), rtol=1e-7)
    np.testing.assert_allclose(found.upper, twin.predict(NEW) + reach, rtol=1e-7)
    np.testing.assert_allclose(found.lower, twin.predict(NEW) - reach, rtol=1e-7)
    assert made.certificate_.coverage == 1 - kappa(alpha, 40) / 41


def test_normalised_widths_are_multiples_of_the_predicted_size_of_the_errors(monkeypatch):
    monkeypatch.setitem(MODELS, "forest", RandomForestRegressor(5))
    made, seeds = fitted("normalised", "gradient"), Seeds.of(2)
    found = made.predict_interval(NEW)
    learn, kept = half(np.arange(80), random_state=seeds.rows)
    model = seeded("gradient", seeds.base).fit(X[learn], Y[learn])
    calibrate, size_rows = train_test_split(np.arange(40), random_state=seeds.base)
    errors = np.abs(Y[kept] - model.predict(X[kept]))
    size = seeded("forest", seeds.base).set_params(min_samples_leaf=5)
    size.fit(X[kept][size_rows], np.log(errors[size_rows]))
    scores = np.sort(errors[calibrate] / np.exp(size.predict(X[kept][calibrate])))
    reach = scores[30 - kappa(0.1, 30)] * np.exp(size.predict(NEW))
    np.testing.assert_allclose(found.upper - found.point, reach)
    np.testing.assert_allclose(found.point - found.lower, reach)
    assert made.certificate_.coverage == 1 - kappa(0.1, 30) / 31


def test_quantile_regression_corrects_each_end_by_its_own_errors():
    made, seeds = fitted("quantile", "gradient"), Seeds.of(2)
    found = made.predict_interval(NEW)
    learn, kept = half(np.arange(80), random_state=seeds.rows)
    low, high = (
        seeded("gradient", seeds.base)
        .set_params(loss="quantile", alpha=level)
        .fit(X[learn], Y[learn])
        for level in (0.05, 0.95)
    )
    rank = 40 - kappa(0.05, 40)
    below = np.sort(low.predict(X[kept]) - Y[kept])[rank]
    above = np.sort(Y[kept] - high.predict(X[kept]))[rank]
    np.testing.assert_allclose(found.lower, low.predict(NEW) - below)
    np.testing.assert_allclose(found.upper, high.predict(NEW) + above)
    assert 1 - 2 * kappa(0.05, 40) / 41 >= made.certificate_.coverage == 1 - kappa(0.1, 40) / 41


def test_too_few_rows_for_a_split_give_infinite_intervals(monkeypatch):
    monkeypatch.setitem(MODELS, "mean", DummyRegressor())
    assert np.isinf(fitted("split", "mean", n=16).predict_interval(NEW).to_numpy()).all()
    assert np.isfinite(fitted("split", "mean", n=18).predict_interval(NEW).to_numpy()).all()


@pytest.mark.parametrize("name", [*PEERS, *STRONG])
def test_methods_have_the_settings_level_and_the_model_of_their_name(name):
    made = METHODS[name](Setting(alpha=0.2))
    _, scheme, model = name.split("_")
    assert made.alpha == 0.2
    if scheme == "cv":
        assert type(made) is MapieRegressor
        assert made.model is MODELS[model]
    else:
        assert type(made) is FunctionRegressor
        assert made.function.keywords == {"scheme": scheme, "model": model}
