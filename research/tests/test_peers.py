"""What studies put MAPIE around, and the schemes and names that they add."""

from __future__ import annotations

import numpy as np
import pytest
from research.study import METHODS, Setting
from research.study.methods import PEERS, STRONG
from research.study.peers import MODELS, RIDGES, NormalisedRegressor, mapie, models_trained, seeded
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from estimators.test_ties import every_law
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor
from lazyknife.intervals import kappa
from rows import linear

pytest.importorskip("mapie")


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


def test_normalised_widths_are_multiples_of_the_predicted_size_of_the_errors(monkeypatch):
    monkeypatch.setitem(MODELS, "forest", RandomForestRegressor(5))
    X, y = linear(80)
    new = linear(5, seed=1)[0]
    model = mapie("normalised", "gradient")(Setting()).set_params(random_state=2).fit(X, y)
    found, seeds = model.predict_interval(new), Seeds.of(2)
    learn, kept = train_test_split(np.arange(80), test_size=0.5, random_state=seeds.rows)
    fitted = seeded("gradient", seeds.base).fit(X[learn], y[learn])
    calibrate, size_rows = train_test_split(np.arange(40), random_state=seeds.base)
    errors = np.abs(y[kept] - fitted.predict(X[kept]))
    size = seeded("forest", seeds.base).set_params(min_samples_leaf=5)
    size.fit(X[kept][size_rows], np.log(errors[size_rows]))
    scores = np.sort(errors[calibrate] / np.exp(size.predict(X[kept][calibrate])))
    reach = scores[30 - kappa(0.1, 30)] * np.exp(size.predict(new))
    np.testing.assert_allclose(found.upper - found.point, reach)
    np.testing.assert_allclose(found.point - found.lower, reach)
    assert model.certificate_.coverage == 1 - kappa(0.1, 30) / 31
    assert "30 calibration rows of 80" in model.certificate_.subject


@pytest.mark.filterwarnings("ignore")
def test_rows_that_tie_with_a_normalised_end_are_covered():
    made = mapie("normalised", "ridge")(Setting())
    found = every_law(lambda seed: clone(made).set_params(random_state=seed))
    assert not any(found.values()), found


# By name


def test_the_models_are_scikit_learns():
    simple = [*MODELS][:3]
    assert simple == ["ridge", "forest", "boosting"]
    assert list(PEERS) == [
        f"mapie_{scheme}_{model}" for scheme in ("cv", "split") for model in simple
    ]
    forest = seeded("forest", 3)
    assert (forest.n_estimators, forest.random_state, forest.n_jobs) == (100, 3, None)
    assert type(seeded("boosting", 3)).__name__ == "HistGradientBoostingRegressor"
    assert seeded("boosting", 3).random_state == 3
    assert seeded("gp", 3)[-1].random_state == 3


@pytest.mark.parametrize("name", [*PEERS, *STRONG])
def test_methods_have_the_settings_level_and_the_model_of_their_name(name):
    made = METHODS[name](Setting(alpha=0.2))
    _, scheme, model = name.split("_")
    normalised = scheme == "normalised"
    assert type(made) is (NormalisedRegressor if normalised else MapieRegressor)
    own = {"model": MODELS[model], "scheme": "split" if normalised else scheme, "scaling": None}
    assert made.get_params(deep=False) == {**own, "alpha": 0.2, "random_state": None}


@pytest.mark.parametrize(("scheme", "trained"), [("cv", 9), ("split", 1), ("normalised", 2)])
def test_models_that_a_fit_trains_are_counted(scheme, trained):
    model = mapie(scheme, "ridge")(Setting()).fit(*linear(8))
    assert models_trained(model) == trained
    assert models_trained(MapieRegressor(MODELS["gradient"], "quantile")) == 3
