import copy
import pickle
import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from torch import nn

import lazyknife as lk
import reference
from descents import Moved
from rows import linear, real_file, simulated

FAST = {
    "network": lk.mlp((8,)),
    "base": lk.Public(),
    "ridge": 1.0,
    "readout": "tangent",
    "random_state": 0,
}
KINDS = [FAST, {"random_state": 0}]  # one network, and the default: candidates to choose from


PREDICTIONS = {
    "network": reference.network_predictions,
    "tangent": reference.tangent_predictions,
}


@pytest.mark.parametrize("readout", ["network", "tangent"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("base", [lk.Public(), lk.DPSGD(), lk.Plain()])
def test_jackknife_plus_equals_n_explicit_refits(readout, intercept, base):
    X, y = linear(25)
    X_new = linear(7, seed=1)[0]
    model = lk.LazyJackknifeRegressor(
        lk.mlp((6, 5)),
        base,
        2.0,
        "plus",
        readout,
        intercept,
        widths="constant",
        alpha=0.2,
        random_state=3,
    ).fit(X, y)
    module, rows, new = model.base_.module, torch.from_numpy(X), torch.from_numpy(X_new)
    targets = y - reference.outputs(module, rows)
    refits = reference.refits(reference.jacobian(module, rows), targets, 2.0, intercept)
    left_out = PREDICTIONS[readout](module, refits, rows)[np.arange(25), np.arange(25)]
    at_new = PREDICTIONS[readout](module, refits, new)
    errors, predictions = np.abs(y - left_out), at_new[:, :-1]
    result = model.predict_interval(X_new)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(result.lower, np.sort(predictions - errors)[:, 5 - 1], **close)
    np.testing.assert_allclose(result.upper, np.sort(predictions + errors)[:, 26 - 5 - 1], **close)
    np.testing.assert_allclose(result.point, at_new[:, -1], **close)


def test_one_linear_layer_is_jackknife_plus_of_sklearn_ridge():
    X, y = linear(30, p=4)
    X_new = linear(9, p=4, seed=1)[0]
    network = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(network.weight)
    model = lk.LazyJackknifeRegressor(
        network, lk.Public(), ridge=0.7, widths="constant", alpha=0.2
    ).fit(X, y)
    fits = [Ridge(alpha=0.7).fit(np.delete(X, j, axis=0), np.delete(y, j)) for j in range(len(y))]
    errors = np.array([abs(y[j] - fits[j].predict(X[j : j + 1])[0]) for j in range(len(y))])
    predictions = np.stack([fit.predict(X_new) for fit in fits], axis=1)
    result = model.predict_interval(X_new)
    np.testing.assert_allclose(result.lower, np.sort(predictions - errors)[:, 5], rtol=1e-9)
    np.testing.assert_allclose(result.upper, np.sort(predictions + errors)[:, 24], rtol=1e-9)


def test_the_papers_settings():
    settings = lk.DPLazyPI(alpha=0.2, random_state=5).get_params(deep=False)
    base = settings.pop("base")
    assert (base.epsilon, base.delta, base.epochs, base.batch_size) == (0.01, 1e-3, 10, 10)
    assert settings == {
        "network": lk.mlp((64, 64)),
        "ridge": 10.0,
        "construction": "plus",
        "widths": "constant",
        "feature_weights": "auto",
        "folds": 10,
        "n_starts": 1,
        "loss": "squared",
        "readout": "network",
        "fit_intercept": False,
        "parameters": "all",
        "features": None,
        "scaling": None,
        "encoding": None,
        "target_transform": None,
        "bounds": None,
        "alpha": 0.2,
        "nu": 0.0,
        "device": "auto",
        "memory_budget": None,
        "random_state": 5,
        "verbose": False,
    }


def test_the_defaults_serve_raw_targets_and_features():
    """scikit-learn's own example data, as they come: y has mean 152 and spread 77."""
    X, y = load_diabetes(return_X_y=True)
    result = (
        lk.LazyJackknifeRegressor(random_state=0).fit(X[:300], y[:300]).predict_interval(X[300:])
    )
    assert 0.85 < result.covers(y[300:]).mean() < 0.97
    assert result.width.mean() < 0.9 * np.diff(np.quantile(y, [0.05, 0.95]))


@pytest.mark.parametrize("settings", KINDS)
def test_nu_widens_both_sides(settings):
    X, y = linear(30)
    plain = lk.LazyJackknifeRegressor(**settings).fit(X, y).predict_interval(X)
    wide = lk.LazyJackknifeRegressor(**settings, nu=0.5).fit(X, y).predict_interval(X)
    np.testing.assert_allclose(wide.to_numpy() - plain.to_numpy(), [[-0.5, 0.5]] * 30)


@pytest.mark.parametrize("settings", KINDS)
def test_several_levels_without_a_refit(settings):
    X, y = linear(40)
    model = lk.LazyJackknifeRegressor(**settings).fit(X, y)
    both = model.predict_interval(X, alpha=[0.1, 0.3])
    assert both.lower.shape == (40, 2)
    assert both.to_numpy().shape == (40, 2, 2)
    for k, level in enumerate((0.1, 0.3)):
        np.testing.assert_array_equal(
            both.upper[:, k], model.predict_interval(X, alpha=level).upper
        )
    assert list(both.to_frame().columns) == [
        "point", "lower_0.1", "upper_0.1", "width_0.1", "lower_0.3", "upper_0.3", "width_0.3",
    ]  # fmt: skip


@pytest.mark.parametrize("settings", KINDS)
def test_frames_keep_their_rows_labels_and_polars_is_read(settings):
    import polars as pl

    X, y = linear(30)
    frame = pd.DataFrame(X, columns=list("abc"), index=[f"row{i}" for i in range(30)])
    model = lk.LazyJackknifeRegressor(**settings).fit(frame, y)
    result = model.predict_interval(frame)
    assert list(result.to_frame().index) == list(frame.index)
    from_polars = model.predict_interval(pl.DataFrame(X, schema=list("abc")))
    np.testing.assert_allclose(from_polars.lower, result.lower, rtol=1e-9)


def test_lazy_layers_get_their_shapes_in_every_estimator():
    X, y = linear(20)
    network = lambda _: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))  # noqa: E731
    for make in (lk.LazyJackknifeRegressor, lk.JackknifeRegressor, lk.SplitConformalRegressor):
        first, second = (
            make(network, alpha=0.2, random_state=0).fit(X, y).predict_interval(X) for _ in range(2)
        )
        np.testing.assert_array_equal(first.to_numpy(), second.to_numpy())


