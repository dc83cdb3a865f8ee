"""Evaluate intervals against true values: coverage, width, interval score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray

from .data.checks import check_choice, check_level, check_positive_int
from .data.rows import finite_numbers
from .records import to_array

if TYPE_CHECKING:
    from .results import Intervals

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(NDArrayOperatorsMixin):
    """A mean over rows and its standard error.

    ``value, error = estimate`` gives both. In comparisons, arithmetic, numpy's functions and
    formats such as ``f"{estimate:.2f}"`` an estimate is its value; ``str`` shows both.

    Attributes
    ----------
    value
        The mean: a number, or an array with one entry for each level.
    error
        Its standard error, of the same shape; NaN for a single row.

    """

    value: Any
    error: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.value, self.error))

    def __float__(self) -> float:
        return float(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        values = [each.value if isinstance(each, Estimate) else each for each in inputs]
        return getattr(ufunc, method)(*values, **options)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __repr__(self) -> str:
        values, errors = np.atleast_1d(self.value), np.atleast_1d(self.error)
        pairs = zip(values, errors, strict=True)
        return ", ".join(f"{value:.4g} ± {error:.2g}" for value, error in pairs)


class Bins(NamedTuple):
    """Rows in bins: edges, number of rows, coverage with its standard error, and mean width."""

    lower: Numbers
    upper: Numbers
    rows: NDArray[np.intp]
    coverage: Numbers
    error: Numbers
    width: Numbers


def coverage(y: ArrayLike, intervals: Intervals) -> Estimate:
    """Fraction of the intervals that contain the true value, with its standard error.

    Parameters
    ----------
    y
        True values, shape (m,).
    intervals
        Intervals for the same m rows.

    """
    covered = _checked(intervals).covers(y)
    share = covered.mean(axis=0)
    return _estimate(share, np.sqrt(share * (1 - share) / len(covered)))


def mean_width(intervals: Intervals) -> Estimate:
    """Mean width of the intervals, with its standard error."""
    return _mean(_checked(intervals).with_arrays().width)


@overload
def interval_score(y: ArrayLike, intervals: Intervals) -> Estimate: ...


@overload
def interval_score(
    y: ArrayLike, intervals: ArrayLike, upper: ArrayLike, alpha: float | ArrayLike
) -> Estimate: ...


def interval_score(y: Any, intervals: Any, upper: Any = None, alpha: Any = None) -> Estimate:
    """Mean Winkler score: width plus 2/alpha times the distance to a true value outside.

    Lower is better. Scores of different levels cannot be compared.

    Parameters
    ----------
    y
        True values, shape (m,).
    intervals
        Intervals for the same m rows; or the lower ends of those of another library, shape (m,), or
        (m, levels), followed by
    upper
        their upper ends, of the same shape, and
    alpha
        their level, or a list of levels.

    """
    if upper is not None or alpha is not None:
        lower, upper, levels = _given(y, intervals, upper, alpha)
    else:
        _checked(intervals).covers(y)  # checks the shape
        arrays = intervals.with_arrays()
        lower, upper, levels = arrays.lower, arrays.upper, np.asarray(arrays.alpha)
    truth = finite_numbers(y, "y")
    if lower.ndim == 2:
        truth = truth[:, None]
    with np.errstate(over="ignore"):  # then the score is infinite
        below, above = np.maximum(lower - truth, 0.0), np.maximum(truth - upper, 0.0)
        return _mean((upper - lower).clip(min=0.0) + 2 / levels * (below + above))


def coverage_by_bin(
    y: ArrayLike, intervals: Intervals, by: ArrayLike | Literal["width"] = "width", bins: int = 5
) -> Bins:
    """Coverage in bins with about the same number of rows.

    Parameters
    ----------
    y
        True values, shape (m,).
    intervals
        Intervals for the same m rows, at one level.
    by
        ``"width"``, or one value for each row, shape (m,), such as a column of the data.
    bins
        Number of bins. Rows with equal values share a bin, so there may be fewer.

    """
    check_positive_int("bins", bins)
    if _checked(intervals).lower.ndim == 2:
        raise ValueError(
            f"intervals has several levels, alpha={intervals.alpha}: call predict_interval with "
            "one alpha"
        )
    covered, width = intervals.covers(y), intervals.with_arrays().width
    if isinstance(by, str):
        check_choice("by", by, ["width"])
    try:
        values = width if isinstance(by, str) else to_array(by)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"by={by!r}: give 'width' or one number for each row: {error}") from None
    if np.isnan(values).any():
        raise ValueError("by has missing values: leave those rows out of y and intervals too")
    if values.shape != width.shape:
        raise ValueError(
            f"by has shape {values.shape}: give 'width' or one value for each row, shape "
            f"{width.shape}"
        )
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    beyond = 1.0 + high - low  # infinite values are in the outermost bins
    values = np.nan_to_num(values, posinf=high + beyond, neginf=low - beyond)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, min(bins, len(values)) + 1)))
    bin_of = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(bin_of)
    kept = np.flatnonzero(count)
    rows = count[kept]
    share, widths = (np.bincount(bin_of, each)[kept] / rows for each in (covered, width))
    edges = np.where(edges < low, -np.inf, np.where(edges > high, np.inf, edges))
    upper = edges[np.minimum(kept + 1, len(edges) - 1)]
    return Bins(edges[kept], upper, rows, share, np.sqrt(share * (1 - share) / rows), widths)


def _checked(intervals: Intervals) -> Intervals:
    if not hasattr(intervals, "with_arrays"):
        raise TypeError(
            f"intervals is of type {type(intervals).__name__}: give what predict_interval returns "
            "(join batches by Intervals.concat); ends of another library become "
            "Intervals(point, lower, upper, alpha)"
        )
    if not len(intervals):
        raise ValueError("intervals has no rows: give at least one")
    return intervals


def _given(y: Any, lower: Any, upper: Any, alpha: Any) -> tuple[Numbers, Numbers, Numbers]:
    if upper is None or alpha is None:
        raise TypeError(
            "give interval_score(y, intervals) or interval_score(y, lower, upper, alpha)"
        )
    shown = [check_level("alpha", level) for level in (alpha if np.ndim(alpha) else [alpha])]
    levels = np.array(shown if np.ndim(alpha) else shown[0])
    shape = np.shape(to_array(y)) + levels.shape
    ends = [to_array(end) for end in (lower, upper)]
    for name, end in zip(("lower", "upper"), ends, strict=True):
        if end.shape != shape or not end.size or np.isnan(end).any():
            what = "NaN" if end.shape == shape and end.size else f"shape {end.shape}"
            raise ValueError(f"{name} has {what}: give numbers of shape {shape}, one for each y")
    return *ends, levels  # type: ignore[return-value]


def _mean(values: Numbers) -> Estimate:
    """Mean over the rows, with its standard error: NaN for one row, or if a value is infinite."""
    rows = len(values)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.square(values - values.mean(axis=0)).sum(axis=0)
        error = np.sqrt(squares / np.float64(rows - 1) / rows)
        return _estimate(values.mean(axis=0), error)


def _estimate(value: Any, error: Any) -> Estimate:
    """Floats for one level, arrays for several."""
    return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in (value, error)))
