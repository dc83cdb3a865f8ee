"""Explicit Jacobian rows of chosen parameters, for any network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from ..networks import call_with, outputs
from .capture import gradients
from .parts import Explicit


def jacobian_rows(module: nn.Module, names: Sequence[str], X: Tensor) -> list[Explicit]:
    """∂f/∂θ for the named parameters, each (n, *shape).

    The module is modified during the call, so pass a private copy (see ``networks.lent``).
    """
    try:
        return _vectorised(module, names, X) if names else []
    except RuntimeError:  # the network looks at values: one row at a time
        return row_by_row(module, names, X)


def _vectorised(module: nn.Module, names: Sequence[str], X: Tensor) -> list[Explicit]:
    fixed = {name: p.detach() for name, p in module.named_parameters()}
    weights = {name: fixed.pop(name) for name in names}

    def output(parameters: dict[str, Tensor], x: Tensor) -> Any:
        return call_with(module, {**fixed, **parameters}, x.unsqueeze(0)).reshape(())

    rows = vmap(grad(output), in_dims=(None, 0))(weights, X)
    return [Explicit((name,), rows[name]) for name in names]


def row_by_row(module: nn.Module, names: Sequence[str], X: Tensor) -> list[Explicit]:
    """One backward pass for each row: slow, and correct for every network."""
    parameters = dict(module.named_parameters())
    chosen = [parameters[name] for name in names]
    with torch.enable_grad():
        rows = [gradients(outputs(module, row).sum(), chosen) for row in X.split(1)]
    each = zip(names, zip(*rows, strict=True), strict=True)
    return [Explicit((name,), torch.stack(values)) for name, values in each]
