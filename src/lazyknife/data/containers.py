"""Containers of numbers: which are read, which are refused, and the type of what is given back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

# Types coarser than float64 in which results are given back. Those of 16 bits have too few digits
# for the ends of intervals, and float16 ends at 65,504: results are in float32.
COARSE = {"float32": torch.float32, "float16": torch.float32, "bfloat16": torch.float32}


def plain(values: Any, name: str) -> Any:
    """Return a tensor as an array, and other containers as they are; refuse what would be misread.

    Floating tensors become float64, since numpy has no bfloat16.
    """
    _refuse(values, name)
    if isinstance(values, Tensor):
        dense = values.detach().cpu()
        return (dense.double() if dense.is_floating_point() else dense).numpy()
    if isinstance(values, np.ma.MaskedArray):
        return values.data  # nothing is masked
    return values


def _refuse(values: Any, name: str) -> None:
    """Refuse containers whose numbers cannot be read as rows of numbers."""
    kind, dtype = type(values).__name__, getattr(values, "dtype", None)
    if isinstance(values, Tensor):
        _refuse_tensor(values, name)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise TypeError(
            f"{name} is a masked array with masked values, which are no data: remove those rows, "
            "or pass a frame with missing values"
        )
    if isinstance(values, np.ndarray) and dtype is not None and dtype.names:
        raise TypeError(
            f"{name} is a structured array with fields {list(dtype.names)}: pass a frame, or an "
            "array of numbers"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        raise TypeError(f"{name} has type {dtype}: pass dates in a frame, or as numbers")
    if kind == "LazyFrame" or hasattr(values, "compute"):
        raise TypeError(f"{name} is lazy ({kind}): call .collect() or .compute() first")
    if isinstance(values, dict):
        raise TypeError(f"{name} is a dict with keys {list(values)}: pass a frame or an array")
    if isinstance(values, (Iterator, DataLoader, set, frozenset)):
        raise TypeError(f"{name} is of type {kind}: pass an array, a tensor or a frame")
    if isinstance(values, Dataset):
        raise TypeError(f"{name} is of type {kind}: pass DataLoader({name}, batch_size=256)")


def _refuse_tensor(values: Tensor, name: str) -> None:
    if values.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor: pass {name}.to_dense()")
    if values.is_meta or values.is_quantized or values.is_complex():
        raise TypeError(
            f"{name} is a tensor of {values.dtype} on {values.device}: give real numbers"
        )


def give_back(values: Tensor, X: Any, side: int = 0) -> Any:
    """Return numbers in the caller's container and floating type.

    Parameters
    ----------
    values
        Numbers in float64.
    X
        The caller's rows: a tensor gives a tensor on its device, anything else an array. Float32
        gives float32, as do the types of 16 bits; all others give float64.
    side
        −1 for lower ends, which are rounded down, 1 for upper ends, which are rounded up.

    """
    dtype = COARSE.get(str(getattr(X, "dtype", "")).removeprefix("torch."), torch.float64)
    found = values if dtype == torch.float64 else rounded(values, dtype, side)
    return found.to(X.device) if isinstance(X, Tensor) else _array(found)


def rounded(values: Tensor, dtype: torch.dtype, side: int) -> Tensor:
    """Numbers in a coarser type: the nearest, or the nearest that is not on the wrong side."""
    nearest = values.to(dtype)
    if not side:  # a finite point stays finite
        return nearest.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
    wrong = side * nearest.double() < side * values
    outwards = torch.nextafter(nearest, torch.full_like(nearest, side) * torch.inf)
    return torch.where(wrong, outwards, nearest)


def _array(values: Tensor) -> NDArray[Any]:
    result: NDArray[Any] = values.cpu().numpy()
    return result