@pytest.mark.filterwarnings("ignore:the moved networks are far")  # nothing to learn here
@pytest.mark.parametrize("readout", ["network", "tangent"])
def test_images_and_integer_codes_reach_networks_that_take_them(readout):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = rng.normal(size=20)
    images = torch.from_numpy(rng.normal(size=(20, 1, 6, 6)))
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))
    codes = torch.from_numpy(rng.integers(0, 5, size=(20, 3)))
    embed = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 1))
    for network, X in ((conv, images), (embed, codes)):
        for base in (lk.Public(), lk.DPSGD(epochs=1)):
            model = lk.LazyJackknifeRegressor(network, base, readout=readout, random_state=0).fit(
                X, y
            )
            assert torch.isfinite(model.predict_interval(X).width).all()


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_too_few_rows_give_infinite_intervals_and_one_warning(settings, n):
    X, y = linear(n)
    model = lk.LazyJackknifeRegressor(**settings).fit(X, y)
    with pytest.warns(UserWarning, match="At least 9 rows are needed") as caught:
        result = model.predict_interval(X)
    assert len(caught) == 1
    assert np.isinf(result.to_numpy()).all()
    assert np.isfinite(result.point).all()


def test_the_same_seed_gives_the_same_bits_and_no_global_state_is_touched():
    X, y = linear(30)
    network = lk.mlp((8,))(3)
    before = copy.deepcopy(network.state_dict())
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    settings = {
        "network": network,
        "base": lk.DPSGD(epsilon=1.0, epochs=2),
        "readout": "network",
        "ridge": 30.0,
    }
    first, second, other = (
        lk.LazyJackknifeRegressor(**settings, random_state=s).fit(X, y).predict_interval(X)
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.to_numpy(), second.to_numpy())
    assert (first.to_numpy() != other.to_numpy()).any()
    lk.LazyJackknifeRegressor(**settings).fit(X, y)  # random_state=None
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    assert not network[0]._forward_hooks
    assert network[0].weight.grad is None


def test_candidates_leave_the_same_bits_and_no_global_state():
    X, y = linear(30)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    model = lk.LazyJackknifeRegressor(random_state=1)
    first, second = (clone(model).fit(X, y).predict_interval(X) for _ in range(2))
    np.testing.assert_array_equal(first.to_numpy(), second.to_numpy())
    lk.LazyJackknifeRegressor().fit(X, y)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_a_new_fit_keeps_nothing_of_the_one_before():
    X, y = linear(30)
    model = lk.LazyJackknifeRegressor(random_state=0).fit(X, y)
    assert hasattr(model, "choice_")
    assert not hasattr(model, "base_")
    model.set_params(network=lk.mlp((8,)), ridge=1.0).fit(X, y)
    assert hasattr(model, "base_")
    assert not hasattr(model, "choice_")


