"""The tangent, by factors or by blocks, against a Jacobian made row by row."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from lazyknife.networks import ACTIVATIONS, evaluation_copy, mlp
from lazyknife.tangent import Tangent, linearise, moved_outputs
from lazyknife.tangent.parts import Outer, Part
from lazyknife.tangent.tangent import make_tangent
from machines import MACHINE, here
from reference import assert_close


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, *shape)))


def codes(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, size=(n, *shape)))


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
    gram = tangent.gram(right)
    assert_close(gram, J @ J.T, 1e-11)
    assert torch.equal(gram, gram.T)
    assert_close(tangent.norms(right), np.square(J).sum(axis=1), 1e-11)

    C = np.random.default_rng(1).normal(size=(len(X), len(Z)))
    moves = tangent.pull(right, here(C))
    assert_close(flat(moves, module), C.T @ J, 1e-11)

    physical = [reference.moved_network(module, move) for move in C.T @ J]
    new = MACHINE.put(Z)
    everywhere = np.stack([reference.outputs(network, Z) for network in physical])
    assert_close(moved_outputs(tangent.module, moves, new), everywhere, 1e-10)
    own = moved_outputs(tangent.module, moves, new, own_row=True)
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
    tangent = linearise(module, X, machine=MACHINE)
    assert not tangent.rest
    check_against_twin(tangent, module, X, Z)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_both_tangents_equal_the_twin_for_every_activation(activation: str) -> None:
    module, X, Z = mlp((5, 4), activation)(3), rows(6, 3), rows(4, 3, seed=1)
    factored = linearise(module, X, machine=MACHINE)
    assert len(factored.layers) == 3
    check_against_twin(factored, module, X, Z)
    explicit = make_tangent(evaluation_copy(module), (), X).on(MACHINE)
    check_against_twin(explicit, module, X, Z)


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


class ScaleOnALayer(nn.Sequential):
    """The network keeps a parameter of its own on one of its layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.Linear(4, 1))
        self[0].scale = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return self[1]((self[0].scale * self[0](x)).tanh())


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


class TiedWithoutBias(TiedWeights):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1, bias=False)
        self.first.bias = self.second.bias  # and the weights are tied as well
        self.third = nn.Linear(3, 3, bias=False)
        self.third.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.third(self.second(self.first(x).tanh()).tanh()))


