"""Making and checking networks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lazyknife.networks import (
    ACTIVATIONS,
    build,
    dtype_of,
    evaluation_copy,
    like,
    mlp,
    outputs,
    seeded,
    set_training,
)

X = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)


def weights(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_mlp_has_the_layers_asked_for(activation: str) -> None:
    module = mlp([7, 2], activation)(3)  # type: ignore[arg-type]
    assert [type(part) for part in module] == [
        nn.Linear,
        ACTIVATIONS[activation],
        nn.Linear,
        ACTIVATIONS[activation],
        nn.Linear,
    ]
    assert [tuple(p.shape) for p in module.parameters() if p.ndim == 2] == [(7, 3), (2, 7), (1, 2)]


def test_mlp_without_hidden_layers_is_linear() -> None:
    module = mlp(())(3)
    assert [type(part) for part in module] == [nn.Linear]
    assert module(X.float()).shape == (5, 1)


def test_mlp_is_a_value() -> None:
    assert mlp([64, 64]) == mlp((64, 64)) == mlp()  # type: ignore[arg-type]
    assert mlp((64, 64)) != mlp((64,))


def test_mlp_refuses_an_empty_layer_and_an_unknown_activation() -> None:
    with pytest.raises(ValueError, match="at least one unit"):
        mlp((4, 0))
    with pytest.raises(ValueError, match=r"activation='step': choose from .*'gelu'.*'tanh'"):
        mlp((4,), "step")


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


def test_build_calls_a_callable_with_the_number_of_features() -> None:
    built = build(lambda features: nn.Linear(features, 1), X, seed=0)
    assert isinstance(built, nn.Linear)
    assert built.in_features == 3


def test_build_makes_the_default_network() -> None:
    built = build(None, X, seed=0)
    shapes = [tuple(p.shape) for p in built.parameters() if p.ndim == 2]
    assert shapes == [(64, 3), (64, 64), (1, 64)]


def test_same_seed_same_weights() -> None:
    first, again, other = (weights(build(mlp((4,)), X, seed=seed)) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_torchs_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    build(mlp((4,)), X, seed=1)
    with seeded(5):
        drawn = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(5):
        assert torch.equal(torch.rand(3), drawn)


def test_torchs_random_state_comes_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), seeded(5):
        torch.rand(4).reshape(3)
    assert torch.equal(torch.get_rng_state(), before)


class SubtractsBatchMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(dim=0))


class ReturnsPair(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x, x


def frozen() -> nn.Module:
    return mlp((4,))(3).requires_grad_(False)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "two outputs": (lambda: nn.Linear(3, 2), r"output of shape \(3, 2\).*one output per row"),
    "softmax over rows": (lambda: nn.Sequential(nn.Linear(3, 1), nn.Softmax(0)), "other rows"),
    "a pair": (lambda: ReturnsPair(3, 1), "one output per row"),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), "BatchNorm"),
    "other rows": (SubtractsBatchMean, "treats each row on its own"),
    "all frozen": (frozen, "requires_grad=True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_build_refuses_a_network_without_leave_one_out_models(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        build(make(), X, seed=0)
    with pytest.raises(ValueError, match=message):
        build(lambda _: make(), X, seed=0)


def test_batch_norm_on_fixed_statistics_is_accepted_and_stays_fixed() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    module[0].eval()
    built = build(module, X, seed=0)
    assert [part.training for part in built] == [False, True]
    set_training(built.eval())
    assert [part.training for part in built] == [False, True]
    built(X.float())
    assert torch.equal(built[0].running_mean, torch.zeros(3))


@pytest.mark.parametrize("network", ["mlp", 3, (64, 64)])
def test_build_refuses_what_is_no_network(network: object) -> None:
    with pytest.raises(TypeError, match=r"give None, a torch.nn.Module, or a callable"):
        build(network, X, seed=0)  # type: ignore[arg-type]


def test_build_refuses_a_callable_that_returns_no_module() -> None:
    with pytest.raises(TypeError, match="network returned int"):
        build(lambda features: features, X, seed=0)  # type: ignore[arg-type,return-value]


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_build_gives_lazy_layers_their_shapes_from_the_seed() -> None:
    make = lambda _: nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))  # noqa: E731
    first, again = (weights(build(make, X, seed=2)) for _ in range(2))
    assert [tuple(w.shape) for w in first] == [(4, 3), (4,), (1, 4), (1,)]
    assert same(first, again)


def test_inputs_follow_the_networks_type_but_codes_stay_whole() -> None:
    module = mlp((4,))(3)
    assert dtype_of(module) == torch.float32
    assert like(X, module).dtype == torch.float32
    assert like(X, evaluation_copy(module)).dtype == torch.float64
    assert like(torch.arange(3), module).dtype == torch.int64
    assert dtype_of(nn.Identity()) == torch.float32


def test_evaluation_copy_is_a_float64_copy_in_evaluation_mode() -> None:
    module = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    copied = evaluation_copy(module)
    assert not any(part.training for part in copied.modules())
    assert all(p.dtype == torch.float64 for p in copied.parameters())
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert all(part.training for part in module.modules())
    assert outputs(copied, X).shape == (5,)