@pytest.mark.parametrize("settings", KINDS)
def test_random_state_may_be_a_generator(settings):
    X, y = linear(20)
    for make in (np.random.RandomState, np.random.default_rng):
        first, second = (
            lk.LazyJackknifeRegressor(**settings | {"random_state": make(7)}).fit(X, y).predict(X)
            for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_a_target_far_from_zero_does_not_hurt():
    X, y = simulated(16, 0, 600)
    for settings in ({}, {"readout": "network"}, {"base": lk.Split()}, {"base": lk.DPSGD(2.0)}):
        near, far = (
            lk.LazyJackknifeRegressor(**settings, random_state=0)
            .fit(X[:100], y[:100] + shift)
            .predict_interval(X[100:])
            for shift in (0.0, 1000.0)
        )
        assert far.width.mean() < 1.1 * near.width.mean()
        assert far.covers(y[100:] + 1000).mean() > 0.85


@pytest.mark.parametrize("intercept", [True, False])
def test_a_base_learns_deviations_where_an_intercept_takes_up_the_mean(intercept, monkeypatch):
    seen = []
    learn = lk.Plain.learn
    monkeypatch.setattr(
        lk.Plain, "learn", lambda self, task: seen.append(task.center) or learn(self, task)
    )
    lk.LazyJackknifeRegressor(**FAST | {"base": lk.Split()}, fit_intercept=intercept).fit(
        *linear(30)
    )
    assert seen == [intercept]


def test_a_moved_network_far_from_its_tangent_is_reported():
    X, y = linear(40)
    with pytest.warns(UserWarning, match="readout='tangent'"):
        lk.LazyJackknifeRegressor(lk.mlp((8,)), lk.Public(), 0.01, readout="network").fit(
            X, 1e3 * y
        )


def test_what_ran_is_kept_on_the_result():
    X, y = linear(40)
    base = lk.DPSGD(epsilon=0.5, batch_size=8)
    model = lk.LazyJackknifeRegressor(base=base, readout="tangent", random_state=0)
    details = model.fit(X, y).base_.details
    assert details["sampling_rate"] == 0.2
    assert details["steps"] == 50
    assert details["noise_multiplier"] > 0
    assert {"seed", "lr", "epsilon", "delta"} <= details.keys()
    assert details["epsilon"] == pytest.approx(0.5, rel=0.01)


def test_the_fitted_certificate_equals_the_one_before_training():
    X, y = linear(60)
    for base in (lk.DPSGD(epsilon=0.5), lk.Public(), lk.Split(0.3)):
        for construction in ("plus", "minmax"):
            model = lk.LazyJackknifeRegressor(
                lk.mlp((4,)), base, 1.0, construction, "tangent", random_state=0
            ).fit(X, y)
            before = lk.certify(n=60, alpha=0.1, construction=construction, base=base)
            assert model.certificate_ == before
            default = lk.LazyJackknifeRegressor(base=base, construction=construction)
            assert default.fit(X, y).certificate_ == before
    perturbed = lk.Perturbed(sensitivity=0.1, epsilon=1.0)
    model = lk.LazyJackknifeRegressor(lk.mlp((4,)), perturbed, readout="tangent").fit(X, y)
    before = lk.certify(n=60, alpha=0.1, base=perturbed, n_parameters=3 * 4 + 4 + 4 + 1)
    assert model.certificate_ == before


@pytest.mark.parametrize("settings", KINDS)
def test_no_certificate_for_plain_naive_and_jackknife(settings):
    X, y = linear(30)
    plain = lk.LazyJackknifeRegressor(**settings | {"base": lk.Plain()}).fit(X, y)
    assert plain.certificate_.coverage is None
    assert "without differential privacy" in str(plain.certificate_)
    for construction in ("naive", "jackknife"):
        model = lk.LazyJackknifeRegressor(**settings, construction=construction).fit(X, y)
        assert model.certificate_.coverage is None


@pytest.mark.parametrize(
    ("parameters", "moved"),
    [
        ("all", {"0.weight", "0.bias", "2.weight", "2.bias"}),
        ("last", {"2.weight", "2.bias"}),
        (["0.*", "2.bias"], {"0.weight", "0.bias", "2.bias"}),
        (lambda name, p: p.ndim == 2, {"0.weight", "2.weight"}),
    ],
)
def test_only_selected_parameters_move(parameters, moved):
    X, y = linear(20)
    model = lk.LazyJackknifeRegressor(
        **FAST | {"readout": "network", "ridge": 30.0}, parameters=parameters
    ).fit(X, y)
    module = copy.deepcopy(model.base_.module)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in moved)
    rows = torch.from_numpy(X)
    targets = y - reference.outputs(module, rows)
    refits = reference.refits(reference.jacobian(module, rows), targets, 30.0, True)
    expected = reference.network_predictions(module, refits, rows)
    np.testing.assert_allclose(model.predict(X), expected[:, -1], rtol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["head.*"], r"matches \['head.\*'\]: choose from \['0.weight'"),
        ("head", "give 'all', 'last', a list"),
        (lambda name, p: False, "selects none"),
    ],
)
def test_a_selection_of_nothing_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        lk.LazyJackknifeRegressor(**FAST, parameters=parameters).fit(GOOD_X, GOOD_Y)


def test_weights_that_the_user_brings_are_an_assumption():
    X, y = linear(30)
    own = lk.mlp((4,))(3)
    for make in (partial(lk.LazyJackknifeRegressor, ridge=30.0), lk.SplitConformalRegressor):
        random, brought = (
            make(network, random_state=0).fit(X, y).certificate_ for network in (lk.mlp((4,)), own)
        )
        assert not any("starting weights" in sentence for sentence in random.assumptions)
        assert sum("starting weights" in sentence for sentence in brought.assumptions) == 1


