"""A row that ties with the end of its interval is covered, alone and in any batch.

A new row that equals training row j, in x and in y, has the score of row j under the model without
row j, and ties with it. With κ such rows every construction covers it: κ rows accept y for plus and
cv+, and the κ-th largest score is at least its own for minmax, full and split conformal. So a pair
(x, y) that κ of the scored rows have must be covered, whatever the model. Nothing here is random:
one row that is not covered is an error.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from torch import Tensor, nn

import lazyknife as lk
from lazyknife.compare import BOOSTING, PROCESS
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor
from lazyknife.intervals import CONSTRUCTIONS, kappa, kth_largest, kth_smallest
from zoo import Net

N = 60
LAWS = {  # two values of y, the second one rarer
    "decimals": (1.7, 0.3),
    "a sum": (2.0, 0.1 + 0.2),
    "thirds": (2.0, 1 / 3),
    "opposite": (0.3, -0.3),
    "near zero": (1.7, 1e-3),
    "zeros": (0.0, 0.7),
    "one value": (1 / 3, 1 / 3),
    "far from zero": (1e6 + 1.7, 1e6 + 0.3),
    "large unit": (1.7e9, 0.3e9),
    "small unit": (1.7e-9, 0.3e-9),
}


def drawn(law, kinds, seed):
    """Rows with so many values of x, and two of y."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, kinds, N), np.ones(N)]).astype(float)
    return X, np.where(rng.random(N) < 0.3, *LAWS[law][::-1])


def scored_rows(model):
    """Training rows whose errors set the widths."""
    apart = model._rows_apart(N, Seeds.of(model.random_state))
    if not isinstance(model, MapieRegressor) or apart is None:
        return np.setdiff1d(np.arange(N), [] if apart is None else apart)
    scores = np.atleast_2d(model.loo_.wrapped.conformity_scores)[-1]
    return model._parts(N, Seeds.of(model.random_state))[1][~np.isnan(scores)]


def tied(model, X, y):
    """Pairs (x, y) that κ of the scored rows have."""
    rows = scored_rows(model)
    assert len(rows) == len(model.loo_.residuals)
    counts = Counter((*X[i], y[i]) for i in rows)
    pairs = [p for p, count in counts.items() if count >= kappa(model.alpha, len(rows))]
    pairs = np.array(pairs)
    return pairs[:, :-1], pairs[:, -1]


def misses(model, X, y, certified=True):
    """Count tied rows that are missed: one at a time, in batches, and from rows in float32."""
    rows, truth = tied(model.fit(X, y), X, y)
    assert not certified or model.certificate_.coverage is not None
    many = np.arange(50 * len(rows)) % len(rows)
    count = 0
    for batch in (*np.split(np.arange(len(rows)), len(rows)), np.arange(len(rows)), many):
        for dtype in (np.float64, np.float32):
            found = model.predict_interval(rows[batch].astype(dtype))
            count += (~found.covers(truth[batch])).sum()
    return count


def in_float32(net: Net, x: Tensor) -> Tensor:
    """Works in float32 inside, whatever the type of its weights."""
    parts = [part.float() for part in net.parameters()]
    hidden = torch.tanh(nn.functional.linear(x.float(), parts[0], parts[1]))
    return nn.functional.linear(hidden, parts[2], parts[3]).to(x.dtype)


def rounded_inside(features: int) -> nn.Module:
    return Net(in_float32, body=nn.Linear(features, 32), head=nn.Linear(32, 1))


def only_float32(features: int) -> nn.Module:
    """Fails in float64: a constant is neither a parameter nor a buffer."""
    ones = torch.ones(32) / 3
    return Net(lambda net, x: torch.tanh(net.layer(x)) @ ones, layer=nn.Linear(features, 32))


