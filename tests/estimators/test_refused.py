"""What cannot be computed is refused by the argument's name, before anything is trained."""

import copy
import inspect
import pickle
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import lazyknife as lk
from descents import Moved
from lazyknife.intervals import kappa
from rows import linear

X, y = linear(30)
COUNTS = np.arange(30.0) % 5
TRAINED = [lk.JackknifeRegressor, lk.CVPlusRegressor, lk.SplitConformalRegressor]
ALL = [lk.LazyJackknifeRegressor, *TRAINED]
SMALL = lk.mlp((3,))
ARRAY = np.array([0.1, 0.2])
SKETCH = lk.Sketch(8)
ONE_NETWORK = {"network": lk.mlp((8,)), "ridge": 1.0, "readout": "tangent"}
KINDS = {"one network": ONE_NETWORK, "default": {}}
FITTED = {name: lk.LazyJackknifeRegressor(**KINDS[name]).fit(X, y) for name in KINDS}


def lazy(**settings):
    return lk.LazyJackknifeRegressor(**{"network": SMALL, "random_state": 0, **settings})


def kind(value):
    return type(value).__name__


@dataclass(frozen=True)
class NeverLearns(lk.Public):
    def learn(self, task):
        raise AssertionError("the base was learnt")


NEVER = NeverLearns()


def check_refused(model, message, rows=X, targets=y):
    """The model says so, and stays as it was."""
    before = dict(vars(model))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(rows, targets)
    assert vars(model) == before


# Rows and targets.


def with_value(array, value):
    changed = array.copy()
    changed.flat[3] = value
    return changed


BAD_ROWS = {
    "nan in X": (with_value(X, np.nan), y, "Input X contains NaN: pass a frame"),
    "inf in X": (with_value(X, np.inf), y, "X contains infinity"),
    "one row": (X[:1], y[:1], "minimum of 2 is required"),
    "lengths": (X, y[:-1], r"inconsistent numbers of samples: \[30, 29\]"),
    "nan in y": (X, with_value(y, np.nan), r"y\[3\]=nan is not a finite"),
    "None in objects": (X, pd.Series([None, *y[1:]], dtype=object), r"\by\b"),
    "three axes": (X, np.stack([y] * 2, axis=1)[..., None], r"\by\b"),
    "texts": (X, [str(v) for v in y], "y has values that are not numbers"),
    "dates": (X, np.full(30, np.datetime64("2020-01-01")), r"\by\b"),
}


@pytest.mark.parametrize("network", [SMALL, None])
@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_and_targets_that_are_no_finite_numbers_are_refused(case, estimator, network):
    rows, targets, message = BAD_ROWS[case]
    check_refused(estimator(network=network), message, rows, targets)


@pytest.mark.parametrize(
    ("settings", "rows", "targets", "message"),
    [
        ({"network": None}, X[..., None], y, r"fails on rows of shape \(3, 1\)"),
        ({"network": lk.mlp((4,)), "scaling": None}, 1e160 * X, y, "too large"),
        ({"ridge": "auto"}, X[:2], y[:2], "at least 3 rows"),
        ({"loss": "logistic", "base": NEVER}, X, COUNTS, "requires y of 0 or 1.* in row 2: "),
        ({"loss": "poisson", "base": NEVER}, X, COUNTS - 3, "y of 0 or more.* in row 0: "),
    ],
)
def test_rows_and_targets_that_a_setting_cannot_take(settings, rows, targets, message):
    check_refused(lazy(**settings), message, rows, targets)
    with pytest.raises(ValueError, match="give X_pool or X_unlabeled, not both"):
        lazy(base=Moved()).fit(X, y, X_pool=X, X_unlabeled=X)


# Settings.

NAMES = ["ridge", "construction", "readout", "fit_intercept", "parameters", "features", "widths"]
NAMES += ["feature_weights", "folds", "n_starts", "loss", "scaling", "alpha", "nu", "device"]
NAMES += ["memory_budget", "base", "verbose", "network", "target_transform", "bounds"]


