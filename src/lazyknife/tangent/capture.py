"""Record the calls of a network's layers, and find the parameters that only these calls use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..networks import gradients, outputs
from .layers import LAYERS, has_formula


class Use(NamedTuple):
    """One call of a layer: its input, and the signal ∂f/∂(output)."""

    layer: nn.Module
    x: Tensor
    signal: Tensor


class _Call(NamedTuple):
    """One call of a layer: its input, its result, and their versions at that time."""

    layer: nn.Module
    x: Tensor
    result: Tensor
    versions: tuple[int, int]  # they rise when a tensor is modified in place


def uses_of(module: nn.Module, layers: Collection[str], X: Tensor) -> tuple[Tensor, list[Use]]:
    """Outputs (n,), and every call of the layers, by one forward and one backward pass.

    The module has hooks during the call, so pass a private copy of the network.
    """
    with torch.enable_grad():
        predicted, calls = _recorded_outputs(module, layers, X)
        signals = gradients(predicted.sum(), [call.result for call in calls])
    uses = [Use(call.layer, call.x, g) for call, g in zip(calls, signals, strict=True)]
    return predicted.detach(), uses


def capturable_layers(module: nn.Module, probe: Tensor) -> tuple[str, ...]:
    """Names of the layers that have a formula and are the only users of their moved parameters.

    The autograd graph shows how often each parameter is used, and calls of these layers must
    account for every use. Values are not looked at, so a use cannot be hidden by the probe.
    """
    moving = {
        name: layer
        for name, layer in module.named_modules()
        if has_formula(layer) and any(p.requires_grad for p in layer.parameters(False))
    }
    with torch.enable_grad():
        predicted, calls = _recorded_outputs(module, moving, probe)
    seen = Counter(id(p) for call in calls for p in call.layer.parameters(False))
    refused = {key for key, count in _uses_in_graph(predicted).items() if count > seen[key]}
    for call in calls:
        if not _is_covered(call.layer, call.x, len(probe)):
            refused |= {id(p) for p in call.layer.parameters(False)}
    called = {call.layer for call in calls}
    return tuple(
        name
        for name, layer in moving.items()
        if layer in called and not any(id(p) in refused for p in layer.parameters(False))
    )


def _is_covered(layer: nn.Module, x: Tensor, n: int) -> bool:
    """Whether the formula of the layer holds for this input, with one entry for each row."""
    axes = LAYERS[type(layer)].axes or x.dim()
    names = {name for name, _ in layer.named_parameters(recurse=False)}
    return len(x) == n and x.dim() == axes >= 2 and names <= {"weight", "bias"}


def _recorded_outputs(
    module: nn.Module, layers: Collection[str], X: Tensor, copies: bool = False
) -> tuple[Tensor, list[_Call]]:
    """Outputs, and every call of the layers, with tensors that were not modified in place since.

    With ``copies`` the calls are recorded, and the layers return, as copies.
    """
    copies = copies or any(getattr(part, "inplace", False) for part in module.modules())
    calls: list[_Call] = []

    def record(layer: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> Tensor:
        x = args[0].detach().clone() if copies else args[0].detach()
        calls.append(_Call(layer, x, result, (x._version, result._version)))
        return result.clone() if copies else result

    hooks = [module.get_submodule(name).register_forward_hook(record) for name in layers]
    try:
        predicted = outputs(module, X)
    finally:
        for hook in hooks:
            hook.remove()
    if copies or all((c.x._version, c.result._version) == c.versions for c in calls):
        return predicted, calls
    return _recorded_outputs(module, layers, X, copies=True)


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
