import numpy as np
import pytest
import torch
from torch import nn

import lazyknife as lk
from lazyknife.base import Plain
from lazyknife.estimators.baselines import train_ensemble
from lazyknife.estimators.fit_input import Seeds
from lazyknife.networks import make, outputs
from rows import linear
from zoo import Net

SETTINGS = {"network": lk.mlp((6,)), "epochs": 2, "random_state": 0}
ROWS, TARGETS = map(torch.from_numpy, linear(11))
SUBSETS = torch.arange(11).unfold(0, 8, 1)
ALL = [lk.JackknifeRegressor, lk.CVPlusRegressor, lk.SplitConformalRegressor]


def branching(layer: nn.Module) -> nn.Module:
    """Looks at values, so it cannot be batched."""
    return Net(lambda net, x: net.layer(x) * (2 if bool((x > 100).any()) else 1), layer=layer)


def ensemble(network, subsets=SUBSETS, *, seed=5, center=True, **settings):
    start, training = lambda k: make(network, ROWS, k), Plain(epochs=3, batch_size=4, lr=0.01)
    return train_ensemble(
        start, ROWS, TARGETS, subsets, training, seed=seed, center=center, **settings
    )


def normed(features):
    parts = nn.Linear(features, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1)
    return nn.Sequential(*parts)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("network", [lk.mlp((5, 4)), normed])
def test_batched_training_equals_one_network_after_the_other(network, center):
    network64 = lambda p: network(p).double()  # noqa: E731
    subsets = torch.stack([torch.arange(11)[torch.arange(11) != j] for j in range(4)])
    batched, looped = (
        ensemble(each, subsets, center=center).outputs(ROWS)
        for each in (network64, lambda p: branching(network64(p)))
    )
    torch.testing.assert_close(batched, looped, rtol=1e-10, atol=1e-10)


def test_training_equals_a_loop_written_out():
    network = lambda p: lk.mlp((4,))(p).double()  # noqa: E731
    trained = ensemble(network, torch.arange(9)[None])
    module = make(network, ROWS, 0)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(5)
    mean = TARGETS[:9].mean()
    for _ in range(3):
        order = torch.rand((1, 9), generator=generator).argsort(dim=1)[0]
        for batch in order.split(4):
            optimizer.zero_grad()
            (outputs(module, ROWS[batch]) - (TARGETS[batch] - mean)).square().mean().backward()
            optimizer.step()
    expected = outputs(module, ROWS).detach() + mean
    torch.testing.assert_close(trained.outputs(ROWS)[0], expected, rtol=1e-10, atol=1e-10)


def test_networks_in_blocks_are_those_of_blocks_trained_apart():
    whole = ensemble(lk.mlp((4,)), memory=1).outputs(ROWS)
    for k in range(4):
        network = lambda p, k=k: make(lk.mlp((4,)), ROWS, k)  # noqa: E731
        alone = ensemble(network, SUBSETS[k : k + 1], seed=5 + k)
        torch.testing.assert_close(whole[k], alone.outputs(ROWS)[0])


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (lk.JackknifeRegressor(**SETTINGS), [1] * 23),
        (lk.CVPlusRegressor(**SETTINGS, folds=5), [4, 4, 5, 5, 5]),
    ],
)
def test_networks_never_see_the_rows_that_they_leave_out(model, sizes):
    """Changing a row changes every network but the one without it."""
    X, y = linear(23)
    changed = y.copy()
    changed[7] += 50.0
    new = torch.from_numpy(linear(4, seed=3)[0])
    before = model.fit(X, y).loo_
    after = model.fit(X, changed).loo_
    same = (before.models.outputs(new) == after.models.outputs(new)).all(dim=1)
    assert same.nonzero().squeeze().tolist() == int(before.model_of[7])
    assert sorted(torch.bincount(before.model_of).tolist()) == sizes
    each = before.scaled(new).each
    assert torch.equal(each[:, 7], before.models.outputs(new)[before.model_of[7]])


def test_split_conformal_and_naive_by_their_definitions():
    X, y = linear(41)
    model = lk.SplitConformalRegressor(**SETTINGS, calibration=0.5, alpha=0.2).fit(X, y)
    kept = np.setdiff1d(np.arange(41), model._rows_apart(41, Seeds.of(0)))
    assert len(kept) == 20
    errors = np.sort(np.abs(y - model.predict(X))[kept])
    result = model.predict_interval(X)
    np.testing.assert_allclose(result.upper - result.point, errors[21 - 4 - 1], rtol=1e-5)
    changed = y.copy()
    changed[kept] += 10.0  # calibration labels never reach the network
    np.testing.assert_array_equal(model.fit(X, changed).predict(X), result.point)
    model = lk.JackknifeRegressor(**SETTINGS, construction="naive", alpha=0.2).fit(X, y)
    assert model.loo_.models is None  # it trains one network
    result, errors = model.predict_interval(X), np.sort(np.abs(y - model.predict(X)))
    np.testing.assert_allclose(result.upper - result.point, errors[42 - 8 - 1])


def test_random_starts_differ_and_a_module_is_one_public_start():
    X, y = linear(10)
    still = {"epochs": 1, "lr": 1e-99, "random_state": 0}
    own = lk.JackknifeRegressor(lk.mlp((4,)), **still).fit(X, y).loo_.models
    shared = lk.JackknifeRegressor(lk.mlp((4,))(3), **still).fit(X, y).loo_.models
    rows = torch.from_numpy(X)
    spread = [(m.outputs(rows) - m.offsets[:, None]).std(dim=0).max() for m in (own, shared)]
    assert spread[0] > 1e-3
    assert spread[1] < 1e-12


OWN = "use 'plus' or 'minmax'."
CERTIFIED = [
    (lk.JackknifeRegressor, {}, 1 - 7 / 41, "Barber"),
    (lk.JackknifeRegressor, {"construction": "minmax"}, 1 - 4 / 41, "Barber"),
    *((lk.JackknifeRegressor, {"construction": c}, None, OWN) for c in ("jackknife", "naive")),
    (lk.JackknifeRegressor, {"scaling": "standardize"}, None, "which is a leak"),
    (lk.SplitConformalRegressor, {}, 1 - 2 / 21, "By the rank"),
    (lk.CVPlusRegressor, {"folds": 4}, 1 - 10 / 44, "Barber"),
    (lk.CVPlusRegressor, {"folds": 7}, 1 - 13 / 47, "Barber"),
]


@pytest.mark.parametrize(("make_model", "settings", "coverage", "words"), CERTIFIED)
def test_certificates(make_model, settings, coverage, words):
    certificate = make_model(**SETTINGS, **settings).fit(*linear(40)).certificate_
    assert certificate.coverage == (None if coverage is None else pytest.approx(coverage))
    assert list(certificate.bounds.values()) == [certificate.coverage] * (coverage is not None)
    assert words in certificate.details
    assert ("Barber" in certificate.details) == (words == "Barber")


@pytest.mark.parametrize("make_model", ALL)
def test_no_network_is_the_network_of_the_lazy_jackknife(make_model):
    X, y = linear(12)
    settings = {"epochs": 1, "alpha": 0.3, "random_state": 0}
    default, given = (
        make_model(network, **settings).fit(X, y).predict(X)
        for network in (None, lk.mlp((64, 64), skip=True))
    )
    np.testing.assert_array_equal(default, given)
