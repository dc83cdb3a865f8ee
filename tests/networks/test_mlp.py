"""Fully connected networks, with and without a linear function of the inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyknife as lk
import reference
from lazyknife.networks import ACTIVATIONS, DEFAULT, build, make, mlp, seeded
from lazyknife.tangent import selected
from rows import linear

X = torch.linspace(-1, 1, 15).reshape(5, 3)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_mlp_has_the_layers_asked_for(activation: str) -> None:
    module = mlp([7, 2], activation)(3)  # type: ignore[arg-type]
    kind = ACTIVATIONS[activation]
    assert [type(part) for part in module] == [nn.Linear, kind, nn.Linear, kind, nn.Linear]
    assert [tuple(p.shape) for p in module.parameters() if p.ndim == 2] == [(7, 3), (2, 7), (1, 2)]


def test_mlp_is_a_value_and_may_be_linear() -> None:
    assert mlp([64, 64]) == mlp((64, 64)) == mlp()  # type: ignore[arg-type]
    assert len({mlp(), mlp((64,)), mlp(skip=True)}) == 3
    module = mlp(())(3)
    assert [type(part) for part in module] == [nn.Linear]
    assert module(X).shape == (5, 1)
    with pytest.raises(ValueError, match="at least 1"):
        mlp((4, 0))
    with pytest.raises(ValueError, match=r"activation='step': choose from .*'gelu'.*'tanh'"):
        mlp((4,), "step")


def tangent_shares(module: nn.Module, X: Tensor) -> tuple[float, float]:
    """Mean of k(x, x) over rows: the part of the skip's weights, and that of all others."""
    sizes = {"skip": 0.0, "body": 0.0}
    for row in X:
        module.zero_grad()
        module(row[None]).sum().backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            sizes[name.split(".")[0]] += float(parameter.grad.square().sum()) / len(X)
    return sizes["skip"], sizes["body"]


def test_a_skip_adds_a_linear_function_that_starts_at_0() -> None:
    with seeded(3):
        module = mlp((7, 5), skip=True)(3)
    plain = make(mlp((7, 5)), X, 3)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes.pop("skip.weight") == (1, 3)  # and no bias, which the body has
    assert list(shapes.values()) == [tuple(p.shape) for p in plain.parameters()]
    assert torch.equal(module(X), module.body(X))
    slopes = torch.tensor([[1.0, -2.0, 0.5]])
    module.skip.weight.data.copy_(slopes)
    # √(width/(4·inputs)), the width being that of the last hidden layer.
    expected = (5 / (4 * 3)) ** 0.5 * (X @ slopes.T)
    torch.testing.assert_close(module(X) - module.body(X), expected)


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("features", [4, 16, 100, 280])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_skips_share_of_the_tangent_kernel_is_of_the_size_of_the_bodys(
    width: int, features: int, layers: int
) -> None:
    with seeded(0):
        module = mlp((width,) * layers, skip=True)(features)
        skip, body = tangent_shares(module, torch.randn(16, features))
    assert 1 / 5 < skip / body < 5
    assert skip == pytest.approx(width / 4, rel=0.5)  # the mean of 16 times features χ²


def test_no_network_means_the_same_default_wherever_one_is_needed() -> None:
    assert mlp((64, 64), skip=True) == DEFAULT
    rows, y = linear(12)
    model = lk.LazyJackknifeRegressor(ridge=1.0, readout="network", random_state=0).fit(rows, y)
    given = [build(network, X, model.seeds_.start) for network in (None, DEFAULT)]
    for p, *others in zip(*(m.parameters() for m in (model.base_.module, *given)), strict=True):
        assert all(torch.equal(p, other) for other in others)


def test_the_last_layer_of_a_network_with_a_skip_is_the_bodys() -> None:
    module = mlp((7, 5), skip=True)(3)
    assert set(selected(module, "last")) == {"body.4.weight", "body.4.bias"}


def test_private_training_moves_the_skip() -> None:
    rows, y = linear(60)
    base = lk.DPSGD(noise_multiplier=0.05, epochs=8, batch_size=20, lr=0.05)
    start = make(mlp((6,), skip=True), torch.from_numpy(rows), 0)
    module = base.fit(start, torch.from_numpy(rows), torch.from_numpy(y), seed=0).module
    slopes = torch.stack([module.skip.weight[0].detach(), torch.tensor([1.0, 0.0, -1.0])])
    assert torch.corrcoef(slopes)[0, 1] > 0.9


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("parameters", ["all", "last", ["skip.*"]])
def test_moved_networks_with_a_skip_equal_explicit_refits(parameters: str | list[str]) -> None:
    rows, y = linear(18)
    settings = {"readout": "network", "widths": "constant", "alpha": 0.2, "random_state": 2}
    model = lk.LazyJackknifeRegressor(
        mlp((6, 5), skip=True), lk.Public(), 4.0, parameters=parameters, **settings
    ).fit(rows, y)
    module = copy.deepcopy(model.base_.module)
    chosen = set(selected(module, parameters))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in chosen)
    inputs, new = torch.from_numpy(rows), linear(5, seed=1)[0]
    targets = y - reference.outputs(module, inputs)
    refits = reference.refits(reference.jacobian(module, inputs), targets, 4.0, True)
    left_out = reference.network_predictions(module, refits, inputs)[np.arange(18), np.arange(18)]
    at_new = reference.network_predictions(module, refits, torch.from_numpy(new))
    np.testing.assert_allclose(model.loo_.residuals, y - left_out, rtol=1e-8, atol=1e-10)
    lower = np.sort(at_new[:, :-1] - np.abs(y - left_out))[:, 3 - 1]
    np.testing.assert_allclose(model.predict_interval(new).lower, lower, rtol=1e-8)
    np.testing.assert_allclose(model.predict(new), at_new[:, -1], rtol=1e-8)
