"""Tensors as contiguous ones, with what it takes to restore their layout in memory.

Products of the same numbers in another layout may round differently, so predictions after loading
are equal bit for bit only if the layout is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Packed(NamedTuple):
    """A contiguous tensor, and the layout of the original."""

    values: Tensor
    order: list[int]  # axes of the original, slowest first
    shape: list[int]  # of the original, with repeated axes


def pack(tensor: Tensor) -> Packed:
    """Return the entries that are stored, each once, in the order of memory."""
    single = tensor.detach()
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            single = single.narrow(axis, 0, 1)
    order = sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True)
    values = single.permute(order).contiguous().cpu()
    if values.numel() == 1:  # any stride counts as contiguous
        values = values.clone(memory_format=torch.contiguous_format)
    return Packed(values, order, list(tensor.shape))


def unpack(packed: Packed, device: torch.device) -> Tensor:
    """Return a tensor with the original layout, in memory of its own."""
    values, order, shape = packed
    if sorted(order) != list(range(values.dim())):
        raise ValueError(f"{order} is not an order of the axes of shape {tuple(values.shape)}")
    own = torch.empty_like(values, device=device).copy_(values)
    back = [order.index(axis) for axis in range(len(order))]
    return own.permute(back).expand(shape)


def place_of(tensor: Tensor) -> tuple[object, ...]:
    """Equal for tensors that are the same entries of the same memory."""
    memory = tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
