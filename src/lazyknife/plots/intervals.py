"""Plots of intervals: row by row, as a band over one feature, and their coverage by bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..records import Array, to_array
from .figures import BAND, DOT, MISS, POINT, TARGET, bare, legend_on_top, short

if TYPE_CHECKING:  # the records draw themselves by these functions
    from matplotlib.axes import Axes

    from ..metrics import Bins
    from ..results import Intervals

MOST_ROWS, DRAWN_ROWS = 2000, 1000  # beyond the first, markers overlap and files grow
FEW_ROWS = 12  # which make no band
NESTED = ("#deebf7", "#9ecae1", "#6baed6", "#4292c6")  # the widest band is the lightest


def plot_intervals(
    intervals: Intervals,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    label: str = "y",
) -> Axes:
    """Draw intervals at one level, sorted by prediction, with the true values; mark misses.

    Of more than 2,000 rows, 1,000 evenly spaced in that order are drawn, whether missed or not, so
    that the share of misses is that of all rows; the label of the x axis says so.

    Parameters
    ----------
    intervals
        m intervals; an infinite end is drawn beyond the edge of the axes.
    y
        True values, shape (m,), if known.
    ax
        Where to draw; by default the current axes.
    label
        Name of y.

    """
    if intervals.lower.ndim == 2:
        raise ValueError("intervals have several levels: ask predict_interval for one alpha")
    ax, arrays = bare(ax), intervals.with_arrays()
    rank = _evenly(len(arrays))
    rows = np.argsort(arrays.point, kind="stable")[rank]
    point, lower, upper = (ends[rows] for ends in (arrays.point, arrays.lower, arrays.upper))
    covered = np.empty(0, bool) if y is None else arrays.covers(y)[rows]
    truth = np.empty(0) if y is None else to_array(y)[rows]
    outer = _far_out(point, lower, upper, truth)
    if len(rank) > FEW_ROWS:
        _fill(ax, rank, lower, upper, outer, step="mid", color=BAND, label="interval")
        ax.plot(rank, point, color=POINT, lw=1.2, zorder=3, label="prediction")
        ax.locator_params(axis="x", integer=True)
    else:  # a bar for each row, and gaps between them
        places = (rank[:, None] + [-0.3, 0.3, np.nan]).ravel()
        low, high = np.repeat(lower, 3), np.repeat(upper, 3)
        _fill(ax, places, low, high, outer, color=BAND, label="interval")
        ax.plot(rank, point, "_", color=POINT, ms=12, mew=2, zorder=3, label="prediction")
        ax.set_xticks(rank, [str(place + 1) for place in rank])
        ax.set_xlim(-1, len(rank))
    if y is not None:
        dots, crosses, edge = (2.4, 3, 0.9) if len(rank) > 300 else (4, 5, 1.5)
        ax.plot(rank[covered], truth[covered], ".", color=DOT, ms=dots, label="y, covered")
        missed: dict[str, Any] = {"color": MISS, "ms": crosses, "mew": edge}
        ax.plot(rank[~covered], truth[~covered], "x", label="y, missed", **missed)
    thinned = len(rank) < len(arrays)
    note = f" ({len(rank):,} of {len(arrays):,} drawn)" if thinned else ""
    ax.set(xlabel="rows, sorted by prediction" + note, ylabel=label)
    ax.margins(x=0.01)
    legend_on_top(ax)
    return ax


def plot_band(
    x: ArrayLike,
    intervals: Intervals,
    x_train: ArrayLike | None = None,
    y_train: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw intervals as a band over one feature; several levels are nested bands.

    Parameters
    ----------
    x
        The feature of the m rows, shape (m,), in any order.
    intervals
        m intervals, at one level or several.
    x_train, y_train
        Training rows, shape (n,) each, drawn as points.
    truth
        The true curve at x, shape (m,).
    ax
        Where to draw; by default the current axes.

    """
    ax, arrays, x = bare(ax), intervals.with_arrays(), to_array(x)
    _check_shape("x", x, arrays.point.shape)
    rows = np.argsort(x, kind="stable")[_evenly(len(x))]
    x, point = x[rows], arrays.point[rows]
    lower, upper = (ends.reshape(len(arrays), -1)[rows] for ends in (arrays.lower, arrays.upper))
    outer = _far_out(point, lower, upper, np.empty(0) if y_train is None else to_array(y_train))
    levels = np.atleast_1d(np.asarray(arrays.alpha))
    shades = [BAND] if len(levels) == 1 else NESTED
    for depth, level in enumerate(np.argsort(levels, kind="stable")):
        label = "interval" if len(levels) == 1 else f"interval, α = {levels[level]:g}"
        shade = shades[min(depth, len(shades) - 1)]
        ends = lower[:, level], upper[:, level]
        _fill(ax, x, *ends, outer, color=shade, label=label)
    if x_train is not None and y_train is not None:
        some, known = to_array(x_train), to_array(y_train)
        _check_shape("y_train", known, some.shape)
        kept = np.argsort(some, kind="stable")[_evenly(len(some))]
        thinned = f"{len(kept):,} of {len(some):,} rows"
        label = thinned if len(kept) < len(some) else "training rows"
        ax.plot(
            some[kept], known[kept], ".", color=DOT, ms=2 if len(kept) > 300 else 3, label=label
        )
    if truth is not None:
        _check_shape("truth", to_array(truth), arrays.point.shape)
        ax.plot(x, to_array(truth)[rows], color="black", ls="--", lw=1.2, label="true curve")
    ax.plot(x, point, color=POINT, label="prediction")
    ax.set(xlabel="x", ylabel="y")
    ax.margins(x=0.01)
    legend_on_top(ax)
    return ax