def test_split_uses_only_the_other_part():
    """Labels of the base's own part reach the leave-one-out step through θ0 alone."""
    X, y = linear(40)
    settings = {"random_state": 0}
    model = lk.LazyJackknifeRegressor(base=lk.Split(0.4), **settings).fit(X, y)
    assert len(model.loo_.residuals) == 24
    learn, _ = lk.Split(0.4).rows(40, model.seeds_.rows)
    frozen = lk.LazyJackknifeRegressor(base=lk.Split(0.4, lk.Plain(epochs=1, lr=1e-99)), **settings)
    changed = y.copy()
    changed[learn] += 100.0
    np.testing.assert_array_equal(
        frozen.fit(X, y).predict_interval(X).to_numpy(),
        frozen.fit(X, changed).predict_interval(X).to_numpy(),
    )


@pytest.mark.parametrize("network", [None, lk.mlp((64, 64), skip=True)])
def test_the_ridge_of_a_left_out_model_ignores_its_row(network):
    X, y = linear(25)
    changed, moved = y.copy(), X.copy()
    changed[7] += 1e3
    moved[7] *= -30
    settings = {"network": network, "base": lk.Public(), "random_state": 0}
    first = lk.LazyJackknifeRegressor(**settings).fit(X, y)
    second = lk.LazyJackknifeRegressor(**settings).fit(moved, changed)
    assert first.ridge_[7] == second.ridge_[7]
    assert first.ridge_[-1] != second.ridge_[-1]  # the full model does look at it
    new = torch.from_numpy(linear(5, seed=9)[0])
    np.testing.assert_allclose(
        first.loo_.scaled(new).each[:, 7], second.loo_.scaled(new).each[:, 7], rtol=1e-9
    )


def test_raw_heavy_tails_are_mended_by_symlog():
    frame = pd.read_csv(real_file("blogData_train.csv.gz"), header=None, nrows=4000)
    X, y = frame.iloc[:, :-1].to_numpy(), np.log1p(frame.iloc[:, -1].to_numpy())
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:100], rows[100:]
    with pytest.warns(UserWarning, match="far from the linearised"):
        raw = lk.DPLazyPI(random_state=0).fit(X[train], y[train])
    tamed = lk.DPLazyPI(scaling="symlog", random_state=0).fit(X[train], y[train])
    assert tamed.certificate_ == raw.certificate_  # a fixed transform costs nothing
    result = tamed.predict_interval(X[test])
    assert result.covers(y[test]).mean() > 0.8
    assert result.width.mean() < raw.predict_interval(X[test]).width.mean() / 3


# Behaviour as a scikit-learn estimator.


@pytest.mark.parametrize("settings", KINDS)
def test_clone_pickle_pipeline_and_cross_validation(settings):
    X, y = linear(60)
    model = lk.LazyJackknifeRegressor(**settings)
    assert clone(model).get_params() == model.get_params()
    fitted = model.fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        again.predict_interval(X).to_numpy(), fitted.predict_interval(X).to_numpy()
    )
    assert str(again.certificate_) == str(fitted.certificate_)
    assert cross_val_score(make_pipeline(clone(model)), X, y, cv=3).mean() > 0.7


def test_settings_are_attributes_and_do_not_hide_methods():
    model = lk.LazyJackknifeRegressor(scaling="symlog", widths="leverage")
    assert not hasattr(model, "transform")
    assert (model.scaling, model.widths) == ("symlog", "leverage")
    assert callable(model.score)
    assert model.set_params(scaling=None).get_params()["scaling"] is None


# Bad input: a clear error, and the estimator stays as it was.

GOOD_X, GOOD_Y = linear(30)


def with_value(array, value):
    changed = array.copy()
    changed.flat[3] = value
    return changed


