"""The tangent and its feature maps against a Jacobian made row by row."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import reference
from lazyknife.networks import ACTIVATIONS, evaluation_copy, mlp
from lazyknife.tangent import (
    FEATURES,
    Dual,
    Exact,
    Primal,
    Tangent,
    linearise,
    moved_outputs,
)
from lazyknife.tangent.capture import LAYERS
from lazyknife.tangent.tangent import make_tangent
from machines import MACHINE, here
from reference import assert_close
from tangents import EXPLICIT, NETWORKS, network, rows
from zoo import Net


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
            layers.append(Net(lambda net, x: x + net.inner(x), inner=inner))
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


@pytest.mark.parametrize("budget", [None, 1, 3000])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_equals_its_twin_in_blocks_of_every_size(
    name: str, budget: int | None
) -> None:
    """Layers with a formula need no Jacobian; only what has none takes explicit rows."""
    module, X, Z = network(name)
    machine = MACHINE if budget is None else replace(MACHINE, budget=budget)
    tangent = linearise(module, X, machine=machine)
    others = {
        f"{path}.{role}"
        for path, layer in module.named_modules()
        if type(layer) not in LAYERS
        for role, _ in layer.named_parameters(recurse=False)
    }
    explicit = EXPLICIT[name][2] if name in EXPLICIT else others
    assert set(tangent.rest) == explicit or name == "layers without use"
    if name == "control flow on values":  # both branches are taken
        assert (X[:, 0] > 0).unique().numel() == 2
    check_against_twin(tangent, module, X, Z)


def test_explicit_rows_alone_equal_the_twin() -> None:
    module, X, Z = network("dense")
    explicit = make_tangent(evaluation_copy(module), (), X).on(MACHINE)
    check_against_twin(explicit, module, X, Z)


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
    check_against_twin(tangent, module, X, X[2:])


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_second_use_of_a_weight_is_found_though_the_first_rows_hide_it(scale: float) -> None:
    used, X, _ = network("weight used outside its layer")
    module = Net(lambda net, x: scale * net.used(x), used=used)
    X[:2] = -X[:2].abs()
    check_against_twin(linearise(module, X, machine=MACHINE), module, X, X[2:])


def test_it_works_under_no_grad_and_hooks_are_removed_when_the_network_raises() -> None:
    module, X, _ = network("dense")
    with torch.no_grad():
        tangent = linearise(module, X, machine=MACHINE)
        features = tangent.features(X)
    J = reference.jacobian(module, X)
    assert_close(tangent.kernel(features, features), J @ J.T, 1e-11)
    with pytest.raises(RuntimeError):
        tangent.features(rows(4, 7))
    assert not any(part._forward_hooks for part in tangent.module.modules())


# Feature maps.

SIZE = 21  # parameters of the network below
torch.manual_seed(0)
MODULE = mlp((4,), "tanh")(3)
NEW = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3)))


def linearised(n: int) -> tuple[Tangent, Tensor]:
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(n, 3)))
    return linearise(MODULE, X, machine=MACHINE), X


@pytest.mark.parametrize(("n", "kernel", "form"), [(21, 0, Dual), (22, 0, Primal), (22, 1, Dual)])
def test_exact_features_take_the_smaller_form_unless_told(n: int, kernel: int, form: type) -> None:
    tangent, X = linearised(n)
    assert tangent.size == SIZE
    basis = Exact().basis(tangent, X, seed=0, kernel=bool(kernel))
    assert isinstance(basis, form)
    assert basis.size == (n if form is Dual else SIZE)
    J, J_new = reference.jacobian(MODULE, X), reference.jacobian(MODULE, NEW)
    outputs, coordinates, norms = basis.at(NEW)
    assert_close(outputs, reference.outputs(MODULE, NEW), 1e-12)
    assert_close(coordinates, J_new @ J.T if form is Dual else J_new, 1e-12)
    assert_close(norms, np.square(J_new).sum(axis=1), 1e-12)


@pytest.mark.parametrize("n", [6, 30, 5000])
@pytest.mark.parametrize("name", FEATURES)
def test_a_map_has_the_form_the_moves_and_the_kernel_that_it_says(name: str, n: int) -> None:
    tangent, X = linearised(n)
    features = FEATURES[name]().for_rows(n, MACHINE)
    assert features == FEATURES[name]().for_rows(n, MACHINE)
    basis = features.basis(tangent, X, seed=3)
    if isinstance(basis, Dual):
        assert n <= features.size(tangent.size)
    else:
        assert basis.size == features.size(tangent.size)
    for part, again in zip(basis.at(NEW), features.basis(tangent, X, 3).at(NEW), strict=True):
        assert torch.equal(part, again)
    columns = here(np.random.default_rng(2).normal(size=(basis.size, 2)))
    if features.has_moves:  # z(x)ᵀw is the derivative in the direction of the move
        moves = flat(basis.moves(columns), MODULE)
        expected = reference.jacobian(MODULE, NEW) @ moves.cpu().numpy().T
        assert_close(basis.at(NEW).coordinates @ columns, expected, 1e-11)
    else:
        with pytest.raises(AssertionError, match="do not move"):
            basis.moves(columns)
    if features.has_kernel:
        assert isinstance(features.basis(tangent, X[:30], seed=3, kernel=True), Dual)
    else:
        with pytest.raises(AssertionError, match="no kernel"):
            features.basis(tangent, X, seed=3, kernel=True)
