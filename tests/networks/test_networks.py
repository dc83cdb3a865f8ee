"""Making and checking networks."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization

import lazyknife as lk
import reference
from lazyknife import networks
from lazyknife.base.pretrained import find_head
from lazyknife.networks import (
    ACTIVATIONS,
    Dice,
    build,
    call_with,
    draws,
    dtype_of,
    ensemble_outputs,
    evaluation_copy,
    is_chain,
    lent,
    like,
    make,
    mlp,
    note_draws,
    outputs,
    private,
    seeded,
    set_training,
    widest_output,
)
from lazyknife.tangent import selected
from rows import linear

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


MANY = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 3)))


def stacked(module: nn.Module, names: Iterable[str], count: int = 5) -> dict[str, Tensor]:
    """Weights of several networks: those named differ, all others are the module's own."""
    generator = torch.Generator().manual_seed(1)
    parameters = dict(module.named_parameters())
    return {
        name: torch.randn(count, *parameters[name].shape, generator=generator).to(parameters[name])
        for name in names
    }


def one_by_one(module: nn.Module, weights: dict[str, Tensor], rows: Tensor) -> Tensor:
    """The slow twin: each network on its own."""
    count = len(next(iter(weights.values())))
    each = [{name: weight[j] for name, weight in weights.items()} for j in range(count)]
    with torch.no_grad():
        results = [functional_call(module, own, (rows,), tie_weights=True) for own in each]
    return torch.stack([result.reshape(len(rows)) for result in results])


