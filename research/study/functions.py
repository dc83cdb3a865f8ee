"""Methods that are functions: from training rows and new rows to intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from lazyknife.certificate import Certificate
from lazyknife.data.checks import check_fraction
from lazyknife.records import Array
from lazyknife.results import Intervals

# X (n, p), y (n,), X_new (m, p), alpha and a seed, to intervals, see ``as_intervals``.
FitPredict = Callable[[Array, Array, Array, float, int], Any]
NOTHING_KNOWN = "nothing is known of this method's coverage: it states no guarantee"
FORMS = "give Intervals, (lower, upper), (point, lower, upper), or an array of shape (m, 2)"


class FunctionRegressor(BaseEstimator):  # type: ignore[misc]
    """A function ``fit_predict(X, y, X_new, alpha, seed)`` with the face of an estimator.

    It is called when intervals are asked for; until then the rows are kept. Its certificate states
    no guarantee.

    Parameters
    ----------
    function
        Takes X of shape (n, p), y of shape (n,), X_new of shape (m, p), the level and a seed, and
        returns what ``as_intervals`` accepts.
    alpha, random_state
        The level and the seed.

    """

    def __init__(self, function: FitPredict, alpha: float = 0.1, random_state: int = 0) -> None:
        self.function = function
        self.alpha = alpha
        self.random_state = random_state

    def _check_settings(self) -> None:
        check_fraction("alpha", self.alpha)

    def fit(self, X: Array, y: Array, X_pool: Array | None = None) -> Self:
        """Keep the rows."""
        self.rows_ = X, y
        return self

    @property
    def certificate_(self) -> Certificate:
        """States that nothing is guaranteed."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return Certificate(None, {}, (), "", name, objections=(NOTHING_KNOWN,))

    def predict_interval(self, X: Array) -> Intervals:
        """Call the function."""
        found = self.function(*self.rows_, X, self.alpha, self.random_state)
        return as_intervals(found, len(X), self.alpha)


class _Foreign:
    """The function of an estimator that has only ``fit`` and ``predict_interval``."""

    def __init__(self, model: Any) -> None:
        self.model, self.__name__ = model, type(model).__name__

    def __call__(self, X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Any:
        own = {"alpha": alpha, "random_state": seed}
        model = clone(self.model)
        known = model.get_params(deep=False).keys() & own
        return model.set_params(**{k: own[k] for k in known}).fit(X, y).predict_interval(X_new)


def as_function(method: Any) -> FitPredict:
    """Return a function that runs a method: the method itself, or an estimator's two steps."""
    return _Foreign(method) if hasattr(method, "predict_interval") else method


def as_intervals(found: Any, count: int, alpha: float) -> Intervals:
    """Return what a function gave as a record of ``count`` intervals; a point is the middle.

    Accepted are ``Intervals``, a pair (lower, upper), a triple (point, lower, upper), each of shape
    (m,), and an array of shape (m, 2).
    """
    if isinstance(found, Intervals):
        return found
    parts = list(found.T) if isinstance(found, np.ndarray) and found.ndim == 2 else [*found]
    if len(parts) not in (2, 3) or any(np.shape(part) != (count,) for part in parts):
        shapes = ", ".join(str(np.shape(part)) for part in parts[:4])
        raise ValueError(f"the method gave parts of shapes {shapes} for {count} rows: {FORMS}")
    lower, upper = (np.asarray(part, dtype=float) for part in parts[-2:])
    point = np.asarray(parts[0], dtype=float) if len(parts) == 3 else _middle(lower, upper)
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("the method gave intervals with NaN: give numbers, or ±inf")
    return Intervals(point, lower, upper, alpha)


def _middle(lower: Array, upper: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((lower + upper) / 2, nan=0.0, posinf=0.0, neginf=0.0)
