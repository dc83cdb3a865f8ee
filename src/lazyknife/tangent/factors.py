"""Tangent kernel from layer factors: the Jacobian is never formed.

For a linear layer z = W h + b the Jacobian row of one example is the outer product of the signal
g = ∂f/∂z and (h, 1), so the layer adds ⟨g, g'⟩·(⟨h, h'⟩ + 1) to the kernel: width in + width out
operations an entry instead of width in × width out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..networks import outputs
from .tangent import Moves


@dataclass(frozen=True)
class LayerFactors:
    """Outputs (n,) and, for each layer, inputs h (n, in) and signals g (n, out)."""

    outputs: Tensor
    inputs: tuple[Tensor, ...]
    signals: tuple[Tensor, ...]


@dataclass(frozen=True)
class FactorTangent:
    """Tangent of a network whose moved parameters all belong to linear layers used once."""

    module: nn.Module
    layers: tuple[str, ...]

    def features(self, X: Tensor) -> LayerFactors:
        """One forward and one backward pass for all rows."""
        return layer_factors(self.module, self.layers, X)

    def kernel(self, left: LayerFactors, right: LayerFactors) -> Tensor:
        """Sum over the layers of ⟨g, g'⟩·(⟨h, h'⟩ + 1)."""
        total = left.outputs.new_zeros(len(left.outputs), len(right.outputs))
        for k, name in enumerate(self.layers):
            layer = self.module.get_submodule(name)
            inputs = left.inputs[k] @ right.inputs[k].T if moves(layer.weight) else 0
            bias = 1.0 if moves(layer.bias) else 0.0
            total += (left.signals[k] @ right.signals[k].T) * (inputs + bias)
        return total

    def pull(self, features: LayerFactors, coefficients: Tensor) -> Moves:
        """Column j moves W by Σ_i C_ij g_i h_iᵀ and b by Σ_i C_ij g_i."""
        result: Moves = {}
        columns = coefficients.T
        for k, name in enumerate(self.layers):
            layer = self.module.get_submodule(name)
            signals, inputs = features.signals[k], features.inputs[k]
            if moves(layer.weight):
                weighted = columns[:, None, :] * signals.T  # (b, out, n)
                result[f"{name}.weight".lstrip(".")] = weighted @ inputs
            if moves(layer.bias):
                result[f"{name}.bias".lstrip(".")] = columns @ signals
        return result


def moves(parameter: object) -> bool:
    """Whether this is a parameter that is not frozen (a layer's bias may be None)."""
    return isinstance(parameter, nn.Parameter) and parameter.requires_grad


def layer_factors(module: nn.Module, layers: tuple[str, ...], X: Tensor) -> LayerFactors:
    """Record every layer's input and the gradient of the output with respect to its result."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def record(layer: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> None:
        seen[layer] = (args[0].detach(), result)

    parts = [module.get_submodule(name) for name in layers]
    with hooked(parts, record), torch.enable_grad():
        predicted = outputs(module, X)
        signals = torch.autograd.grad(
            predicted.sum(),
            [seen[layer][1] for layer in parts],
            allow_unused=True,
            materialize_grads=True,
        )
    return LayerFactors(predicted.detach(), tuple(seen[layer][0] for layer in parts), signals)


@contextmanager
def hooked(layers: Iterable[nn.Module], record: Callable[..., Tensor | None]) -> Iterator[None]:
    """Call ``record`` after every forward pass of the layers, within the block only."""
    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def factorable_layers(module: nn.Module, probe: Tensor) -> tuple[str, ...] | None:
    """Names of the linear layers that hold all moved parameters; None if factors do not apply.

    They apply when each moved parameter belongs to one ``nn.Linear`` and each such layer is
    called exactly once, on a matrix with one row an example.
    """
    names = {layer: name for name, layer in module.named_modules() if type(layer) is nn.Linear}
    moved = {id(p) for p in module.parameters() if p.requires_grad}
    owners = [layer for layer in names if any(id(p) in moved for p in layer.parameters())]
    owned = [id(p) for layer in owners for p in layer.parameters() if id(p) in moved]
    if set(owned) != moved or len(owned) != len(moved):
        return None

    shapes: dict[nn.Module, list[torch.Size]] = {layer: [] for layer in owners}

    def record(layer: nn.Module, args: tuple[Tensor, ...], _: Tensor) -> None:
        shapes[layer].append(args[0].shape)

    with hooked(owners, record), torch.no_grad():
        module(probe)
    rowwise = all(
        len(seen) == 1 and len(seen[0]) == 2 and seen[0][0] == len(probe)
        for seen in shapes.values()
    )
    if not rowwise or used_outside(module, owners, probe):
        return None
    return tuple(names[layer] for layer in owners)


def used_outside(module: nn.Module, layers: Iterable[nn.Linear], probe: Tensor) -> bool:
    """Whether the output reaches a moved parameter other than through its own layer.

    Read off the autograd graph, in which every layer's own use of its parameters is cut, so that
    no value of the probe can hide another one.
    """

    def cut(layer: nn.Linear, args: tuple[Tensor, ...], _: Tensor) -> Tensor:
        bias = None if layer.bias is None else layer.bias.detach()
        return nn.functional.linear(args[0], layer.weight.detach(), bias)

    moved = [p for p in module.parameters() if p.requires_grad]
    with hooked(layers, cut), torch.enable_grad():
        predicted: Tensor = module(probe).sum()
    if not predicted.requires_grad:
        return False
    gradients = torch.autograd.grad(predicted, moved, allow_unused=True)
    return any(gradient is not None for gradient in gradients)
