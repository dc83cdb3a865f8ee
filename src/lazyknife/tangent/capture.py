"""Jacobian factors of layers, from the inputs of their calls and the signals at their outputs.

The signal is g = ∂f/∂(the layer's output). For another kind of layer whose Jacobian has factors,
write its formula, from the layer, its input, the signal and the names of the parameters that move,
and add it to ``LAYERS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..networks import gradients, outputs, private_copy
from .parts import Lookup, Outer, Part

Names = Mapping[str, str]  # "weight" and "bias", where they move, to their names in the network


def linear(layer: Any, x: Tensor, signal: Tensor, names: Names) -> Part:
    """W h + b at one place or, with more axes, at several."""
    signals, inputs = (values.reshape(len(x), -1, values.shape[-1]) for values in (signal, x))
    pieces = {"weight": inputs, "bias": torch.ones_like(inputs[..., :1])}
    moved = [role for role in pieces if role in names]
    augmented = torch.cat([pieces[role] for role in moved], dim=-1)
    return Outer(tuple(names[role] for role in moved), signals, augmented, "bias" in names)


def embedding(layer: Any, x: Tensor, signal: Tensor, names: Names) -> Part:
    """Rows of a table; the padding entry does not move."""
    codes = x.reshape(len(x), -1)
    signals = signal.reshape(*codes.shape, -1)
    if layer.padding_idx is not None:
        signals = signals * (codes != layer.padding_idx)[..., None]
    return Lookup((names["weight"],), signals, codes, layer.num_embeddings)


LAYERS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Names], Part]] = {
    nn.Linear: linear,
    nn.Embedding: embedding,
}


class _Call(NamedTuple):
    """One call of a layer."""

    layer: nn.Module
    x: Tensor
    result: Tensor
    versions: tuple[int, int]  # of both, which rise when a tensor is modified in place


def _recorded(module: nn.Module, layers: Collection[str], X: Tensor) -> tuple[Tensor, list[_Call]]:
    """Outputs (n,), and every call of the layers; activations do not work in place."""
    own, calls = private_copy(module), list[_Call]()

    def record(layer: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> None:
        x = args[0].detach()
        calls.append(_Call(layer, x, result, (x._version, result._version)))

    for part in own.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # type: ignore[assignment]
    hooks = [own.get_submodule(name).register_forward_hook(record) for name in layers]
    predicted = outputs(own, X)
    for hook in hooks:  # else layers and their calls would keep each other in memory
        hook.remove()
    return predicted, calls


def factored_parts(
    module: nn.Module, layers: Collection[str], X: Tensor
) -> tuple[Tensor, list[Part]]:
    """Outputs (n,), and the parts of every call of the layers, by one pass in each direction."""
    with torch.enable_grad():
        predicted, calls = _recorded(module, layers, X)
        signals = gradients(predicted.sum(), [call.result for call in calls])
    names = {id(p): name for name, p in module.named_parameters()}
    parts = []
    for call, signal in zip(calls, signals, strict=True):
        own = call.layer.named_parameters(recurse=False)
        moved = {role: names[id(p)] for role, p in own if p.requires_grad}
        parts.append(LAYERS[type(call.layer)](call.layer, call.x, signal, moved))
    return predicted.detach(), parts


def capturable_layers(module: nn.Module, probe: Tensor) -> tuple[str, ...]:
    """Names of the layers that have a formula and are the only users of their moved parameters.

    The autograd graph shows how often each parameter is used, and calls of these layers must
    account for every use. Values are not looked at, so a use cannot be hidden by the probe.
    """
    moving = {
        name: layer
        for name, layer in module.named_modules()
        if type(layer) in LAYERS
        and getattr(layer, "max_norm", None) is None
        and any(p.requires_grad for p in layer.parameters(False))
    }
    with torch.enable_grad():
        predicted, calls = _recorded(module, moving, probe)
    seen = Counter(id(p) for call in calls for p in call.layer.parameters(False))
    refused = {key for key, count in _uses_in_graph(predicted).items() if count > seen[key]}
    for call in calls:
        names = {name for name, _ in call.layer.named_parameters(recurse=False)}
        by_row = len(call.x) == len(probe) and call.x.dim() >= 2
        intact = (call.x._version, call.result._version) == call.versions
        if not (by_row and intact and names <= {"weight", "bias"}):
            refused |= {id(p) for p in call.layer.parameters(False)}
    return tuple(
        name
        for name, layer in moving.items()
        if all(id(p) in seen and id(p) not in refused for p in layer.parameters(False))
    )


def _uses_in_graph(result: Tensor) -> Counter[int]:
    """Count the operations behind ``result`` that take each leaf, by the leaf's id."""
    used: Counter[int] = Counter()
    seen, waiting = {result.grad_fn}, [result.grad_fn]
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions if node is not None else ():
            if following is None:
                continue
            if hasattr(following, "variable"):
                used[id(following.variable)] += 1
            elif following not in seen:
                seen.add(following)
                waiting.append(following)
    return used
