"""What cannot be computed is refused with the argument's name, before anything is built."""

import inspect
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import lazyknife as lk
from lazyknife.intervals import kappa, rows_needed

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
y = X[:, 0] + 0.1 * rng.normal(size=12)
counts = rng.poisson(3.0, size=12)
TRAINED = [lk.JackknifeRegressor, lk.CVPlusRegressor, lk.SplitConformalRegressor]
ALL = [lk.LazyJackknifeRegressor, *TRAINED]
SMALL = lk.mlp((3,))
ARRAY = np.array([0.1, 0.2])


def lazy(**settings):
    return lk.LazyJackknifeRegressor(**{"network": SMALL, "random_state": 0, **settings})


def kind(value):
    return type(value).__name__


NAMES = ["ridge", "construction", "readout", "fit_intercept", "parameters", "features", "widths"]
NAMES += ["feature_weights", "folds", "n_starts", "loss", "scaling", "alpha", "nu", "device"]
NAMES += ["memory_budget", "base", "verbose", "network", "target_transform", "bounds"]


@pytest.mark.parametrize("value", [ARRAY, 10**400, object(), b"no", pd.NA, torch.ones(2)], ids=kind)
@pytest.mark.parametrize("name", NAMES)
def test_settings_of_a_wrong_type_are_named(name, value):
    with pytest.raises((ValueError, TypeError), match=rf"^{name}\b"):
        lazy(**{name: value}).fit(X, y)


@pytest.mark.parametrize("value", ["no", -1, True, 1.5, object(), int], ids=kind)
@pytest.mark.parametrize("estimator", ALL)
def test_what_is_no_seed_is_refused(estimator, value):
    with pytest.raises(ValueError, match=r"random_state=.*whole number"):
        estimator(network=SMALL, random_state=value).fit(X, y)


@pytest.mark.parametrize("value", [None, 3, [], [3], "body", object(), np.array(["a"])], ids=kind)
def test_what_selects_no_parameters_is_refused(value):
    with pytest.raises((ValueError, TypeError), match=r"parameters=.*'all', 'last'"):
        lazy(parameters=value).fit(X, y)


def test_a_selection_that_fails_is_named():
    with pytest.raises(ValueError, match=r"parameters=.*failed for '0.weight'"):
        lazy(parameters=lambda name: True).fit(X, y)


@pytest.mark.parametrize("estimator", TRAINED)
@pytest.mark.parametrize("value", ["no", 1, None])
def test_baselines_take_only_true_and_false_for_an_intercept(estimator, value):
    with pytest.raises(TypeError, match=r"intercept=.*True or False"):
        estimator(network=SMALL, fit_intercept=value).fit(X, y)


@pytest.mark.parametrize("network", [lk.mlp, lk.wide, lk.Public])
@pytest.mark.parametrize("estimator", ALL)
def test_a_class_instead_of_an_instance_is_named(estimator, network):
    with pytest.raises(TypeError, match=f"network={network.__name__} is a class: give an instance"):
        estimator(network=network).fit(X, y)


@pytest.mark.parametrize("network", [nn.Linear, torch.sin, lambda: None, nn.ReLU], ids=kind)
def test_a_callable_that_makes_no_network_is_named(network):
    with pytest.raises((ValueError, TypeError), match=r"network"):
        lazy(network=network).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_starts": 10**6}, "starts=1000000: give a number from 1 to 10000"),
        ({"n_starts": 9000, "network": lk.mlp((2000, 2000))}, "starts=9,000 .* bytes"),
        ({"network": lk.mlp((10**9,))}, r"widths=\(1000000000,\) .* bytes"),
        ({"network": lk.mlp((10**5, 10**6))}, "network: .* bytes"),
        ({"features": lk.Sketch(10**9)}, "features .* bytes"),
        ({"base": lk.Plain(epochs=10**7)}, "epochs=10,000,000 .* hours"),
        ({"base": lk.Split(0.5, lk.Plain(epochs=10**7))}, "epochs=.* hours"),
        ({"base": lk.Perturbed(1.0, 1.0, training=lk.Plain(epochs=10**8))}, "epochs=.* hours"),
        ({"base": lk.DPSGD(epochs=10**7, noise_multiplier=1.0)}, "epochs=.* hours"),
        ({"base": lk.DPSGD(epochs=10**7)}, "epochs"),
    ],
)
def test_what_would_take_hours_or_does_not_fit_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        lazy(**settings).fit(X, y)


@pytest.mark.parametrize("estimator", TRAINED)
def test_baselines_refuse_trainings_of_hours(estimator):
    with pytest.raises(ValueError, match=r"epochs=.* hours: give fewer epochs"):
        estimator(network=SMALL, epochs=10**8).fit(X, y)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    "values",
    [
        [None, *y[1:]],
        [*y[:-1], math.nan],
        [math.inf, *y[1:]],
        pd.Series([None, *y[1:]], dtype=object),
        [str(v) for v in y],
        y.astype("U"),
        np.full(len(y), np.timedelta64("NaT", "s")),
        np.full(len(y), np.datetime64("2020-01-01")),
    ],
    ids=["None", "nan", "inf", "object", "texts", "text", "timedelta", "date"],
)
def test_targets_that_are_no_finite_numbers_are_refused(estimator, values):
    with pytest.raises((ValueError, TypeError), match=r"\by\b"):
        estimator(network=SMALL).fit(X, values)


