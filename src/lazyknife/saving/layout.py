"""Tensors as contiguous ones, with what it takes to restore their layout in memory.

Products of the same numbers in another layout may round differently, so predictions after loading
are equal bit for bit only if the layout is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Packed(NamedTuple):
    """A contiguous tensor, and the layout of the original."""

    values: Tensor  # axes in the order of memory, slowest first; repeated ones have length 1
    shape: list[int]
    stride: list[int]


def pack(tensor: Tensor) -> Packed:
    """Return the entries of a tensor, each once, in the order of memory."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    single = tensor.detach()
    for axis, size in enumerate(_single(shape, stride)):
        single = single.narrow(axis, 0, size)
    values = single.permute(_order(stride)).contiguous().cpu()
    if values.numel() == 1:  # any stride counts as contiguous
        values = values.clone(memory_format=torch.contiguous_format)
    return Packed(values, shape, stride)


def unpack(packed: Packed, device: torch.device) -> Tensor:
    """Return a tensor with the original layout, in memory of its own."""
    values, shape, stride = packed
    single, order = _single(shape, stride), _order(stride)
    if tuple(single[axis] for axis in order) != values.shape:  # before memory is taken
        raise ValueError(f"shape {tuple(values.shape)} does not fit {shape} with strides {stride}")
    own = torch.empty_strided(single, stride, dtype=values.dtype, device=device)
    own.permute(order).copy_(values)
    return own.expand(shape)


def _single(shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    """The shape without repetitions."""
    return [min(n, 1) if step == 0 else n for n, step in zip(shape, stride, strict=True)]


def _order(stride: Sequence[int]) -> list[int]:
    return sorted(range(len(stride)), key=stride.__getitem__, reverse=True)


def place_of(tensor: Tensor) -> tuple[object, ...]:
    """Equal for tensors that are the same entries of the same memory."""
    memory = tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
