"""The mean of several networks with random starts of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyknife as lk
import reference
from lazyknife.networks import Averaged, Network, build, make, mlp, spawn_seeds
from lazyknife.tangent import linearise
from machines import MACHINE, here
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


def members(network: Network | None, starts: int) -> list[nn.Module]:
    return [make(network, X, seed) for seed in spawn_seeds(SEED, starts)]


def mean_kernel(networks: list[nn.Module], left: Tensor, right: Tensor) -> Array:
    each = [reference.jacobian(n, left) @ reference.jacobian(n, right).T for n in networks]
    mean: Array = np.mean(each, axis=0)
    return mean


@pytest.mark.parametrize("starts", [2, 5])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_the_mean_and_the_kernel_the_mean_over_their_number(
    name: str, starts: int
) -> None:
    network = NETWORKS[name]
    module = build(network, X, SEED, starts)
    own = members(network, starts)
    tangent = linearise(module, X, machine=MACHINE)
    features, rows = tangent.features(X), tangent.features(NEW)
    assert_close(features.outputs, np.mean([reference.outputs(n, X) for n in own], axis=0))
    assert_close(starts * tangent.gram(features), mean_kernel(own, X, X))
    assert_close(starts * tangent.kernel(rows, features), mean_kernel(own, NEW, X))
    assert_close(starts * tangent.norms(rows), mean_kernel(own, NEW, NEW).diagonal())


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
    model = lk.LazyJackknifeRegressor(
        mlp((6,), "tanh"), lk.Public(), alpha=0.25, device=MACHINE.device, random_state=0
    )
    model.set_params(**settings)
    return model


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("starts", [1, 4])
def test_a_fixed_ridge_is_that_of_the_mean_kernel(starts: int, intercept: bool) -> None:
    rows, y = linear(12)
    model = estimator(ridge=0.7, n_starts=starts, fit_intercept=intercept, widths="constant").fit(
        rows, y
    )
    start = model.base_.module
    own = list(start.members) if starts > 1 else [start]
    # The rows [J_1, …, J_S]/√S have the mean of the kernels.
    stacked, stacked_new = (
        np.hstack([reference.jacobian(n, part) for n in own]) / np.sqrt(starts)
        for part in (torch.from_numpy(rows), NEW)
    )
    outputs, outputs_new = (
        np.mean([reference.outputs(n, part) for n in own], axis=0)
        for part in (torch.from_numpy(rows), NEW)
    )
    twin = reference.refits(stacked, y - outputs, 0.7, intercept)
    expected = outputs_new[:, None] + stacked_new @ twin.moves.T + twin.intercepts
    point, each = model.loo_.scaled(here(NEW.numpy()))[:2]
    assert_close(each, expected[:, :-1], 1e-6)
    assert_close(point, expected[:, -1], 1e-6)
    assert model.ridge_ == pytest.approx(np.full(13, 0.7))


def test_a_chosen_ridge_is_told_on_the_same_scale() -> None:
    """With identical networks nothing changes, whatever their number."""

    def same(features: int) -> nn.Module:
        torch.manual_seed(0)  # within the block of a seed of its own
        return mlp((6,), "tanh")(features)

    rows, y = linear(15)
    for construction in ("plus", "minmax", "full", "cv+"):
        one, many = (
            estimator(network=same, n_starts=starts, construction=construction, folds=5).fit(
                rows, y
            )
            for starts in (1, 3)
        )
        np.testing.assert_allclose(many.ridge_, one.ridge_, rtol=1e-9)
        found, twin = many.predict_interval(NEW.numpy()), one.predict_interval(NEW.numpy())
        np.testing.assert_allclose(found.lower, twin.lower, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.upper, twin.upper, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_private_base_trains_all_of_them() -> None:
    rows, y = linear(30)
    base = lk.DPSGD(noise_multiplier=1.0, epochs=1, batch_size=10)
    model = estimator(n_starts=3, base=base).fit(rows, y)
    start = build(model.network, torch.from_numpy(rows), model.seeds_.start, 3)
    before, after = dict(start.named_parameters()), model.base_.module
    changed = {name for name, p in after.named_parameters() if not torch.equal(p, before[name])}
    assert changed == set(before)
    assert len({name.split(".")[1] for name in changed}) == 3
    certified, public = (
        m.certificate_.coverage for m in (model, estimator(n_starts=3).fit(rows, y))
    )
    assert certified is not None
    assert public is not None
    assert 0 < certified < public
    assert np.isfinite(model.predict_interval(NEW.numpy()).to_numpy()).all()
