"""What all estimators share: checked input, scaling, predictions, intervals and certificates."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted
from torch import Tensor
from torch.utils.data import DataLoader

from ..certificate import Certificate, Noted
from ..certificate.plan import LARGEST_N
from ..compute import available, steps, track
from ..dask import check_rows, ends_by_partition, is_dask, points_by_partition
from ..data.checks import check_flag, check_fraction, check_level, check_not_negative
from ..data.encoder import TableEncoder
from ..data.rows import (
    RowReader,
    all_rows,
    as_fitted,
    backend_of,
    batch_rows,
    give_back,
    is_shaped,
    is_stream,
    row_labels,
    rows_and_targets,
    take,
    to_tensor,
)
from ..data.scaling import Scaling, Source
from ..data.targets import Function, Target, find_target
from ..errors import warn
from ..intervals import (
    CONSTRUCTIONS,
    Construction,
    check_construction,
    find_construction,
    kappa,
    rows_needed,
)
from ..intervals.asked import one_sided
from ..intervals.outputs import OutputModels
from ..memory import noticing_memory
from ..records import Array, Ends, Predictor, Side, to_array
from ..results import Distribution, Intervals
from ..settings import grouped, with_settings
from ..shift import Shift, compare_rows, kept_places
from .answers import answer, refuse_nan, sorted_values
from .fit_input import Fitted, Given, RandomState, Seeds, prepare
from .fitted_model import FittedModelMixin
from .labels import Groups, cluster_codes
from .questions import (
    Asked,
    about_rows,
    answering,
    refuse_in_streams,
    refuse_with_dask,
    require_models,
)
from .saving import SaveMixin

Values = NDArray[Any]
Levels = float | Sequence[float] | None
# Settings by name: the keys of the dicts of variants, which a test compares.
ConstructionName = Literal["auto", "plus", "minmax", "full", "cv+", "split", "jackknife", "naive"]
ScalingName = Literal["auto", "symlog", "standardize"]
TransformName = Literal["log", "log1p", "logit", "symlog"]
Bounds = tuple[float | None, float | None]
FEW_ROWS = 64  # too few to share
FREE = ("alpha", "nu", "verbose")  # settings that count when predicting, not when fitting
WITHOUT_EFFECT = ("verbose", "device", "memory_budget")  # settings that move no interval
SOME_HAVE = {"base_", "choice_", "ridge_"}


class Transformer(Protocol):
    """A transformer of scikit-learn."""

    def fit(self, X: Any) -> Any:
        """Learn from rows."""

    def transform(self, X: Any) -> Any:
        """Return features of rows."""


class CertifiedMixin(BaseEstimator):  # type: ignore[misc]
    """An estimator whose certificate is about its fit: settings that changed since are refused."""

    alpha: float
    nu: float = 0.0
    _certify: Callable[..., Certificate]
    _certificate: Certificate
    _settings: dict[str, Any]
    _set_later: tuple[str, ...] = ()

    def set_params(self, **params: Any) -> Self:
        """Set settings by name, also those of the base, the loss or the features.

        ``set_params(base__epsilon=0.1)`` replaces the base by a changed copy; the base itself
        may be shared and stays as it is. After ``fit``, ``alpha`` and ``nu`` take effect at once;
        after any other change, intervals and certificates are refused until the next fit.
        """
        plain, nested = grouped(params)
        super().set_params(**plain, **dict.fromkeys(nested.keys() - self.get_params(deep=False)))
        for name, changes in nested.items():
            held = getattr(self, name)
            if hasattr(held, "set_params"):  # a transformer of scikit-learn
                changed = clone(held).set_params(**changes)
            else:
                changed = with_settings(held, changes, name)
            setattr(self, name, changed)
        moved = (key for key in params if key not in WITHOUT_EFFECT)
        self._set_later = tuple(dict.fromkeys((*self._set_later, *moved)))
        return self

    @property
    def certificate_(self) -> Certificate:
        """The coverage guarantee at the estimator's own level."""
        return self.certify()

    def certify(
        self,
        alpha: float | None = None,
        *,
        eta: float | None = None,
        nu: float | None = None,
        confidence: float | None = None,
    ) -> Certificate:
        """Return the certificate of a level, without a new fit; None is the estimator's own.

        With the stability ``eta`` the bound of the paper is shown beside it, as by
        ``lazyknife.certify``, for intervals widened by ``nu`` (None: by the estimator's own ν).
        With ``confidence``, as there, it is about a given training set.
        """
        check_is_fitted(self)
        self._check_unchanged()
        level = check_level("alpha", self.alpha if alpha is None else alpha)
        if eta is not None:
            asked = {"eta": eta, "nu": self.nu if nu is None else nu}
            stability = {name: check_not_negative(name, value) for name, value in asked.items()}
            return self._certify(alpha=level, **stability)
        if confidence is not None:
            return self._certify(alpha=level, confidence=check_fraction("confidence", confidence))
        return self._certificate if level == self._settings["alpha"] else self._certify(alpha=level)

    def _guarantee(self, certify: Callable[..., Certificate]) -> None:
        """Keep the certificate of a fit with its settings."""
        if self._set_later:
            certify = Noted(certify, self._set_later)
        self._certificate = certify(alpha=self.alpha)
        self._certify, self._settings = certify, self.get_params(deep=False)

    def _check_unchanged(self) -> None:
        """Refuse settings other than those of the fit."""
        now = self.get_params(deep=False)
        for name, fitted in self._settings.items():
            if name not in FREE and not _same(now[name], fitted):
                raise NotFittedError(  # so that hasattr(model, "certificate_") is False
                    f"{name}={now[name]!r}, but {type(self).__name__} was fitted with "
                    f"{name}={fitted!r}: call fit again, or set it back"
                )


