from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from torch import nn

import lazyknife as lk
import reference
from descents import Moved
from rows import linear, simulated
from zoo import Net

FAST = {
    "network": lk.mlp((8,)),
    "base": lk.Public(),
    "ridge": 1.0,
    "readout": "tangent",
    "random_state": 0,
}
KINDS = [FAST, {"random_state": 0}]  # one network, and the default: candidates to choose from


# Leave-one-out models are explicit refits.

PREDICTIONS = {"network": reference.network_predictions, "tangent": reference.tangent_predictions}
ALL_WEIGHTS = {"0.weight", "0.bias", "2.weight", "2.bias"}
REFITS = {
    "public": ({}, ALL_WEIGHTS),
    "no intercept": ({"fit_intercept": False}, ALL_WEIGHTS),
    "dpsgd": ({"base": lk.DPSGD()}, ALL_WEIGHTS),
    "plain, no intercept": ({"base": lk.Plain(), "fit_intercept": False}, ALL_WEIGHTS),
    "last layer": ({"parameters": "last"}, {"2.weight", "2.bias"}),
    "names": ({"parameters": ["0.*", "2.bias"]}, {"0.weight", "0.bias", "2.bias"}),
    "a function": ({"parameters": lambda name, p: p.ndim == 2}, {"0.weight", "2.weight"}),
}


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("readout", PREDICTIONS)
@pytest.mark.parametrize("case", REFITS)
def test_jackknife_plus_equals_n_explicit_refits(case, readout):
    settings, moved = REFITS[case]
    (X, y), X_new = linear(25), linear(7, seed=1)[0]
    terms = {"widths": "constant", "alpha": 0.2, "random_state": 3, "ridge": 2.0}
    model = lk.LazyJackknifeRegressor(lk.mlp((6,)), readout=readout, **terms | settings).fit(X, y)
    module, rows, new = model.base_.module, torch.from_numpy(X), torch.from_numpy(X_new)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in moved)
    targets, jacobian = y - reference.outputs(module, rows), reference.jacobian(module, rows)
    refits = reference.refits(jacobian, targets, 2.0, settings.get("fit_intercept", True))
    at_rows, at_new = (PREDICTIONS[readout](module, refits, part) for part in (rows, new))
    errors, predictions = np.abs(y - at_rows[:, :-1].diagonal()), at_new[:, :-1]
    result = model.predict_interval(X_new)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(result.lower, np.sort(predictions - errors)[:, 5 - 1], **close)
    np.testing.assert_allclose(result.upper, np.sort(predictions + errors)[:, 26 - 5 - 1], **close)
    np.testing.assert_allclose(result.point, at_new[:, -1], **close)


def test_the_papers_settings():
    settings = lk.DPLazyPI(alpha=0.2, random_state=5).get_params(deep=False)
    defaults = lk.LazyJackknifeRegressor().get_params(deep=False)
    base = settings.pop("base")
    assert (base.epsilon, base.delta, base.epochs, base.batch_size) == (0.01, 1e-3, 10, 10)
    assert {name: value for name, value in settings.items() if value != defaults[name]} == {
        "network": lk.mlp((64, 64)),
        "ridge": 10.0,
        "construction": "plus",
        "widths": "constant",
        "readout": "network",
        "fit_intercept": False,
        "scaling": None,
        "alpha": 0.2,
        "random_state": 5,
    }


# Seeds.


def rare(features):
    """A network that drops units in batches of more than two rows alone."""
    dropped = lambda net, x: nn.functional.dropout(net.first(x), 0.5, net.training and len(x) > 2)  # noqa: E731
    run = lambda net, x: net.last(dropped(net, x))  # noqa: E731
    return Net(run, first=nn.Linear(features, 4), last=nn.Linear(4, 1))


def dropping(features):
    return nn.Sequential(nn.Linear(features, 4), nn.Dropout(0.5), nn.Linear(4, 1))


def lazy_layers(features):
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))


