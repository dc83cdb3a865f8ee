"""What a caller adds to a study by name: data sets and methods, as functions or objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_consistent_length

from lazyknife.estimators.base import IntervalRegressor

from .. import datasets
from ..datasets.record import read_only
from .functions import FunctionRegressor, as_function
from .grid import Setting

Rows = tuple[Any, Any]  # X (n, p) and y (n,)
Data = Rows | datasets.DataSet | Callable[[int], Rows | datasets.DataSet]


@dataclass(frozen=True)
class Own:
    """Data sets and methods of a caller, by name.

    Attributes
    ----------
    data
        (X, y), a ``DataSet``, or a function from a trial's number to one of these.
    methods
        An estimator with ``fit`` and ``predict_interval``, or a function
        ``fit_predict(X, y, X_new, alpha, seed)``, see ``functions.as_intervals``.

    """

    data: Mapping[str, Data] = field(default_factory=dict)
    methods: Mapping[str, Any] = field(default_factory=dict)

    def of(self, data: str, method: str) -> Own:
        """Return what one trial needs, to be sent to its process."""
        return Own(
            {name: value for name, value in self.data.items() if name == data},
            {name: value for name, value in self.methods.items() if name == method},
        )


def make_model(method: Any, setting: Setting) -> Any:
    """Return an unfitted estimator with the setting's level for a caller's method."""
    if isinstance(method, IntervalRegressor):
        return clone(method).set_params(alpha=setting.alpha)
    if not callable(method) and not hasattr(method, "predict_interval"):
        raise TypeError(
            f"method {method!r}: give a function fit_predict(X, y, X_new, alpha, seed), or an "
            "estimator with fit and predict_interval"
        )
    return FunctionRegressor(as_function(method), alpha=setting.alpha)


def make_data(name: str, given: Data, number: int) -> datasets.DataSet:
    """Return a caller's rows for one trial."""
    found = given(number) if callable(given) else given
    if isinstance(found, datasets.DataSet):
        return found
    try:
        X, y = (read_only(part) for part in found)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"data {name!r}: give X of shape (n, p) and y of shape (n,), in numbers ({error})"
        ) from error
    check_consistent_length(X, y)
    if X.ndim != 2 or y.ndim != 1 or not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError(
            f"data {name!r}: X has shape {X.shape}, y {y.shape}: give shapes (n, p) and (n,), "
            "without missing values"
        )
    columns = tuple(f"x{k}" for k in range(1, X.shape[1] + 1))
    return datasets.DataSet(name, X, y, columns, "y", None, name)
