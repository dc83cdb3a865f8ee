"""From what the user gives as ``network`` to a checked module of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazyknife.networks import build, dtype_of, evaluation_copy, like, mlp, set_training
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
