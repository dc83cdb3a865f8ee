"""Fully connected networks, the default network, and the mean of several networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..compute import CPU, free_memory
from ..data.checks import check_choice, check_flag, check_positive_int
from ..memory import NotEnoughMemory

# A network in float32, its copy at the base weights, and one in float64.
PARAMETER_BYTES = 4 + 4 + 8

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
}


@dataclass(frozen=True)
class mlp:
    """A fully connected network with one output: ``mlp(widths)(n_features)`` returns the module.

    Parameters
    ----------
    widths
        Units of each hidden layer; ``()`` gives a linear model.
    activation
        A key of ``lazyknife.networks.ACTIVATIONS``, such as ``"relu"`` or ``"tanh"``.
    skip
        Whether a linear function of the inputs is added to the output. With few rows, randomly
        initialised hidden layers alone represent a linear trend poorly.

    """

    widths: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    skip: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.widths, Iterable) or isinstance(self.widths, str):
            raise TypeError(f"widths={self.widths!r}: give the units of each layer, such as (64,)")
        units = tuple(check_positive_int("widths", width) for width in self.widths)
        object.__setattr__(self, "widths", units)
        check_choice("activation", self.activation, sorted(ACTIVATIONS))
        check_flag("skip", self.skip)

    def __call__(self, n_features: int) -> nn.Module:
        """Return a new network for ``n_features`` inputs, drawn from torch's random state."""
        layers: list[nn.Module] = []
        sizes = (n_features, *self.widths)
        parameters = sum((a + 1) * b for a, b in itertools.pairwise((*sizes, 1)))
        check_room(parameters, f"widths={self.widths}")
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), ACTIVATIONS[self.activation]()]
        body = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        return WithSkip(body, n_features, sizes[-1]) if self.skip else body


def check_room(parameters: int, asked: str) -> None:
    """Refuse networks that do not fit in memory, before they are made."""
    needed, free = PARAMETER_BYTES * parameters, free_memory(CPU)
    if needed > free:
        raise NotEnoughMemory(
            f"network: {asked} has {parameters:,} parameters and needs {needed:,} bytes, but "
            f"{free:,} are free: give a smaller network"
        )


DEFAULT = mlp((64, 64), skip=True)  # the meaning of network=None


class WithSkip(nn.Module):
    """A network plus a linear function of its inputs, which starts at 0; output (n, 1).

    Its weight multiplies the inputs times √(width/(4·inputs)). For inputs of size one its share of
    the tangent kernel is then that of one or two hidden ReLU layers, to within a factor of five.
    """

    def __init__(self, body: nn.Module, n_features: int, width: int) -> None:
        super().__init__()
        self.skip = nn.Linear(n_features, 1, bias=False)
        self.body = body  # after the skip: its last layer is the network's
        self.scale = math.sqrt(width / (4 * n_features))
        nn.init.zeros_(self.skip.weight)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.skip(self.scale * x) + self.body(x)
        return total


class Averaged(nn.Module):
    """The mean of several networks; output (n,)."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x).reshape(len(x)) for member in self.members]).mean(dim=0)


class Framed(nn.Module):
    """A network whose inputs are centred and divided by fixed scales first."""

    def __init__(self, body: nn.Module, center: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.body = body
        self.center: Tensor
        self.scale: Tensor
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.body((x - self.center) / self.scale)
        return result
