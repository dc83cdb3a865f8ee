"""Plots of curves: measurements with error bars, and the bounds that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyknife.data.checks import check_choice
from lazyknife.plots.figures import TARGET, bare, legend_on_top, log_ticks
from lazyknife.records import Array, to_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can tell apart, ordered so that neighbours
# also differ in grey; the markers differ too.
COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#8c8c8c")
MARKERS = "os^DvPX<>*"
CERTIFIED = "#e4e4e4"
BOUNDS = (
    {"color": "#222222", "ls": "--"},
    {"color": "#666666", "ls": "-."},
    {"color": "#222222", "ls": (0, (1, 1))},
    {"color": "#666666", "ls": (0, (6, 1, 1, 1, 1, 1))},
)
KINDS = ("measured", "bound")


class Curve(NamedTuple):
    """One curve.

    Attributes
    ----------
    label
        Its name in the legend.
    x, y
        Its points. inf in x gets a place of its own; None or NaN in y is a gap.
    errors
        Standard errors of y, if any.
    kind
        ``"measured"``: markers and error bars; ``"bound"``: a line without markers.

    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    errors: Sequence[float | None] | None = None
    kind: Literal["measured", "bound"] = "measured"


def plot_curves(
    curves: Sequence[Curve],
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    target: float | None = None,
    target_label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measured curves with markers and error bars, and bounds as broken lines.

    Parameters
    ----------
    curves
        The curves.
    xlabel, ylabel
        Labels of the axes.
    log_x, log_y
        Whether a scale is logarithmic.
    target, target_label
        Position and name of a dotted horizontal line.
    ax
        Where to draw; by default the current axes.

    """
    ax = bare(ax)
    _draw(ax, curves, log_x)
    if log_y:
        ax.set_yscale("log")
    if target is not None:
        ax.axhline(target, label=target_label, **TARGET)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    legend_on_top(ax)
    if log_y:
        log_ticks(ax.yaxis, *ax.get_ylim())
    return ax


def plot_guarantees(
    curves: Sequence[Curve],
    *,
    xlabel: str,
    measured: Sequence[Curve] = (),
    target: float | None = None,
    log_x: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw certified coverages as lines, the first one shaded, and measured ones as points.

    Parameters
    ----------
    curves
        Lower bounds of the coverage, against ε, α or n.
    xlabel
        Label of the x axis.
    measured
        Measured coverages.
    target
        The nominal coverage, a dotted line.
    log_x
        Whether the x axis is logarithmic.
    ax
        Where to draw; by default the current axes.

    """
    ax = bare(ax)
    bounds = [curve._replace(kind="bound") for curve in curves]
    points = [curve._replace(kind="measured") for curve in measured]
    infinity = _draw(ax, [*bounds, *points], log_x, join=False)
    if bounds:
        x, y, _ = _placed(bounds[0], infinity)
        ax.fill_between(x, 0, y, color=CERTIFIED, lw=0, zorder=0, label="certified")
    if target is not None:
        ax.axhline(target, label=f"target {target:g}", **TARGET)
    ax.set(xlabel=xlabel, ylabel="coverage")
    ax.set_yticks(np.linspace(0, 1, 6))
    legend_on_top(ax, limits=(0.0, 1.02))
    return ax


class _Infinity(NamedTuple):
    """Where x = ∞ is drawn, how far its marks may reach on either side, and the finite range."""

    place: float
    left: float
    right: float
    low: float
    high: float


def _draw(ax: Axes, curves: Sequence[Curve], log_x: bool, join: bool = True) -> _Infinity | None:
    """Draw curves; ``join`` connects the points of measured ones."""
    if log_x:
        ax.set_xscale("log")
    infinity = _infinity(curves, log_x)
    numbers = {kind: count() for kind in KINDS}
    for curve in curves:
        check_choice("kind", curve.kind, KINDS)
        number = next(numbers[curve.kind])
        x, y, errors = _placed(curve, infinity)
        if curve.kind == "bound":
            ax.plot(x, y, label=curve.label, **BOUNDS[number % len(BOUNDS)])
        else:
            look: dict[str, Any] = {"ls": "-" if join else "", "capsize": 2, "elinewidth": 1}
            look |= {"color": COLOURS[number % len(COLOURS)]}
            look |= {"marker": MARKERS[number % len(MARKERS)]}
            bars = None if curve.errors is None else errors
            line = ax.errorbar(x, y, yerr=bars, **look)[0]
            # White edges separate overlapping markers; the label is the line's alone, so that the
            # legend shows no error bars.
            line.set(label=curve.label, markeredgecolor="white", markeredgewidth=0.5)
    if infinity is not None:
        _break_axis(ax, infinity, log_x)
    elif log_x:
        log_ticks(ax.xaxis, *ax.get_xlim())
    return infinity


def _infinity(curves: Sequence[Curve], log_x: bool) -> _Infinity | None:
    """The place of x = ∞, a step to the right of the finite ones, if there is such an x."""
    every = np.concatenate([to_array(curve.x) for curve in curves]) if curves else np.zeros(0)
    if not (every == np.inf).any():
        return None
    finite = every[np.isfinite(every) & ((every > 0) | (not log_x))]
    low, high = (finite.min(), finite.max()) if len(finite) else (1.0, 1.0)
    ends = np.log(np.array([low, high])) if log_x else np.array([low, high])
    places = ends[1] + 0.15 * (np.ptp(ends) or 1.0) * np.array([1.0, 0.8, 1.2])
    place, left, right = (float(p) for p in (np.exp(places) if log_x else places))
    return _Infinity(place, left, right, float(low), float(high))


def _placed(curve: Curve, infinity: _Infinity | None) -> Array:
    """Return x, y and errors, shape (3, points), ordered by x; ∞ at its place, after a gap."""
    errors = [None] * len(curve.y) if curve.errors is None else curve.errors
    columns = (curve.x, curve.y, errors)
    if len({len(values) for values in columns}) > 1:
        raise ValueError(f"curve {curve.label!r}: x, y and errors, if given, must be equally long")
    table = np.array(columns, dtype=np.float64)  # None becomes NaN
    table = table[:, np.argsort(table[0], kind="stable")]
    finite, ends = table[:, np.isfinite(table[0])], table[:, table[0] == np.inf]
    if infinity is None or not ends.size:
        return finite
    # A line through one point would be invisible: a bound gets a short segment.
    places = (infinity.left, infinity.right) if curve.kind == "bound" else (infinity.place,)
    last = np.repeat(ends[:, :1], len(places), axis=1)
    last[0] = places
    return np.hstack([finite, np.full((3, 1), np.nan), last])


def _between(ticks: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Return the ticks between the limits, up to rounding."""
    inside = (low - 1e-9 * abs(low) <= ticks) & (ticks <= high + 1e-9 * abs(high))
    return np.asarray(ticks[inside])


def _break_axis(ax: Axes, infinity: _Infinity, log_x: bool) -> None:
    """Mark ∞ on the x axis, and a gap before it."""
    low, high, left = infinity.low, infinity.high, infinity.left
    if log_x:
        log_ticks(ax.xaxis, low, high)
    ax.set_xlim(ax.get_xlim())  # ticks are chosen within them, and stay
    major, minor = (_between(ax.get_xticks(minor=m), low, high) for m in (False, True))
    labels = ax.xaxis.get_major_formatter().format_ticks(list(major))
    ax.set_xticks([*major, infinity.place], [*labels, "∞"])
    ax.set_xticks(minor, minor=True)
    middle = np.sqrt(high * left) if log_x else (high + left) / 2
    # Two slashes, and between them the axis's line painted over.
    floor: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "ls": ""}
    ax.plot(middle, 0, marker="s", ms=3, color=ax.get_facecolor(), zorder=5, **floor)
    for side in (-1, 1):
        slash = [(2 * side - 1, -2), (2 * side + 1, 2)]
        ax.plot(middle, 0, marker=slash, ms=7, color="black", mew=0.7, zorder=6, **floor)