class TiedEmbedding(nn.Module):
    """A table that is read at the input and multiplied at the output."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.scores = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.table(x).sum(dim=1)).tanh().sum(dim=1)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv1d(2, 3, 2), nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.one(x).relu().mean(dim=2) * self.two(x).sin().sum(dim=1))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.never, self.lost = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.lost(x)
        return self.used(x)


def conv2d(**settings: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, **settings), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1)
    )


def after(layer: Callable[[], nn.Module], shape: int = 4) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(3, shape), layer(), nn.Tanh(), nn.Linear(shape, 1))


def trained_norm(norm: nn.Module) -> nn.Module:
    """A batch norm whose running statistics are not those of a fresh one."""
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm.eval()


def table(frozen: bool) -> nn.Module:
    module = nn.Sequential(nn.Embedding(5, 3, padding_idx=2), nn.Flatten(), nn.Linear(6, 1))
    module[0].weight.requires_grad_(not frozen)
    return module


CODES = ("table", "frozen table", "table tied to a matrix")  # networks that read whole numbers
# Networks whose parameters all come from layer factors, and the shape of a row.
FACTORED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "bare linear layer": (lambda: nn.Linear(3, 1), (3,)),
    "outputs without a trailing axis": (
        lambda: nn.Sequential(mlp((4,), "tanh")(3), nn.Flatten(0)),
        (3,),
    ),
    "table": (lambda: table(frozen=False), (2,)),
    "frozen table": (lambda: table(frozen=True), (2,)),
    "table tied to a matrix": (TiedEmbedding, (2,)),
    "layer norm": (after(lambda: nn.LayerNorm(4)), (3,)),
    "layer norm on two axes": (
        lambda: nn.Sequential(nn.LayerNorm((2, 4)), nn.Flatten(), nn.Linear(8, 1)),
        (2, 4),
    ),
    "layer norm with places": (
        lambda: nn.Sequential(nn.LayerNorm(4), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)),
        (2, 4),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(12, 1)
        ),
        (2, 4),
    ),
    "batch norm": (after(lambda: trained_norm(nn.BatchNorm1d(4))), (3,)),
    "batch norm of pictures": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2), trained_norm(nn.BatchNorm2d(3)), nn.Flatten(), nn.LazyLinear(1)
        ),
        (2, 3, 3),
    ),
    "convolution on one axis": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 1)),
        (2, 4),
    ),
    "convolution": (conv2d(), (2, 5, 4)),
    "stride and padding": (conv2d(stride=2, padding=(1, 2)), (2, 5, 4)),
    "dilation": (conv2d(dilation=2, padding=2), (2, 5, 4)),
    "groups": (conv2d(groups=2), (2, 5, 4)),
    "padding same": (conv2d(padding="same", bias=False), (2, 5, 4)),
    "linear on three axes": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)),
        (4, 3),
    ),
    "wide linear on three axes": (
        lambda: nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Flatten(), nn.Linear(40, 1)),
        (2, 20),
    ),
    "activation in place": (after(lambda: nn.ReLU(inplace=True)), (3,)),
    "tied weights": (TiedWeights, (3,)),
    "tied weights, one without bias": (TiedWithoutBias, (3,)),
    "layer called twice": (LayerCalledTwice, (3,)),
    "norm called twice": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), norm := nn.LayerNorm(4), nn.Tanh(), norm, nn.Linear(4, 1)
        ),
        (3,),
    ),
    "branches": (Branches, (2, 4)),
    "layers without use": (Unused, (3,)),
}
# Networks with parameters that need explicit Jacobian rows, these parameters, and a row's shape.
EXPLICIT: dict[str, tuple[Callable[[], nn.Module], set[str], tuple[int, ...]]] = {
    "prelu": (after(nn.PReLU), {"1.weight"}, (3,)),
    "weight used outside its layer": (
        WeightUsedOutsideItsLayer,
        {"hidden.weight", "hidden.bias"},
        (3,),
    ),
    "parametrised weight": (
        lambda: nn.Sequential(
            register_parametrization(nn.Linear(3, 4), "weight", nn.Tanh()), nn.Linear(4, 1)
        ),
        {"0.bias", "0.parametrizations.weight.original"},
        (3,),
    ),
    "parameter put on a layer": (ScaleOnALayer, {"0.weight", "0.bias", "0.scale"}, (3,)),
    "circular padding": (
        conv2d(padding=1, padding_mode="circular"),
        {"0.weight", "0.bias"},
        (2, 5, 4),
    ),
    "control flow on values": (
        LooksAtValues,
        {f"{layer}.{role}" for layer in ("first", "up", "down") for role in ("weight", "bias")},
        (3,),
    ),
}
SHAPES = {name: (make, shape) for name, (make, _, shape) in EXPLICIT.items()} | FACTORED


def network(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    make, shape = SHAPES[name]
    torch.manual_seed(0)
    draw = codes if name in CODES else rows
    module, X = make(), draw(6, *shape)
    module(X.float() if X.is_floating_point() else X)  # gives lazy layers their shapes
    return module, X, draw(4, *shape, seed=1)


@pytest.mark.parametrize("name", FACTORED)
def test_layers_with_a_formula_need_no_jacobian(name: str) -> None:
    module, X, Z = network(name)
    tangent = linearise(module, X, machine=MACHINE)
    assert not tangent.rest or name == "layers without use"
    check_against_twin(tangent, module, X, Z)


@pytest.mark.parametrize("name", EXPLICIT)
def test_only_what_has_no_formula_takes_explicit_rows(name: str) -> None:
    module, X, Z = network(name)
    tangent = linearise(module, X, machine=MACHINE)
    assert set(tangent.rest) == EXPLICIT[name][1]
    check_against_twin(tangent, module, X, Z)


@pytest.mark.parametrize("name", ["convolution", "layer norm", "tied weights", "batch norm"])
def test_frozen_parameters_are_left_out(name: str) -> None:
    for k in range(len(list(network(name)[0].parameters()))):
        module, X, Z = network(name)
        list(module.parameters())[k].requires_grad_(False)
        check_against_twin(linearise(module, X, machine=MACHINE), module, X, Z)


def test_a_layer_that_does_something_else_is_found_by_the_probe() -> None:
    """A hook of the user's doubles what the layer gives; nothing but the values shows it."""
    module, X = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), rows(6, 3)
    module[0].register_forward_hook(lambda layer, args, result: 2 * result)
    tangent = linearise(module, X, machine=MACHINE)
    assert not tangent.layers
    features = tangent.features(X)
    J = reference.jacobian(module, X)
    assert_close(tangent.kernel(features, features), J @ J.T, 1e-11)


