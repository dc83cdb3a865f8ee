"""Outputs of many networks that differ in their weights only, in blocks and without derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TypeGuard

import torch
from torch import Tensor, nn

from ..compute import blocks, steps
from .calls import dtype_of, like, stacked_outputs, widest_output
from .dice import lent
from .perceptrons import ACTIVATIONS

# Networks run at a time, and bytes of one layer's units for them and a block of rows: enough for
# the products to run at the full rate, few enough for the caches.
NETWORKS_AT_ONCE = 25
ENSEMBLE_BYTES = 5 * 2**19
GPU_ENSEMBLE_BYTES = 2**28


def ensemble_outputs(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    X: Tensor,
    at_once: int = NETWORKS_AT_ONCE,
    limit: int | None = None,
) -> Tensor:
    """Outputs of b networks at m rows, shape (b, m), without derivatives.

    ``weights`` are stacked, shape (b, *shape); those not named are the module's own. They run in
    the module's type. Blocks of ``at_once`` networks and of rows keep the units of a layer within
    ``limit`` bytes.
    """
    count = len(next(iter(weights.values())))
    if limit is None:
        limit = ENSEMBLE_BYTES if X.device.type == "cpu" else GPU_ENSEMBLE_BYTES
    result = X.new_empty(count, len(X), dtype=dtype_of(module))
    chain = X.dim() == 2 and is_chain(module)
    with torch.no_grad(), nullcontext(module) if chain else lent(module) as network:
        width = 1  # irrelevant for a single row
        if len(X) > 1:
            width = _Chain.width(network) if chain else widest_output(network, X[:1])
        for models in steps(count, at_once):
            own = {name: like(weight[models], module) for name, weight in weights.items()}
            run: Callable[[Tensor], Tensor] = partial(stacked_outputs, network, own)
            if chain:
                run = _Chain(network, own)
            bytes_each = result.itemsize * (models.stop - models.start) * width
            for rows in blocks(len(X), bytes_each, limit):
                result[models, rows] = run(X[rows])
    return result


def is_chain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether the network is a plain sequence of linear layers and activations, each used once."""
    if type(module) is not nn.Sequential or module.training or _is_changed(module):
        return False
    linear = [layer for layer in module if type(layer) is nn.Linear]
    return len({id(p) for layer in linear for p in layer.parameters()}) == sum(
        1 + (layer.bias is not None) for layer in linear
    ) and all(type(layer) in (nn.Linear, *ACTIVATIONS.values()) for layer in module)


def _is_changed(module: nn.Module) -> bool:
    """Whether hooks or an instance's own ``forward`` change what some layer does."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
        for part in module.modules()
    )


class _Chain:
    """Many networks of linear layers and activations, run on blocks of rows in the same memory.

    Rows are columns here, so that one product serves every network's first own layer: what flows
    is (units, rows) as long as the networks agree, and (networks, units, rows) from there on. The
    module is not modified, so threads may share it.
    """

    def __init__(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        self.count = len(next(iter(weights.values())))
        self.layers: list[nn.Module | tuple[Tensor, Tensor | None]] = []
        self.buffers: dict[int, Tensor] = {}
        for name, layer in module._modules.items():  # named_children names a layer only once
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else layer.bias.detach()
                weight = weights.get(f"{name}.weight", layer.weight.detach())
                self.layers.append((weight, weights.get(f"{name}.bias", bias)))
            elif layer is not None:
                self.layers.append(layer)

    @staticmethod
    def width(module: nn.Module) -> int:
        return max(layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear))

    def __call__(self, X: Tensor) -> Tensor:
        hidden, ours = X.T, False
        for place, layer in enumerate(self.layers):
            if isinstance(layer, nn.Module):
                hidden = hidden if ours else hidden.clone()  # the layer may work in place
                hidden = hidden.relu_() if isinstance(layer, nn.ReLU) else layer(hidden)
            else:
                hidden = self._linear(place, hidden, *layer)
            ours = True
        return hidden.expand(self.count, 1, -1)[:, 0]

    def _linear(self, place: int, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shared = hidden.dim() == 2
        if not shared:
            weight = weight.expand(self.count, *weight.shape[-2:])
        result = self._buffer(place, (*weight.shape[:-1], hidden.shape[-1]), hidden)
        if bias is not None and bias.dim() < result.dim():
            result.copy_(bias[..., None])
            bias = None
        else:
            result.zero_()
        if shared:
            result.view(-1, result.shape[-1]).addmm_(weight.flatten(0, -2), hidden)
        else:
            result.baddbmm_(weight, hidden)
        # A bias that is the first thing in which the networks differ takes more room.
        return result if bias is None else result + bias[..., None]

    def _buffer(self, place: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        size = math.prod(shape)
        if place not in self.buffers or self.buffers[place].numel() < size:
            self.buffers[place] = like.new_empty(size)
        return self.buffers[place][:size].view(shape)
