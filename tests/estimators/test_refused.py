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
from lazyknife.intervals import kappa, rows_needed
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


NO_NUMBERS = "y has values that are not numbers"
BAD_ROWS = {
    "nan in X": (with_value(X, np.nan), y, "Input X contains NaN: pass a frame"),
    "inf in X": (with_value(X, np.inf), y, "X contains infinity"),
    "empty": (X[:0], y[:0], "0 sample"),
    "one row": (X[:1], y[:1], "minimum of 2 is required"),
    "lengths": (X, y[:-1], r"inconsistent numbers of samples: \[30, 29\]"),
    "nan in y": (X, with_value(y, np.nan), r"y\[3\]=nan is not a finite"),
    "inf in y": (X, with_value(y, np.inf), r"y\[3\]=inf is not a finite"),
    "None in a list": (X, [None, *y[1:]], r"\by\b"),
    "None in objects": (X, pd.Series([None, *y[1:]], dtype=object), r"\by\b"),
    "two columns": (X, np.stack([y] * 2, axis=1), "y should be a 1d array"),
    "texts": (X, [str(v) for v in y], NO_NUMBERS),
    "text": (X, y.astype("U"), NO_NUMBERS),
    "durations": (X, np.full(30, np.timedelta64("NaT", "s")), r"\by\b"),
    "dates": (X, np.full(30, np.datetime64("2020-01-01")), r"\by\b"),
}


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_and_targets_that_are_no_finite_numbers_are_refused(case, estimator):
    rows, targets, message = BAD_ROWS[case]
    check_refused(estimator(network=SMALL), message, rows, targets)
    if estimator is lk.LazyJackknifeRegressor:
        check_refused(estimator(), message, rows, targets)


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"network": None}, X[..., None], r"fails on rows of shape \(3, 1\)"),
        ({"network": lk.mlp((4,)), "scaling": None}, 1e160 * X, "too large"),
        ({"ridge": "auto"}, X[:2], "at least 3 rows"),
    ],
)
def test_rows_that_a_setting_cannot_take(settings, rows, message):
    check_refused(lazy(**settings), message, rows, y[: len(rows)])


@pytest.mark.parametrize(
    ("loss", "targets", "domain"),
    [("logistic", y, "0 or 1"), ("logistic", COUNTS, "0 or 1"), ("poisson", y, "0 or more")],
)
def test_targets_that_a_loss_cannot_take(loss, targets, domain):
    wrong = np.flatnonzero(~np.isin(targets, [0, 1]) if loss == "logistic" else targets < 0)[0]
    message = rf"loss='{loss}' requires y of {domain}.* in row {wrong}: "
    check_refused(lazy(base=NeverLearns(), loss=loss), message, X, targets)


def test_covariates_are_learnt_from_once():
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