@pytest.mark.parametrize("value", [ARRAY, 10**400, object(), b"no", pd.NA, torch.ones(2)], ids=kind)
@pytest.mark.parametrize("name", NAMES)
def test_settings_of_a_wrong_type_are_named(name, value):
    with pytest.raises((ValueError, TypeError), match=rf"^{name}\b"):
        lazy(**{name: value}).fit(X, y)


NORMED = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
BAD_SETTINGS = [
    ({"alpha": 0.0}, "alpha=0.0: give a number strictly between"),
    ({"alpha": "0.1"}, "alpha='0.1': give a number"),
    ({"alpha": 1e-320}, "alpha=1e-320: give a number from 1e-15"),
    ({"ridge": -1.0}, "ridge=-1.0: give a number above 0"),
    ({"ridge": "best"}, "ridge='best': give 'auto' or a number above 0"),
    ({"nu": -0.1}, "nu=-0.1"),
    ({"construction": "x"}, "'plus', 'minmax', 'full'"),
    ({"readout": "x"}, "choose from 'network', 'tangent'"),
    ({"network": []}, "at least one candidate"),
    ({"network": lambda p: None}, "must take the number of features"),
    *(({"network": call}, "network") for call in (nn.Linear, torch.sin, lambda: None, nn.ReLU)),
    ({"network": nn.Linear(3, 2)}, r"shape \(3, 2\)"),
    ({"network": nn.Linear(5, 1)}, r"rows of shape \(3,\): mat1"),
    ({"network": NORMED}, "BatchNorm layer in training mode"),
    ({"base": "dpsgd"}, "base='dpsgd': give an instance"),
    ({"base": lk.DPSGD(batch_size=31)}, "batch_size=31 is more"),
    ({"scaling": "log"}, r"scaling='log': choose from"),
    ({"features": "sketch"}, "features='sketch': give None or an instance of Ex"),
    ({"widths": "huge"}, "widths='huge': choose from 'constant', 'leverage', 'a"),
    ({"loss": "pinball"}, "loss='pinball': choose from 'squared', 'huber', 'logistic', 'poisson'"),
    ({"folds": 1}, "folds=1: give at least 2"),
    *(({name: 0}, f"{name}=0: give a whole number") for name in ("folds", "n_starts")),
    *(({"random_state": seed}, "random_state=.*whole number") for seed in ("no", -1, True, 1.5)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_bad_settings_are_refused_and_change_nothing(settings, message, kind):
    fresh = lk.LazyJackknifeRegressor(**KINDS[kind] | settings)
    check_refused(fresh, message)
    assert set(vars(fresh)) == set(fresh.get_params(deep=False))
    check_refused(copy.copy(FITTED[kind]).set_params(**settings), message)


LONG = 10**7  # epochs
OF_ONE_NETWORK = [("loss", "huber"), ("readout", "network"), ("features", SKETCH), ("n_starts", 2)]
NOT_TOGETHER = [
    *(
        (
            {"widths": widths, "construction": construction},
            rf"construction='{re.escape(construction)}' does not support widths='{widths}'"
            rf": choose widths from {allowed}, None",
        )
        for construction, widths, allowed in (
            ("full", "constant", "'leverage'"),
            *((name, "leverage", "'constant'") for name in ("cv+", "jackknife", "naive")),
        )
    ),
    ({"construction": "full", "readout": "network"}, "choose readout from 'tangent'"),
    ({"features": SKETCH, "readout": "network"}, "choose readout from 'tangent'"),
    *(
        (
            {"loss": loss, "construction": construction},
            rf"loss='{loss}' does not support construction='{re.escape(construction)}': choose "
            "construction from 'plus', 'minmax', 'jackknife', 'naive'",
        )
        for loss, construction in (("huber", "full"), ("logistic", "cv+"), ("poisson", "full"))
    ),
    ({"loss": "huber", "features": SKETCH}, "loss='huber' does not support features="),
    ({"loss": lk.Huber(2.0), "widths": "leverage"}, "choose widths from 'constant', None"),
    ({"loss": "poisson", "target_transform": "log"}, "'log' does not support loss='poisson'"),
    *(
        ({"widths": "auto"} | more, "widths='auto' requires .*: choose widths from 'constant'")
        for more in ({"features": SKETCH}, {"readout": "network"}, {"ridge": 1.0})
    ),
    *(
        ({"network": [lk.wide()], name: value}, f"{name.removeprefix('n_')}=")
        for name, value in OF_ONE_NETWORK
    ),
    ({"construction": "cv+", "folds": 31}, "folds=31 is more than the 30 rows: give at most 30"),
    (
        {"construction": "cv+", "folds": 16, "base": lk.Split(0.5, NEVER)},
        "folds=16 is more than the 15 rows: give at most 15",
    ),
    ({"n_starts": 2, "network": nn.Linear(3, 1)}, "give a callable such as mlp.*, or n_starts=1"),
    ({"parameters": ["head.*"]}, r"matches \['head.\*'\]: choose from \['0.weight'"),
    *(({"parameters": v}, "parameters=.*'all', 'last'") for v in (None, [3], "head", ARRAY)),
    ({"parameters": lambda name, p: False}, "selects none"),
    ({"parameters": lambda name: True}, "parameters=.*failed for '0.weight'"),
    ({"n_starts": 10**6}, "starts=1000000: give a number from 1 to 10000"),
    ({"n_starts": 9000, "network": lk.mlp((2000, 2000))}, "starts=9,000 .* bytes"),
    ({"network": lk.mlp((10**9,))}, r"widths=\(1000000000,\) .* bytes"),
    ({"features": lk.Sketch(10**9)}, "features .* bytes"),
    *(
        ({"base": base}, "epochs=.* hours")
        for base in (
            lk.Plain(epochs=LONG),
            lk.Perturbed(1.0, 1.0, training=lk.Plain(epochs=10 * LONG)),
            lk.DPSGD(epochs=LONG, noise_multiplier=1.0),
        )
    ),
    ({"base": lk.DPSGD(epochs=LONG)}, "epochs"),  # which takes hours to account for
]


@pytest.mark.parametrize(("settings", "message"), NOT_TOGETHER)
def test_settings_that_do_not_go_together_are_refused_before_training(settings, message):
    given = ONE_NETWORK | {"base": NEVER} | settings
    check_refused(lk.LazyJackknifeRegressor(**given), message)


def test_chosen_widths_take_four_rows():
    own = ONE_NETWORK | {"network": [lk.mlp((8,))]}
    split = lk.LazyJackknifeRegressor(**own | {"base": lk.Split(0.5, NEVER), "widths": "auto"})
    check_refused(split, "widths='auto' requires at least 4 rows, not 3", X[:6], y[:6])
    with pytest.raises(AssertionError, match="the base was learnt"):
        split.fit(X[:8], y[:8])
    few = lk.LazyJackknifeRegressor(**own | {"base": lk.Split(0.5, lk.Plain(epochs=1))})
    assert few.fit(X[:6], y[:6]).widths_ == "constant"


OF_BASELINES = [
    *((each, {"fit_intercept": v}, "True or False") for each in TRAINED for v in ("no", 1, None)),
    *((each, {"epochs": 10**8}, "epochs=.* hours: give fewer epochs") for each in TRAINED),
    *((each, {"network": lk.wide}, "network=wide is a class: give an instance") for each in ALL),
    (lk.CVPlusRegressor, {"folds": 31}, "folds=31 is more than the 30 rows"),
    (lk.CVPlusRegressor, {"folds": 1}, "folds=1: give at least 2"),
    (lk.SplitConformalRegressor, {"calibration": 1.0}, "calibration=1.0: give a number strictly"),
    (lk.JackknifeRegressor, {"epochs": 0}, "epochs=0: give a whole number of at least 1"),
    (lk.JackknifeRegressor, {"lr": -1}, "lr=-1: give a number above 0"),
]


@pytest.mark.parametrize(("estimator", "settings", "message"), OF_BASELINES)
def test_bad_settings_of_baselines_are_refused(estimator, settings, message):
    check_refused(estimator(**{"network": SMALL} | settings), message)


@pytest.mark.parametrize(("loss", "targets"), [("huber", y), ("poisson", COUNTS)])
@pytest.mark.parametrize("ridge", [1e-99, 1e-30, 1e-12])
def test_a_ridge_that_rounding_outweighs_is_refused(loss, targets, ridge):
    check_refused(lazy(network=lk.mlp((8,)), loss=loss, ridge=ridge), "ridge", X, targets)


# Predictions.


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_refuses_what_does_not_fit(kind):
    with pytest.raises(NotFittedError, match="not fitted"):
        lk.LazyJackknifeRegressor(**KINDS[kind]).predict_interval(X)
    model = FITTED[kind]
    for rows, alpha, message in (
        (X[:, :2], None, "X has 2 features, but LazyJackknifeRegressor is exp"),
        (with_value(X, np.nan), None, "contains NaN"),
        (torch.zeros(2, 3, 1), None, r"rows of shape \(3, 1\)"),
        (X, 1.5, r"alpha=1\.5"),
        (X, [], "at least one level"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict_interval(rows, alpha)
    with pytest.raises(ValueError, match="there are 30 intervals"):
        model.predict_interval(X).covers(y[:, None])


class Squares(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows).square()


@pytest.mark.parametrize("estimator", TRAINED)
def test_predictions_that_overflow_are_refused(estimator):
    network = Squares(X.shape[1], 1)
    model = estimator(network=network, epochs=1, alpha=0.3, random_state=0).fit(X[:12], y[:12])
    rows = np.vstack([X[:1], 1e300 * X[:2]])
    for predict in (model.predict, model.predict_interval):
        with pytest.raises(ValueError, match=r"not finite numbers for 2 of 3 rows of X.* row 1"):
            predict(rows)


@pytest.mark.parametrize("further", ["X_pool", "X_unlabeled"])
def test_columns_of_further_rows_are_found_by_name(further):
    frame, new = (
        pd.DataFrame(rows * [1.0, 100.0, 1.0], columns=["a", "b", "c"])
        for rows in (X, linear(6, seed=1)[0])
    )
    model = lazy(scaling="standardize", alpha=0.3)
    expected = model.fit(frame, y, **{further: new}).predict(new)
    swapped = model.fit(frame, y, **{further: new[["b", "a", "c"]]}).predict(new)
    np.testing.assert_array_equal(swapped, expected)
    with pytest.raises(ValueError, match=f"{further}.*'a'"):
        model.fit(frame, y, **{further: new.rename(columns={"a": "z"})})


@pytest.mark.parametrize("alpha", [1 - 1e-16, 1 - 1e-9, 0.9999])
@pytest.mark.parametrize("construction", ["plus", "minmax", "full", "cv+", "jackknife", "naive"])
def test_levels_near_one_have_intervals(alpha, construction):
    model = lazy(construction=construction, alpha=alpha, folds=3, ridge=1.0).fit(X, y)
    assert not np.isnan(model.predict_interval(X, alpha=[alpha, 0.5]).to_numpy()).any()
    assert kappa(alpha, len(y)) <= len(y)


# Arguments of methods.

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
    assert pickle.loads(pickle.dumps(found)).__name__ == method
    names = ["self", "X", "y", "X_pool", "X_unlabeled", "groups", "clusters"]
    assert list(inspect.signature(Own.fit).parameters) == names
