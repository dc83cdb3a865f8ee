"""Plots of intervals and comparisons: each takes data and ``ax=None``, draws, returns the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .records import Intervals, to_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours: told apart by colour-blind readers; here also different in grey.
BAND, POINT, MISS = "#9ecae1", "#08519c", "#d55e00"


def plot_intervals(intervals: Intervals, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Intervals at one level, sorted by prediction, with the true values; misses are marked."""
    ax, intervals = _axes(ax), intervals.with_arrays()
    order = np.argsort(intervals.point)
    rank = np.arange(len(order))
    truth, missed = to_array(y)[order], ~intervals.covers(y)[order]
    ax.fill_between(
        rank,
        intervals.lower[order],
        intervals.upper[order],
        step="mid",
        color=BAND,
        lw=0,
        label="interval",
    )
    ax.plot(rank, intervals.point[order], color=POINT, lw=1.2, label="prediction")
    ax.plot(rank[~missed], truth[~missed], ".", color="#525252", ms=4, label="y, covered")
    ax.plot(rank[missed], truth[missed], "x", color=MISS, ms=6, mew=1.8, label="y, missed")
    ax.set(xlabel="rows, sorted by prediction", ylabel="y")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    return ax


def plot_methods(
    names: Sequence[str],
    values: ArrayLike,
    errors: ArrayLike,
    *,
    label: str,
    target: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One value with its error bar for each method; ``target`` draws a dotted line."""
    ax = _axes(ax)
    rows = np.arange(len(names))[::-1]
    ax.errorbar(values, rows, xerr=errors, fmt="o", color=POINT, ecolor=BAND, capsize=3)
    if target is not None:
        ax.axvline(target, color=MISS, ls=":", lw=1.5)
    ax.set_yticks(rows, list(names))
    ax.set_ylim(-0.5, len(names) - 0.5)
    ax.set_xlabel(label)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()
