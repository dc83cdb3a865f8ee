"""Choose and join rows, in arrays, tensors and row labels."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..records import to_array


def positions(rows: Any, count: int) -> NDArray[np.intp]:
    """Return the numbers of the rows that an index asks for, out of so many."""
    if isinstance(rows, Integral) and not isinstance(rows, bool):
        return np.arange(count)[[int(rows)]]
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    asked = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    numbers = asked.dtype.kind in "biu" or not asked.size
    if isinstance(rows, tuple) or asked.ndim != 1 or not numbers:
        raise TypeError(
            f"cannot index intervals by {rows!r}: give a row number, a slice, a boolean mask or a "
            "list of row numbers; the ends are result.lower and result.upper"
        )
    chosen: NDArray[np.intp] = np.arange(count)[asked if asked.size else asked.astype(np.intp)]
    return chosen


def take(values: Any, rows: NDArray[np.intp]) -> Any:
    """Return rows of an array or a tensor."""
    if isinstance(values, Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return values[rows]


def join(parts: Sequence[Any]) -> Any:
    """Concatenate along the rows: tensors to a tensor, anything else to an array."""
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat(list(parts))
    return np.concatenate([to_array(part) for part in parts])


def join_labels(parts: Sequence[Any]) -> Any:
    """Concatenate row labels; None unless all parts have them."""
    if any(part is None for part in parts):
        return None
    first, *others = parts
    return first.append(others) if others else first


def same(labels: Any, others: Any) -> bool:
    """Whether row labels are equal."""
    if labels is None or others is None:
        return labels is others
    return bool(labels.equals(others))
