"""The mean of several networks with random starts of their own."""

import numpy as np
import pytest
import torch
from torch import nn

import lazyknife as lk
import reference
from lazyknife.networks import Averaged, Network, build, make, mlp, spawn_seeds
from lazyknife.tangent import linearise
from machines import MACHINE
from reference import Array, assert_close
from rows import linear
from zoo import Net

SEED = 4
X = torch.from_numpy(linear(9)[0])
NEW = torch.from_numpy(linear(5, seed=1)[0])


def one_number(features: int) -> nn.Module:
    """A network that gives (n,) where others give (n, 1)."""
    return Net(lambda net, x: net.layer(x)[:, 0].tanh(), layer=nn.Linear(features, 1))


NETWORKS: dict[str, Network | None] = {
    "mlp": mlp((6,), "tanh"),
    "one number a row": one_number,
    "default": None,
}


@pytest.mark.parametrize("starts", [2, 5])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_the_mean_and_the_kernel_the_mean_over_their_number(
    name: str, starts: int
) -> None:
    own = [make(NETWORKS[name], X, seed) for seed in spawn_seeds(SEED, starts)]
    tangent = linearise(build(NETWORKS[name], X, SEED, starts), X, machine=MACHINE)
    features, rows = tangent.features(X), tangent.features(NEW)
    old, new = ([reference.jacobian(n, part) for n in own] for part in (X, NEW))

    def mean(left: list[Array], right: list[Array]) -> Array:
        found: Array = np.mean([a @ b.T for a, b in zip(left, right, strict=True)], axis=0)
        return found

    assert_close(features.outputs, np.mean([reference.outputs(n, X) for n in own], axis=0))
    assert_close(starts * tangent.gram(features), mean(old, old))
    assert_close(starts * tangent.kernel(rows, features), mean(new, old))
    assert_close(starts * tangent.norms(rows), mean(new, new).diagonal())


def test_networks_differ_and_the_seed_makes_them() -> None:
    module = build(mlp((6,)), X, SEED, 3)
    assert isinstance(module, Averaged)
    weights = [member[0].weight for member in module.members]  # type: ignore[index]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    again, other = (build(mlp((6,)), X, seed, 3) for seed in (SEED, SEED + 1))
    assert all(map(torch.equal, module.parameters(), again.parameters()))
    assert not torch.equal(next(module.parameters()), next(other.parameters()))
    one, plain = build(mlp((6,)), X, SEED, 1), build(mlp((6,)), X, SEED)
    assert not isinstance(one, Averaged)
    assert all(map(torch.equal, one.parameters(), plain.parameters()))


def estimator(**settings: object) -> lk.LazyJackknifeRegressor:
    terms = {"network": mlp((6,), "tanh"), "alpha": 0.25, "random_state": 0}
    return lk.LazyJackknifeRegressor(**terms | settings, device=MACHINE.device)


@pytest.mark.parametrize("ridge", [0.7, "auto"])
@pytest.mark.parametrize("construction", ["plus", "minmax", "full", "cv+"])
def test_a_ridge_is_told_on_the_same_scale(construction: str, ridge: float | str) -> None:
    """With identical networks nothing changes, whatever their number."""

    def same(features: int) -> nn.Module:
        torch.manual_seed(0)  # within the block of a seed of its own
        return mlp((6,), "tanh")(features)

    terms = {"network": same, "construction": construction, "folds": 5, "ridge": ridge}
    one, many = (estimator(n_starts=starts, **terms).fit(*linear(15)) for starts in (1, 3))
    np.testing.assert_allclose(many.ridge_, one.ridge_, rtol=1e-9)
    found, twin = (model.predict_interval(NEW.numpy()).to_numpy() for model in (many, one))
    np.testing.assert_allclose(found, twin, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_private_base_trains_all_of_them() -> None:
    rows, y = linear(30)
    base = lk.DPSGD(noise_multiplier=1.0, epochs=1, batch_size=10)
    model = estimator(n_starts=3, base=base).fit(rows, y)
    start = build(model.network, torch.from_numpy(rows), model.seeds_.start, 3)
    after = model.base_.module.named_parameters()
    pairs = zip(start.parameters(), after, strict=True)
    assert not any(torch.equal(before, now) for before, (_, now) in pairs)
    public = estimator(n_starts=3).fit(rows, y).certificate_.coverage
    assert 0 < model.certificate_.coverage < public  # type: ignore[operator]