BAD_FITS = {
    "nan in X": ({}, with_value(GOOD_X, np.nan), GOOD_Y, "Input X contains NaN: pass a frame"),
    "inf in X": ({}, with_value(GOOD_X, np.inf), GOOD_Y, "X contains infinity"),
    "nan in y": ({}, GOOD_X, with_value(GOOD_Y, np.nan), r"y\[3\]=nan is not a finite"),
    "inf in y": ({}, GOOD_X, with_value(GOOD_Y, np.inf), r"y\[3\]=inf is not a finite"),
    "empty": ({}, GOOD_X[:0], GOOD_Y[:0], "0 sample"),
    "one row": ({}, GOOD_X[:1], GOOD_Y[:1], "minimum of 2 is required"),
    "lengths": ({}, GOOD_X, GOOD_Y[:-1], r"inconsistent numbers of samples: \[30, 29\]"),
    "y with two columns": ({}, GOOD_X, np.stack([GOOD_Y] * 2, axis=1), "y should be a 1d array"),
    "text in y": ({}, GOOD_X, np.array(["a"] * 30), "y has values that are not numbers"),
    "alpha 0": ({"alpha": 0.0}, GOOD_X, GOOD_Y, "alpha=0.0: give a number strictly between"),
    "alpha 1": ({"alpha": 1.0}, GOOD_X, GOOD_Y, "alpha=1.0"),
    "ridge": ({"ridge": -1.0}, GOOD_X, GOOD_Y, "ridge=-1.0: give a number above 0"),
    "ridge word": (
        {"ridge": "best"},
        GOOD_X,
        GOOD_Y,
        "ridge='best': give 'auto' or a number above 0",
    ),
    "nu": ({"nu": -0.1}, GOOD_X, GOOD_Y, "nu=-0.1"),
    "construction": ({"construction": "x"}, GOOD_X, GOOD_Y, "'plus', 'minmax', 'full'"),
    "readout": ({"readout": "x"}, GOOD_X, GOOD_Y, "choose from 'network', 'tangent'"),
    "two outputs": ({"network": nn.Linear(3, 2)}, GOOD_X, GOOD_Y, r"shape \(3, 2\)"),
    "batch norm": (
        {"network": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))},
        GOOD_X,
        GOOD_Y,
        "BatchNorm layer in training mode",
    ),
    "other width": ({"network": nn.Linear(5, 1)}, GOOD_X, GOOD_Y, r"rows of shape \(3,\): mat1"),
    "pictures": ({"network": None}, GOOD_X[..., None], GOOD_Y, r"fails on rows of shape \(3, 1\)"),
    "huge features": (
        {"network": lk.mlp((4,)), "scaling": None},
        1e160 * GOOD_X,
        GOOD_Y,
        "too large",
    ),
    "batch size": ({"base": lk.DPSGD(batch_size=31)}, GOOD_X, GOOD_Y, "batch_size=31 is more"),
    "scaling": ({"scaling": "log"}, GOOD_X, GOOD_Y, r"scaling='log': choose from"),
    "auto with two rows": ({"ridge": "auto"}, GOOD_X[:2], GOOD_Y[:2], "at least 3 rows"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_input_is_refused_and_changes_nothing(case, kind):
    settings, X, y, message = BAD_FITS[case]
    model = lk.LazyJackknifeRegressor(**kind).fit(GOOD_X, GOOD_Y).set_params(**settings)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert vars(model) == before
    fresh = lk.LazyJackknifeRegressor(**kind | settings)
    with pytest.raises(ValueError, match=message):
        fresh.fit(X, y)
    assert set(vars(fresh)) == set(fresh.get_params(deep=False))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": 3}, "network=3: give None"),
        ({"base": "dpsgd"}, "base='dpsgd': give an instance"),
        ({"alpha": "0.1"}, "alpha='0.1': give a number"),
        ({"scaling": 3}, "scaling=3"),
        ({"network": lambda p: None}, "must take the number of features"),
    ],
)
def test_wrong_types_are_refused(settings, message):
    with pytest.raises(TypeError, match=message):
        lk.LazyJackknifeRegressor(**FAST | settings).fit(GOOD_X, GOOD_Y)


@pytest.mark.parametrize("settings", KINDS)
def test_prediction_refuses_what_does_not_fit(settings):
    model = lk.LazyJackknifeRegressor(**settings)
    with pytest.raises(NotFittedError, match="not fitted"):
        model.predict_interval(GOOD_X)
    model.fit(GOOD_X, GOOD_Y)
    with pytest.raises(ValueError, match="X has 2 features, but LazyJackknifeRegressor is exp"):
        model.predict_interval(GOOD_X[:, :2])
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(with_value(GOOD_X, np.nan))
    with pytest.raises(ValueError, match=r"alpha=1\.5"):
        model.predict_interval(GOOD_X, alpha=1.5)
    with pytest.raises(ValueError, match="at least one level"):
        model.predict_interval(GOOD_X, alpha=[])
    with pytest.raises(ValueError, match=r"rows of shape \(3, 1\)"):
        model.predict(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match="there are 30 intervals"):
        model.predict_interval(GOOD_X).covers(GOOD_Y[:, None])


# Settings that do not go together are refused before anything is trained.


@dataclass(frozen=True)
class NeverLearns(lk.Public):
    def learn(self, task):
        raise AssertionError("the base was learnt")


