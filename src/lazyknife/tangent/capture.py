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


def uses_of(module: nn.Module, layers: Iterable[str], X: Tensor) -> tuple[Tensor, list[Use]]:
    """Outputs (n,), and every call of the layers, by one forward and one backward pass."""
    calls: list[tuple[str, Tensor, Tensor]] = []
    with _recorded(module, layers, calls), torch.enable_grad():
        predicted = outputs(module, X)
        results = [result for _, _, result in calls]
        signals: tuple[Tensor, ...] = ()
        if results:
            signals = torch.autograd.grad(
                predicted.sum(), results, allow_unused=True, materialize_grads=True
            )
    uses = [Use(name, x, g) for (name, x, _), g in zip(calls, signals, strict=True)]
    return predicted.detach(), uses


def capturable_layers(module: nn.Module, probe: Tensor) -> tuple[str, ...]:
    """Names of the layers that have a formula and are the only users of their moved parameters.

    The network's graph of derivatives tells how often each parameter is used; calls of layers must
    account for every use. Nothing is read off values, so no probe can hide a use.
    """
    names = {name: layer for name, layer in module.named_modules() if has_formula(layer)}
    moving = {n: layer for n, layer in names.items() if any(map(moves, layer.parameters(False)))}
    calls: list[tuple[str, Tensor, Tensor]] = []
    with _recorded(module, moving, calls), torch.enable_grad():
        predicted = outputs(module, probe)
    used = _uses_in_graph(predicted)
    seen: Counter[int] = Counter()
    refused = set()
    for name, x, _ in calls:
        own = dict(moving[name].named_parameters(recurse=False))
        seen.update(id(p) for p in own.values() if moves(p))
        axes = AXES.get(type(moving[name]), x.dim())
        rowwise = len(x) == len(probe) and x.dim() == axes >= 2
        if not rowwise or not own.keys() <= {"weight", "bias"}:
            refused |= {id(p) for p in own.values()}
    refused |= {key for key, count in used.items() if count > seen[key]}
    called = {name for name, _, _ in calls}
    return tuple(
        name
        for name, layer in moving.items()
        if name in called and not any(id(p) in refused for p in layer.parameters(False))
    )


def moves(parameter: Tensor | None) -> bool:
    """Whether this is a parameter that is not frozen."""
    return parameter is not None and parameter.requires_grad


@contextmanager
def _recorded(
    module: nn.Module, layers: Iterable[str], calls: list[tuple[str, Tensor, Tensor]]
) -> Iterator[None]:
    """Append (name, input, output) to ``calls`` at every call of the layers, within the block."""

    def recorder(name: str) -> Callable[..., Tensor]:
        def record(_: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> Tensor:
            calls.append((name, args[0].detach(), result))
            return result.clone()  # what follows may work in place

        return record

    hooks = [module.get_submodule(n).register_forward_hook(recorder(n)) for n in layers]
    try:
        yield
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