BAD_SETTINGS = {
    "alpha 0": ({"alpha": 0.0}, "alpha=0.0: give a number strictly between"),
    "alpha 1": ({"alpha": 1.0}, "alpha=1.0"),
    "alpha in words": ({"alpha": "0.1"}, "alpha='0.1': give a number"),
    "alpha next to 0": ({"alpha": 1e-320}, "alpha=1e-320: give a number from 1e-15"),
    "ridge": ({"ridge": -1.0}, "ridge=-1.0: give a number above 0"),
    "ridge in words": ({"ridge": "best"}, "ridge='best': give 'auto' or a number above 0"),
    "nu": ({"nu": -0.1}, "nu=-0.1"),
    "construction": ({"construction": "x"}, "'plus', 'minmax', 'full'"),
    "readout": ({"readout": "x"}, "choose from 'network', 'tangent'"),
    "no candidate": ({"network": []}, "at least one candidate"),
    "no network": ({"network": 3}, "network=3: give None"),
    "makes no network": ({"network": lambda p: None}, "must take the number of features"),
    "two outputs": ({"network": nn.Linear(3, 2)}, r"shape \(3, 2\)"),
    "other width": ({"network": nn.Linear(5, 1)}, r"rows of shape \(3,\): mat1"),
    "batch norm": (
        {"network": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))},
        "BatchNorm layer in training mode",
    ),
    "base": ({"base": "dpsgd"}, "base='dpsgd': give an instance"),
    "batch size": ({"base": lk.DPSGD(batch_size=31)}, "batch_size=31 is more"),
    "scaling": ({"scaling": "log"}, r"scaling='log': choose from"),
    "scaling type": ({"scaling": 3}, "scaling=3"),
    "sketch by name": ({"features": "sketch"}, "features='sketch': give None or an instance of Ex"),
    "unknown widths": ({"widths": "huge"}, "widths='huge': choose from 'constant', 'leverage', 'a"),
    "unknown loss": (
        {"loss": "pinball"},
        "loss='pinball': choose from 'squared', 'huber', 'logistic', 'poisson'",
    ),
    "a loss that is no word": ({"loss": 2}, "loss=2: choose from 'squared'"),
    "one fold": ({"folds": 1}, "folds=1: give at least 2"),
    "no fold": ({"folds": 0}, "folds=0: give a whole number"),
    "no start": ({"n_starts": 0}, "n_starts=0: give a whole number"),
    "half a start": ({"n_starts": 1.5}, "n_starts=1.5"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_refused_and_change_nothing(case, kind):
    settings, message = BAD_SETTINGS[case]
    fresh = lk.LazyJackknifeRegressor(**KINDS[kind] | settings)
    check_refused(fresh, message)
    assert set(vars(fresh)) == set(fresh.get_params(deep=False))
    check_refused(copy.copy(FITTED[kind]).set_params(**settings), message)


NOT_TOGETHER = {
    **{
        f"{widths} with {construction}": (
            {"widths": widths, "construction": construction},
            rf"construction='{re.escape(construction)}' does not support widths='{widths}'"
            rf": choose widths from {allowed}, None",
        )
        for construction, widths, allowed in (
            ("full", "constant", "'leverage'"),
            ("cv+", "leverage", "'constant'"),
            ("jackknife", "leverage", "'constant'"),
            ("naive", "leverage", "'constant'"),
        )
    },
    "full with moved networks": (
        {"construction": "full", "readout": "network"},
        r"construction='full' does not support readout='network': choose readout from 'tangent'",
    ),
    "a sketch with moved networks": (
        {"features": SKETCH, "readout": "network"},
        "choose readout from 'tangent'",
    ),
    **{
        f"{loss} with {construction}": (
            {"loss": loss, "construction": construction},
            rf"loss='{loss}' does not support construction='{re.escape(construction)}': choose "
            "construction from 'plus', 'minmax', 'jackknife', 'naive'",
        )
        for loss in ("huber", "logistic", "poisson")
        for construction in ("full", "cv+")
    },
    **{
        f"{loss} with {name}": (
            {"loss": loss, **settings},
            f"loss='{loss}' does not support {name}",
        )
        for loss in ("huber", "poisson")
        for name, settings in {
            "features=Sketch": {"features": SKETCH},
            "widths='leverage'": {"widths": "leverage"},
        }.items()
    },
    **{
        f"{loss} with a target": (
            {"loss": loss, "target_transform": "log"},
            f"target_transform='log' does not support loss='{loss}'",
        )
        for loss in ("logistic", "poisson")
    },
    "a loss of one's own with leverage": (
        {"loss": lk.Huber(2.0), "widths": "leverage"},
        r"does not support widths='leverage': choose widths from 'constant', None",
    ),
    **{
        f"chosen widths with {name}": (
            {"widths": "auto", **settings},
            r"widths='auto' requires models that choose .*: choose widths from 'constant'",
        )
        for name, settings in {
            "a sketch": {"features": SKETCH},
            "moved networks": {"readout": "network"},
            "one λ": {"ridge": 1.0},
        }.items()
    },
    **{
        f"candidates with {name}": ({"network": [lk.wide()], **settings}, message)
        for name, settings, message in (
            ("another loss", {"loss": "huber"}, "loss="),
            ("moved networks", {"readout": "network"}, "readout="),
            ("a sketch", {"features": SKETCH}, "features="),
            ("several starts", {"n_starts": 2}, "starts=1"),
        )
    },
    "more folds than rows": (
        {"construction": "cv+", "folds": 31},
        "folds=31 is more than the 30 rows: give at most 30",
    ),
    "more folds than a split leaves": (
        {"construction": "cv+", "folds": 16, "base": lk.Split(0.5, NeverLearns())},
        "folds=16 is more than the 15 rows: give at most 15",
    ),
    "starts of a module": (
        {"n_starts": 2, "network": nn.Linear(3, 1)},
        "n_starts=2 needs random starts.* give a callable such as mlp.*, or n_starts=1",
    ),
    "no such weights": (
        {"parameters": ["head.*"]},
        r"matches \['head.\*'\]: choose from \['0.weight'",
    ),
    "weights by one name": ({"parameters": "head"}, "give 'all', 'last', a list"),
    "no weights": ({"parameters": lambda name, p: False}, "selects none"),
    "a selection that fails": (
        {"parameters": lambda name: True},
        "parameters=.*failed for '0.weight'",
    ),
    "many starts": ({"n_starts": 10**6}, "starts=1000000: give a number from 1 to 10000"),
    "large starts": (
        {"n_starts": 9000, "network": lk.mlp((2000, 2000))},
        "starts=9,000 .* bytes",
    ),
    "a wide network": ({"network": lk.mlp((10**9,))}, r"widths=\(1000000000,\) .* bytes"),
    "a large network": ({"network": lk.mlp((10**5, 10**6))}, "network: .* bytes"),
    "a large sketch": ({"features": lk.Sketch(10**9)}, "features .* bytes"),
    **{
        f"hours of {kind(base)}": ({"base": base}, "epochs=.* hours")
        for base in (
            lk.Plain(epochs=10**7),
            lk.Split(0.5, lk.Plain(epochs=10**7)),
            lk.Perturbed(1.0, 1.0, training=lk.Plain(epochs=10**8)),
            lk.DPSGD(epochs=10**7, noise_multiplier=1.0),
        )
    },
    "hours of accounting": ({"base": lk.DPSGD(epochs=10**7)}, "epochs"),
}


@pytest.mark.parametrize("case", NOT_TOGETHER)
def test_settings_that_do_not_go_together_are_refused_before_training(case):
    settings, message = NOT_TOGETHER[case]
    check_refused(
        lk.LazyJackknifeRegressor(**ONE_NETWORK | {"base": NeverLearns()} | settings), message
    )


def test_chosen_widths_take_four_rows():
    own = ONE_NETWORK | {"network": [lk.mlp((8,))]}
    split = lk.LazyJackknifeRegressor(
        **own | {"base": lk.Split(0.5, NeverLearns()), "widths": "auto"}
    )
    check_refused(split, "widths='auto' requires at least 4 rows, not 3", X[:6], y[:6])
    with pytest.raises(AssertionError, match="the base was learnt"):
        split.fit(X[:8], y[:8])
    few = lk.LazyJackknifeRegressor(**own | {"base": lk.Split(0.5, lk.Plain(epochs=1))})
    assert few.fit(X[:6], y[:6]).widths_ == "constant"


@pytest.mark.parametrize("value", ["no", -1, True, 1.5, object(), int], ids=kind)
@pytest.mark.parametrize("estimator", ALL)
def test_what_is_no_seed_is_refused(estimator, value):
    check_refused(estimator(network=SMALL, random_state=value), r"random_state=.*whole number")


@pytest.mark.parametrize("value", [None, 3, [], [3], "body", object(), np.array(["a"])], ids=kind)
def test_what_selects_no_parameters_is_refused(value):
    check_refused(lazy(parameters=value), r"parameters=.*'all', 'last'")


@pytest.mark.parametrize("network", [lk.mlp, lk.wide, lk.Public])
@pytest.mark.parametrize("estimator", ALL)
def test_a_class_instead_of_an_instance_is_named(estimator, network):
    message = f"network={network.__name__} is a class: give an instance"
    check_refused(estimator(network=network), message)


@pytest.mark.parametrize("network", [nn.Linear, torch.sin, lambda: None, nn.ReLU], ids=kind)
def test_a_callable_that_makes_no_network_is_named(network):
    check_refused(lazy(network=network), r"network")


OF_BASELINES = [
    *((each, {"fit_intercept": v}, "True or False") for each in TRAINED for v in ("no", 1, None)),
    *((each, {"epochs": 10**8}, "epochs=.* hours: give fewer epochs") for each in TRAINED),
    (lk.CVPlusRegressor, {"folds": 31}, "folds=31 is more than the 30 rows"),
    (lk.CVPlusRegressor, {"folds": 1}, "folds=1: give at least 2"),
    (lk.SplitConformalRegressor, {"calibration": 1.0}, "calibration=1.0: give a number strictly"),
    (lk.JackknifeRegressor, {"epochs": 0}, "epochs=0: give a whole number of at least 1"),
    (lk.JackknifeRegressor, {"lr": -1}, "lr=-1: give a number above 0"),
    (lk.JackknifeRegressor, {"network": nn.Linear(3, 2)}, "one output per row"),
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


def test_the_least_level_needs_a_known_number_of_rows():
    assert rows_needed(1e-15) == pytest.approx(1e15, rel=1e-6)


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


def test_what_python_says_of_a_method_stays_true():
    model = lk.CVPlusRegressor(SMALL, alpha=0.3)
    assert pickle.loads(pickle.dumps(model.fit)).__self__.alpha == 0.3
    names = ["self", "X", "y", "X_pool", "X_unlabeled"]
    assert list(inspect.signature(Own.fit).parameters) == names
