"""Rows that come in batches: a DataLoader, or an iterator such as a generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

PAIRS = "give batches (X, y), such as those of a DataLoader over a TensorDataset"


def is_stream(X: Any) -> bool:
    """Whether X yields its rows in batches: an iterator, such as a generator, or a DataLoader."""
    return isinstance(X, (Iterator, DataLoader))


def batch_rows(batch: Any) -> Any:
    """Return the rows of a batch; a loader that also yields targets puts them after the rows."""
    _refuse_dict(batch)
    if isinstance(batch, (tuple, list)) and len(batch) and hasattr(batch[0], "shape"):
        return batch[0]
    return batch


def all_rows(X: Any) -> Any:
    """Return the rows of all batches together; what is no stream, as it is."""
    return _joined([batch_rows(batch) for batch in X], "X") if is_stream(X) else X


def rows_and_targets(X: Any, y: Any) -> tuple[Any, Any]:
    """Return the rows and targets of all batches together; what is no stream, as it is."""
    if not is_stream(X):
        return X, y
    if y is not None:
        raise ValueError(f"y was passed beside an X that yields batches: {PAIRS}, and y=None")
    pairs = [_pair(batch) for batch in X]
    return _joined([rows for rows, _ in pairs], "X"), _joined([y for _, y in pairs], "y")


def _pair(batch: Any) -> tuple[Any, Any]:
    _refuse_dict(batch)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not hasattr(batch[0], "shape"):
        what = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise TypeError(f"X yields batches of {what}, without targets: {PAIRS}")
    rows, targets = batch
    return rows, targets


def _joined(parts: Sequence[Any], name: str) -> Any:
    """Batches below each other, in their container."""
    if not parts:
        raise ValueError(f"{name} yields no batches: an iterator can be read once only")
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat(list(parts))
    frames = [nw.from_native(part, pass_through=True, allow_series=True) for part in parts]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        return nw.concat(frames).to_native()
    return np.concatenate([np.asarray(part) for part in parts])


def _refuse_dict(batch: Any) -> None:
    if isinstance(batch, dict):
        raise TypeError(
            f"a batch is a dict with keys {list(batch)}: give an iterator of rows, or of tuples "
            "that begin with them"
        )
