"""Record what a network's layers see, and find the parameters that only they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..networks import outputs
from .layers import AXES, has_formula


@dataclass(frozen=True)
class Use:
    """One call of a layer: its input, and the signal ∂f/∂(output)."""

    layer: str
    x: Tensor
    signal: Tensor


@dataclass(frozen=True)
class _Call:
    """One call of a layer: its input, its result, and their versions at that time."""

    layer: str
    x: Tensor
    result: Tensor
    versions: tuple[int, int]

    def is_untouched(self) -> bool:
        """Whether nothing has worked on the input or the result in place since."""
        return (self.x._version, self.result._version) == self.versions


def uses_of(module: nn.Module, layers: Iterable[str], X: Tensor) -> tuple[Tensor, list[Use]]:
    """Outputs (n,), and every call of the layers, by one forward and one backward pass.

    The module has hooks meanwhile, so it must be the caller's own (see ``networks.lent``).
    """
    with torch.enable_grad():
        predicted, calls = _recorded_outputs(module, layers, X)
        results = [call.result for call in calls]
        signals: tuple[Tensor, ...] = ()
        if results:
            signals = torch.autograd.grad(
                predicted.sum(), results, allow_unused=True, materialize_grads=True
            )
    uses = [Use(call.layer, call.x, g) for call, g in zip(calls, signals, strict=True)]
    return predicted.detach(), uses


def _recorded_outputs(
    module: nn.Module, layers: Iterable[str], X: Tensor
) -> tuple[Tensor, list[_Call]]:
    """Outputs, and every call of the layers, with what nothing has worked on in place since."""
    names = list(layers)
    if not any(getattr(part, "inplace", False) for part in module.modules()):
        with _recorded(module, names, copies=False) as calls:
            predicted = outputs(module, X)
        if all(call.is_untouched() for call in calls):
            return predicted, calls
    with _recorded(module, names, copies=True) as calls:
        return outputs(module, X), calls


def capturable_layers(module: nn.Module, probe: Tensor) -> tuple[str, ...]:
    """Names of the layers that have a formula and are the only users of their moved parameters.

    The network's graph of derivatives tells how often each parameter is used; calls of layers must
    account for every use. Nothing is read off values, so no probe can hide a use.
    """
    names = {name: layer for name, layer in module.named_modules() if has_formula(layer)}
    moving = {n: layer for n, layer in names.items() if any(map(moves, layer.parameters(False)))}
    with torch.enable_grad():
        predicted, calls = _recorded_outputs(module, moving, probe)
    used = _uses_in_graph(predicted)
    seen: Counter[int] = Counter()
    refused = set()
    for call in calls:
        layer = moving[call.layer]
        own = dict(layer.named_parameters(recurse=False))
        seen.update(id(p) for p in own.values() if moves(p))
        axes = AXES.get(type(layer), call.x.dim())
        rowwise = len(call.x) == len(probe) and call.x.dim() == axes >= 2
        if not rowwise or not own.keys() <= {"weight", "bias"}:
            refused |= {id(p) for p in own.values()}
    refused |= {key for key, count in used.items() if count > seen[key]}
    called = {call.layer for call in calls}
    return tuple(
        name
        for name, layer in moving.items()
        if name in called and not any(id(p) in refused for p in layer.parameters(False))
    )


def moves(parameter: Tensor | None) -> bool:
    """Whether this is a parameter that is not frozen."""
    return parameter is not None and parameter.requires_grad


@contextmanager
def _recorded(module: nn.Module, layers: Iterable[str], copies: bool) -> Iterator[list[_Call]]:
    """Record every call of the layers within the block; with ``copies`` they hand on a copy."""
    calls: list[_Call] = []

    def recorder(name: str) -> Callable[..., Tensor]:
        def record(_: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> Tensor:
            x = args[0].detach().clone() if copies else args[0].detach()
            calls.append(_Call(name, x, result, (x._version, result._version)))
            return result.clone() if copies else result

        return record

    hooks = [module.get_submodule(n).register_forward_hook(recorder(n)) for n in layers]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _uses_in_graph(result: Tensor) -> Counter[int]:
    """How many operations behind ``result`` take each leaf, by the leaf's id."""
    used: Counter[int] = Counter()
    start = result.grad_fn
    seen, waiting = {start}, [start]
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
