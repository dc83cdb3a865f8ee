"""What studies put MAPIE around, and the schemes and names that they add."""

from __future__ import annotations

import numpy as np
import pytest
from research.study import METHODS, Setting
from research.study.methods import PEERS, STRONG
from research.study.peers import (
    MODELS,
    RIDGES,
    HeldOutRegressor,
    mapie,
    models_trained,
    seeded,
)
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from estimators.test_ties import every_law
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor
from lazyknife.intervals import kappa
from rows import linear

pytest.importorskip("mapie")
OTHERS = {"mean": DummyRegressor()}


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


# Split conformal and quantile regression, against explicit numpy


def held_out(scheme, model="mean", **settings):
    return HeldOutRegressor(OTHERS.get(model) or MODELS[model], scheme=scheme, **settings)


def half_split(n, seeds):
    return train_test_split(np.arange(n), test_size=0.5, random_state=seeds.rows)


@pytest.mark.parametrize("alpha", [0.1, 0.15, 0.2, 0.3])
@pytest.mark.parametrize("model", ["ridge", "forest", "boosting"])
def test_split_conformal_is_that_computed_by_hand(model, alpha):
    X, y = linear(60)
    new = linear(5, seed=1)[0]
    before = np.random.get_state()
    fitted = held_out("split", model, alpha=alpha, random_state=4).fit(X, y)
    found, seeds = fitted.predict_interval(new), Seeds.of(4)
    after = np.random.get_state()
    assert before[2] == after[2]
    np.testing.assert_array_equal(before[1], after[1])
    learn, kept = half_split(60, seeds)
    twin = seeded(model, seeds.base).fit(X[learn], y[learn])
    errors = np.sort(np.abs(y[kept] - twin.predict(X[kept])))
    reach = errors[30 - kappa(alpha, 30)]
    np.testing.assert_allclose(found.point, twin.predict(new), rtol=1e-7)
    np.testing.assert_allclose(found.upper, twin.predict(new) + reach, rtol=1e-7)
    np.testing.assert_allclose(found.lower, twin.predict(new) - reach, rtol=1e-7)


@pytest.mark.parametrize("n", [38, 39, 100])
def test_certificates_of_a_split_count_its_calibration_rows(n):
    model = held_out("split", "mean").fit(*linear(n))
    kept = len(model.loo_.residuals)
    assert abs(2 * kept - n) <= 1
    assert model.certificate_.coverage == 1 - kappa(0.1, kept) / (kept + 1) >= 0.9
    assert f"{kept} calibration rows of {n}" in model.certificate_.subject


def test_a_split_fits_its_transform_to_the_rows_of_the_model():
    X, y = linear(20)
    model = held_out("split", "ridge", scaling="standardize", random_state=3).fit(X, y)
    learn, _ = train_test_split(np.arange(20), test_size=0.5, random_state=Seeds.of(3).rows)
    np.testing.assert_allclose(model.scaling_.transformer.mean_, X[learn].mean(axis=0))


def test_a_level_whose_rank_mapie_cannot_reach_is_no_error():
    X, y = linear(196)  # 98 calibration rows: the last of them is the 98th, in floats the 99th
    found = held_out("split", "mean", alpha=1 / 99).fit(X, y).predict_interval(X[:2])
    assert kappa(1 / 99, 98) == 1
    assert np.isinf(found.to_numpy()).all()


def test_quantile_regression_corrects_each_end_by_its_own_errors():
    X, y = linear(80)
    new = linear(5, seed=1)[0]
    model = held_out("quantile", "gradient", random_state=2).fit(X, y)
    found, seeds = model.predict_interval(new), Seeds.of(2)
    learn, kept = half_split(80, seeds)
    low, high = (
        seeded("gradient", seeds.base)
        .set_params(loss="quantile", alpha=level)
        .fit(X[learn], y[learn])
        for level in (0.05, 0.95)
    )
    rank = 40 - kappa(0.05, 40)
    below = np.sort(low.predict(X[kept]) - y[kept])[rank]
    above = np.sort(y[kept] - high.predict(X[kept]))[rank]
    np.testing.assert_allclose(found.lower, low.predict(new) - below)
    np.testing.assert_allclose(found.upper, high.predict(new) + above)
    assert 1 - 2 * kappa(0.05, 40) / 41 >= model.certificate_.coverage == 1 - kappa(0.1, 40) / 41
    assert (
        "conformalised quantile regression, GradientBoostingRegressor, 40 cal"
        in model.certificate_.subject
    )


def test_too_few_rows_for_a_split_give_infinite_intervals_and_a_warning():
    X, y = linear(16)
    fitted = held_out("split", random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="too few for alpha=0.1.*At least 9 "):
        found = fitted.predict_interval(X)
    assert np.isinf(found.to_numpy()).all()
    np.testing.assert_array_equal(found.point, fitted.predict(X))
    assert np.isfinite(held_out("split").fit(*linear(18)).predict_interval(X).to_numpy()).all()


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="scheme='tree': choose from 'split', 'quantile'"):
        held_out("tree").fit(*linear(20))


TIED = [("split", "ridge"), ("split", "forest"), ("split", "gp"), ("quantile", "gradient")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("scheme", "model"), [*TIED, ("normalised", "ridge")])
def test_rows_that_tie_with_an_end_are_covered(scheme, model):
    found = every_law(lambda seed: held_out(scheme, model, random_state=seed))
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
    own = {"model": MODELS[model], "scaling": None, "alpha": 0.2, "random_state": None}
    assert type(made) is (MapieRegressor if scheme == "cv" else HeldOutRegressor)
    assert made.get_params(deep=False) == own | ({} if scheme == "cv" else {"scheme": scheme})


@pytest.mark.parametrize(("scheme", "trained"), [("cv", 9), ("split", 1), ("normalised", 2)])
def test_models_that_a_fit_trains_are_counted(scheme, trained):
    model = mapie(scheme, "ridge")(Setting()).fit(*linear(8))
    assert models_trained(model) == trained
    assert models_trained(HeldOutRegressor(MODELS["gradient"], scheme="quantile")) == 3
