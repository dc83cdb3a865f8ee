"""How good intervals are: coverage, width, interval score, coverage by bin."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .data.checks import check_positive_int
from .records import Intervals, to_array

Numbers = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over rows and its Monte-Carlo standard error; arrays where there are levels."""

    value: Any
    error: Any


class Bins(NamedTuple):
    """Coverage within bins of rows: one entry a bin."""

    lower: Numbers
    upper: Numbers
    rows: NDArray[np.intp]
    coverage: Numbers
    error: Numbers
    width: Numbers


def coverage(y: ArrayLike, intervals: Intervals) -> Estimate:
    """Share of the rows whose interval holds their y, with its standard error."""
    covered = intervals.covers(y)
    share = covered.mean(axis=0)
    return Estimate(_plain(share), _plain(np.sqrt(share * (1 - share) / len(covered))))


def mean_width(intervals: Intervals) -> Any:
    """Mean width of the intervals."""
    return _plain(intervals.with_arrays().width.mean(axis=0))


def interval_score(y: ArrayLike, intervals: Intervals) -> Any:
    """Mean Winkler score: width plus 2/alpha times the distance of a miss. Lower is better."""
    intervals.covers(y)  # checks the shape
    truth, intervals = to_array(y), intervals.with_arrays()
    if intervals.lower.ndim == 2:
        truth = truth[:, None]
    below = np.maximum(intervals.lower - truth, 0.0)
    above = np.maximum(truth - intervals.upper, 0.0)
    score = intervals.width + 2 / np.asarray(intervals.alpha) * (below + above)
    return _plain(score.mean(axis=0))


def coverage_by_bin(
    y: ArrayLike,
    intervals: Intervals,
    by: ArrayLike | Literal["width"] = "width",
    bins: int = 5,
) -> Bins:
    """Coverage in bins of equally many rows.

    Parameters
    ----------
    y
        True values, shape (m,).
    intervals
        Intervals at one level.
    by
        ``"width"``, or a value for each row, such as a feature's column.
    bins
        Number of bins; equal values stay together, so there may be fewer.

    """
    check_positive_int("bins", bins)
    if intervals.lower.ndim == 2:
        raise ValueError("intervals hold several levels: ask predict_interval for one alpha")
    covered, width = intervals.covers(y), intervals.with_arrays().width
    values = width if isinstance(by, str) and by == "width" else to_array(by)
    if values.shape != width.shape:
        raise ValueError(
            f"by has shape {values.shape}: give 'width' or one value a row, shape {width.shape}"
        )
    values, limits = _finite(values)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    bin_of = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(bin_of)
    kept = np.flatnonzero(count)
    total = count[kept]
    share = np.bincount(bin_of, covered)[kept] / total
    edges = np.where(edges < limits[0], -np.inf, np.where(edges > limits[1], np.inf, edges))
    return Bins(
        edges[kept],
        edges[np.minimum(kept + 1, len(edges) - 1)],
        total,
        share,
        np.sqrt(share * (1 - share) / total),
        np.bincount(bin_of, width)[kept] / total,
    )


def _finite(values: Numbers) -> tuple[Numbers, tuple[float, float]]:
    """Put infinities just beyond the finite values, so that quantiles exist; and their limits."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    beyond = 1.0 + high - low
    return np.nan_to_num(values, posinf=high + beyond, neginf=low - beyond), (low, high)


def _plain(value: Any) -> Any:
    """A float for one level, an array for several."""
    return float(value) if np.ndim(value) == 0 else value