class RowsMixin(SaveMixin, CertifiedMixin):
    """An estimator that is fitted to rows: how these are read and scaled, when predicting as well.

    What it leaves to the class are a few questions that depend on the models.
    """

    scaling: ScalingName | Transformer | None
    encoding: TableEncoder | None = None
    construction: ConstructionName | Construction
    construction_: str | Construction  # what it stands for
    random_state: RandomState
    verbose: bool
    loo_: Any
    scaling_: Scaling
    reader_: RowReader
    target_: Target
    row_shape_: tuple[int, ...]
    n_samples_fit_: int
    target_name_: str | None = None  # the name of y
    sample_: Array  # rows as they were read, or scaled by the user; at most 2,000 of them
    _when_few = "the intervals are infinite"
    _several_outputs = False  # whether y may have several columns
    _takes_clusters = False  # whether whole clusters of rows can be left out

    def __init_subclass__(cls, **options: Any) -> None:
        """Let errors of wrong arguments name the method alone, not an inner class of ours."""
        super().__init_subclass__(**options)
        for owner in cls.__mro__:
            if owner.__module__.startswith(__package__ or ""):
                for name, found in vars(owner).items():
                    method = getattr(found, "__func__", found)  # of a classmethod
                    if inspect.isfunction(method) and not name.startswith("_"):
                        method.__qualname__ = name

    def _scaling_for(self, rows: Values, source: Source) -> Any:
        return self.scaling

    def _takes_categories(self, rows: Values) -> bool:
        """Whether the models take rows with codes of categories and missing values."""
        return False

    def _check_outputs(self, shape: tuple[int, ...]) -> None:
        """Refuse settings that y with several columns does not support."""

    def _learns_from_covariates(self) -> bool:
        """Whether the estimator learns from rows without labels, beyond scaling."""
        return False

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp] | None:
        """Training rows that the leave-one-out step does not use, if there are any."""
        return None

    def _rows_in_all(self, needed: int) -> int:
        """Return how many rows it takes for so many to be left out, or held out."""
        return bisect_left(range(LARGEST_N), needed, key=self._rows_left)

    def _rows_left(self, n: int) -> int:
        """Return how many of n rows are left out, or held out."""
        return n

    def _set_fitted(self, X: Any, given: Given, fitted: Fitted) -> Self:
        """Set attributes, only after everything has succeeded."""
        self._guarantee(fitted.certify)
        if not is_shaped(X):
            _check_feature_names(self, X, reset=True)
            _check_n_features(self, X, reset=True)
        self.row_shape_, self.n_samples_fit_ = given.shape, len(given.y)
        self.reader_, self.scaling_ = given.reader, given.scaling
        self.target_ = fitted.target or given.target
        self.construction_ = self.construction
        self.loo_, self._rows_like, self.sample_ = fitted.loo, given.X[:0].clone(), given.sample
        for name in vars(self).keys() & SOME_HAVE:
            delattr(self, name)
        self.__dict__.update(fitted.attributes)
        return self

    def check_exchangeable(self, X_new: Any) -> Shift:
        """Test whether new rows look like the training rows; see ``lazyknife.check_exchangeable``.

        It uses a sample of at most 2,000 training rows that the fitted estimator keeps. Intervals
        and certificate stay as they are.

        Parameters
        ----------
        X_new
            New rows, as for ``predict_interval``.

        """
        return compare_rows(self.sample_, *self._comparable(X_new))

    def _comparable(self, *rows: Any) -> tuple[Any, ...]:
        """Sets of rows as they were read, names of their features, and what these are."""
        read = [self._check_new(part) for part in rows]
        if self.reader_.raw:
            return (*(self.scaling_(part) for part in read), None, None)
        return (*read, getattr(self, "feature_names_in_", None), self.reader_.schema)

    def _warn_of_infinite(self, asked: Asked) -> None:
        """Warn if too few rows are left out for a level."""
        n, level = len(self.loo_.residuals), min(asked.levels)
        if not asked.plain or kappa(level, n):
            return
        total, needed = self.n_samples_fit_, rows_needed(level)
        rows = self._rows_in_all(needed)
        some, least = f"{n} rows", f"{rows} rows are needed"
        if n != total:
            some = f"{n} left-out rows"
            least = f"{needed} are needed, which takes {rows} rows in all, not {total}"
        infinite = f"too few for alpha={level:g}: {self._when_few}"
        warn(f"{some} are {infinite}. At least {least}")

    def _levels(self, alpha: Levels) -> float | tuple[float, ...]:
        """The level or levels to use."""
        chosen: Any = self.alpha if alpha is None else alpha
        if np.ndim(chosen) == 0:
            return check_level("alpha", chosen)
        if not len(chosen):
            raise ValueError("alpha=[]: give at least one level")
        return tuple(check_level("alpha", level) for level in chosen)

    def _new_rows(self, X: Any) -> Tensor:
        """Scaled rows that something is certified for; warn of those that it is not for."""
        values = self._check_new(X)
        if outside := self.scaling_.outside_pool(values):
            warn(
                f"{outside} of {len(values)} rows are not among the rows passed as X_pool: the "
                "certificate does not hold for them. Pass all rows to predict as X_pool to fit",
            )
        return to_tensor(self.scaling_(values))

    def _check_new(self, X: Any) -> Values:
        check_is_fitted(self)
        rows: Values = self.reader_(X, self)
        if not is_shaped(X) and hasattr(self, "n_features_in_"):
            if not self.reader_.finds_by_name(X):
                _check_feature_names(self, X, reset=False)
            if not self.reader_.encodes:
                _check_n_features(self, rows, reset=False)
        if rows.shape[1:] != self.row_shape_:
            raise ValueError(
                f"X has rows of shape {rows.shape[1:]}, but {type(self).__name__} was fitted on "
                f"rows of shape {self.row_shape_}"
            )
        return as_fitted(rows, not self._rows_like.is_floating_point(), "X")

    def _by_blocks(
        self, predict: Callable[..., tuple[Tensor, ...]], rows: Tensor, *more: Tensor
    ) -> list[Tensor]:
        """Predictions for all rows, by blocks whose (rows × models) arrays fit in the budget.

        ``more`` has further arguments of the function, with an entry for each row.
        """
        size, sharing = self.loo_.rows_at_once, getattr(self.loo_, "sharing", None)
        if sharing is not None:
            size = min(size, max(FEW_ROWS, -(-len(rows) // available())))
        blocks = list(steps(len(rows), size))
        parts = [tuple(each[block] for each in (rows, *more)) for block in blocks]

        @torch.no_grad()  # a setting of each thread
        def work(part: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return predict(*part)

        found: Iterator[tuple[Tensor, ...]] = map(work, parts)
        if sharing is not None:
            machine, row_bytes = sharing
            found = machine.map(work, parts, size * row_bytes // machine.item)
        shown = self.verbose and len(parts) > 1
        joined: list[Tensor] = []
        # Results that stayed where they are would keep the memory around them from being reused.
        for block, values in zip(
            blocks, track(found, "predicting", len(parts), shown), strict=True
        ):
            joined = joined or [value.new_empty(len(rows), *value.shape[1:]) for value in values]
            for whole, value in zip(joined, values, strict=True):
                whole[block] = value
        return joined

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "loo_")


class IntervalRegressor(FittedModelMixin, RegressorMixin, RowsMixin):  # type: ignore[misc]
    """Base of every estimator with ``predict_interval``.

    A subclass defines how leave-one-out models and a certificate are obtained (``_fit``) and which
    construction turns them into intervals.
    """

    target_transform: TransformName | Literal["auto"] | tuple[Function, Function] | None = None
    bounds: Bounds | None = None
    network: Any
    nu: float = 0.0
    loo_: Predictor
    groups_: Groups | None = None  # of the rows that models leave out
    clusters_: NDArray[np.intp] | None = None  # of the rows that models leave out
    # Those of ``sample_``, which are left out: their places among the rows that are, their numbers
    # among all rows, and they as given.
    kept_: NDArray[np.intp]
    kept_numbers_: NDArray[np.intp]
    kept_rows_: Any
    _leaves_rows = True  # models leave out single rows, not folds

    @abstractmethod
    def _fit(self, given: Given) -> Fitted:
        """Fit to scaled rows."""

    def _check_settings(self) -> None:
        """Raise an error for invalid settings before anything is computed."""
        check_level("alpha", self.alpha)
        check_construction(self.construction, self._constructions())
        check_not_negative("nu", self.nu)
        check_flag("verbose", self.verbose)
        self._target()

    def _target(self) -> Target:
        """The scale of y and its bounds, by the settings."""
        return find_target(self.target_transform, self.bounds)

    def _constructions(self) -> list[str]:
        """Return the constructions that accept any leave-one-out models."""
        return [name for name, kind in CONSTRUCTIONS.items() if kind.any_models]

    def fit(
        self,
        X: Any,
        y: Any = None,
        X_pool: Any = None,
        X_unlabeled: Any = None,
        *,
        groups: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Fit the network and all its leave-one-out models.

        Parameters
        ----------
        X
            Training rows: an array or frame of shape (n, features), or a tensor of any shape
            that the network takes. A ``torch.utils.data.DataLoader`` or an iterator of batches
            ``(X, y)`` is read to its end; y is then None.
        y
            Targets, shape (n,); for ``LazyJackknifeRegressor`` also (n, outputs), and then
            ``predict_box`` gives intervals that hold together.
        X_pool
            The rows to predict later, without labels. A fitted ``scaling`` is then fitted on
            X and these together, a base that uses covariates learns from them, and the
            certificate holds for these rows.
        X_unlabeled
            Rows that are neither training rows nor rows to predict. A fitted ``scaling`` and a
            base that uses covariates then learn from these alone.
        groups
            A label for each row, for intervals with a guarantee in each group; several columns for
            groups of several kinds; or names of columns of X, which remain features.
        clusters
            A label for each row, or the name of a column of X, for rows that come in clusters, such
            as pupils of schools: models leave whole clusters out, and intervals have a guarantee
            for rows of new clusters.

        """
        if is_dask(X):
            refuse_with_dask(groups=groups, clusters=clusters)
            return self._fit_collection(X, y, X_pool, X_unlabeled)
        return self._fit_checked(X, y, X_pool, X_unlabeled, groups, clusters)

    def _fit_collection(self, X: Any, y: Any, X_pool: Any, X_unlabeled: Any) -> Self:
        """Fit to a Dask collection."""
        raise TypeError(
            f"X is a Dask {type(X).__name__}, which {type(self).__name__} does not take: call "
            ".compute() on X and y"
        )

    @noticing_memory
    def _fit_checked(
        self, X: Any, y: Any, X_pool: Any, X_unlabeled: Any, groups: Any, clusters: Any
    ) -> Self:
        self._check_settings()
        if clusters is not None:
            if not self._takes_clusters:
                name = type(self).__name__
                raise ValueError(f"clusters does not support {name}: use LazyJackknifeRegressor")
            others = {"groups": groups, "X_pool": X_pool, "X_unlabeled": X_unlabeled}
            for name in [name for name, given in others.items() if given is not None]:
                raise ValueError(f"clusters does not support {name}: leave one of them out")
        X, y = rows_and_targets(X, y)
        given = prepare(self, X, y, all_rows(X_pool), all_rows(X_unlabeled))
        if groups is not None and given.y.dim() == 2:
            raise ValueError("groups does not support several outputs: fit each on its own")
        target = getattr(y, "name", None)
        found = None if groups is None else Groups.of(groups, X, len(given.y))
        codes = None if clusters is None else cluster_codes(clusters, X, len(given.y))
        if codes is not None:
            own = [torch.from_numpy(np.flatnonzero(codes == k)) for k in range(codes.max() + 1)]
            given = given._replace(clusters=tuple(own))
        fitted = self._fit(given)
        self._set_fitted(X, given, fitted)
        self.target_name_ = target if isinstance(target, str) else None
        left_out = np.arange(len(given.y)) if fitted.left_out is None else fitted.left_out
        self.groups_ = None if found is None else found.some(left_out)
        self.clusters_ = (
            None if codes is None else np.unique(codes[left_out], return_inverse=True)[1]
        )
        self.kept_ = np.arange(len(left_out))[kept_places(len(left_out), 1)]
        self.kept_numbers_ = left_out[self.kept_]
        self.kept_rows_ = take(X, self.kept_numbers_)
        self.sample_ = self._comparable(self.kept_rows_)[0]
        return self

    def predict(self, X: Any) -> Any:
        """Predict y with the full-data model.

        Parameters
        ----------
        X
            Rows to predict; batches as in ``predict_interval`` give an iterator of predictions.

        Returns
        -------
        Predictions in float64, shape (m,): a tensor for a tensor, else an array.

        """
        check_is_fitted(self)
        if is_dask(X):
            check_rows(X)
            return points_by_partition(self, X)
        if is_stream(X):
            return (self._points(batch_rows(batch)) for batch in X)
        return self._points(X)

    @noticing_memory
    def _points(self, X: Any) -> Any:
        values = self._check_new(X)
        rows = to_tensor(self.scaling_(values))
        (found,) = self._by_blocks(lambda block: (self.loo_.point(block),), rows)
        refuse_nan(point := self.target_.point(found))
        return give_back(point, X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the point predictions."""
        predicted = to_array(self.predict(X))
        y = to_array(y) if isinstance(y, Tensor) else y
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    @overload
    def predict_interval(
        self, X: Iterator[Any] | DataLoader[Any], alpha: Levels = None, *, side: Side = "both"
    ) -> Iterator[Intervals]: ...

    @overload
    def predict_interval(
        self,
        X: Any,
        alpha: Levels = None,
        *,
        side: Side = "both",
        groups: Any = None,
        weights: Any = None,
    ) -> Intervals: ...

    def predict_interval(
        self,
        X: Any,
        alpha: Levels = None,
        *,
        side: Side = "both",
        groups: Any = None,
        weights: Any = None,
    ) -> Intervals | Iterator[Intervals]:
        """Prediction intervals.

        Parameters
        ----------
        X
            Rows to predict. An iterator of batches of rows, such as a generator or a
            ``torch.utils.data.DataLoader``, gives an iterator of intervals, one for each batch;
            batches are read one at a time. Results are in float64, tensors for a tensor.
        alpha
            The level, or a list of levels; None is the estimator's own. Nothing is fitted again. If
            you choose a level by looking at intervals, only the certificate of the largest alpha
            that you considered holds.
        side
            ``"upper"`` or ``"lower"``: a limit that y exceeds, or falls below, with probability
            alpha; the other end is infinite, or the bound of y. ``"both"``: an interval.
        groups
            Labels of the rows, as for ``fit``: coverage in each group, from the errors in it and
            models of all rows. With several columns an interval covers in every one of the groups.
        weights
            For rows whose features are distributed differently: the ratio of their density to that
            of the training rows, up to a factor, as a pair of arrays (for the rows of ``fit`` and
            for those of X), or as a function of rows. ``"estimate"``: by a logistic regression that
            tells the two kinds of rows apart; the certificate then assumes that this is right.

        """
        check_is_fitted(self)
        refuse_outputs(self.loo_)
        shown = self._levels(alpha)
        asked = Asked.of(shown if isinstance(shown, tuple) else (shown,), side)
        if is_dask(X):
            check_rows(X)
            refuse_with_dask(side=None if side == "both" else side, groups=groups, weights=weights)
            self.certify(alpha=min(asked.levels))
            found: Intervals = ends_by_partition(self, X, shown)
            return found
        if is_stream(X):
            refuse_in_streams(groups=groups, weights=weights, clusters=self.clusters_)
            certified = self._certificates(asked)
            self._warn_of_infinite(asked)
            require_models(self, side=None if side == "both" else side)
            return (self._intervals(batch_rows(batch), asked, shown, certified) for batch in X)
        asked = about_rows(self, asked, X, groups, weights)
        certified = self._certificates(asked)
        self._warn_of_infinite(asked)
        return self._intervals(X, asked, shown, certified)

    @noticing_memory
    def predict_distribution(
        self, X: Any, *, groups: Any = None, weights: Any = None
    ) -> Distribution:
        """Predictive distributions: quantiles, probabilities, scores and draws of y.

        Parameters
        ----------
        X
            Rows to predict.
        groups, weights
            As for ``predict_interval``; one column of groups.

        """
        check_is_fitted(self)
        refuse_outputs(self.loo_)
        refuse_with_dask(predict_distribution=X if is_dask(X) else None)
        if (construction := answering(self, ("plus",))) != "plus":
            raise ValueError(
                f"construction={construction!r} has no distribution: use construction='plus'"
            )
        require_models(self, predict_distribution=X)
        self._check_unchanged()
        asked = Asked(
            (check_level("alpha", self.alpha),), construction=construction, kept=self.kept_
        )
        asked = about_rows(self, asked, X, groups, weights)
        values = self._check_new(X)
        found = sorted_values(self, to_tensor(self.scaling_(values)), asked)

        def certified(level: float, side: Side) -> Certificate:
            return self._certificates(asked._replace(levels=(level,), side=side))[0]

        return Distribution(*found, row_labels(X), backend_of(X), certified)

    def _certificates(self, asked: Asked) -> list[Certificate]:
        """A certificate for each level: in groups that of the group where least is certified."""
        own = asked.construction in (None, self.construction_)
        if asked.side == "both" and asked.plain and own:
            return [self.certify(alpha=level) for level in asked.levels]
        self._check_unchanged()
        abouts = asked.abouts(len(self.loo_.residuals))
        if not own:
            abouts = [each._replace(construction=asked.construction) for each in abouts]
        found = [[self._certify(alpha=a, about=each) for each in abouts] for a in asked.levels]
        return [min(every, key=lambda one: one.coverage or 0.0) for every in found]

    @noticing_memory
    def _intervals(
        self,
        X: Any,
        asked: Asked,
        shown: float | tuple[float, ...],
        certified: Sequence[Certificate],
    ) -> Intervals:
        rows = self._new_rows(X)
        side = self.target_.side(asked.side)
        loo = one_sided(self.loo_, side)
        point, lower, upper = answer(self, loo, rows, asked)
        if side != "both":
            (lower if side == "upper" else upper).fill_(
                -torch.inf if side == "upper" else torch.inf
            )
        nu = check_not_negative("nu", self.nu)
        point = self.target_.point(point)
        refuse_nan(point, lower, upper)
        lower, upper = self.target_.ends(lower, upper, nu)
        if not isinstance(shown, tuple):
            lower, upper = lower[:, 0], upper[:, 0]
        point, lower, upper = (give_back(part, X) for part in (point, lower, upper))
        certificate = tuple(certified) if isinstance(shown, tuple) else certified[0]
        labels, library = row_labels(X), backend_of(X)
        words = (certificate, asked.side, self.target_name_)
        return Intervals(point, lower, upper, shown, labels, library, *words)

    def _ends(self, loo: Any, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, (m,), and both ends, (m, levels), of scaled rows."""
        return find_construction(self.construction_).ends(loo, X, ranks)


def refuse_outputs(loo: Any) -> None:
    """Refuse intervals of one output where there are several."""
    if isinstance(loo, OutputModels):
        raise ValueError(f"y has {len(loo.columns)} outputs: call predict_box for all of them")


def _same(value: Any, other: Any) -> bool:
    """Whether two settings are equal; arrays and modules only if they are one object."""
    if value is other:
        return True
    try:
        return bool(value == other)
    except (TypeError, ValueError):
        return False
