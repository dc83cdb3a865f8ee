"""Calls of a network: inputs of its type, its mode, other weights, and many weights at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from ..compute import CPU


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the floating type of the module's parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the module's parameters."""
    return next((p.device for p in module.parameters()), CPU)


def like(X: Tensor, module: nn.Module) -> Tensor:
    """Bring inputs to the module's device and type; integer inputs (embeddings) stay integers."""
    return X.to(device_of(module), dtype_of(module) if X.is_floating_point() else X.dtype)


def set_training(module: nn.Module) -> None:
    """Switch to training mode, but keep batch norms on their fixed running statistics."""
    module.train()
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.eval()


def outputs(module: nn.Module, X: Tensor) -> Tensor:
    """Network outputs as a vector, shape (n,)."""
    result: Tensor = module(X)
    return result.reshape(len(X))


def call_with(module: nn.Module, weights: Mapping[str, Tensor], X: Tensor) -> Any:
    """Call the network with other weights, by the names of ``named_parameters``.

    The module holds them during the call, so it must be the caller's own (see ``lent``). A tied
    weight is set wherever it is held. torch's own handling of ties is not used: it leaves the new
    weights behind in a module that is registered under two names.
    """
    everywhere: dict[str, Tensor] = {}
    first: dict[int, str] = {}
    for path, part in module.named_modules():  # each module once, whatever its names
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        for role, value in own:
            name = f"{path}.{role}".lstrip(".")
            known = first.setdefault(id(value), name)
            if known in weights:
                everywhere[name] = weights[known]
    return functional_call(module, everywhere, (X,), tie_weights=False)


def stacked_outputs(
    module: nn.Module, weights: Mapping[str, Tensor], X: Tensor, *, own_rows: bool = False
) -> Tensor:
    """Outputs of b networks that differ in their weights only, shape (b, m).

    ``weights`` are stacked, shape (b, *shape); those not named are the module's own, which must be
    the caller's own (see ``lent``). X has the rows of all networks, shape (m, ...), or with
    ``own_rows`` those of each, shape (b, m, ...).
    """

    def one(own: dict[str, Tensor], rows: Tensor) -> Any:
        return call_with(module, own, rows).reshape(len(rows))

    batched = vmap(one, in_dims=(0, 0 if own_rows else None), randomness="different")
    try:
        result: Tensor = batched(dict(weights), X)
    except RuntimeError:  # the network branches on values, so it cannot be batched
        count = len(next(iter(weights.values())))
        # A network may modify its weights (an embedding with max_norm does): not those given.
        each = ({name: w[j].clone() for name, w in weights.items()} for j in range(count))
        result = torch.stack([one(own, X[j] if own_rows else X) for j, own in enumerate(each)])
    return result


@contextmanager
def watched(module: nn.Module, note: Callable[[nn.Module, Any, Any], None]) -> Iterator[None]:
    """Within the block, call ``note(layer, inputs, result)`` after every layer that runs.

    The module holds hooks meanwhile, so it must be the caller's own (see ``lent``).
    """
    hooks = [
        part.register_forward_hook(note)
        for part in module.modules()
        if not isinstance(part, torch.jit.ScriptModule)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def widest_output(module: nn.Module, row: Tensor) -> int:
    """Return the size of the largest result of any layer for one row (see ``watched``)."""
    sizes = [1]

    def note(_: nn.Module, args: Any, result: Any) -> None:
        sizes.append(result.numel() if isinstance(result, Tensor) else 1)

    with watched(module, note), torch.no_grad():
        module(row.clone())
    return max(sizes)


def widest_layer(module: nn.Module) -> int:
    """Return the units of the widest layer, for estimating the memory that a row takes."""
    return max(max(p.shape, default=1) for p in module.parameters())