OUTCOMES = {
    "real": GOOD_Y,
    "binary": (GOOD_Y > 0).astype(float),
    "counts": np.arange(30.0) % 5,
}
SKETCH = lk.Sketch(8)
REFUSED = {
    **{
        f"{score} with {construction}": (
            {"widths": score, "construction": construction},
            rf"construction='{re.escape(construction)}' does not support widths='{score}'"
            rf": choose widths from {allowed}, None",
        )
        for construction, score, allowed in (
            ("full", "constant", "'leverage'"),
            ("cv+", "leverage", "'constant'"),
            ("jackknife", "leverage", "'constant'"),
            ("naive", "leverage", "'constant'"),
        )
    },
    "unknown widths": (
        {"widths": "huge"},
        "widths='huge': choose from 'constant', 'leverage', 'auto'",
    ),
    "full with moved networks": (
        {"construction": "full", "readout": "network"},
        r"construction='full' does not support readout='network': choose readout from 'tangent'",
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
            rf"loss='{loss}' does not support {name}",
        )
        for loss in ("huber", "poisson")
        for name, settings in {
            "features=Sketch": {"features": SKETCH},
            "widths='leverage'": {"widths": "leverage"},
        }.items()
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
    "one fold": ({"folds": 1}, "folds=1: give at least 2"),
    "no fold": ({"folds": 0}, "folds=0: give a whole number"),
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
        "n_starts=2 .* give a callable such as mlp.*, or n_starts=1",
    ),
    "no start": ({"n_starts": 0}, "n_starts=0: give a whole number"),
    "unknown loss": (
        {"loss": "pinball"},
        "loss='pinball': choose from 'squared', 'huber', 'logistic', 'poisson'",
    ),
    "a loss that is no word": ({"loss": 2}, "loss=2: choose from 'squared'"),
}


def test_chosen_widths_take_four_rows():
    own = FAST | {"network": [lk.mlp((8,))]}
    split = own | {"base": lk.Split(0.5, NeverLearns()), "widths": "auto"}
    with pytest.raises(ValueError, match="widths='auto' requires at least 4 rows, not 3"):
        lk.LazyJackknifeRegressor(**split).fit(GOOD_X[:6], GOOD_Y[:6])
    with pytest.raises(AssertionError, match="the base was learnt"):
        lk.LazyJackknifeRegressor(**split).fit(GOOD_X[:8], GOOD_Y[:8])
    few = own | {"base": lk.Split(0.5, lk.Plain(epochs=1))}
    fitted = lk.LazyJackknifeRegressor(**few).fit(GOOD_X[:6], GOOD_Y[:6])
    assert fitted.widths_ == "constant"


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_do_not_go_together_are_refused_before_training(case):
    settings, message = REFUSED[case]
    model = lk.LazyJackknifeRegressor(**FAST | {"base": NeverLearns()} | settings)
    with pytest.raises(ValueError, match=message):
        model.fit(GOOD_X, GOOD_Y)
    assert not hasattr(model, "loo_")


@pytest.mark.parametrize(
    ("loss", "outcome", "domain"),
    [
        ("logistic", "real", "0 or 1"),
        ("logistic", "counts", "0 or 1"),
        ("poisson", "real", "0 or more"),
    ],
)
def test_targets_that_a_loss_cannot_take_are_refused_before_training(loss, outcome, domain):
    y = OUTCOMES[outcome]
    wrong = np.flatnonzero(~np.isin(y, [0, 1]) if loss == "logistic" else y < 0)[0]
    model = lk.LazyJackknifeRegressor(**FAST | {"base": NeverLearns()}, loss=loss)
    with pytest.raises(
        ValueError, match=rf"loss='{loss}' requires y of {domain}.* in row {wrong}: "
    ):
        model.fit(GOOD_X, y)


def test_covariates_are_learnt_from_once():
    model = lk.LazyJackknifeRegressor(**FAST | {"base": Moved()})
    with pytest.raises(ValueError, match="give X_pool or X_unlabeled, not both"):
        model.fit(GOOD_X, GOOD_Y, X_pool=GOOD_X, X_unlabeled=GOOD_X)


# The score: a setting, and a method of every regressor.


def test_the_setting_score_leaves_the_method_alone():
    X, y = linear(60)
    model = lk.LazyJackknifeRegressor(**FAST, widths="leverage")
    assert model.get_params()["widths"] == "leverage"
    assert clone(model).get_params()["widths"] == "leverage"
    fitted = model.fit(X[:40], y[:40])
    assert fitted.widths_ == "leverage"
    residuals = y[40:] - fitted.predict(X[40:])
    r2 = 1 - (residuals**2).sum() / ((y[40:] - y[40:].mean()) ** 2).sum()
    assert fitted.score(X[40:], y[40:]) == pytest.approx(r2)
    assert lk.LazyJackknifeRegressor.score(fitted, X[40:], y[40:]) == pytest.approx(r2)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params()["widths"] == "leverage"
    assert again.score(X[40:], y[40:]) == fitted.score(X[40:], y[40:])
    np.testing.assert_array_equal(
        again.predict_interval(X).to_numpy(), fitted.predict_interval(X).to_numpy()
    )
    other = clone(fitted).set_params(widths="constant").fit(X[:40], y[:40])
    assert (other.get_params()["widths"], other.widths_) == ("constant", "constant")
    assert (other.predict_interval(X).width != fitted.predict_interval(X).width).all()
    np.testing.assert_allclose(other.predict(X), fitted.predict(X))
    values = cross_val_score(make_pipeline(clone(model)), X, y, cv=3)
    by_hand = [
        r2_score(y[test], clone(model).fit(X[train], y[train]).predict(X[test]))
        for train, test in KFold(3).split(X)
    ]
    np.testing.assert_allclose(values, by_hand)
    assert "widths='leverage'" in repr(model)


