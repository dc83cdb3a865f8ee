"""What each kind of layer adds to a Jacobian row, from its input and the signal at its output.

The signal is g = ∂f/∂(the layer's output). Each function takes the layer, its input, the signal,
and the names of its moved parameters, and returns parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .parts import Explicit, Lookup, Outer, Part

Names = Mapping[str, str]  # "weight" and "bias", where they move, to their names in the network


def linear(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """The map W h + b at one place or, with more axes, at several."""
    places = signal.reshape(len(x), -1, signal.shape[-1])
    inputs = x.reshape(len(x), -1, x.shape[-1])
    pieces = [inputs] if "weight" in names else []
    if "bias" in names:
        pieces.append(torch.ones_like(inputs[..., :1]))
    return [Outer(names.get("weight"), names.get("bias"), places, torch.cat(pieces, dim=-1))]


def convolution(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Patches against signals, group by group, summed over the places."""
    parts: list[Part] = []
    if "weight" in names:
        patches = _patches(layer, x)  # (n, channels·kernel, places)
        groups = (len(x), layer.groups, -1, patches.shape[-1])
        signals = signal.reshape(groups)
        rows = signals @ patches.reshape(groups).transpose(-1, -2)
        parts.append(Explicit(names["weight"], rows.reshape(len(x), *layer.weight.shape)))
    if "bias" in names:
        parts.append(Explicit(names["bias"], signal.flatten(2).sum(dim=2)))
    return parts


def _patches(layer: Any, x: Tensor) -> Tensor:
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    padded = functional.pad(x, layer._reversed_padding_repeated_twice)
    if x.dim() == 3:  # one axis: a picture of height one
        kernel, stride, dilation = (1, *kernel), (1, *stride), (1, *dilation)
        padded = padded.unsqueeze(2)
    return functional.unfold(padded, kernel, dilation=dilation, stride=stride)


def embedding(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Rows of a table; the padding entry does not move."""
    codes = x.reshape(len(x), -1)
    signals = signal.reshape(*codes.shape, -1)
    if layer.padding_idx is not None:
        signals = signals * (codes != layer.padding_idx)[..., None]
    return [Lookup(names["weight"], layer.num_embeddings, codes, signals)]


def layer_norm(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Affine part of a layer norm, one weight for each of the last axes' entries."""
    normed = functional.layer_norm(x, layer.normalized_shape, eps=layer.eps)
    between = tuple(range(1, x.dim() - len(layer.normalized_shape)))
    return _affine(normed, signal, names, between)


def group_norm(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Affine part of a group norm, one weight for each channel."""
    normed = functional.group_norm(x, layer.num_groups, eps=layer.eps)
    return _affine(normed, signal, names, tuple(range(2, x.dim())))


def batch_norm(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Affine part of a batch norm on its running statistics."""
    normed = functional.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps)
    return _affine(normed, signal, names, tuple(range(2, x.dim())))


def _affine(normed: Tensor, signal: Tensor, names: Names, summed: tuple[int, ...]) -> list[Part]:
    rows = {"weight": signal * normed, "bias": signal}
    return [
        Explicit(name, rows[role].sum(dim=summed) if summed else rows[role])
        for role, name in names.items()
    ]


LAYERS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Names], list[Part]]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
}
# Axes of a batch, where a layer also takes a single example.
AXES = {nn.Conv1d: 3, nn.Conv2d: 4}


def has_formula(layer: nn.Module) -> bool:
    """Whether the layer is one of these, with settings that its formula covers."""
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        return type(layer) in LAYERS and layer.padding_mode == "zeros"
    if isinstance(layer, nn.Embedding):
        return type(layer) in LAYERS and layer.max_norm is None
    return type(layer) in LAYERS
