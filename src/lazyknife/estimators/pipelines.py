"""Intervals of a scikit-learn pipeline that ends in one of the estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ..certificate import Certificate
from ..results import Intervals
from ..sentences import FITTED_STEP, ROW_BY_ROW
from .base import IntervalRegressor, Levels

SKIPPED = (None, "passthrough")  # steps that do nothing


def predict_interval(model: Any, X: Any, alpha: Levels = None, **asked: Any) -> Intervals:
    """Prediction intervals of a fitted scikit-learn ``Pipeline``, which has no such method.

    A step that was fitted in the pipeline has seen all training rows, those that leave-one-out
    models leave out included: the intervals then have a certificate without coverage, which names
    the step. Steps that are fitted to nothing, such as a ``FunctionTransformer``, are harmless.

    Parameters
    ----------
    model
        A fitted ``Pipeline`` whose last step is an estimator with ``predict_interval``, or such an
        estimator itself.
    X
        Rows to predict, as the first step takes them.
    alpha
        The level, or a list of levels; None is the estimator's own.
    **asked
        ``side``, ``groups`` or ``weights``, as for ``predict_interval`` of the estimator.

    Returns
    -------
    Intervals
        Intervals for the m rows, with their certificate.

    """
    if isinstance(model, IntervalRegressor):
        whole: Intervals = model.predict_interval(X, alpha, **asked)
        return whole
    if not isinstance(model, Pipeline):
        raise TypeError(_refusal(model))
    steps = [(name, step) for name, step in model.steps[:-1] if step not in SKIPPED]
    for _, step in steps:
        X = step.transform(X)
    found = predict_interval(model.steps[-1][1], X, alpha, **asked)
    if isinstance(found.certificate, Certificate):
        return replace(found, certificate=through(found.certificate, steps))
    levels = tuple(through(one, steps) for one in found.certificate or ())
    return replace(found, certificate=levels)


def through(certificate: Certificate, steps: list[tuple[str, Any]]) -> Certificate:
    """Return the certificate of an estimator behind these steps."""
    fitted = [name for name, step in steps if get_tags(step).requires_fit]
    stated = tuple(ROW_BY_ROW.format(transformer=step) for _, step in steps)
    if not fitted:
        return replace(certificate, assumptions=(*certificate.assumptions, *stated))
    leaks = tuple(FITTED_STEP.format(name=name) for name in fitted)
    objections = (*certificate.objections, *leaks)
    return replace(certificate, coverage=None, bounds={}, objections=objections, remarks=())


def _refusal(model: Any) -> str:
    kind = type(model).__name__
    if isinstance(model, TransformedTargetRegressor):
        return (
            f"{kind} transforms predictions, not intervals: pass target_transform='log' or "
            "target_transform=(function, inverse) to the estimator itself"
        )
    return (
        f"model is of type {kind}: give a fitted Pipeline that ends in an estimator such as "
        "LazyJackknifeRegressor, or the estimator itself"
    )