def plot_coverage_by_bin(
    bins: Bins, target: float | None = None, label: str = "width", ax: Axes | None = None
) -> Axes:
    """Draw the coverage of each bin with its standard error.

    Parameters
    ----------
    bins
        What ``lazyknife.metrics.coverage_by_bin`` returns.
    target
        The nominal coverage, a dotted line.
    label
        The quantity that defines the bins.
    ax
        Where to draw; by default the current axes.

    """
    ax, places = bare(ax), np.arange(len(bins.coverage))
    ax.errorbar(places, bins.coverage, yerr=bins.error, fmt="o", color=POINT, capsize=2)
    if target is not None:
        ax.axhline(target, label=f"target {target:g}", **TARGET)
    # A dash next to minus signs would be misread.
    ends = [(short(low), short(high)) for low, high in zip(bins.lower, bins.upper, strict=True)]
    names = [(" to " if low.startswith("−") else "–").join([low, high]) for low, high in ends]
    ax.set_xticks(places, names, rotation=30, ha="right", rotation_mode="anchor")
    ax.set(xlabel=label, ylabel="coverage")
    legend_on_top(ax)
    return ax


def _evenly(rows: int) -> NDArray[np.intp]:
    """Return all ranks or, of too many, evenly spaced ones with the first and the last."""
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.linspace(0, rows - 1, DRAWN_ROWS).round().astype(np.intp)


def _far_out(*drawn: Array) -> tuple[float, float]:
    """Return two values of y, well below and above all finite ones, to stand for the infinite."""
    numbers = np.concatenate([np.ravel(values) for values in drawn])
    numbers = numbers[np.isfinite(numbers)]
    low, high = (numbers.min(), numbers.max()) if len(numbers) else (0.0, 1.0)
    distance = 10 * ((high - low) or 1.0)
    return float(low - distance), float(high + distance)


def _fill(
    ax: Axes, x: NDArray[Any], lower: Array, upper: Array, outer: tuple[float, float], **drawn: Any
) -> None:
    """Fill between the ends; infinite ones end at ``outer``, which the limits may exclude."""
    ends = np.stack([lower, np.maximum(lower, upper)])  # an empty interval has no height
    finite = np.isfinite(ends)
    seen = ax.dataLim.frozen()
    ax.fill_between(x, *ends.clip(*outer), lw=0, **drawn)
    ax.dataLim.set(seen)
    ax.update_datalim(np.column_stack([np.broadcast_to(x, ends.shape)[finite], ends[finite]]))


def _check_shape(name: str, values: Array, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape}: give shape {shape}, one per row")