BASELINES = [lk.JackknifeRegressor, lk.CVPlusRegressor, lk.SplitConformalRegressor]
TRAINING = [
    partial(lk.LazyJackknifeRegressor, base=lk.Plain(epochs=1)),
    *(partial(baseline, epochs=1) for baseline in BASELINES),
]
SEEDED = [
    lk.LazyJackknifeRegressor(),
    lk.LazyJackknifeRegressor(lk.mlp((8,)), lk.DPSGD(1.0, epochs=2), 30.0),
    *(make(network) for make in TRAINING for network in (rare, dropping, lazy_layers)),
]


@pytest.mark.parametrize("model", SEEDED, ids=range(len(SEEDED)))
def test_a_seed_gives_the_same_bits_and_no_global_state_is_touched(model):
    X, y = linear(20)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()

    def ends(random_state):
        seeded = clone(model).set_params(alpha=0.3, random_state=random_state)
        return seeded.fit(X, y).predict_interval(X).to_numpy()

    first = ends(1)
    np.testing.assert_array_equal(first, ends(1))
    if model is not SEEDED[0]:  # the default draws nothing for few rows
        assert (first != ends(2)).any()
    for make in (np.random.RandomState, np.random.default_rng):
        np.testing.assert_array_equal(ends(make(7)), ends(make(7)))
    ends(None)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


FAR = [
    *(
        partial(lk.LazyJackknifeRegressor, **settings)
        for settings in ({}, {"readout": "network"}, {"base": lk.Split()}, {"base": lk.DPSGD(2.0)})
    ),
    *BASELINES,
]


@pytest.mark.slow
@pytest.mark.parametrize("make", FAR, ids=range(len(FAR)))
def test_a_target_far_from_zero_does_not_hurt(make):
    X, y = simulated(16, 0, 600)
    near, far = (
        make(random_state=0).fit(X[:100], y[:100] + shift).predict_interval(X[100:])
        for shift in (0.0, 1000.0)
    )
    assert far.width.mean() < (1.02 if make in BASELINES else 1.1) * near.width.mean()
    assert far.covers(y[100:] + 1000).mean() > 0.85


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


def test_a_new_fit_keeps_nothing_of_the_one_before():
    X, y = linear(30)
    model = lk.LazyJackknifeRegressor(random_state=0).fit(X, y)
    assert hasattr(model, "choice_")
    assert not hasattr(model, "base_")
    model.set_params(network=lk.mlp((8,)), ridge=1.0).fit(X, y)
    assert hasattr(model, "base_")
    assert not hasattr(model, "choice_")


@pytest.mark.parametrize("intercept", [True, False])
def test_a_base_learns_deviations_where_an_intercept_takes_up_the_mean(intercept):
    seen = []

    class Watched(lk.Plain):
        def learn(self, task):
            seen.append(task.center)
            return super().learn(task)

    base = lk.Split(training=Watched(epochs=1))
    lk.LazyJackknifeRegressor(**FAST | {"base": base}, fit_intercept=intercept).fit(*linear(30))
    assert seen == [intercept]


def test_a_moved_network_far_from_its_tangent_is_reported():
    X, y = linear(40)
    model = lk.LazyJackknifeRegressor(lk.mlp((8,)), lk.Public(), 0.01, readout="network")
    with pytest.warns(UserWarning, match="readout='tangent'"):
        model.fit(X, 1e3 * y)


def test_split_uses_only_the_other_part():
    """Labels of the base's own part reach the leave-one-out step through θ0 alone."""
    X, y = linear(40)
    frozen = lk.LazyJackknifeRegressor(
        base=lk.Split(0.4, lk.Plain(epochs=1, lr=1e-99)), random_state=0
    )
    before = frozen.fit(X, y).predict_interval(X)
    assert len(frozen.loo_.residuals) == 24
    changed = y.copy()
    changed[frozen.base.rows(40, frozen.seeds_.rows)[0]] += 100.0
    assert frozen.fit(X, changed).predict_interval(X) == before


GOOD_X, GOOD_Y = linear(30)
COUNTS = np.arange(30.0) % 5


