"""Questions about a fitted model, as methods: a check on its own rows, influence, more rows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..dask import is_dask
from ..data.checks import check_level, check_positive_int, check_reasonable
from ..data.rows import finite_numbers, is_stream, take
from ..intervals import kappa, rows_needed
from ..intervals.chosen import ChosenModels
from ..intervals.games import games, has_pairs
from ..intervals.outputs import OutputModels
from ..records import Array, to_array
from ..report import page_of
from .influence import Influence, influence_of
from .labels import count_rows
from .learning_curve import BLOCKS, FEWEST, LearningCurve, Places, curve_of
from .questions import answering, refuse_with_dask
from .self_check import SelfCheck, coverage_of_parts

if TYPE_CHECKING:
    from .base import IntervalRegressor


MOST_PRINTED = 2000  # rows that are left out of which ``print`` shows the check, in a second
PAIRED = ("plus", "minmax")  # constructions whose models without two rows are known
# What ``print`` showed last of each model: its certificate, its level and the check.
_PRINTED: WeakKeyDictionary[Any, tuple[Any, float, str]] = WeakKeyDictionary()


class FittedModelMixin:
    """The questions, as methods of an estimator."""

    def __str__(self) -> str:
        """The settings and, after a fit, the certificate and the check on training rows."""
        model = cast("IntervalRegressor", self)
        try:
            check_is_fitted(model)
            certificate = model.certificate_
        except NotFittedError:  # or settings have changed since
            return repr(self)
        return "\n".join(filter(None, [repr(self), str(certificate), _printed_check(model)]))

    def self_check(
        self,
        by: Any = None,
        *,
        alpha: float | None = None,
        rows: int = 200,
        refit: tuple[Any, Any] | None = None,
    ) -> SelfCheck:
        """Check coverage on training rows: whether the interval of the other rows contains y.

        The models without two rows are in closed form: nothing is fitted again. The mean of the
        share that is covered, over training sets, is the coverage with one row less.

        Parameters
        ----------
        by
            The name of a column of X, or a value for each row of ``fit``: coverage of each label,
            or of fifths of the numbers. None: of each group that was passed to ``fit``.
        alpha
            The level; None is the estimator's own.
        rows
            How many rows to check at most, drawn at random.
        refit
            ``(X, y)`` of ``fit``: fit without each of the rows, which takes as many fits, but is
            exact for all settings.

        """
        model = cast("IntervalRegressor", self)
        check_is_fitted(model)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        model._check_unchanged()
        count = min(check_positive_int("rows", rows), len(model.kept_))
        chosen = np.sort(np.random.default_rng(0).permutation(len(model.kept_))[:count])
        numbers, loo, exact = model.kept_numbers_[chosen], model.loo_, True
        if refit is not None:
            if not (isinstance(refit, tuple | list) and len(refit) == 2):
                raise TypeError(f"refit is a {type(refit).__name__}: give (X, y), the rows of fit")
            covered = _covered_by_refits(model, *refit, numbers, level)
        else:
            _check_pairs(model, "refit=(X, y)")
            played = games(loo, torch.from_numpy(model.kept_[chosen]).to(loo.residuals.device))
            rank = kappa(level, len(loo.residuals) - 1)
            covered = ~played.missed(rank, answering(model, PAIRED)).numpy()
            chose = (
                getattr(model, "ridge", "") == "auto" and len(loo.residuals) == model.n_samples_fit_
            )
            exact = not (chose or isinstance(loo, ChosenModels))
        instead = "" if refit is not None else _instead(model)
        found = coverage_of_parts(model, by, chosen, covered)
        return SelfCheck(level, numbers, covered, exact, tuple(found), instead)

    def influence(self, alpha: float | None = None) -> Influence:
        """Say how each training row moves predictions and widths, the most unusual rows first.

        Of the rows that models leave out, at most 2,000. Nothing is fitted again.

        Parameters
        ----------
        alpha
            The level whose widths are meant; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        check_is_fitted(model)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        model._check_unchanged()
        _check_pairs(model)
        return influence_of(model, level)

    def report(
        self, X: Any, y: Any = None, path: str | Path | None = None, *, alpha: Any = None
    ) -> str:
        """Return an HTML report of the intervals of new rows, and write it if a path is given.

        The page of ``lazyknife predict --html``: what to expect, figures, tables, the check on
        training rows, whether the new rows look like these, and settings. It needs the extra
        ``lazyknife[cli]``.

        Parameters
        ----------
        X
            Rows to predict, at least one, as one array or frame.
        y
            Their true values, if known.
        path
            A file to write, ending in .html.
        alpha
            The level, or a list of levels; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        refuse_with_dask(X=X if is_dask(X) else None)
        _refuse_streams(X)
        found: Any = model.predict_interval(X, alpha)
        signature = inspect.signature(type(model)).parameters
        given = model.get_params(deep=False).items()
        settings = {k: v for k, v in given if repr(v) != repr(signature[k].default)}
        return page_of(found, y, path, model, model.check_exchangeable(X), settings)

    def plan(
        self, X: Any, y: Any, width: float | None = None, *, alpha: float | None = None
    ) -> LearningCurve:
        """Say how widths fall with more rows, and how many rows give a wanted mean width.

        Quarters, halves and three quarters of the rows are fitted with the same settings, twelve
        fits that predict the other rows.

        Parameters
        ----------
        X, y
            The rows of ``fit``.
        width
            The wanted mean width.
        alpha
            The level; None is the estimator's own.

        """
        model = cast("IntervalRegressor", self)
        refuse_with_dask(X=X if is_dask(X) else None)
        _refuse_streams(X)
        level = check_level("alpha", model.alpha if alpha is None else alpha)
        wanted = None if width is None else check_reasonable("width", width)
        n, needed = count_rows(X), BLOCKS * max(rows_needed(level), FEWEST)
        if n < needed:
            raise ValueError(
                f"X has {n} rows: a learning curve at alpha={level:g} takes at least {needed}"
            )
        if model.__sklearn_is_fitted__():
            model._check_new(X)
        _refuse_clusters(model)
        truth = _targets(X, y)

        def mean_width(inside: Places, outside: Places) -> float:
            found = _fitted(model, X, truth, inside).predict_interval(take(X, outside), alpha=level)
            width = float(to_array(found.width).mean())
            if not np.isfinite(width):
                raise ValueError(
                    f"X has {n} rows: intervals of {len(inside)} of them are infinite at "
                    f"alpha={level:g}; give more rows or a larger alpha"
                )
            return width

        return curve_of(mean_width, n, level, wanted)


def _instead(model: IntervalRegressor) -> str:
    """The construction whose intervals are checked, if not those of the fit's."""
    own = answering(model, PAIRED)
    return "" if own == model.construction_ else str(own)


