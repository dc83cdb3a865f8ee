"""From what the user gives as ``network`` to a checked module of our own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazyknife.networks import (
    ACTIVATIONS,
    build,
    dtype_of,
    evaluation_copy,
    like,
    make,
    mlp,
    seeded,
    set_training,
)
from lazyknife.tangent import selected
from zoo import Net

X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)


def weights(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_build_copies_a_module_and_leaves_it_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    module[2].eval()
    before, modes = weights(module), [part.training for part in module.modules()]
    built = build(module, X, seed=0)
    assert same(weights(built), before)
    assert [part.training for part in built.modules()] == modes
    with torch.no_grad():
        for p in built.parameters():
            p.add_(1.0)
    assert same(weights(module), before)
    assert [part.training for part in module.modules()] == modes


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_weights_come_from_the_seed_and_lazy_layers_get_their_shapes() -> None:
    assert build(lambda features: nn.Linear(features, 1), X, seed=0).in_features == 3
    lazy = lambda _: nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))  # noqa: E731
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for network in (mlp((4,)), lazy):
        first, again, other = (weights(build(network, X, seed=seed)) for seed in (3, 3, 4))
        assert [tuple(w.shape) for w in first] == [(4, 3), (4,), (1, 4), (1,)]
        assert same(first, again)
        assert not same(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def ended(function: Callable[[Any, Tensor], Any]) -> Net:
    return Net(function, head=nn.Linear(3, 1))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "two outputs": (lambda: nn.Linear(3, 2), r"output of shape \(3, 2\).*one output per row"),
    "softmax over rows": (lambda: nn.Sequential(nn.Linear(3, 1), nn.Softmax(0)), "other rows"),
    "a pair": (lambda: ended(lambda net, x: (x, x)), "one output per row"),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), "BatchNorm"),
    "other rows": (
        lambda: ended(lambda net, x: net.head(x - x.mean(dim=0))),
        "treats each row on its own",
    ),
    "all frozen": (lambda: mlp((4,))(3).requires_grad_(False), "requires_grad=True"),
    "other features": (lambda: nn.Linear(4, 1), r"fails on rows of shape \(3,\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_build_refuses_a_network_without_leave_one_out_models(name: str) -> None:
    make, message = REFUSED[name]
    for network in (make(), lambda _: make()):
        with pytest.raises(ValueError, match=message):
            build(network, X, seed=0)


@pytest.mark.parametrize("network", ["mlp", 3, (64, 64)])
def test_build_refuses_what_is_not_a_network(network: object) -> None:
    with pytest.raises(TypeError, match=r"give None, a torch.nn.Module, a callable"):
        build(network, X, seed=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="network returned int"):
        build(lambda features: features, X, seed=0)  # type: ignore[arg-type,return-value]


def test_batch_norm_on_fixed_statistics_is_accepted_and_stays_fixed() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    module[0].eval()
    built = build(module, X, seed=0)
    assert [part.training for part in built] == [False, True]
    set_training(built.eval())
    assert [part.training for part in built] == [False, True]
    built(X.float())
    assert torch.equal(built[0].running_mean, torch.zeros(3))


def test_inputs_follow_the_networks_type_but_codes_stay_integers() -> None:
    module = mlp((4,))(3)
    assert dtype_of(module) == dtype_of(nn.Identity()) == like(X, module).dtype == torch.float32
    assert like(X, evaluation_copy(module)).dtype == torch.float64
    assert like(torch.arange(3), module).dtype == torch.int64


# Fully connected networks, with and without a linear function of the inputs.


SINGLE = X.float()


def test_mlp_is_a_value_with_the_layers_asked_for() -> None:
    for name, kind in ACTIVATIONS.items():
        module = mlp([7, 2], name)(3)  # type: ignore[arg-type]
        assert [type(part) for part in module] == [nn.Linear, kind, nn.Linear, kind, nn.Linear]
        shapes = [tuple(p.shape) for p in module.parameters() if p.ndim == 2]
        assert shapes == [(7, 3), (2, 7), (1, 2)]
    assert [type(part) for part in mlp(())(3)] == [nn.Linear]
    assert mlp([64, 64]) == mlp((64, 64)) == mlp()  # type: ignore[arg-type]
    assert len({mlp(), mlp((64,)), mlp(skip=True)}) == 3
    with pytest.raises(ValueError, match="at least 1"):
        mlp((4, 0))
    with pytest.raises(ValueError, match=r"activation='step': choose from .*'gelu'.*'tanh'"):
        mlp((4,), "step")


def test_a_skip_adds_a_linear_function_that_starts_at_0() -> None:
    with seeded(3):
        module = mlp((7, 5), skip=True)(3)
    plain = make(mlp((7, 5)), SINGLE, 3)
    assert set(selected(module, "last")) == {"body.4.weight", "body.4.bias"}
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes.pop("skip.weight") == (1, 3)  # and no bias, which the body has
    assert list(shapes.values()) == [tuple(p.shape) for p in plain.parameters()]
    assert torch.equal(module(SINGLE), module.body(SINGLE))
    slopes = torch.tensor([[1.0, -2.0, 0.5]])
    module.skip.weight.data.copy_(slopes)
    # √(width/(4·inputs)), the width being that of the last hidden layer.
    expected = (5 / (4 * 3)) ** 0.5 * (SINGLE @ slopes.T)
    torch.testing.assert_close(module(SINGLE) - module.body(SINGLE), expected)
