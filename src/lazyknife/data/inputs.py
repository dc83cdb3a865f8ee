"""Turn the caller's X and y into checked arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from torch import Tensor
from torch.utils.data import DataLoader

Values = NDArray[Any]


def is_shaped(X: Any) -> bool:
    """Whether X needs a network of its own: it has more than two axes, or integer codes."""
    if isinstance(X, Tensor):
        return X.ndim != 2 or not X.is_floating_point()
    return isinstance(X, np.ndarray) and X.ndim > 2


def is_stream(X: Any) -> bool:
    """Whether X yields its rows in batches: an iterator, such as a generator, or a DataLoader."""
    return isinstance(X, (Iterator, DataLoader))


def batch_rows(batch: Any) -> Any:
    """Return the rows of a batch; a loader that also yields targets puts them after the rows."""
    if isinstance(batch, dict):
        raise TypeError(
            f"a batch is a dict with keys {list(batch)}: give an iterator of rows, or of tuples "
            "that begin with them"
        )
    if isinstance(batch, (tuple, list)) and len(batch) and hasattr(batch[0], "shape"):
        return batch[0]
    return batch


def give_back(values: Tensor, X: Any) -> Any:
    """Return numbers in float64 and in the caller's container: an array, or a tensor for one."""
    if isinstance(X, Tensor):
        return values.to(X.device, torch.float64)
    return values.to("cpu", torch.float64).numpy()


def check_features(X: Any, estimator: Any, *, name: str = "X", min_rows: int = 1) -> Values:
    """Return X as an array: float64, or integer codes where an integer tensor was given."""
    if is_shaped(X):
        return _check_shaped(X, name, min_rows)
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    terms = {"estimator": estimator, "input_name": name, "ensure_min_samples": min_rows}
    result: Values = check_array(X, dtype=np.float64, **terms)
    return result


def check_target(y: Any, X: Values, estimator: Any) -> NDArray[np.float64]:
    """Return y as a float64 vector as long as X."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    checked = check_array(y, dtype=None, ensure_2d=False, estimator=estimator, input_name="y")
    vector = column_or_1d(checked, warn=True)
    if vector.dtype.kind not in "biuf":
        try:
            vector = vector.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y has values that are not numbers: {error}") from None
    check_consistent_length(X, vector)
    result: NDArray[np.float64] = vector.astype(np.float64)
    return result


def to_tensor(X: Values) -> Tensor:
    """Return a float64 tensor, or int64 for integer codes: a copy, which a network may change."""
    return torch.from_numpy(np.array(X, order="C"))


def _check_shaped(X: Any, name: str, min_rows: int) -> Values:
    array: Values = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if array.ndim < 2 or len(array) < min_rows or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}: give at least {min_rows} row(s), rows along the "
            "first axis and at least one more axis. Reshape your data"
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has type {array.dtype}: give numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity: remove or impute those rows")
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def row_labels(X: Any) -> Any:
    """Return the index of a pandas frame, or None."""
    return X.index if hasattr(X, "index") and hasattr(X, "iloc") else None
