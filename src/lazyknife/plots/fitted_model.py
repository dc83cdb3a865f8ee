"""Plots of a fitted model: what each row does to it, and what more rows would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .figures import BAND, DOT, MISS, POINT, TARGET, bare, legend_on_top, literal, log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..estimators.influence import Influence
    from ..estimators.learning_curve import LearningCurve

NAMED = 5  # rows that are named
UNUSUAL = 3.0  # standard deviations from which on a row is drawn as unusual
FARTHER = 4.0  # times the rows of the fits, up to which curves are drawn


def plot_influence(influence: Influence, ax: Axes | None = None) -> Axes:
    """Draw how unusual the y of each row is against how much the row moves predictions.

    Parameters
    ----------
    influence
        What ``model.influence()`` returns.
    ax
        Where to draw; by default the current axes.

    """
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
    """Draw mean widths of the fits by their rows, and the range of the curves through them.

    Parameters
    ----------
    curve
        What ``model.plan(X, y)`` returns.
    ax
        Where to draw; by default the current axes.

    """
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
