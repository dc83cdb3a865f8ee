"""Plots of intervals (rows, bands, coverage by bin) and of a fitted model (influence, learning)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..records import Array, to_array
from .figures import BAND, DOT, MISS, POINT, TARGET, bare, legend_on_top, literal, log_ticks, short

if TYPE_CHECKING:  # the records draw themselves by these functions
    from matplotlib.axes import Axes

    from ..estimators.influence import Influence
    from ..estimators.learning_curve import LearningCurve
    from ..metrics import Bins
    from ..results import Intervals

MOST_ROWS, DRAWN_ROWS = 2000, 1000  # beyond the first, markers overlap and files grow
FEW_ROWS = 12  # which make no band
NESTED = ("#deebf7", "#9ecae1", "#6baed6", "#4292c6")  # the widest band is the lightest
NAMED = 5  # rows that are named
UNUSUAL = 3.0  # standard deviations from which on a row is drawn as unusual
FARTHER = 4.0  # times the rows of the fits, up to which curves are drawn


def plot_intervals(
    intervals: Intervals, y: ArrayLike | None = None, ax: Axes | None = None, *, label: str = "y"
) -> Axes:
    """Draw intervals at one level, sorted by prediction, with the true values; mark misses.

    Infinite ends are beyond the edge of the axes; ``label`` is the name of y, shape (m,). Of more
    than 2,000 rows, 1,000 evenly spaced in that order are drawn, whether missed or not, so that the
    share of misses is that of all rows; the label of the x axis says so.
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

    ``x`` is the feature of the m rows, in any order, and ``truth`` the true curve there, both of
    shape (m,); ``x_train`` and ``y_train`` are drawn as points.
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
    """Draw the coverage of each bin of ``coverage_by_bin`` with its standard error.

    ``target`` is the nominal coverage, a dotted line; ``label`` names the quantity of the bins.
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


def plot_influence(influence: Influence, ax: Axes | None = None) -> Axes:
    """Draw how unusual the y of each row is against how much the row moves predictions."""
    ax, x, y = bare(ax), influence.moves, influence.studentized
    far = np.abs(y) > UNUSUAL
    ax.plot(x[~far], y[~far], ".", color=DOT, ms=4)
    ax.plot(x[far], y[far], "x", color=MISS, ms=5)
    for place in (-UNUSUAL, UNUSUAL):
        ax.axhline(place, **TARGET)
    names = influence.row if influence.index is None else influence.index
    for k in range(min(NAMED, len(influence))):
        text = literal(str(names[k]))
        ax.annotate(text, (x[k], y[k]), (3, 2), textcoords="offset points", fontsize="small")
    ax.set(xlabel="change of predictions by the row", ylabel="studentised left-out residual")
    return ax


def plot_learning_curve(curve: LearningCurve, ax: Axes | None = None) -> Axes:
    """Draw mean widths of the fits of ``model.plan`` by their rows, and the range of the curves."""
    ax, fits = bare(ax), curve.widths.shape[1]
    rows = np.geomspace(curve.sizes[0], FARTHER * curve.sizes[-1], 100)
    low, middle, high = curve.width(rows).T
    ax.fill_between(rows, low, high, color=BAND, lw=0, label="range of curves")
    ax.plot(rows, middle, color=POINT, label="middle curve")
    ax.plot(curve.sizes.repeat(fits), curve.widths.ravel(), ".", color=DOT, label="fits")
    if curve.wanted is not None:
        ax.axhline(curve.wanted, label=f"wanted: {curve.wanted:g}", **TARGET)
    ax.set_xscale("log")
    log_ticks(ax.xaxis, rows[0], rows[-1])
    ax.set(xlabel="rows", ylabel=f"mean width at α = {curve.alpha:g}")
    legend_on_top(ax, (0.0, max(float(high.max()), float(curve.widths.max()))))
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