def _printed_check(model: IntervalRegressor) -> str:
    """The check in words, kept for the next time; how to get it where there are many rows."""
    if len(model.loo_.residuals) > MOST_PRINTED:
        return "model.self_check() checks the intervals on 200 of the training rows."
    known = _PRINTED.get(model)
    if known is None or known[0] is not model._certificate or known[1] != model.alpha:
        try:
            found = str(model.self_check())
        except (ValueError, NotFittedError):  # nothing is known without two rows
            found = ""
        known = _PRINTED[model] = model._certificate, model.alpha, found
    return known[2]


def _refuse_streams(X: Any) -> None:
    if X is None or is_stream(X):
        raise TypeError(f"X={X!r}: give all rows as one array or frame")


def _check_pairs(model: IntervalRegressor, instead: str = "") -> None:
    """Refuse models of which nothing is known without two rows."""
    _refuse_clusters(model)
    if isinstance(model.loo_, OutputModels):
        raise ValueError(f"y has {len(model.loo_.columns)} outputs: fit each of them on its own")
    simple = answering(model, PAIRED) in PAIRED and model.nu == 0
    if not (simple and has_pairs(model.loo_)):
        other = f", or give {instead}" if instead else ""
        raise ValueError(
            "models without two rows are not known in closed form here: use construction='plus' or "
            "'minmax', nu=0, the squared loss, readout='tangent' and a network that is infinitely "
            f"wide or has more parameters than there are rows{other}"
        )


def _refuse_clusters(model: IntervalRegressor) -> None:
    if getattr(model, "clusters_", None) is not None:
        raise ValueError("clusters are left out as a whole: fits without single rows say nothing")


def _targets(X: Any, y: Any) -> Array:
    """The numbers to fit to, one for each row of X."""
    truth, n = finite_numbers(y, "y"), count_rows(X)
    if truth.shape != (n,):
        raise ValueError(f"y has shape {truth.shape}: give a number for each of the {n} rows of X")
    return truth


def _fitted(model: IntervalRegressor, X: Any, truth: Array, places: Places) -> Any:
    """The same estimator, fitted to some of the rows."""
    other: IntervalRegressor = clone(model).set_params(verbose=False)
    return other.fit(take(X, places), truth[places])


def _covered_by_refits(
    model: IntervalRegressor, X: Any, y: Any, rows: Places, alpha: float
) -> NDArray[np.bool_]:
    """Whether the interval of a fit without each of these rows contains its y."""
    _refuse_clusters(model)
    if (n := count_rows(X)) != model.n_samples_fit_:
        raise ValueError(f"refit has {n} rows: give the {model.n_samples_fit_} rows of fit")
    model._check_new(X)
    truth, covered = _targets(X, y), np.empty(len(rows), dtype=bool)
    for k, row in enumerate(rows):
        other = _fitted(model, X, truth, np.delete(np.arange(n), row))
        found = other.predict_interval(take(X, rows[[k]]), alpha=alpha)
        covered[k] = found.covers(truth[[row]])[0]
    return covered
