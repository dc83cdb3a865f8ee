"""Jacobian parts of each kind of layer, from its input and the signal at its output.

The signal is g = ∂f/∂(the layer's output). A formula takes the layer, its input, the signal and
the names of the parameters that move. To support another kind of layer, write its formula and add
it to ``LAYERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from .parts import Explicit, Lookup, Outer, Part

Names = Mapping[str, str]  # "weight" and "bias", where they move, to their names in the network


class Formula(NamedTuple):
    """How to compute the parts of a layer."""

    parts: Callable[[Any, Tensor, Tensor, Names], list[Part]]
    axes: int | None = None  # of a batch, where the layer also accepts a single example
    covers: Callable[[Any], bool] = lambda layer: True  # whether it holds for a layer's settings


def linear(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """W h + b at one place or, with more axes, at several."""
    signals, inputs = (values.reshape(len(x), -1, values.shape[-1]) for values in (signal, x))
    pieces = {"weight": inputs, "bias": torch.ones_like(inputs[..., :1])}
    moved = [role for role in pieces if role in names]
    augmented = torch.cat([pieces[role] for role in moved], dim=-1)
    return [Outer(tuple(names[role] for role in moved), signals, augmented, "bias" in names)]


def convolution(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Patches times signals, group by group, summed over the places."""
    parts: list[Part] = []
    if "weight" in names:
        patches = _patches(layer, x)  # (n, channels·kernel, places)
        groups = (len(x), layer.groups, -1, patches.shape[-1])
        rows = signal.reshape(groups) @ patches.reshape(groups).mT
        parts.append(Explicit((names["weight"],), rows.reshape(len(x), *layer.weight.shape)))
    if "bias" in names:
        parts.append(Explicit((names["bias"],), signal.flatten(2).sum(dim=2)))
    return parts


def _patches(layer: Any, x: Tensor) -> Tensor:
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    padded = functional.pad(x, layer._reversed_padding_repeated_twice)
    if x.dim() == 3:  # one axis: an image of height one
        kernel, stride, dilation = (1, *kernel), (1, *stride), (1, *dilation)
        padded = padded.unsqueeze(2)
    return functional.unfold(padded, kernel, dilation=dilation, stride=stride)


def embedding(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """Rows of a table; the padding entry does not move."""
    codes = x.reshape(len(x), -1)
    signals = signal.reshape(*codes.shape, -1)
    if layer.padding_idx is not None:
        signals = signals * (codes != layer.padding_idx)[..., None]
    return [Lookup((names["weight"],), signals, codes, layer.num_embeddings)]


def norm(layer: Any, x: Tensor, signal: Tensor, names: Names) -> list[Part]:
    """One weight and bias for each channel or, in a layer norm, for each entry of the last axes."""
    plain = {role: torch.full_like(p, role == "weight") for role, p in layer.named_parameters()}
    rows = {"weight": signal * functional_call(layer, plain, x), "bias": signal}
    last = isinstance(layer, nn.LayerNorm)
    summed = tuple(range(1, x.dim() - layer.weight.dim()) if last else range(2, x.dim()))
    return [
        Explicit((name,), rows[role].sum(dim=summed) if summed else rows[role])
        for role, name in names.items()
    ]


LAYERS: dict[type[nn.Module], Formula] = {
    nn.Linear: Formula(linear),
    nn.Conv1d: Formula(convolution, 3, lambda layer: layer.padding_mode == "zeros"),
    nn.Conv2d: Formula(convolution, 4, lambda layer: layer.padding_mode == "zeros"),
    nn.Embedding: Formula(embedding, covers=lambda layer: layer.max_norm is None),
    nn.LayerNorm: Formula(norm),
    nn.GroupNorm: Formula(norm),
    nn.BatchNorm1d: Formula(norm),
    nn.BatchNorm2d: Formula(norm),
}


def has_formula(layer: nn.Module) -> bool:
    """Whether there is a formula that holds for the layer."""
    return type(layer) in LAYERS and LAYERS[type(layer)].covers(layer)