@pytest.mark.parametrize(
    ("settings", "score"),
    [
        ({}, "constant"),
        ({"construction": "minmax"}, "constant"),
        ({"readout": "network", "ridge": 30.0}, "constant"),
        ({"construction": "full"}, "leverage"),
        ({"construction": "cv+"}, "constant"),
        ({"construction": "jackknife"}, "constant"),
        ({"construction": "naive"}, "constant"),
        ({"features": SKETCH}, "constant"),
        ({"loss": "huber"}, "constant"),
        ({"loss": lk.Huber(3.0)}, "constant"),
    ],
)
def test_the_score_that_is_used_unasked(settings, score):
    assert lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, GOOD_Y).widths_ == (
        "auto" if settings in ({}, {"construction": "minmax"}) else score
    )
    model = lk.LazyJackknifeRegressor(**FAST | settings).fit(GOOD_X, GOOD_Y)
    assert model.widths_ == score
    assert model.get_params()["widths"] is None
    asked = lk.LazyJackknifeRegressor(**FAST | settings, widths=score).fit(GOOD_X, GOOD_Y)
    np.testing.assert_array_equal(
        asked.predict_interval(GOOD_X).to_numpy(), model.predict_interval(GOOD_X).to_numpy()
    )


# Constructions, levels and certificates.


@pytest.mark.parametrize(
    "base", [lk.Public(), lk.DPSGD(noise_multiplier=9.0, epochs=1), lk.Plain(epochs=1)]
)
def test_full_conformal_certifies_what_minmax_does(base):
    full, minmax = (
        lk.LazyJackknifeRegressor(**FAST | {"base": base}, construction=construction)
        .fit(GOOD_X, GOOD_Y)
        .certificate_
        for construction in ("full", "minmax")
    )
    assert full.coverage == minmax.coverage
    assert full.bounds == minmax.bounds
    assert full.assumptions == minmax.assumptions
    assert (full.coverage is None) == isinstance(base, lk.Plain)
    assert "construction 'full'" in full.subject


def test_the_fitted_certificate_of_folds_is_the_one_before_training():
    for folds in (5, 7):
        model = lk.LazyJackknifeRegressor(**FAST, construction="cv+", folds=folds)
        fitted = model.fit(GOOD_X, GOOD_Y).certificate_
        before = lk.certify(n=30, alpha=0.1, construction="cv+", base=lk.Public(), folds=folds)
        assert fitted == before
        assert fitted.coverage == 1 - (2 * 3 - 2 + folds) / (30 + folds)  # 30 rows in 7 folds, too


NEW_WAYS = {
    "full": {"construction": "full"},
    "full, chosen ridge": {"construction": "full", "ridge": "auto"},
    "cv+": {"construction": "cv+", "folds": 5},
    "leverage, minmax": {"construction": "minmax", "widths": "leverage"},
    "minmax": {"construction": "minmax"},
    "poisson": {"loss": "poisson"},
}


@pytest.mark.parametrize("way", NEW_WAYS)
def test_several_levels_of_every_construction_without_a_refit(way):
    settings = FAST | NEW_WAYS[way]
    y = OUTCOMES["counts"] if way == "poisson" else GOOD_Y
    model = lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, y)
    new = linear(9, seed=4)[0]
    levels = [0.3, 0.05, 0.1]
    wide = lk.LazyJackknifeRegressor(**settings, nu=0.5).fit(GOOD_X, y).predict_interval(new)
    several = model.predict_interval(new, alpha=levels)
    assert several.lower.shape == several.upper.shape == (9, 3)
    assert several.alpha == (0.3, 0.05, 0.1)
    for k, level in enumerate(levels):
        one = model.predict_interval(new, alpha=level)
        np.testing.assert_array_equal(several.to_numpy()[..., k], one.to_numpy())
        np.testing.assert_array_equal(several.point, one.point)
    assert (several.width[:, 1] >= several.width[:, 2]).all()
    assert (several.width[:, 2] > several.width[:, 0]).all()
    np.testing.assert_allclose(several.point, model.predict(new))
    np.testing.assert_allclose(
        wide.to_numpy() - model.predict_interval(new).to_numpy(), [[-0.5, 0.5]] * 9
    )
    with pytest.warns(UserWarning, match="At least 99 rows are needed"):
        endless = model.predict_interval(new, alpha=[0.01, 0.1])
    assert np.isinf(endless.width[:, 0]).all()
    np.testing.assert_array_equal(endless.width[:, 1], several.width[:, 2])


# Covariates without labels.

BAG = linear(25, seed=8)[0]


