"""What a caller adds to a study by name: data sets and methods, as functions or objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_X_y

from lazyknife.certificate import Certificate
from lazyknife.data.checks import check_fraction
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.records import Array
from lazyknife.results import Intervals

from .. import datasets
from ..datasets.record import read_only
from .grid import Setting, Study

Rows = tuple[Any, Any]  # X (n, p) and y (n,)
Data = Rows | datasets.DataSet | Callable[[int], Rows | datasets.DataSet]
# X (n, p), y (n,), X_new (m, p), alpha and a seed, to intervals, see ``as_intervals``.
FitPredict = Callable[[Array, Array, Array, float, int], Any]
NOTHING_KNOWN = "nothing is known of this method's coverage: it states no guarantee"
FORMS = "give Intervals, (lower, upper), (point, lower, upper), or an array of shape (m, 2)"
MODULE = "research_own_study"


@dataclass(frozen=True)
class Own:
    """Data sets and methods of a caller, by name.

    Attributes
    ----------
    data
        (X, y), a ``DataSet``, or a function from a trial's number to one of these.
    methods
        An estimator with ``fit`` and ``predict_interval``, or a function
        ``fit_predict(X, y, X_new, alpha, seed)``, see ``as_intervals``.

    """

    data: Mapping[str, Data] = field(default_factory=dict)
    methods: Mapping[str, Any] = field(default_factory=dict)

    def of(self, data: str, method: str) -> Own:
        """Return what one trial needs, to be sent to its process."""
        return Own(
            {name: value for name, value in self.data.items() if name == data},
            {name: value for name, value in self.methods.items() if name == method},
        )


def make_data(name: str, given: Data, number: int) -> datasets.DataSet:
    """Return a caller's rows for one trial."""
    found = given(number) if callable(given) else given
    if isinstance(found, datasets.DataSet):
        return found
    try:
        X, y = map(read_only, check_X_y(*found, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"data {name!r}: give X of shape (n, p) and y of shape (n,), in numbers ({error})"
        ) from error
    columns = tuple(f"x{k}" for k in range(1, X.shape[1] + 1))
    return datasets.DataSet(name, X, y, columns, "y", None, name)


def make_model(method: Any, setting: Setting) -> Any:
    """Return an unfitted estimator with the setting's level for a caller's method."""
    if isinstance(method, IntervalRegressor):
        return clone(method).set_params(alpha=setting.alpha)
    if hasattr(method, "predict_interval"):
        method = EstimatorFunction(method)
    if not callable(method):
        raise TypeError(
            f"method {method!r}: give a function fit_predict(X, y, X_new, alpha, seed), or an "
            "estimator with fit and predict_interval"
        )
    return FunctionRegressor(method, alpha=setting.alpha)


@dataclass(frozen=True)
class EstimatorFunction:
    """The function of an estimator that has only ``fit`` and ``predict_interval``."""

    model: Any

    def __call__(self, X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Any:
        own = {"alpha": alpha, "random_state": seed}
        model = clone(self.model)
        known = model.get_params(deep=False).keys() & own
        return model.set_params(**{k: own[k] for k in known}).fit(X, y).predict_interval(X_new)


class FunctionRegressor(BaseEstimator):  # type: ignore[misc]
    """A function ``fit_predict(X, y, X_new, alpha, seed)`` with the face of an estimator.

    It is called when intervals are asked for; until then the rows are kept. ``guarantee`` is a
    function from alpha and the number of rows to the coverage that a theorem of others states;
    without it, the certificate says that nothing is known.
    """

    def __init__(
        self,
        function: FitPredict,
        alpha: float = 0.1,
        random_state: int = 0,
        guarantee: Callable[[float, int], float] | None = None,
    ) -> None:
        self.function = function
        self.alpha = alpha
        self.random_state = random_state
        self.guarantee = guarantee

    def _check_settings(self) -> None:
        check_fraction("alpha", self.alpha)

    def fit(self, X: Array, y: Array, X_pool: Array | None = None) -> Self:
        """Keep the rows."""
        self.rows_ = X, y
        return self

    @property
    def certificate_(self) -> Certificate:
        """What the guarantee states, or that nothing is known."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        if self.guarantee is None:
            return Certificate(None, {}, (), "", name, objections=(NOTHING_KNOWN,))
        return Certificate(self.guarantee(self.alpha, len(self.rows_[1])), {}, (), "", name)

    def predict_interval(self, X: Array) -> Intervals:
        """Call the function."""
        found = self.function(*self.rows_, X, self.alpha, self.random_state)
        return as_intervals(found, len(X), self.alpha)


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
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("the method gave intervals with NaN: give numbers, or ±inf")
    with np.errstate(invalid="ignore"):
        middle = np.nan_to_num((lower + upper) / 2, nan=0.0, posinf=0.0, neginf=0.0)
    point = np.asarray(parts[0], dtype=float) if len(parts) == 3 else middle
    return Intervals(point, lower, upper, alpha)


def load_study(path: Path) -> tuple[Study, Own]:
    """Run a Python file, and return its ``study`` with its ``data`` and ``methods``."""
    import cloudpickle

    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"--module {path}: there is no such Python file")
    spec = spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MODULE] = module_from_spec(spec)
    spec.loader.exec_module(module)
    # Other processes cannot import the file: they get its functions as they are.
    cloudpickle.register_pickle_by_value(module)
    study, data, methods = (getattr(module, k, {}) for k in ("study", "data", "methods"))
    if not isinstance(study, Study) or not all(isinstance(m, Mapping) for m in (data, methods)):
        raise ValueError(
            f"--module {path}: the file must define study = Study(...), and the dicts data = "
            "{...} and methods = {...} if it brings its own"
        )
    return study, Own(data, methods)
