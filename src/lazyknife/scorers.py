"""Functions of an estimator, X and y for ``scoring=`` of scikit-learn's searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .data.checks import check_level
from .estimators.pipelines import predict_interval
from .metrics import Estimate, coverage, interval_score
from .results import Intervals


@dataclass(frozen=True)
class IntervalScorer:
    """A function of estimator, X and y, greater is better, that can be pickled."""

    measure: Callable[[Any, Intervals], Estimate]
    sign: int
    alpha: float | None

    def __post_init__(self) -> None:
        if self.alpha is not None:
            check_level("alpha", self.alpha)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        if hasattr(estimator, "predict_interval"):
            intervals = estimator.predict_interval(X, alpha=self.alpha)
        else:  # a pipeline, or refused
            intervals = predict_interval(estimator, X, alpha=self.alpha)
        return self.sign * float(self.measure(y, intervals))


def interval_score_scorer(alpha: float | None = None) -> IntervalScorer:
    """Return a scorer for ``scoring=``: minus the mean interval score, so greater is better.

    Parameters
    ----------
    alpha
        Level of the intervals; None is the estimator's own. Give a number where a grid varies
        ``alpha``, since scores of different levels cannot be compared.

    """
    return IntervalScorer(interval_score, -1, alpha)


def coverage_scorer(alpha: float | None = None) -> IntervalScorer:
    """Return a scorer for ``scoring=``: the share of rows that are covered.

    It is for reports (``cross_validate`` with several scorers). Do not choose settings by it: the
    widest intervals would win.

    Parameters
    ----------
    alpha
        Level of the intervals; None is the estimator's own.

    """
    return IntervalScorer(coverage, 1, alpha)