@pytest.mark.parametrize("transform", [None, "standardize"])
def test_a_base_learnt_from_the_pool_speaks_of_the_pool_alone(transform):
    settings = FAST | {"base": Moved(), "scaling": transform}
    pooled = lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, GOOD_Y, X_pool=BAG)
    assert pooled.base_.details["covariates"] == len(GOOD_X) + len(BAG)
    assert pooled.certificate_.scope.startswith("the rows passed as X_pool, and no others")
    pooled.predict_interval(BAG[::-1])
    outside = np.concatenate([BAG[:4], linear(3, seed=9)[0]])
    with pytest.warns(UserWarning, match="3 of 7 rows are not among the rows passed as X_pool"):
        pooled.predict_interval(outside)
    alone = lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, GOOD_Y, X_unlabeled=BAG)
    assert alone.base_.details["covariates"] == len(BAG)
    assert alone.certificate_.scope.startswith("any new row")
    assert any("X_unlabeled" in assumption for assumption in alone.certificate_.assumptions)
    alone.predict_interval(outside)
    public = lk.LazyJackknifeRegressor(**FAST).fit(GOOD_X, GOOD_Y).certificate_
    assert pooled.certificate_.coverage == alone.certificate_.coverage == public.coverage


def test_a_pool_that_nothing_learns_from_restricts_nothing():
    model = lk.LazyJackknifeRegressor(**FAST).fit(GOOD_X, GOOD_Y, X_pool=BAG)
    assert model.certificate_.scope.startswith("any new row")
    model.predict_interval(linear(3, seed=9)[0])


# Other losses predict means.


@pytest.mark.parametrize("readout", ["tangent", "network"])
@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_predictions_are_means_and_intervals_cover(loss, readout):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 3))
    f = X @ [1.0, -1.0, 0.5]
    y = (
        rng.poisson(np.exp(0.7 * f))
        if loss == "poisson"
        else rng.random(400) < 1 / (1 + np.exp(-f))
    )
    train, test = np.arange(80), np.arange(80, 400)
    model = lk.LazyJackknifeRegressor(**FAST | {"readout": readout, "ridge": 9.0}, loss=loss)
    model.fit(X[train], y[train].astype(float))
    predicted, result = model.predict(X[test]), model.predict_interval(X[test])
    assert (predicted > 0).all()
    if loss == "logistic":
        assert (predicted < 1).all()
    np.testing.assert_allclose(result.point, predicted)
    assert np.corrcoef(predicted, f[test])[0, 1] > 0.6
    assert abs(predicted.mean() - y[test].mean()) < 0.35 * y[test].std()
    # At least .9 − 4 standard errors, of both samples; far above what is certified.
    assert result.covers(y[test].astype(float)).mean() > 0.9 - 4 * np.sqrt(
        0.09 * (1 / 80 + 1 / 320)
    )
    assert model.score(X[test], y[test]) == pytest.approx(r2_score(y[test], predicted))


@pytest.mark.parametrize("kind", KINDS)
def test_every_level_has_its_certificate(kind):
    for settings in ({}, {"construction": "full"}, {"construction": "cv+", "folds": 5}):
        model = lk.LazyJackknifeRegressor(**kind, alpha=0.2, **settings).fit(GOOD_X, GOOD_Y)
        assert model.certify() is model.certificate_
        assert model.certify(alpha=0.2) == model.certificate_
        other = lk.LazyJackknifeRegressor(**kind, alpha=0.1, **settings).fit(GOOD_X, GOOD_Y)
        assert model.certify(alpha=0.1) == other.certificate_
    with pytest.raises(ValueError, match="alpha"):
        model.certify(alpha=2.0)
    restored = pickle.loads(pickle.dumps(model))
    assert restored.certify(alpha=0.1) == model.certify(alpha=0.1)
    baseline = lk.SplitConformalRegressor(lk.mlp((3,)), epochs=1, random_state=0)
    assert baseline.fit(GOOD_X, GOOD_Y).certify(alpha=0.3).coverage < baseline.certificate_.coverage


def test_weights_from_a_callable_are_the_users_word():
    def trained(features):
        return lk.mlp((3,))(features)

    for network, said in ((None, False), (lk.mlp((3,)), False), (trained, True)):
        model = lk.LazyJackknifeRegressor(network, base=lk.DPSGD(epsilon=1.0), random_state=0)
        words = " ".join(model.fit(GOOD_X, GOOD_Y).certificate_.assumptions)
        assert ("starting weights" in words) == said


def test_the_lazy_step_has_a_seed_of_its_own():
    model = lk.LazyJackknifeRegressor(**FAST).fit(GOOD_X, GOOD_Y)
    assert len(set(model.seeds_)) == 4


def test_raw_columns_lose_the_certificate_and_are_named():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": 1e11 * np.exp(rng.normal(size=60)), "age": rng.normal(size=60)})
    targets = rng.normal(size=60)
    model = lk.LazyJackknifeRegressor(lk.mlp((64, 64), skip=True), ridge=1.0, random_state=0)
    with pytest.warns(UserWarning, match="no coverage is guaranteed.*'income'.*scaling="):
        model.fit(frame, targets)
    assert model.certificate_.coverage is None
    assert "'income'" in str(model.certificate_)
    scaled = lk.LazyJackknifeRegressor(random_state=0).fit(frame, targets)
    assert scaled.certificate_ == lk.certify(n=60, alpha=0.1, base=lk.Public())
    assert np.isfinite(scaled.predict_interval(frame).to_numpy()).all()
