"""Explicit Jacobian rows of chosen parameters, for any network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from ..networks import call_with, outputs
from .parts import Explicit


def jacobian_rows(module: nn.Module, names: Sequence[str], X: Tensor) -> list[Explicit]:
    """∂f/∂θ for the named parameters, each (n, *shape).

    The module is worked on, so it must be the caller's own (see ``networks.lent``).
    """
    parameters = dict(module.named_parameters())
    chosen = {name: parameters[name] for name in names}
    try:
        return _vectorised(module, chosen, X)
    except RuntimeError:  # the network looks at values: one row at a time
        return row_by_row(module, chosen, X)


def _vectorised(module: nn.Module, chosen: dict[str, nn.Parameter], X: Tensor) -> list[Explicit]:
    fixed = {name: p.detach() for name, p in module.named_parameters() if name not in chosen}

    def output(parameters: dict[str, Tensor], x: Tensor) -> Any:
        return call_with(module, {**fixed, **parameters}, x.unsqueeze(0)).reshape(())

    weights = {name: p.detach() for name, p in chosen.items()}
    gradients = vmap(grad(output), in_dims=(None, 0))(weights, X)
    return [Explicit(name, gradients[name]) for name in chosen]


def row_by_row(module: nn.Module, chosen: dict[str, nn.Parameter], X: Tensor) -> list[Explicit]:
    """One backward pass for each row: slow, and right for every network."""
    rows = []
    for row in X.split(1):
        with torch.enable_grad():
            predicted = outputs(module, row).sum()
        rows.append(
            torch.autograd.grad(
                predicted, list(chosen.values()), allow_unused=True, materialize_grads=True
            )
        )
    return [
        Explicit(name, torch.stack(gradients))
        for name, gradients in zip(chosen, zip(*rows, strict=True), strict=True)
    ]