def cancels(features: int) -> nn.Module:
    """Sums numbers that are far larger than the result, so that float32 leaves it few digits."""
    body, head = nn.Linear(features, 64), nn.Linear(64, 1)
    body.requires_grad_(False).weight[32:] = body.weight[:32] * (1 + 1e-3)
    body.bias[32:] = body.bias[:32]
    head.weight.requires_grad_(False).copy_(10.0 * (1 - 2 * (torch.arange(64) // 32)))
    return nn.Sequential(body, nn.Tanh(), head)


NETWORKS = {
    "float32": lk.mlp((16, 16)),
    "float64": lambda features: lk.mlp((16, 16))(features).double(),
    "float32 inside": rounded_inside,
    "float32 only": only_float32,
    "cancelling": cancels,
}
TRAINED = {
    "split": (lk.SplitConformalRegressor, {}),
    "jackknife+": (lk.JackknifeRegressor, {}),
    "jackknife-minmax": (lk.JackknifeRegressor, {"construction": "minmax"}),
    "cv+": (lk.CVPlusRegressor, {"folds": 6}),
}


def started(network, seed):
    """One start for all networks of a fit, so that they differ little and most ends are ties."""
    torch.manual_seed(seed)
    return NETWORKS[network](2)


def every_law(make, certified=True, without=()):
    """Number of missed rows for each law; ``make`` goes from a seed to an estimator."""
    return {
        law: misses(make(seed), *drawn(law, 1 + seed % 2, seed), certified)
        for seed, law in enumerate(law for law in LAWS if law not in without)
    }


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", TRAINED)
def test_trained_networks(method, network):
    kind, settings = TRAINED[method]

    def make(seed):
        return kind(started(network, seed), epochs=1, batch_size=30, random_state=seed, **settings)

    found = every_law(make)
    assert not any(found.values()), found
    details = make(0).fit(*drawn("decimals", 2, 0)).certificate_.details
    assert details.count("does not run in float64") == (network == "float32 only")


@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_has_converged(seed):
    """Its outputs are differences that are smaller than the rounding of what is subtracted."""
    torch.manual_seed(seed)
    network = lk.mlp((16,))(2).double()
    model = lk.SplitConformalRegressor(network, epochs=600, batch_size=30, lr=3e-3, random_state=0)
    assert not misses(model, np.ones((N, 2)), np.zeros(N))
    assert model.loo_.scores.max() < 1e-12


SINGLE = {"network": lk.mlp((16,)), "ridge": 1.0}
LAZY = {
    "plus": {},
    "minmax": {"construction": "minmax"},
    "full": {"construction": "full"},
    "cv+": {"construction": "cv+"},
    "leverage": {"ridge": 1e4, "widths": "leverage"},
    "plus, network": {**SINGLE, "network": lk.mlp((16,), skip=True)},
    "minmax, network": {**SINGLE, "construction": "minmax"},
    "full, network": {**SINGLE, "construction": "full"},
    "readout": {**SINGLE, "readout": "network", "widths": "constant"},
}


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("name", LAZY)
def test_lazy_models(name):
    # One network that fits all rows exactly has no certificate: rounding is all that is left.
    found = every_law(
        lambda seed: lk.LazyJackknifeRegressor(**LAZY[name], random_state=seed),
        without=["one value"] if "network" in LAZY[name] else [],
    )
    assert not any(found.values()), found


@pytest.mark.filterwarnings("ignore:no coverage is guaranteed")
@pytest.mark.parametrize("construction", ["full", "plus"])
def test_a_network_of_float32_is_covered_wherever_it_is_certified(construction):
    certified = 0
    for seed, law in enumerate(LAWS):
        model = lk.LazyJackknifeRegressor(
            rounded_inside, construction=construction, random_state=seed
        )
        missed = misses(model, *drawn(law, 1 + seed % 2, seed), certified=False)
        assert model.certificate_.coverage is None or not missed
        certified += model.certificate_.coverage is not None
    assert certified > 0


def nearest(loo, X, ranks):
    """Jackknife+ rounded to the nearest number, as a mutant."""
    point, each = loo.scaled(X)[:2]
    errors = loo.residuals.abs()
    return point, kth_smallest(each - errors, ranks), kth_largest(each + errors, ranks)


@pytest.mark.parametrize(
    "model",
    [
        lk.LazyJackknifeRegressor(widths="constant"),
        lk.JackknifeRegressor(started("float32", 0), epochs=1, batch_size=30),
    ],
)
def test_these_laws_catch_ends_that_are_rounded_to_the_nearest(model):
    model.set_params(construction=replace(CONSTRUCTIONS["plus"], ends=nearest), random_state=0)
    found = every_law(lambda seed: clone(model), certified=False)
    assert any(found.values()), found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [RidgeCV(np.logspace(-3, 6, 37)), BOOSTING, PROCESS])
def test_mapie(model):
    pytest.importorskip("mapie")
    found = every_law(lambda seed: MapieRegressor(model, random_state=seed))
    assert not any(found.values()), found


TARGETS = {
    **{name: name for name in ("log", "log1p", "symlog")},
    "a pair": (np.sqrt, np.square),
    "a falling pair": (np.reciprocal, np.reciprocal),
    "a pair in float32": (lambda y: np.log(np.float32(y)), np.exp),
}
METHODS = {
    "split": lk.SplitConformalRegressor(lk.mlp((8,)), epochs=1),
    "plus": lk.LazyJackknifeRegressor(),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_targets_on_another_scale(method, target):
    for seed, law in enumerate(["decimals", "thirds", "near zero", "small unit"]):
        settings = {"random_state": seed, "target_transform": TARGETS[target]}
        model = clone(METHODS[method]).set_params(**settings)
        assert not misses(model, *drawn(law, 1 + seed % 2, seed))