# Constructions, levels and certificates.

CERTIFIED = [
    *(
        {"base": base, "construction": construction}
        for base in (lk.DPSGD(epsilon=0.5), lk.Public(), lk.Split(0.3))
        for construction in ("plus", "minmax", "full")
    ),
    *({"construction": "cv+", "folds": folds} for folds in (5, 7)),  # 60 rows in 7 folds, too
    *({"construction": construction} for construction in ("jackknife", "naive")),
    {"base": lk.Plain()},
]


@pytest.mark.parametrize("settings", CERTIFIED, ids=str)
def test_the_fitted_certificate_equals_the_one_before_training(settings):
    before = lk.certify(n=60, alpha=0.1, **{"base": lk.Public()} | settings)
    for kind in KINDS:
        model = lk.LazyJackknifeRegressor(**kind | settings).fit(*linear(60))
        assert model.certificate_ == before
        assert len(set(model.seeds_)) == 4  # the lazy step has a seed of its own
    perturbed = lk.Perturbed(sensitivity=0.1, epsilon=1.0)
    model = lk.LazyJackknifeRegressor(lk.mlp((4,)), perturbed).fit(*linear(60))
    weights = 3 * 4 + 4 + 4 + 1
    assert model.certificate_ == lk.certify(n=60, alpha=0.1, base=perturbed, n_parameters=weights)


@pytest.mark.parametrize(
    ("network", "said"),
    [(None, False), (lk.mlp((3,)), False), (dropping, True), (lk.mlp((4,))(3), True)],
)
@pytest.mark.parametrize(
    "make",
    [
        partial(lk.LazyJackknifeRegressor, ridge=30.0),
        partial(lk.LazyJackknifeRegressor, base=lk.DPSGD(epsilon=1.0)),
        lk.SplitConformalRegressor,
    ],
)
def test_starting_weights_that_the_user_brings_are_an_assumption(make, network, said):
    assumptions = make(network, random_state=0).fit(GOOD_X, GOOD_Y).certificate_.assumptions
    assert sum("starting weights" in sentence for sentence in assumptions) == said


@pytest.mark.parametrize(
    ("settings", "score", "chosen"),
    [
        ({}, "constant", "auto"),
        ({"construction": "minmax"}, "constant", "auto"),
        ({"construction": "full"}, "leverage", "leverage"),
        *(
            (settings, "constant", "constant")
            for settings in (
                *({"construction": c} for c in ("cv+", "jackknife", "naive")),
                {"readout": "network", "ridge": 30.0},
                {"features": lk.Sketch(8)},
                {"loss": lk.Huber(3.0)},
            )
        ),
    ],
)
def test_the_score_that_is_used_unasked(settings, score, chosen):
    """By one network, and where models choose."""
    assert lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, GOOD_Y).widths_ == chosen
    model = lk.LazyJackknifeRegressor(**FAST | settings).fit(GOOD_X, GOOD_Y)
    assert model.widths_ == score
    assert model.get_params()["widths"] is None
    asked = lk.LazyJackknifeRegressor(**FAST | settings, widths=score).fit(GOOD_X, GOOD_Y)
    assert asked.predict_interval(GOOD_X) == model.predict_interval(GOOD_X)


WAYS = {
    "default": {"random_state": 0},
    "plus": FAST,
    "full": FAST | {"construction": "full"},
    "full, chosen ridge": FAST | {"construction": "full", "ridge": "auto"},
    "cv+": FAST | {"construction": "cv+", "folds": 5},
    "leverage, minmax": FAST | {"construction": "minmax", "widths": "leverage"},
    "poisson": FAST | {"loss": "poisson"},
}


