"""Turn the caller's X and y into checked arrays and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from torch import Tensor

from ..alert import warn
from .checks import LARGEST_COUNT
from .containers import plain

Values = NDArray[Any]

COLUMN = "A column-vector y was passed when a 1d array was expected: pass y.ravel(), of shape (n,)"


def is_shaped(X: Any) -> bool:
    """Whether X needs a network of its own: it has more than two axes, or integer codes."""
    if isinstance(X, Tensor):
        return X.ndim != 2 or not X.is_floating_point()
    return isinstance(X, np.ndarray) and X.ndim > 2


def check_features(X: Any, estimator: Any, *, name: str = "X", min_rows: int = 1) -> Values:
    """Return X as an array: float64, or integer codes where an integer tensor was given."""
    values = plain(X, name)
    if is_shaped(X):
        return _check_shaped(values, name, min_rows)
    terms = {"estimator": estimator, "input_name": name, "ensure_min_samples": min_rows}
    result: Values = _checked(values, "pass a frame for text, dates and gaps", np.float64, **terms)
    _refuse_changed(np.asarray(values), result, name)
    return result


def _refuse_changed(given: Values, found: Values, name: str) -> None:
    """Refuse integers that are others as floats: different ones could become equal."""
    if given.dtype.kind not in "iu":
        return
    for place in map(tuple, np.argwhere(np.abs(found) >= LARGEST_COUNT)):
        value = int(given[place])
        if value != int(found[place]):
            raise ValueError(
                f"{name}: column {place[1]} has values that are not read as numbers: {value} is "
                "not a float64 number. Correct or round them"
            )


def _checked(values: Any, way_out: str, dtype: Any, **terms: Any) -> Values:
    """Call scikit-learn's check; what it says about gaps and text ends in a way out."""
    try:
        with np.errstate(all="ignore"):  # of huge values, which its test for infinity adds up
            result: Values = check_array(values, dtype=dtype, **terms)
    except ValueError as error:
        first = str(error).splitlines()[0].rstrip(".")
        if "contains NaN" not in first and "could not convert" not in first:
            raise
        raise ValueError(f"{first}: {way_out}") from None
    return result


def check_target(y: Any, X: Values, estimator: Any) -> NDArray[np.float64]:
    """Return y as a float64 vector as long as X."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    terms = {"ensure_2d": False, "estimator": estimator, "input_name": "y"}
    checked = _checked(plain(y, "y"), "leave such rows out", None, **terms)
    if checked.ndim == 2 and checked.shape[1] == 1:
        warn(COLUMN, DataConversionWarning)
    vector = column_or_1d(checked)
    check_consistent_length(X, vector)
    return finite_numbers(vector, "y")


def finite_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return numbers in any container as float64; refuse text, missing and infinite ones."""
    try:
        found = np.asarray(plain(values, name))
        text = any(isinstance(value, str | bytes | complex) for value in found.ravel().tolist())
        if text or found.dtype.kind in "mM":
            raise ValueError(found.ravel()[:3].tolist())
        with np.errstate(over="ignore"):
            result: NDArray[np.float64] = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} has values that are not numbers: {error}: convert them") from None
    if not np.isfinite(result).all():
        row = int((~np.isfinite(result.ravel())).argmax())
        raise ValueError(
            f"{name}[{row}]={found.ravel()[row]} is no finite number: leave such rows out"
        )
    return result


def as_fitted(rows: Values, codes: bool, name: str) -> Values:
    """Return an array in the type of the rows that were fitted: numbers, or integer codes."""
    fitted = np.int64 if codes else np.float64
    if not isinstance(rows, np.ndarray) or rows.dtype == fitted:
        return rows
    with np.errstate(invalid="ignore"):
        found = rows.astype(fitted)
    if not codes:
        _refuse_changed(rows, found, name)
    elif not np.array_equal(found, rows):
        raise ValueError(
            f"{name} has numbers that are not whole, but the rows that were fitted were a tensor "
            "of integer codes: pass integers"
        )
    return found


def to_tensor(X: Values, copy: bool = True) -> Tensor:
    """Return a float64 tensor, or int64 for integer codes: a copy, which a network may change.

    Without ``copy`` the array is given away, and not copied if its rows lie one after the other.
    """
    return torch.from_numpy(np.array(X, order="C", copy=True if copy else None))


def _check_shaped(array: Values, name: str, min_rows: int) -> Values:
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
