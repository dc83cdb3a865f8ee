"""The tangent, by factors or by blocks, against a Jacobian made row by row."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import register_parametrization

import reference
from lazyknife.blocks import blocks
from lazyknife.networks import ACTIVATIONS, evaluation_copy, mlp
from lazyknife.tangent import FactorTangent, JacobianTangent, Tangent, linearise, moved_outputs
from lazyknife.tangent.factors import factorable_layers
from reference import assert_close


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, *shape)))


def flat(moves: dict[str, Tensor], module: nn.Module) -> Tensor:
    """Moves as one row each, in the order of the module's parameters."""
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    assert sorted(names) == sorted(moves)
    return torch.cat([moves[name].flatten(1) for name in names], dim=1)


def check_against_twin(tangent: Tangent, module: nn.Module, X: Tensor, Z: Tensor) -> None:
    """Outputs, kernel, pull and moved outputs, all against the explicit Jacobian."""
    J, JZ = reference.jacobian(module, X), reference.jacobian(module, Z)
    left, right = tangent.features(Z), tangent.features(X)
    assert_close(left.outputs, reference.outputs(module, Z), 1e-12)
    assert_close(tangent.kernel(left, right), JZ @ J.T, 1e-11)
    assert_close(tangent.kernel(right, right), J @ J.T, 1e-11)

    C = np.random.default_rng(1).normal(size=(len(X), len(Z)))
    moves = tangent.pull(right, torch.from_numpy(C))
    assert_close(flat(moves, module), C.T @ J, 1e-11)

    physical = [reference.moved_network(module, move) for move in C.T @ J]
    everywhere = np.stack([reference.outputs(network, Z) for network in physical])
    assert_close(moved_outputs(tangent.module, moves, Z), everywhere, 1e-10)
    own = moved_outputs(tangent.module, moves, Z, own_row=True)
    assert_close(own, everywhere.diagonal(), 1e-10)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


@st.composite
def factorable_networks(draw: st.DrawFn) -> tuple[nn.Module, int]:
    """A random dense network, some of its layers without bias, some weights or biases frozen."""
    features = draw(st.integers(1, 5))
    widths = draw(st.lists(st.integers(1, 8), max_size=3))
    activation = ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]
    torch.manual_seed(draw(st.integers(0, 10**6)))

    layers: list[nn.Module] = []
    for size_in, size_out in itertools.pairwise([features, *widths]):
        layers += [nn.Linear(size_in, size_out, bias=draw(st.booleans())), activation()]
        if draw(st.booleans()):
            inner = nn.Sequential(nn.Linear(size_out, 3), activation(), nn.Linear(3, size_out))
            layers.append(Residual(inner))
    module = nn.Sequential(*layers, nn.Linear([features, *widths][-1], 1, bias=draw(st.booleans())))
    for parameter in module.parameters():
        parameter.requires_grad_(draw(st.integers(0, 3)) > 0)
    assume(any(p.requires_grad for p in module.parameters()))
    return module, features


@settings(max_examples=40, deadline=None)
@given(factorable_networks(), st.integers(1, 6), st.integers(1, 4))
def test_layer_factors_equal_the_explicit_jacobian(
    made: tuple[nn.Module, int], n: int, m: int
) -> None:
    module, features = made
    X, Z = rows(n, features), rows(m, features, seed=1)
    tangent = linearise(module, X)
    assert isinstance(tangent, FactorTangent)
    check_against_twin(tangent, module, X, Z)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_both_tangents_equal_the_twin_for_every_activation(activation: str) -> None:
    module, X, Z = mlp((5, 4), activation)(3), rows(6, 3), rows(4, 3, seed=1)
    factored = linearise(module, X)
    assert isinstance(factored, FactorTangent)
    check_against_twin(factored, module, X, Z)
    check_against_twin(JacobianTangent(evaluation_copy(module)), module, X, Z)


def test_a_bare_linear_layer_is_a_network() -> None:
    module, X = nn.Linear(3, 1), rows(5, 3)
    assert isinstance(linearise(module, X), FactorTangent)
    check_against_twin(linearise(module, X), module, X, X[:2])


def test_outputs_without_a_trailing_axis() -> None:
    module, X = nn.Sequential(mlp((4,), "tanh")(3), nn.Flatten(0)), rows(5, 3)
    assert module(X.float()).shape == (5,)
    assert isinstance(linearise(module, X), FactorTangent)
    check_against_twin(linearise(module, X), module, X, X[:2])


class WeightUsedOutsideItsLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x).tanh() + functional.linear(x, self.hidden.weight))


class TiedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x).tanh()).tanh())


class LayerCalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.step(self.step(x).tanh()).tanh())


