"""Networks whose Jacobian takes every form, with rows for them, as cases for tests."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import register_parametrization

from lazyknife.networks import mlp, seeded
from zoo import Net, branches, scaled, shared_layer, tied, two


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, *shape)))


def codes(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, size=(n, *shape)))


def ended(size: int, *layers: nn.Module) -> nn.Module:
    """Layers with so many results for a row, and a linear function of these."""
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 1))


def conv2d(size: int, **settings: Any) -> nn.Module:
    return ended(size, nn.Conv2d(2, 4, 3, **settings), nn.ReLU())


def frozen(module: nn.Module, name: str) -> nn.Module:
    module.get_parameter(name).requires_grad_(False)
    return module


def trained_norm(norm: nn.Module) -> nn.Module:
    """A batch norm whose running statistics are not those of a fresh one."""
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm.eval()


def weight_used_outside() -> nn.Module:
    """The first layer's weight is used again, for rows with a positive entry."""
    outside = lambda net, x: functional.linear(x.clamp(min=0), net.hidden.weight)  # noqa: E731
    run = lambda net, x: net.head(net.hidden(x).tanh() + outside(net, x))  # noqa: E731
    return Net(run, hidden=nn.Linear(3, 4), head=nn.Linear(4, 1))


def tied_without_bias() -> nn.Module:
    first, second, third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    first.bias = second.bias
    second.weight = third.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), third, nn.Linear(3, 1, bias=False))


def tied_table() -> nn.Module:
    """A table that is read at the input and multiplied at the output."""
    table, scores = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    scores.weight = table.weight
    run = lambda net, x: net.scores(net.table(x).sum(dim=1)).tanh().sum(dim=1)  # noqa: E731
    return Net(run, table=table, scores=scores)


def scale_on_a_layer() -> nn.Module:
    """The network keeps a parameter of its own on one of its layers."""
    first = nn.Linear(3, 4)
    first.scale = nn.Parameter(torch.randn(4))
    run = lambda net, x: net.last((net.first.scale * net.first(x)).tanh())  # noqa: E731
    return Net(run, first=first, last=nn.Linear(4, 1))


def two_branches() -> nn.Module:
    left = lambda net, x: net.one(x).relu().mean(dim=2)  # noqa: E731
    run = lambda net, x: net.head(left(net, x) * net.two(x).sin().sum(dim=1))  # noqa: E731
    return Net(run, one=nn.Conv1d(2, 3, 2), two=nn.Linear(4, 3), head=nn.Linear(3, 1))


def unused() -> nn.Module:
    layers = {name: nn.Linear(3, 1) for name in ("used", "never", "lost")}
    return Net(lambda net, x: (net.lost(x), net.used(x))[1], **layers)


CODES = ("table", "frozen table", "table tied to a matrix")  # networks that read whole numbers
with seeded(0):
    norm = nn.LayerNorm(4)
    # Networks whose linear layers and tables come as factors, and the shape of a row.
    FACTORED: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "dense": (mlp((5, 4), "tanh")(3), (3,)),
        "only a bias": (frozen(mlp((4,), "tanh")(3), "0.weight"), (3,)),
        "bare linear layer": (nn.Linear(3, 1), (3,)),
        "outputs without a trailing axis": (nn.Sequential(two(nn.Tanh()), nn.Flatten(0)), (3,)),
        "table": (ended(6, nn.Embedding(5, 3, padding_idx=2)), (2,)),
        "frozen table": (frozen(ended(6, nn.Embedding(5, 3, padding_idx=2)), "0.weight"), (2,)),
        "table tied to a matrix": (tied_table(), (2,)),
        "layer norm": (two(nn.LayerNorm(4), nn.Tanh()), (3,)),
        "layer norm on two axes": (ended(8, nn.LayerNorm((2, 4))), (2, 4)),
        "layer norm with places": (ended(8, nn.LayerNorm(4), nn.Tanh()), (2, 4)),
        "group norm": (ended(12, nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4)), (2, 4)),
        "batch norm": (two(trained_norm(nn.BatchNorm1d(4)), nn.Tanh()), (3,)),
        "batch norm of pictures": (
            ended(12, nn.Conv2d(2, 3, 2), trained_norm(nn.BatchNorm2d(3)), nn.Tanh()),
            (2, 3, 3),
        ),
        "convolution on one axis": (ended(9, nn.Conv1d(2, 3, 2), nn.Tanh()), (2, 4)),
        "convolution": (conv2d(24), (2, 5, 4)),
        "stride and padding": (conv2d(36, stride=2, padding=(1, 2)), (2, 5, 4)),
        "dilation": (conv2d(80, dilation=2, padding=2), (2, 5, 4)),
        "groups": (conv2d(24, groups=2), (2, 5, 4)),
        "padding same": (conv2d(80, padding="same", bias=False), (2, 5, 4)),
        "linear on three axes": (ended(8, nn.Linear(3, 2), nn.Tanh()), (4, 3)),
        "wide linear on three axes": (ended(40, nn.Linear(20, 20), nn.Tanh()), (2, 20)),
        "activation in place": (two(nn.ReLU(inplace=True), nn.Tanh()), (3,)),
        "tied weights": (tied(), (3,)),
        "tied weights, one without bias": (tied_without_bias(), (3,)),
        "layer called twice": (shared_layer(), (3,)),
        "norm called twice": (two(norm, nn.Tanh(), norm), (3,)),
        "branches": (two_branches(), (2, 4)),
        "layers without use": (unused(), (3,)),
    }
    # Networks with parameters that need explicit Jacobian rows, a row's shape, the parameters.
    EXPLICIT: dict[str, tuple[nn.Module, tuple[int, ...], set[str]]] = {
        "prelu": (two(nn.PReLU(), nn.Tanh()), (3,), {"1.weight"}),
        "bare parameter": (scaled(), (3,), {"scale"}),
        "weight used outside its layer": (
            weight_used_outside(),
            (3,),
            {"hidden.weight", "hidden.bias"},
        ),
        "parametrised weight": (
            nn.Sequential(
                register_parametrization(nn.Linear(3, 4), "weight", nn.Tanh()), nn.Linear(4, 1)
            ),
            (3,),
            {"0.bias", "0.parametrizations.weight.original"},
        ),
        "parameter put on a layer": (
            scale_on_a_layer(),
            (3,),
            {"first.weight", "first.bias", "first.scale"},
        ),
        "circular padding": (
            conv2d(80, padding=1, padding_mode="circular"),
            (2, 5, 4),
            {"0.weight", "0.bias"},
        ),
        "control flow on values": (
            branches(),
            (3,),
            {"up.weight", "up.bias", "down.weight", "down.bias"},
        ),
    }
NETWORKS = FACTORED | {name: case[:2] for name, case in EXPLICIT.items()}


def network(name: str, n: int = 6) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, n rows for it, and four other ones."""
    module, shape = NETWORKS[name]
    draw = codes if name in CODES else rows
    return copy.deepcopy(module), draw(n, *shape), draw(4, *shape, seed=1)