def test_factors_stay_factors_where_that_is_cheaper() -> None:
    for name, kept in (("wide linear on three axes", True), ("linear on three axes", False)):
        module, X, _ = network(name)
        parts = linearise(module, X, machine=MACHINE).features(X).parts
        assert any(isinstance(p, Outer) and p.signals.shape[1] > 1 for p in parts) is kept


class WeightUsedOutsideFromZeroOn(WeightUsedOutsideItsLayer):
    """Rows without a positive entry do not feel the second use of the weight."""

    def forward(self, x: Tensor) -> Tensor:
        outside = functional.linear(x.clamp(min=0), self.hidden.weight)
        return self.head(self.hidden(x).tanh() + outside)


class SmallOutputs(WeightUsedOutsideItsLayer):
    def forward(self, x: Tensor) -> Tensor:
        return 1e-6 * super().forward(x)


@pytest.mark.parametrize("make", [WeightUsedOutsideFromZeroOn, SmallOutputs])
def test_a_second_use_of_a_weight_is_found_though_the_first_rows_hide_it(
    make: Callable[[], nn.Module],
) -> None:
    module, X = make(), rows(6, 3)
    X[:2] = -X[:2].abs()
    check_against_twin(linearise(module, X, machine=MACHINE), module, X, X[2:])


def test_control_flow_on_values_takes_both_branches() -> None:
    module, X, _ = network("control flow on values")
    assert len({bool(sign) for sign in module.double().first(X).sum(dim=1) > 0}) == 2


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("budget", [1, 3000])
def test_tiny_blocks_change_nothing(name: str, budget: int) -> None:
    module, X, Z = network(name)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    check_against_twin(tangent, module, X, Z)


def bytes_of(parts: Sequence[Part]) -> int:
    return sum(v.nbytes for part in parts for v in vars(part).values() if isinstance(v, Tensor))


@pytest.mark.parametrize("name", SHAPES)
def test_features_are_kept_as_long_as_they_fit(name: str) -> None:
    module, X, _ = network(name)
    needed = bytes_of(linearise(module, X, machine=MACHINE).features(X).parts)
    for budget, kept in ((2 * needed, True), (2 * needed - 1, False)):
        tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
        assert (tangent.features(X).parts is not None) is kept


def snapshot(module: nn.Module) -> dict[str, Any]:
    return {
        "weights": {name: value.clone() for name, value in module.state_dict().items()},
        "modes": [part.training for part in module.modules()],
        "frozen": [p.requires_grad for p in module.parameters()],
    }


@pytest.mark.parametrize("name", ["dense", "prelu", "control flow on values"])
def test_the_users_module_is_left_alone(name: str) -> None:
    module = nn.Sequential(mlp((4,))(3), nn.Dropout(0.5)) if name == "dense" else network(name)[0]
    X, before = rows(6, 3), copy.deepcopy(snapshot(module))
    tangent = linearise(module, X, machine=MACHINE)
    features = tangent.features(X)
    tangent.kernel(features, features)
    moves = tangent.pull(features, here(np.eye(6)))
    moved_outputs(tangent.module, moves, MACHINE.put(X))

    after = snapshot(module)
    assert all(p.dtype == torch.float32 and p.grad is None for p in module.parameters())
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    for seen in (module, tangent.module):
        assert not any(part._forward_hooks for part in seen.modules())
    assert not any(part.training for part in tangent.module.modules())


def test_hooks_are_removed_when_the_network_raises() -> None:
    module = mlp((4,), "tanh")(3)
    tangent = linearise(module, rows(4, 3), machine=MACHINE)
    with pytest.raises(RuntimeError):
        tangent.features(rows(4, 7))
    assert not any(part._forward_hooks for part in tangent.module.modules())


def test_kernel_under_no_grad_still_works() -> None:
    module, X = mlp((4,), "tanh")(3), rows(5, 3)
    with torch.no_grad():
        tangent = linearise(module, X, machine=MACHINE)
        features = tangent.features(X)
    J = reference.jacobian(module, X)
    assert_close(tangent.kernel(features, features), J @ J.T, 1e-11)
