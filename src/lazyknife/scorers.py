"""Scorers of intervals for scikit-learn's ``cross_val_score`` and ``GridSearchCV``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .data.checks import check_level
from .estimators.pipelines import predict_interval
from .metrics import coverage, interval_score
from .results import Intervals

SCORES: dict[str, Callable[[Any, Intervals], float]] = {
    "coverage": lambda y, intervals: float(coverage(y, intervals)),
    "interval_score": lambda y, intervals: -float(interval_score(y, intervals)),
}


@dataclass(frozen=True)
class IntervalScorer:
    """A function of estimator, X and y, greater is better, that can be pickled."""

    score: str  # a key of ``SCORES``
    alpha: float | None

    def __post_init__(self) -> None:
        if self.alpha is not None:
            check_level("alpha", self.alpha)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        if hasattr(estimator, "predict_interval"):
            intervals = estimator.predict_interval(X, alpha=self.alpha)
        else:  # a pipeline, or refused
            intervals = predict_interval(estimator, X, alpha=self.alpha)
        return SCORES[self.score](y, intervals)


def interval_score_scorer(alpha: float | None = None) -> IntervalScorer:
    """Return a scorer for ``scoring=``: minus the mean interval score, so greater is better.

    Parameters
    ----------
    alpha
        Level of the intervals; None is the estimator's own. Give a number where a grid varies
        ``alpha``, since scores of different levels cannot be compared.

    """
    return IntervalScorer("interval_score", alpha)


def coverage_scorer(alpha: float | None = None) -> IntervalScorer:
    """Return a scorer for ``scoring=``: the share of rows that are covered.

    It is for reports (``cross_validate`` with several scorers). Do not choose settings by it: the
    widest intervals would win.

    Parameters
    ----------
    alpha
        Level of the intervals; None is the estimator's own.

    """
    return IntervalScorer("coverage", alpha)
