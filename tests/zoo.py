"""Networks of every kind, three features to one output, as cases for tests."""

import threading
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization

from lazyknife.networks import mlp, seeded


class Net(nn.Module):
    """Parts by their names, and a function of the network and the rows."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def skips() -> nn.Module:
    run = lambda net, x: net.head(x + net.body(x).relu())  # noqa: E731
    return Net(run, body=nn.Linear(3, 3), head=nn.Linear(3, 1))


class DoublesItsInput(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x)


class ShiftedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def tied(features: int = 3) -> nn.Module:
    """Two layers with their own biases share a weight."""
    first, second, head = (nn.Linear(features, size) for size in (features, features, 1))
    second.weight = first.weight
    run = lambda net, x: net.head(net.second(net.first(x).tanh()).tanh())  # noqa: E731
    return Net(run, first=first, second=second, head=head)


def branches() -> nn.Module:
    """Cannot be batched: it branches on the values of the rows."""
    one = lambda net, row: net.up(row) if row[0] > 0 else net.down(row)  # noqa: E731
    run = lambda net, x: torch.stack([one(net, row) for row in x])  # noqa: E731
    return Net(run, up=nn.Linear(3, 1), down=nn.Linear(3, 1))


def scaled() -> nn.Module:
    """Has a parameter that belongs to no layer with a formula."""
    layers = {"body": nn.Linear(3, 4), "scale": nn.Parameter(torch.randn(4))}
    run = lambda net, x: net.head(net.scale * net.body(x).tanh())  # noqa: E731
    return Net(run, **layers, head=nn.Linear(4, 1))


class Draws(nn.Module):
    """Draws a number in every call, and uses it only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        dropped = torch.rand(()) < 0.5
        hidden = self.body(x).tanh()
        return self.head(hidden * 0.5 if self.training and dropped else hidden)


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


def recurrent(kind: type[nn.RNNBase]) -> nn.Module:
    run = lambda net, x: net.head(net.inner(x[..., None])[0][:, -1])  # noqa: E731
    return Net(run, inner=kind(1, 4, batch_first=True), head=nn.Linear(4, 1))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    run = lambda net, x: net.head(net.layer(x[..., None].expand(-1, -1, 4)).mean(dim=1))  # noqa: E731
    return Net(run, layer=layer, head=nn.Linear(4, 1))


def two(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), *between, nn.Linear(4, 1))


def shared_layer() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 1))


def shared_activation() -> nn.Module:
    activation = nn.Tanh()
    return two(activation, nn.Linear(4, 4), activation)


def tied_sequence() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 1))
    module[2].weight = module[0].weight
    return module


def hooked() -> nn.Module:
    module = two()
    module[0].register_forward_hook(lambda layer, args, result: 2 * result)
    return module


def hooked_before() -> nn.Module:
    module = two()
    module.register_forward_pre_hook(lambda layer, args: (args[0] + 1,))
    return module


def hooked_by_everything() -> nn.Module:
    module = two()
    module[0].register_forward_hook(partial(lambda factor, layer, _, result: factor * result, 2.0))
    module[1].register_forward_pre_hook(MethodType(lambda layer, _, args: args, module[0]))
    module[1].register_forward_hook(lambda _, args, kwargs, result: result + 1, with_kwargs=True)
    return module


def new_forward() -> nn.Module:
    module = two()
    without_bias = lambda layer, x: nn.functional.linear(x, layer.weight)  # noqa: E731
    module[0].forward = MethodType(without_bias, module[0])
    return module


def old_weight_norm() -> nn.Module:
    """Its weight is no parameter, but what the last call made of two of them."""
    module = two()
    nn.utils.weight_norm(module[0])
    return module


# No plain sequences of linear layers and activations, each used once.
NO_CHAINS: dict[str, Callable[[], nn.Module]] = {
    "skip": skips,
    "nested": lambda: nn.Sequential(mlp((4,))(3), nn.Flatten(0)),
    "nested chain": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 1)
    ),
    "bare layer": lambda: nn.Linear(3, 1),
    "norm": lambda: two(nn.LayerNorm(4)),
    "prelu": lambda: two(nn.PReLU()),
    "subclass of Sequential": lambda: DoublesItsInput(nn.Linear(3, 1)),
    "subclass of Linear": lambda: nn.Sequential(ShiftedLinear(3, 4), nn.Linear(4, 1)),
    "parametrised": lambda: nn.Sequential(
        register_parametrization(nn.Linear(3, 4), "weight", nn.Tanh()), nn.Linear(4, 1)
    ),
    "shared layer": shared_layer,
    "tied": tied_sequence,
    "tied attributes": tied,
    "hook": hooked,
    "hook on the input": hooked_before,
    "new forward": new_forward,
    "branches": branches,
}
KINDS: dict[str, Callable[[], nn.Module]] = {
    **NO_CHAINS,
    "mlp": lambda: mlp((4,))(3),
    "mlp with a skip": lambda: mlp((4,), skip=True)(3),
    "shared activation": shared_activation,
    "remembers": Remembers,
    "hides": Hides,
    "lstm": lambda: recurrent(nn.LSTM),
    "gru": lambda: recurrent(nn.GRU),
    "attention": transformer,
    "batch norm": lambda: two(nn.BatchNorm1d(4)),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.Linear(4, 1)),
    "spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(3, 4)), nn.Linear(4, 1)),
    "all kinds of hooks": hooked_by_everything,
    "old weight norm": old_weight_norm,
    "traced": lambda: torch.fx.symbolic_trace(mlp((4,), skip=True)(3)),
}


def evaluated(name: str) -> nn.Module:
    """One of ``KINDS`` in float64 and evaluation mode."""
    with seeded(0):
        return KINDS[name]().double().eval()


def stacked(module: nn.Module, names: Any = None, count: int = 5) -> dict[str, Tensor]:
    """Weights of several networks: those named (or all) differ, the others are the module's."""
    generator = torch.Generator().manual_seed(1)
    own = dict(module.named_parameters())
    return {
        name: torch.randn(count, *own[name].shape, generator=generator).to(own[name])
        for name in names or own
    }