class Squares(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows).square()


@pytest.mark.parametrize("estimator", TRAINED)
def test_predictions_that_overflow_are_refused(estimator):
    network = Squares(X.shape[1], 1)
    model = estimator(network=network, epochs=1, alpha=0.3, random_state=0).fit(X, y)
    rows = np.vstack([X[:1], 1e300 * X[:2]])
    for predict in (model.predict, model.predict_interval):
        with pytest.raises(ValueError, match=r"not finite numbers for 2 of 3 rows of X.* row 1"):
            predict(rows)


@pytest.mark.parametrize(("loss", "target"), [("huber", y), ("poisson", counts)])
@pytest.mark.parametrize("ridge", [1e-99, 1e-30, 1e-12])
def test_a_ridge_that_rounding_outweighs_is_refused(loss, target, ridge):
    with pytest.raises(ValueError, match=r"ridge"):
        lazy(network=lk.mlp((8,)), loss=loss, ridge=ridge).fit(X, target)


@pytest.mark.parametrize("further", ["X_pool", "X_unlabeled"])
def test_columns_of_further_rows_are_found_by_name(further):
    frame = pd.DataFrame(X * [1.0, 100.0], columns=["a", "b"])
    new = pd.DataFrame(rng.normal(size=(6, 2)) * [1.0, 100.0], columns=["a", "b"])
    model = lazy(scaling="standardize", alpha=0.3)
    expected = model.fit(frame, y, **{further: new}).predict(new)
    swapped = model.fit(frame, y, **{further: new[["b", "a"]]}).predict(new)
    np.testing.assert_array_equal(swapped, expected)
    with pytest.raises(ValueError, match=f"{further}.*'a'"):
        model.fit(frame, y, **{further: new.rename(columns={"a": "z"})})


class Rare(nn.Module):
    """A network that drops units in batches of more than two rows alone."""

    def __init__(self, features):
        super().__init__()
        self.first, self.last = nn.Linear(features, 4), nn.Linear(4, 1)

    def forward(self, x):
        hidden = self.first(x)
        return self.last(nn.functional.dropout(hidden, 0.5, self.training and len(x) > 2))


def dropping(features):
    return nn.Sequential(nn.Linear(features, 4), nn.Dropout(0.5), nn.Linear(4, 1))


@pytest.mark.parametrize("network", [Rare, dropping])
@pytest.mark.parametrize("estimator", ALL)
def test_the_random_state_of_torch_is_left_alone(estimator, network):
    lazily = estimator is lk.LazyJackknifeRegressor
    settings = {"base": lk.Plain(epochs=1)} if lazily else {"epochs": 1}
    before = torch.get_rng_state()
    estimator(network=network, random_state=0, **settings).fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("alpha", [1 - 1e-16, 1 - 1e-9, 0.9999])
@pytest.mark.parametrize("construction", ["plus", "minmax", "full", "cv+", "jackknife", "naive"])
def test_levels_near_one_have_intervals(alpha, construction):
    model = lazy(construction=construction, alpha=alpha, folds=3, ridge=1.0).fit(X, y)
    result = model.predict_interval(X, alpha=[alpha, 0.5])
    assert not np.isnan(result.lower).any()
    assert not np.isnan(result.upper).any()
    assert kappa(alpha, len(y)) <= len(y)


def test_the_least_level_needs_a_known_number_of_rows():
    assert rows_needed(1e-15) == pytest.approx(1e15, rel=1e-6)
    with pytest.raises(ValueError, match=r"alpha=1e-320: give a number from 1e-15"):
        lazy(alpha=1e-320).fit(X, y)


METHODS = ["fit", "predict", "predict_interval", "score", "certify", "check_exchangeable"]


class Own(lk.LazyJackknifeRegressor):
    """A class of a user's."""


@pytest.mark.parametrize("method", [*METHODS, "save", "load", "set_params"])
@pytest.mark.parametrize("estimator", [*ALL, Own])
def test_errors_of_wrong_arguments_name_no_inner_class(estimator, method):
    found = getattr(estimator(), method)
    if method not in ("load", "set_params"):  # these take any keyword
        with pytest.raises(TypeError, match=rf"^{method}\(\) got an unexp"):
            found(X, row_weights=y)
    assert inspect.getdoc(found)


def test_what_python_says_of_a_method_stays_true():
    model = lk.CVPlusRegressor(SMALL, alpha=0.3)
    assert pickle.loads(pickle.dumps(model.fit)).__self__.alpha == 0.3
    assert list(inspect.signature(Own.fit).parameters) == [
        "self",
        "X",
        "y",
        "X_pool",
        "X_unlabeled",
    ]
