"""Plots of curves: measurements with error bars, and the bounds that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from lazyknife.plots.figures import TARGET, bare, legend_on_top, log_ticks
from lazyknife.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can tell apart, ordered so that neighbours
# also differ in grey; the markers differ too.
COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#8c8c8c")
MARKERS = "os^DvPX<>*"
BOUNDS = (
    {"color": "#222222", "ls": "--"},
    {"color": "#666666", "ls": "-."},
    {"color": "#222222", "ls": (0, (1, 1))},
    {"color": "#666666", "ls": (0, (6, 1, 1, 1, 1, 1))},
)


class Curve(NamedTuple):
    """One curve."""

    label: str  # its name in the legend
    x: Sequence[float]  # inf gets a place of its own, on a logarithmic axis
    y: Sequence[float | None]  # None or NaN is a gap
    errors: Sequence[float | None] | None = None  # standard errors of y
    kind: Literal["measured", "bound"] = "measured"  # markers and error bars, or a broken line


def plot_curves(
    curves: Sequence[Curve],
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    target: float | None = None,
    target_label: str | None = None,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measured curves with markers and error bars, and bounds as broken lines.

    ``target`` is a dotted horizontal line, ``limits`` are the ends of the y axis; without ``ax``
    the current axes are used.
    """
    ax = bare(ax)
    if log_x:
        ax.set_xscale("log")
    last = max((x for curve in curves for x in curve.x if x < np.inf), default=1.0)
    infinity = log_x and any(np.inf in curve.x for curve in curves)
    numbers = {"measured": count(), "bound": count()}
    for curve in curves:
        number = next(numbers[curve.kind])
        x, y, errors = _placed(curve, last)
        if curve.kind == "bound":
            ax.plot(x, y, label=curve.label, **BOUNDS[number % len(BOUNDS)])
            continue
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "capsize": 2}
        look |= {"marker": MARKERS[number % len(MARKERS)], "elinewidth": 1}
        line = ax.errorbar(x, y, yerr=None if curve.errors is None else errors, **look)[0]
        # White edges separate overlapping markers; the label is the line's alone, so that the
        # legend shows no error bars.
        line.set(label=curve.label, markeredgecolor="white", markeredgewidth=0.5)
    if log_y:
        ax.set_yscale("log")
    if target is not None:
        ax.axhline(target, label=target_label, **TARGET)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    legend_on_top(ax, limits=limits)
    if log_y:
        log_ticks(ax.yaxis, *ax.get_ylim())
    if log_x:
        low, high = ax.get_xlim()
        log_ticks(ax.xaxis, low, last if infinity else high)
    if infinity:
        _break_axis(ax, last)
        ax.set_xlim(low, high)
    return ax


def _place(last: float, step: float = 1.0) -> float:
    """Where x = ∞ is drawn, and marks beside it: to the right of the last finite x."""
    return last * 4**step


def _placed(curve: Curve, last: float) -> Array:
    """Return x, y and errors, shape (3, points), ordered by x; ∞ at its place, after a gap."""
    errors = [None] * len(curve.y) if curve.errors is None else curve.errors
    table = np.array((curve.x, curve.y, errors), dtype=np.float64)  # None becomes NaN
    table = table[:, np.argsort(table[0], kind="stable")]
    finite, ends = table[:, np.isfinite(table[0])], table[:, table[0] == np.inf]
    if not ends.size:
        return finite
    # A line through one point would be invisible: a bound gets a short segment.
    steps = (0.8, 1.2) if curve.kind == "bound" else (1.0,)
    ends = np.repeat(ends[:, :1], len(steps), axis=1)
    ends[0] = [_place(last, step) for step in steps]
    return np.hstack([finite, np.full((3, 1), np.nan), ends])


def _break_axis(ax: Axes, last: float) -> None:
    """Mark ∞ on a logarithmic x axis, and a gap before it."""
    major = [tick for tick in ax.get_xticks() if tick <= last * (1 + 1e-9)]
    labels = ax.xaxis.get_major_formatter().format_ticks(major)
    minor = [tick for tick in ax.get_xticks(minor=True) if tick <= last]
    ax.set_xticks([*major, _place(last)], [*labels, "∞"])
    ax.set_xticks(minor, minor=True)
    # Two slashes, and between them the axis's line painted over.
    floor: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "ls": ""}
    middle = _place(last, 0.4)
    ax.plot(middle, 0, marker="s", ms=3, color=ax.get_facecolor(), zorder=5, **floor)
    for side in (-1, 1):
        slash = [(2 * side - 1, -2), (2 * side + 1, 2)]
        ax.plot(middle, 0, marker=slash, ms=7, color="black", mew=0.7, zorder=6, **floor)