def chain(activation: str, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for sizes in itertools.pairwise((3, 5, 4)):
        layers += [nn.Linear(*sizes, bias=bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(4, 1, bias=bias)).double().eval()


def check_ensemble(module: nn.Module, names: Iterable[str], rows: Tensor = MANY) -> None:
    weights, before = stacked(module, names), rows.clone()
    result, twin = ensemble_outputs(module, weights, rows), one_by_one(module, weights, rows)
    assert result.shape == (5, len(rows))
    assert not result.requires_grad
    tolerance = 1e-12 if twin.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(result, twin, rtol=tolerance, atol=tolerance)
    assert torch.equal(rows, before)


BLOCKS = {"whole": (25, 2**20), "two networks": (2, 2**20), "one row": (25, 1), "both": (1, 1)}


@pytest.fixture(params=BLOCKS)
def any_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in blocks of every kind; the last ones may be shorter."""
    count, size = BLOCKS[request.param]
    monkeypatch.setattr(networks, "NETWORKS_AT_ONCE", count)
    monkeypatch.setattr(networks, "ENSEMBLE_BYTES", size)


@pytest.mark.usefixtures("any_blocks")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_a_chain_of_networks_equals_each_on_its_own(activation: str, bias: bool) -> None:
    module = chain(activation, bias)
    assert is_chain(module)
    check_ensemble(module, dict(module.named_parameters()))


@pytest.mark.usefixtures("any_blocks")
@pytest.mark.parametrize(
    "names",
    [
        names
        for count in (1, 2)
        for names in itertools.combinations(
            [f"{k}.{r}" for k in (0, 2, 4) for r in ("weight", "bias")], count
        )
    ],
    ids=" ".join,
)
def test_networks_may_differ_in_any_of_their_weights(names: tuple[str, ...]) -> None:
    check_ensemble(chain("relu"), names)


def test_a_network_of_one_layer_is_a_chain() -> None:
    module = nn.Sequential(nn.Linear(3, 1)).double().eval()
    assert is_chain(module)
    for names in (["0.weight"], ["0.bias"], ["0.weight", "0.bias"]):
        check_ensemble(module, names)


@pytest.mark.usefixtures("any_blocks")
def test_a_chain_may_begin_and_end_with_an_activation_and_repeat_one() -> None:
    module = nn.Sequential(
        nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 1), nn.ReLU(), nn.Softplus(2)
    )
    module.double().eval()
    assert is_chain(module)
    check_ensemble(module, ["1.weight", "4.bias"])
    check_ensemble(module, ["4.bias"])


def test_a_chain_in_single_precision() -> None:
    module = chain("tanh").float()
    check_ensemble(module, dict(module.named_parameters()), MANY.float())
    check_ensemble(module, ["4.bias"], MANY.float())


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.body(x).relu())


class DoublesItsInput(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x)


class NoisyLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def shared_layer() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 1))


def tied_weights() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 1))
    module[2].weight = module[0].weight
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    module[0].register_forward_hook(lambda layer, args, result: 2 * result)
    return module


def hooked_before() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    module.register_forward_pre_hook(lambda layer, args: (args[0] + 1,))
    return module


def shared_activation() -> nn.Module:
    activation = nn.Tanh()
    return nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 1))


def without_bias(layer: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(x, layer.weight)


def new_forward() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    module[0].forward = MethodType(without_bias, module[0])
    return module


NO_CHAINS: dict[str, Callable[[], nn.Module]] = {
    "skip": Skips,
    "nested": lambda: nn.Sequential(mlp((4,))(3), nn.Flatten(0)),
    "nested chain": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 1)
    ),
    "bare layer": lambda: nn.Linear(3, 1),
    "norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)),
    "prelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 1)),
    "subclass of Sequential": lambda: DoublesItsInput(nn.Linear(3, 1)),
    "subclass of Linear": lambda: nn.Sequential(NoisyLinear(3, 4), nn.Linear(4, 1)),
    "parametrised": lambda: nn.Sequential(
        register_parametrization(nn.Linear(3, 4), "weight", nn.Tanh()), nn.Linear(4, 1)
    ),
    "shared layer": shared_layer,
    "tied weights": tied_weights,
    "hook": hooked,
    "hook on the input": hooked_before,
}


@pytest.mark.parametrize("name", NO_CHAINS)
def test_everything_else_is_no_chain_and_is_run_all_the_same(name: str) -> None:
    torch.manual_seed(0)
    module = NO_CHAINS[name]().double().eval()
    assert not is_chain(module)
    check_ensemble(module, dict(module.named_parameters()))
    last = list(dict(module.named_parameters()))[-1]
    check_ensemble(module, [last])


@pytest.mark.usefixtures("any_blocks")
def test_one_activation_may_stand_at_two_places() -> None:
    module = shared_activation().double().eval()
    check_ensemble(module, dict(module.named_parameters()))


def test_a_layer_with_a_forward_of_its_own_is_run_as_it_says() -> None:
    module = new_forward().double().eval()
    check_ensemble(module, dict(module.named_parameters()))


def test_a_network_in_training_mode_is_no_chain() -> None:
    assert not is_chain(chain("relu").train())


class LooksAtTheRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.up(r) if self.up(r) > 0 else self.down(r) for r in x])


@pytest.mark.usefixtures("any_blocks")
def test_networks_that_look_at_values_are_run_one_by_one() -> None:
    module = LooksAtTheRows().double().eval()
    check_ensemble(module, dict(module.named_parameters()))


def test_rows_of_other_shapes_are_run_too() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 2, 3)))
    check_ensemble(module.double().eval(), ["0.weight", "3.bias"], rows)
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 5, size=(7, 2)))
    table = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 1)).double().eval()
    check_ensemble(table, ["0.weight", "2.bias"], codes)


def test_the_module_is_left_as_it_was() -> None:
    module = chain("relu")
    before = copy.deepcopy(module.state_dict())
    check_ensemble(module, dict(module.named_parameters()))
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("readout", ["tangent", "network"])
def test_a_network_that_works_in_place_does_not_change_the_callers_rows(readout: str) -> None:
    rows, y = linear(30)
    before = rows.copy()
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))
    model = lk.LazyJackknifeRegressor(network, lk.Public(), 1.0, readout=readout).fit(rows, y)
    np.testing.assert_array_equal(rows, before)
    model.predict_interval(rows)
    model.predict(rows)
    np.testing.assert_array_equal(rows, before)


def test_pictures_are_run_in_blocks_that_their_layers_fit_in(monkeypatch) -> None:
    conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))
    conv.double().eval()
    assert networks.widest_output(conv, torch.zeros(1, 1, 6, 6, dtype=torch.float64)) == 4 * 36
    rows = []
    original = networks.stacked_outputs

    def spied(module, weights, X, **settings):
        rows.append(len(X))
        return original(module, weights, X, **settings)

    monkeypatch.setattr(networks, "stacked_outputs", spied)
    monkeypatch.setattr(networks, "ENSEMBLE_BYTES", 3 * 2 * 144 * 8)  # three rows of two networks
    weights = {"3.bias": torch.zeros(2, 1, dtype=torch.float64)}
    X = torch.randn(8, 1, 6, 6, dtype=torch.float64)
    result = networks.ensemble_outputs(conv, weights, X)
    assert rows == [3, 3, 2]
    expected = (conv(X)[:, 0] - conv[3].bias).detach()
    torch.testing.assert_close(result, expected.expand(2, -1))
    assert not any(part._forward_hooks for part in conv.modules())


# A linear function of the inputs beside the hidden layers


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
        plain = mlp((7, 5))(3)
    with seeded(3):
        module = mlp((7, 5), skip=True)(3)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert shapes.pop("skip.weight") == (1, 3)  # and no bias, which the body has
    assert list(shapes.values()) == [tuple(p.shape) for p in plain.parameters()]
    assert (module.skip.weight == 0).all()
    rows = X.float()
    assert torch.equal(module(rows), module.body(rows))
    with torch.no_grad():
        module.skip.weight.copy_(torch.tensor([[1.0, -2.0, 0.5]]))
    moved = (module(rows) - module.body(rows))[:, 0]
    # √(width/(4·inputs)), the width being that of the last hidden layer.
    expected = (5 / (4 * 3)) ** 0.5 * (rows @ torch.tensor([1.0, -2.0, 0.5]))
    torch.testing.assert_close(moved, expected)
    assert mlp((7, 5), skip=True) != mlp((7, 5))


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


def test_the_default_of_the_estimator_has_a_skip() -> None:
    rows, y = linear(12)
    model = lk.LazyJackknifeRegressor(base=lk.Public(), ridge=1.0, random_state=0).fit(rows, y)
    built = build(mlp((64, 64), skip=True), torch.from_numpy(rows), model.seeds_.start)
    assert isinstance(model.base_.module, networks.WithSkip)
    assert same(weights(built), [w.float() for w in weights(model.base_.module)])


def test_the_last_layer_of_a_network_with_a_skip_is_the_bodys() -> None:
    module = mlp((7, 5), skip=True)(3)
    assert set(selected(module, "last")) == {"body.4.weight", "body.4.bias"}
    assert find_head(module, X[:2].float()) is module.body[4]


def test_private_training_moves_the_skip() -> None:
    rows, y = linear(60)
    base = lk.DPSGD(noise_multiplier=0.05, epochs=8, batch_size=20, lr=0.05)
    model = lk.LazyJackknifeRegressor(
        mlp((6,), skip=True), base, ridge=1.0, widths="constant", random_state=0
    ).fit(rows, y)
    slopes = model.base_.module.skip.weight[0].double() * model.base_.module.scale
    assert (
        torch.corrcoef(torch.stack([slopes, torch.tensor([1.0, 0.0, -1.0]).double()]))[0, 1] > 0.9
    )
    assert model.base_.details["noise_multiplier"] == 0.05


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("parameters", ["all", "last", ["skip.*"]])
def test_moved_networks_with_a_skip_equal_explicit_refits(parameters: str | list[str]) -> None:
    rows, y = linear(18)
    model = lk.LazyJackknifeRegressor(
        mlp((6, 5), skip=True),
        lk.Public(),
        4.0,
        readout="network",
        parameters=parameters,
        widths="constant",
        alpha=0.2,
        random_state=2,
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


# Private copies


class Remembers(nn.Module):
    """Keeps all it can: attributes, items of containers, buffers, and with derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.last: Tensor | None = None
        self.seen: list[Tensor] = []
        self.cache = {"sizes": [0]}
        self.mean = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        self.calls += 1
        self.last, self.rows = result, len(x)
        self.seen.append(x)
        self.cache["sizes"].append(len(x))
        self.mean.copy_(x.detach().mean(dim=0))
        return result


class Hides(nn.Module):
    """Holds modules and parameters where torch does not look for them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.hidden = [nn.Linear(3, 3).double().requires_grad_(False)]
        self.steps = (self.body, self.hidden[0])
        self.by_name = {"head": nn.Linear(3, 1)}
        self.lock = threading.Lock()  # which cannot be copied
        self.head = self.by_name["head"]

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            for step in self.steps:
                x = step(x).tanh()
            return self.by_name["head"](x)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.inner, self.head = kind(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x[..., None])[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x[..., None].expand(-1, -1, 4)).mean(dim=1))


def scaled_by(factor: float, layer: nn.Module, args: Any, result: Tensor) -> Tensor:
    return factor * result


def hooked_by_everything() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    module[0].register_forward_hook(partial(scaled_by, 2.0))
    module[1].register_forward_pre_hook(MethodType(lambda layer, _, args: args, module[0]))
    module[1].register_forward_hook(lambda _, args, kwargs, result: result + 1, with_kwargs=True)
    return module


def old_weight_norm() -> nn.Module:
    """Its weight is no parameter, but what the last call made of two of them."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    nn.utils.weight_norm(module[0])
    return module


KINDS: dict[str, Callable[[], nn.Module]] = {
    **NO_CHAINS,
    "mlp": mlp((4,)),  # type: ignore[dict-item]
    "mlp with a skip": lambda: mlp((4,), skip=True)(3),
    "new forward": new_forward,
    "shared activation": shared_activation,
    "looks at the rows": LooksAtTheRows,
    "remembers": Remembers,
    "hides": Hides,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "attention": Attention,
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.Linear(4, 1)),
    "spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(3, 4)), nn.Linear(4, 1)),
    "all kinds of hooks": hooked_by_everything,
    "old weight norm": old_weight_norm,
    "traced": lambda: torch.fx.symbolic_trace(mlp((4,), skip=True)(3)),
}


def kind_of_module(name: str) -> nn.Module:
    with seeded(0):
        return (KINDS[name](3) if name == "mlp" else KINDS[name]()).double().eval()  # type: ignore[call-arg]


def everything_in(module: nn.Module) -> dict[str, Any]:
    """All that a module and its parts hold, with the tensors' values."""
    held: dict[str, Any] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for name, value in vars(part).items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            for key, each in inner:
                each = [id(x) for x in each] if isinstance(each, list | tuple) else each
                kept = (id(each), each.detach().clone()) if isinstance(each, Tensor) else each
                held[f"{path}.{name}.{key}"] = kept
    return held


def alike(first: dict[str, Any], second: dict[str, Any]) -> bool:
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], Tensor):
            return a[0] == b[0] and torch.equal(a[1], b[1])
        return a is b or a == b

    return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("name", KINDS)