class LooksAtValues(nn.Module):
    """Every row takes one of two branches, by the sign of what the first layer says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.one(row) for row in x])

    def one(self, row: Tensor) -> Tensor:
        hidden = self.first(row)
        return self.up(hidden) if hidden.sum() > 0 else self.down(hidden).tanh()


FALLBACKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "prelu": (lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 1)), (3,)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)), (3,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 1)),
        (2, 4),
    ),
    "linear on three axes": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)),
        (4, 3),
    ),
    "weight used outside its layer": (WeightUsedOutsideItsLayer, (3,)),
    "tied weights": (TiedWeights, (3,)),
    "layer called twice": (LayerCalledTwice, (3,)),
    "parametrised weight": (
        lambda: nn.Sequential(
            register_parametrization(nn.Linear(3, 4), "weight", nn.Tanh()), nn.Linear(4, 1)
        ),
        (3,),
    ),
    "control flow on values": (LooksAtValues, (3,)),
}


def fallback(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    make, shape = FALLBACKS[name]
    torch.manual_seed(0)
    return make(), rows(6, *shape), rows(4, *shape, seed=1)


@pytest.mark.parametrize("name", FALLBACKS)
def test_networks_beyond_layer_factors_fall_back_to_the_jacobian(name: str) -> None:
    module, X, Z = fallback(name)
    tangent = linearise(module, X)
    assert isinstance(tangent, JacobianTangent)
    check_against_twin(tangent, module, X, Z)


class WeightUsedOutsideFromZeroOn(WeightUsedOutsideItsLayer):
    """Rows without a positive entry do not feel the second use of the weight."""

    def forward(self, x: Tensor) -> Tensor:
        outside = functional.linear(x.clamp(min=0), self.hidden.weight)
        return self.head(self.hidden(x).tanh() + outside)


class SmallOutputs(WeightUsedOutsideItsLayer):
    def forward(self, x: Tensor) -> Tensor:
        return 1e-6 * super().forward(x)


def test_a_second_use_of_a_weight_is_found_though_the_first_rows_do_not_feel_it() -> None:
    module, X = WeightUsedOutsideFromZeroOn(), rows(6, 3)
    X[:2] = -X[:2].abs()
    check_against_twin(linearise(module, X), module, X, X[2:])


def test_a_second_use_of_a_weight_is_found_though_the_outputs_are_small() -> None:
    module, X = SmallOutputs(), rows(6, 3)
    check_against_twin(linearise(module, X), module, X, X[2:])


@pytest.mark.parametrize("name", sorted(FALLBACKS.keys() - {"weight used outside its layer"}))
def test_layer_factors_are_not_even_tried_where_the_layers_rule_them_out(name: str) -> None:
    module, X, _ = fallback(name)
    assert factorable_layers(evaluation_copy(module), X[:2]) is None


def test_integer_inputs_reach_an_embedding() -> None:
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 1))
    X = torch.from_numpy(np.random.default_rng(0).integers(0, 5, size=(6, 2)))
    check_against_twin(linearise(module, X), module, X, X[:3])


def test_control_flow_on_values_takes_both_branches() -> None:
    module, X, _ = fallback("control flow on values")
    assert len({bool(sign) for sign in module.double().first(X).sum(dim=1) > 0}) == 2


@pytest.mark.parametrize("name", ["prelu", "tied weights", "control flow on values"])
def test_tiny_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, X, Z = fallback(name)
    size = sum(p.numel() for p in module.parameters())
    for row_count in (1, 4):  # 4 does not divide the 6 rows
        monkeypatch.setattr("lazyknife.blocks.BLOCK_BYTES", 16 * size * row_count)
        check_against_twin(linearise(module, X), module, X, Z)


def test_blocks_cover_everything_once_and_respect_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lazyknife.blocks.BLOCK_BYTES", 100)
    assert [list(range(7))[part] for part in blocks(7, 30)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(blocks(2, 1000)) == [slice(0, 1), slice(1, 2)]
    assert list(blocks(0, 8)) == []
    assert list(blocks(3, 0)) == [slice(0, 3)]


def snapshot(module: nn.Module) -> dict[str, Any]:
    return {
        "weights": {name: value.clone() for name, value in module.state_dict().items()},
        "modes": [part.training for part in module.modules()],
        "frozen": [p.requires_grad for p in module.parameters()],
    }


@pytest.mark.parametrize("name", ["dense", "prelu", "control flow on values"])
def test_the_users_module_is_left_alone(name: str) -> None:
    module = nn.Sequential(mlp((4,))(3), nn.Dropout(0.5)) if name == "dense" else fallback(name)[0]
    X, before = rows(6, 3), copy.deepcopy(snapshot(module))
    tangent = linearise(module, X)
    features = tangent.features(X)
    tangent.kernel(features, features)
    moves = tangent.pull(features, torch.eye(6, dtype=torch.float64))
    moved_outputs(tangent.module, moves, X)

    after = snapshot(module)
    assert all(p.dtype == torch.float32 and p.grad is None for p in module.parameters())
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    for network in (module, tangent.module):
        assert not any(part._forward_hooks for part in network.modules())
    assert not any(part.training for part in tangent.module.modules())


def test_hooks_are_removed_when_the_network_raises() -> None:
    module = mlp((4,), "tanh")(3)
    tangent = linearise(module, rows(4, 3))
    with pytest.raises(RuntimeError):
        tangent.features(rows(4, 7))
    assert not any(part._forward_hooks for part in tangent.module.modules())


def test_kernel_under_no_grad_still_works() -> None:
    module, X = mlp((4,), "tanh")(3), rows(5, 3)
    with torch.no_grad():
        tangent = linearise(module, X)
        features = tangent.features(X)
    J = reference.jacobian(module, X)
    assert_close(tangent.kernel(features, features), J @ J.T, 1e-11)
