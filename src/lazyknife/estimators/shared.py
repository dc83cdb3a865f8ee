"""What all estimators share: checked input, scaling, point predictions and intervals."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted
from torch import Tensor
from torch.utils.data import DataLoader

from ..certificate.leaving import MOST
from ..compute import steps, track
from ..data.batches import all_rows, batch_rows, is_stream, rows_and_targets
from ..data.checks import check_flag, check_level, check_not_negative
from ..data.containers import give_back
from ..data.flavour import flavour_of
from ..data.inputs import as_fitted, is_shaped, row_labels, to_tensor
from ..data.reading import Reader
from ..data.scaling import Scaling, Source
from ..data.targets import Target, find_target
from ..intervals import CONSTRUCTIONS, Construction, check_construction, find_construction, kappa
from ..memory import noticing_memory
from ..records import Predictor, to_array
from ..results import Intervals
from ..threads import available
from .guarantee import Guaranteed
from .preparing import prepare
from .records import Fitted, Given, Seeds
from .saved import Saved
from .shifted import ComparesRows
from .warn import refuse_nan, warn_if_infinite, warn_if_outside

Values = NDArray[Any]
Levels = float | Sequence[float] | None
Part = TypeVar("Part")
FEW_ROWS = 64  # too few to share
SOME_HAVE = {"base_", "start_", "choice_", "ridge_"}


class IntervalRegressor(Saved, ComparesRows, RegressorMixin, Guaranteed):  # type: ignore[misc]
    """Base of every estimator with ``predict_interval``.

    A subclass defines how leave-one-out models and a certificate are obtained (``_fit``) and which
    construction turns them into intervals.
    """

    scaling: Any
    encoding: Any = None
    target: Any = None
    bounds: Any = None
    random_state: Any
    construction: str | Construction[Any]
    network: Any
    progress: bool
    nu: float = 0.0
    loo_: Predictor
    scaling_: Scaling
    reader_: Reader
    target_: Target
    row_shape_: tuple[int, ...]
    n_samples_fit_: int

    @abstractmethod
    def _fit(self, given: Given) -> Fitted:
        """Fit to scaled rows."""

    def _check_settings(self) -> None:
        """Raise an error for invalid settings before anything is computed."""
        check_level("alpha", self.alpha)
        check_construction(self.construction, self._constructions())
        check_not_negative("nu", self.nu)
        check_flag("progress", self.progress)
        find_target(self.target, self.bounds)

    def _constructions(self) -> list[str]:
        """Return the constructions that accept any leave-one-out models."""
        return [name for name, kind in CONSTRUCTIONS.items() if kind.any_models]

    def _scaling_for(self, rows: Values, source: Source) -> Any:
        return self.scaling

    def _takes_categories(self, rows: Values) -> bool:
        """Whether the models take rows with codes of categories and missing values."""
        return False

    def _learns_from_covariates(self) -> bool:
        """Whether the estimator learns from rows without labels, beyond scaling."""
        return False

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        """Training rows that the leave-one-out step does not use, if there are any."""
        return None

    def _rows_in_all(self, needed: int) -> int:
        """Return how many rows it takes for so many to be left out, or held out."""
        return bisect_left(range(MOST), needed, key=self._rows_left)

    def _rows_left(self, n: int) -> int:
        """Return how many of n rows are left out, or held out."""
        return n

    @noticing_memory
    def fit(self, X: Any, y: Any = None, X_pool: Any = None, X_unlabeled: Any = None) -> Self:
        """Fit the network and all its leave-one-out models.

        Parameters
        ----------
        X
            Training rows: an array or frame of shape (n, features), or a tensor of any shape
            that the network takes. A ``torch.utils.data.DataLoader`` or an iterator of batches
            ``(X, y)`` is read to its end; y is then None.
        y
            Targets, shape (n,).
        X_pool
            The rows to predict later, without labels. A fitted ``scaling`` is then fitted on
            X and these together, a base that uses covariates learns from them, and the
            certificate holds for these rows.
        X_unlabeled
            Rows that are neither training rows nor rows to predict. A fitted ``scaling`` and a
            base that uses covariates then learn from these alone.

        """
        self._check_settings()
        X, y = rows_and_targets(X, y)
        given = prepare(self, X, y, pool := all_rows(X_pool), all_rows(X_unlabeled))
        self._compare_pool(given, X, pool)
        return self._set_fitted(X, given, self._fit(given))

    def _set_fitted(self, X: Any, given: Given, fitted: Fitted) -> Self:
        """Set attributes, only after everything has succeeded."""
        self._guarantee(fitted.certify)
        if not is_shaped(X):
            _check_feature_names(self, X, reset=True)
            self.n_features_in_ = given.reader.width(X, given.shape)
        self.row_shape_, self.n_samples_fit_ = given.shape, len(given.y)
        self.reader_, self.scaling_, self.target_ = given.reader, given.scaling, given.target
        self.loo_, self._rows_like = fitted.loo, given.X[:0].clone()
        self._keep_rows(X)
        for name in vars(self).keys() & SOME_HAVE:
            delattr(self, name)
        self.__dict__.update(fitted.attributes)
        return self

    def predict(self, X: Any) -> Any:
        """Predict y with the full-data model.

        Parameters
        ----------
        X
            Rows to predict; batches as in ``predict_interval`` give an iterator of predictions.

        Returns
        -------
        Predictions, shape (m,): a tensor for a tensor, else an array; in float32 where X has
        floating numbers of 32 or 16 bits, else in float64.

        """
        check_is_fitted(self)
        if is_stream(X):
            return (self._points(batch_rows(batch)) for batch in X)
        return self._points(X)

    @noticing_memory
    def _points(self, X: Any) -> Any:
        values = self._check_new(X)
        parts = self._by_blocks(self.loo_.point, to_tensor(self.scaling_(values)))
        refuse_nan(point := self.target_.point(torch.cat(parts)))
        return give_back(point, X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the point predictions."""
        predicted = to_array(self.predict(X))
        y = to_array(y) if isinstance(y, Tensor) else y
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    @overload
    def predict_interval(
        self, X: Iterator[Any] | DataLoader[Any], alpha: Levels = None
    ) -> Iterator[Intervals]: ...

    @overload
    def predict_interval(self, X: Any, alpha: Levels = None) -> Intervals: ...

    def predict_interval(self, X: Any, alpha: Levels = None) -> Intervals | Iterator[Intervals]:
        """Prediction intervals.

        Parameters
        ----------
        X
            Rows to predict. An iterator of batches of rows, such as a generator or a
            ``torch.utils.data.DataLoader``, gives an iterator of intervals, one for each batch;
            batches are read one at a time. Where X has floating numbers of 32 or 16 bits the
            results are in float32, ends rounded outwards, so that they cover no less.
        alpha
            The level, or a list of levels; None is the estimator's own. Nothing is fitted again. If
            you choose a level by looking at intervals, only the certificate of the largest alpha
            that you considered holds.

        """
        check_is_fitted(self)
        asked = self._levels(alpha)
        levels = asked if isinstance(asked, tuple) else (asked,)
        certified = tuple(self.certify(alpha=level) for level in levels)
        certificate = certified if isinstance(asked, tuple) else certified[0]
        n = len(self.loo_.residuals)
        warn_if_infinite(min(levels), n, self.n_samples_fit_, self._rows_in_all)
        ranks = [kappa(level, n) for level in levels]
        if is_stream(X):
            batches = (self._intervals(batch_rows(batch), ranks, asked) for batch in X)
            return (replace(part, certificate=certificate) for part in batches)
        return replace(self._intervals(X, ranks, asked), certificate=certificate)

    def _levels(self, alpha: Levels) -> float | tuple[float, ...]:
        """The level or levels to use."""
        chosen: Any = self.alpha if alpha is None else alpha
        if np.ndim(chosen) == 0:
            return check_level("alpha", chosen)
        if not len(chosen):
            raise ValueError("alpha=[]: give at least one level")
        return tuple(check_level("alpha", level) for level in chosen)

    @noticing_memory
    def _intervals(
        self, X: Any, ranks: Sequence[int], asked: float | tuple[float, ...]
    ) -> Intervals:
        values = self._check_new(X)
        warn_if_outside(self.scaling_.outside_pool(values), len(values))
        rows, make = to_tensor(self.scaling_(values)), find_construction(self.construction).ends
        parts = self._by_blocks(lambda block: make(self.loo_, block, ranks), rows)
        point, lower, upper = (torch.cat(part) for part in zip(*parts, strict=True))
        nu = check_not_negative("nu", self.nu)
        point = self.target_.point(point)
        refuse_nan(point, lower, upper)
        lower, upper = self.target_.ends(lower - nu, upper + nu)
        if not isinstance(asked, tuple):
            lower, upper = lower[:, 0], upper[:, 0]
        ends = (give_back(lower, X, -1), give_back(upper, X, 1))
        return Intervals(give_back(point, X), *ends, asked, row_labels(X), flavour_of(X))

    def _check_new(self, X: Any) -> Values:
        check_is_fitted(self)
        rows: Values = self.reader_(X, self)
        if not is_shaped(X) and hasattr(self, "n_features_in_"):
            _check_feature_names(self, X, reset=False)
            if not self.reader_.encodes:
                _check_n_features(self, rows, reset=False)
        if rows.shape[1:] != self.row_shape_:
            raise ValueError(
                f"X has rows of shape {rows.shape[1:]}, but {type(self).__name__} was fitted on "
                f"rows of shape {self.row_shape_}"
            )
        return as_fitted(rows, not self._rows_like.is_floating_point(), "X")

    def _by_blocks(self, predict: Callable[[Tensor], Part], rows: Tensor) -> list[Part]:
        """Predictions of blocks of rows, whose (rows × models) arrays fit in the memory budget."""
        size, sharing = self.loo_.rows_at_once, getattr(self.loo_, "sharing", None)
        if sharing is not None:
            size = min(size, max(FEW_ROWS, -(-len(rows) // available())))
        parts = [rows[block] for block in steps(len(rows), size)]

        @torch.no_grad()  # a setting of each thread
        def work(part: Tensor) -> Part:
            return predict(part)

        found: Iterator[Part] = map(work, parts)
        if sharing is not None:
            machine, row_bytes = sharing
            found = machine.map(work, parts, size * row_bytes // machine.item)
        shown = self.progress and len(parts) > 1
        return list(track(found, "predicting", len(parts), shown))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "loo_")