def test_a_private_copy_is_the_network_and_shares_its_parameters_alone(name: str) -> None:
    module = kind_of_module(name)
    before = everything_in(module)
    copied = private(module)
    parameters = dict(copied.named_parameters())
    assert list(parameters) == list(dict(module.named_parameters()))
    for key, value in module.named_parameters():
        assert parameters[key] is value
    for key, value in module.named_buffers():
        assert copied.get_buffer(key) is not value
    assert [type(part) for part in copied.modules()] == [type(part) for part in module.modules()]
    assert not set(copied.modules()) & set(module.modules())
    expected = outputs(copy.deepcopy(module) if name not in UNCOPIED else private(module), MANY)
    with torch.enable_grad():
        first = outputs(copied, MANY)
    assert torch.equal(first, expected)
    assert torch.equal(outputs(private(module), MANY), expected)
    assert widest_output(private(module), MANY[:1]) >= 1
    assert alike(everything_in(module), before)


UNCOPIED = ("hides", "old weight norm")


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("name", [n for n in KINDS if n != "remembers"])
def test_other_weights_are_those_of_the_private_copy_alone(name: str) -> None:
    module = kind_of_module(name)
    before = everything_in(module)
    own = {key: value[0] for key, value in stacked(module, dict(module.named_parameters())).items()}
    with torch.no_grad():
        result = call_with(private(module), own, MANY).reshape(-1)
        for key, value in module.named_parameters():
            value.copy_(own[key])
        expected = outputs(module, MANY)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    ids = {key: value[0] for key, value in before.items() if isinstance(value, tuple)}
    after = everything_in(module)
    if name not in ("old weight norm", "lstm", "gru"):  # whose own calls keep tensors
        assert {key: after[key][0] for key in ids} == ids


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_scripted_network_is_lent_as_it_is() -> None:
    module = torch.jit.script(mlp((4,))(3).double().eval())
    mixed = nn.Sequential(module, nn.Flatten(0))
    with lent(mixed) as copied:
        assert copied is not mixed
        assert torch.equal(outputs(copied, MANY), outputs(module, MANY))
        assert widest_output(copied, MANY[:1]) == 1
    assert torch.equal(outputs(private(module), MANY), outputs(module, MANY))