@pytest.mark.parametrize("way", WAYS)
def test_several_levels_and_nu_of_every_construction(way):
    y = COUNTS if way == "poisson" else GOOD_Y
    model, new = lk.LazyJackknifeRegressor(**WAYS[way]).fit(GOOD_X, y), linear(9, seed=4)[0]
    levels = [0.3, 0.05, 0.1]
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
    other = lk.LazyJackknifeRegressor(**WAYS[way], nu=0.5, alpha=0.3).fit(GOOD_X, y)
    wider = other.predict_interval(new).to_numpy() - several.to_numpy()[..., 0]
    np.testing.assert_allclose(wider, [[-0.5, 0.5]] * 9)
    assert model.certify(alpha=0.3) == other.certificate_
    with pytest.warns(UserWarning, match="At least 99 rows are needed"):
        endless = model.predict_interval(new, alpha=[0.01, 0.1])
    assert np.isinf(endless.width[:, 0]).all()
    np.testing.assert_array_equal(endless.width[:, 1], several.width[:, 2])


# Covariates without labels.

BAG = linear(25, seed=8)[0]


@pytest.mark.parametrize("transform", [None, "standardize"])
def test_a_base_learnt_from_the_pool_speaks_of_the_pool_alone(transform):
    def fitted(base=None, scaling=transform, **rows):
        settings = FAST | {"base": base or Moved(), "scaling": scaling}
        return lk.LazyJackknifeRegressor(**settings).fit(GOOD_X, GOOD_Y, **rows)

    pooled, alone = fitted(X_pool=BAG), fitted(X_unlabeled=BAG)
    public = fitted(lk.Public(), None, X_pool=BAG)  # learns nothing from it
    assert pooled.base_.details["covariates"] == len(GOOD_X) + len(BAG)
    assert alone.base_.details["covariates"] == len(BAG)
    assert pooled.certificate_.scope.startswith("the rows passed as X_pool, and no others")
    pooled.predict_interval(BAG[::-1])
    outside = np.concatenate([BAG[:4], linear(3, seed=9)[0]])
    with pytest.warns(UserWarning, match="3 of 7 rows are not among the rows passed as X_pool"):
        pooled.predict_interval(outside)
    for model in (alone, public):
        assert model.certificate_.scope.startswith("any new row")
        assert model.certificate_.coverage == pooled.certificate_.coverage
        model.predict_interval(outside)
    assert any("X_unlabeled" in assumption for assumption in alone.certificate_.assumptions)


# Other losses predict means.


@pytest.mark.parametrize("readout", ["tangent", "network"])
@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_predictions_are_means_and_intervals_cover(loss, readout):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 3))
    f = X @ [1.0, -1.0, 0.5]
    drawn = {
        "poisson": rng.poisson(np.exp(0.7 * f)),
        "logistic": rng.random(400) * (1 + np.exp(-f)) < 1,
    }
    y = drawn[loss].astype(float)
    model = lk.LazyJackknifeRegressor(**FAST | {"readout": readout, "ridge": 9.0}, loss=loss)
    predicted, result = (
        ask(X[80:]) for ask in (model.fit(X[:80], y[:80]).predict, model.predict_interval)
    )
    assert (predicted > 0).all()
    assert loss == "poisson" or (predicted < 1).all()
    np.testing.assert_allclose(result.point, predicted)
    assert np.corrcoef(predicted, f[80:])[0, 1] > 0.6
    assert abs(predicted.mean() - y[80:].mean()) < 0.35 * y[80:].std()
    # At least .9 − 4 standard errors, of both samples; far above what is certified.
    assert result.covers(y[80:]).mean() > 0.9 - 4 * np.sqrt(0.09 * (1 / 80 + 1 / 320))
    assert model.score(X[80:], y[80:]) == pytest.approx(r2_score(y[80:], predicted))


def test_raw_columns_lose_the_certificate_and_are_named():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": 1e11 * np.exp(rng.normal(size=60)), "age": rng.normal(size=60)})
    model = lk.LazyJackknifeRegressor(lk.mlp((64, 64), skip=True), ridge=1.0, random_state=0)
    with pytest.warns(UserWarning, match="no coverage is guaranteed.*'income'.*scaling="):
        model.fit(frame, frame["age"])
    assert model.certificate_.coverage is None
    assert "'income'" in str(model.certificate_)
