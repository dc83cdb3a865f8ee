"""From what the user gave as ``network`` to a checked module of our own."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter

from .calls import deep_copy, device_of, like, seeded, spawn_seeds
from .mlp import DEFAULT, Averaged, check_room

CODES = "integers are codes: pass X.float() if they are numbers"

Network = nn.Module | Callable[[int], nn.Module]


def build(network: Network | None, X: Tensor, seed: int, starts: int = 1) -> nn.Module:
    """Return the user's network as a module of our own, checked on rows like ``X``.

    With several ``starts`` it is the mean of as many networks, each with its own random weights.
    """
    if starts > 1 and isinstance(network, nn.Module):
        raise ValueError(
            f"n_starts={starts} needs random starts, and a module has its own weights: give a "
            "callable such as mlp((64, 64)), or n_starts=1"
        )
    module = make(network, X, seed)
    if starts > 1:
        check_room(starts * sum(p.numel() for p in module.parameters()), f"n_starts={starts:,}")
        module = Averaged([make(network, X, each) for each in spawn_seeds(seed, starts)])
    with seeded(seed, device_of(module)):
        _check(module, X)
    return module


class SumOfOutputs(nn.Module):
    """The sum of a network's outputs over the root of their number; it takes flattened rows."""

    def __init__(self, body: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.body, self.shape = body, tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x.reshape(len(x), *self.shape)).reshape(len(x), -1)
        return found.sum(dim=1) / math.sqrt(found.shape[1])


class Unmoved(nn.Module):
    """A network less its outputs at its own weights: 0, with the same gradients."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found - found.detach()


def tangent_alone(network: Network, X: Tensor, seed: int, shape: Sequence[int]) -> nn.Module:
    """A network with any number of outputs as the tangent features of their sum, and no outputs.

    Rows X are flattened ones of the given shape. Gradients of the sum of logits stand for those of
    each (Mohamadi, Bae and Sutherland 2023).
    """
    body = make(network, X, seed)
    return Unmoved(build(SumOfOutputs(body, shape), X, seed))


def make(network: Network | None, X: Tensor, seed: int) -> nn.Module:
    """Copy a module with its weights, or call a callable with the number of features.

    None is ``DEFAULT``. Lazy layers take their shapes from a row of X, their weights from the seed.
    """
    network = DEFAULT if network is None else network
    if isinstance(network, nn.Module):
        module = deep_copy(network)
    elif isinstance(network, type) and not issubclass(network, nn.Module):
        raise TypeError(
            f"network={network.__name__} is a class: give an instance, such as mlp((64, 64)) or "
            "wide('laplace')"
        )
    elif callable(network):
        module = _called(network, X.shape[1], seed)
    else:
        raise TypeError(
            f"network={reprlib.repr(network)}: give None, a torch.nn.Module, a callable "
            "n_features -> torch.nn.Module such as lazyknife.mlp((64, 64)), or candidates such as "
            "lazyknife.wide('laplace'); load a state_dict into a module by load_state_dict"
        )
    if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
        with seeded(seed), torch.no_grad():
            row = X[:1].to(device_of(module))
            module(row.float() if X.is_floating_point() else row)
    return module


def _called(network: Callable[[int], nn.Module], features: int, seed: int) -> nn.Module:
    try:
        with seeded(seed):
            module = network(features)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"network={network!r} failed for {features} features: {error}. Give a callable that "
            "takes the number of features and returns a torch.nn.Module"
        ) from error
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"network returned {type(module).__name__}: the callable must take the number of "
            "features and return a torch.nn.Module"
        )
    return module


def _check(module: nn.Module, X: Tensor) -> None:
    """Refuse a network without leave-one-out models, or without one output for each row."""
    if any(isinstance(part, _BatchNorm) and part.training for part in module.modules()):
        raise ValueError(
            "network has a BatchNorm layer in training mode: a row's output would depend on the "
            "other rows, so no leave-one-out model exists. Use GroupNorm or LayerNorm, or call "
            "network.eval() so that its running statistics are constants"
        )
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError(
            "network has no parameter with requires_grad=True: nothing can be fitted. "
            "Unfreeze at least one layer"
        )
    own, probe = deep_copy(module).eval(), like(X[:3], module)  # a call may change parameters
    rows, codes = len(probe), "" if probe.is_floating_point() else f" ({CODES})"
    try:
        with torch.no_grad():
            together = own(probe)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"network fails on rows of shape {tuple(probe.shape[1:])}{codes}: {error}. Give a "
            "network that takes such rows, or a callable n_features -> torch.nn.Module"
        ) from error
    if not isinstance(together, Tensor) or together.shape not in ((rows,), (rows, 1)):
        shape = tuple(together.shape) if isinstance(together, Tensor) else type(together)
        raise ValueError(
            f"network returns an output of shape {shape} for {rows} rows: it must have one output "
            f"per row, shape ({rows}, 1) or ({rows},)"
        )
    with torch.no_grad():
        alone = torch.cat([own(row).reshape(1) for row in probe.split(1)])
    if not torch.allclose(together.reshape(-1), alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(
            "network's output for a row changes when other rows are in the same batch: a "
            "leave-one-out model needs a network that treats each row on its own"
        )