def test_a_network_that_keeps_what_it_has_made_can_be_copied() -> None:
    module = Remembers()
    module(X.float())  # with derivatives, as after the user's own training
    assert not module.last.is_leaf
    for copied in (make(module, X, 0), evaluation_copy(module), private(module)):
        assert torch.equal(copied.layer.weight, module.layer.weight)
        assert torch.equal(copied.last, module.last)
        assert copied.last is not module.last
        assert not copied.last.requires_grad


def test_entries_of_an_embedding_have_their_norm_before_they_are_read() -> None:
    module = nn.Sequential(
        nn.Embedding(50, 4, max_norm=0.5), nn.Flatten(), nn.Linear(8, 1), nn.Flatten(0)
    )
    codes = torch.randint(0, 50, (30, 2), generator=torch.Generator().manual_seed(0))
    copied = evaluation_copy(module)
    before = copied[0].weight.detach().clone()
    assert before.norm(dim=1).max() <= 0.5
    expected = outputs(copy.deepcopy(module).double(), codes)
    torch.testing.assert_close(outputs(copied, codes), expected)
    assert torch.equal(copied[0].weight, before)


# Random numbers


def test_dice_go_on_where_they_were_left_and_leave_the_callers_state_alone() -> None:
    with seeded(5):
        expected = [torch.rand(3) for _ in range(4)]
    before = torch.get_rng_state()
    dice, others = Dice(5), Dice(6)
    for values in expected:
        with dice.turn():
            assert torch.equal(torch.rand(3), values)
        torch.rand(2)
        with others.turn():
            torch.rand(5)
    torch.set_rng_state(before)
    with Dice(5, needed=False).turn():
        drawn = torch.rand(3)
    torch.set_rng_state(before)
    assert torch.equal(torch.rand(3), drawn)


def test_turns_may_be_within_turns() -> None:
    with seeded(5):
        expected = torch.rand(2)
    with seeded(5):
        first = torch.rand(1)
        with seeded(7):
            torch.rand(9)
        second = torch.rand(1)
    assert torch.equal(torch.cat([first, second]), expected)


def test_a_turn_is_over_after_an_error() -> None:
    dice = Dice(5)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), dice.turn():
            raise ZeroDivisionError
    finished = threading.Thread(target=lambda: draws(mlp((4,))(3), X.float()))
    finished.start()
    finished.join(timeout=10)
    assert not finished.is_alive()


class DrawsAnyway(nn.Module):
    """Throws its dice even when it is evaluated, and does not look at them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        if torch.rand(()) > 2:
            return x
        return self.layer(x)


def test_it_is_known_which_networks_draw_numbers() -> None:
    dropping = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    plain, anyway, remembers = mlp((4,))(3), DrawsAnyway(), Remembers()
    before = torch.get_rng_state()
    assert draws(dropping, X.float())
    assert not draws(dropping.eval(), X.float())
    assert not draws(plain, X.float())
    assert draws(anyway, X.float())
    assert not draws(remembers, X.float())
    assert (remembers.calls, remembers.seen) == (0, [])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_that_always_draws_is_lent_dice_of_its_own() -> None:
    module = DrawsAnyway().double().eval()
    note_draws(module, X)
    before = torch.get_rng_state()
    for network in (module, copy.deepcopy(module)):
        with lent(network) as copied:
            outputs(copied, X)
        assert torch.equal(torch.get_rng_state(), before)
    build(module, X, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
