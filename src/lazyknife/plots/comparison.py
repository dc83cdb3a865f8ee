"""Plots that compare methods: one value a method, in one panel or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..records import Array, to_array
from .look import (
    BAND,
    DOT,
    PAGE,
    POINT,
    TARGET,
    bare,
    data_limits,
    font_size,
    headroom,
    log_ticks,
    mark,
    name_ticks,
    pyplot,
    short,
    slot,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Behind letters, so that a line across them leaves them legible.
PAPER = {"fc": "white", "ec": "none", "pad": 0.4, "alpha": 0.8}


class Panel(NamedTuple):
    """One quantity of all methods.

    Attributes
    ----------
    label
        Name of the quantity, with its unit.
    values, errors
        A value and its standard error for each method. A value may be infinite or, where the
        method failed, NaN.
    log
        Whether the scale is logarithmic.
    target, target_label
        Where to draw a dotted line, and what it is called.

    """

    label: str
    values: Sequence[float]
    errors: Sequence[float]
    log: bool = False
    target: float | None = None
    target_label: str | None = None


def plot_comparison(
    names: Sequence[str], panels: Sequence[Panel], axes: Any = None
) -> tuple[Axes, ...]:
    """Methods side by side, a panel for each quantity, with standard errors and the numbers.

    Parameters
    ----------
    names
        The methods' names.
    panels
        The quantities, for instance coverage, time and width.
    axes
        As many axes as panels; a new figure of a page's width otherwise.

    """
    if axes is None:
        size = (PAGE * min(len(panels), 3) / 3, 2.5)
        _, axes = pyplot().subplots(1, len(panels), figsize=size, layout="constrained")
    drawn: tuple[Axes, ...] = tuple(np.ravel(axes))
    if len(drawn) != len(panels):
        raise ValueError(f"axes holds {len(drawn)} axes: give {len(panels)}, one a panel")
    for ax, panel in zip(drawn, panels, strict=True):
        values, errors = to_array(panel.values), np.nan_to_num(to_array(panel.errors), posinf=0.0)
        if not len(names) == len(values) == len(errors):
            raise ValueError(
                f"panel {panel.label!r} has {len(values)} values and {len(errors)} errors: "
                f"give one of each for each of the {len(names)} names"
            )
        _draw_panel(bare(ax), list(names), panel, values, errors)
    return drawn


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
    ax = bare(ax)
    rows = np.arange(len(names))[::-1]
    ax.errorbar(values, rows, xerr=errors, fmt="o", color=POINT, ecolor=BAND, capsize=3)
    if target is not None:
        ax.axvline(target, **TARGET)
    ax.set_yticks(rows, list(names))
    ax.set_ylim(-0.5, len(names) - 0.5)
    ax.set_xlabel(label)
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", nbins=5)
    return ax


def _draw_panel(ax: Axes, names: list[str], panel: Panel, values: Array, errors: Array) -> None:
    if panel.log:
        ax.set_yscale("log")
    shown = np.isfinite(values) & ((values > 0) | (not panel.log))
    texts = ["failed" if np.isnan(value) else short(value) for value in values]
    size = 0.8 * font_size("ytick.label")
    numbers = [text for text, drawn in zip(texts, shown, strict=True) if drawn]
    wide = text_width(numbers, size)
    upright = wide + 1.5 > slot(ax, len(names))
    for place, text in enumerate(texts):
        if shown[place]:
            _draw_value(ax, place, values[place], errors[place], panel.log)
            top = (place, values[place] + errors[place])
            _print_value(ax, text, top, size=size, rotation=90 if upright else 0)
        else:
            _note(ax, place, text, above=values[place] == np.inf)
    if panel.target is not None:
        ax.axhline(panel.target, zorder=0, label=panel.target_label, **TARGET)
    limits = _log_limits(values[shown], errors[shown], panel.target) if panel.log else None
    headroom(ax, (wide if upright else 1.2 * size) + 4, limits or data_limits(ax))
    if panel.log:
        log_ticks(ax.yaxis, *ax.get_ylim())
    if not shown.any():  # the scale would be made up
        ax.yaxis.set_ticks([])
        ax.yaxis.set_ticks([], minor=True)
    ax.set_ylabel(panel.label)
    name_ticks(ax, names)
    ax.tick_params(axis="x", length=0)
    if panel.target_label is not None:  # above the axes: inside, it would hide values
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, borderpad=0.1)


def _draw_value(ax: Axes, place: int, value: float, error: float, log: bool) -> None:
    # On a logarithmic scale a bar that reaches zero leaves through the floor.
    below = min(error, value * (1 - 1e-9)) if log else error
    look = {"ls": "", "capsize": 2, "elinewidth": 1, **mark(place)}
    ax.errorbar(place, value, yerr=[[below], [error]], **look)


def _print_value(ax: Axes, text: str, top: tuple[float, float], **look: Any) -> None:
    ax.annotate(
        text,
        top,
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        va="bottom",
        bbox=PAPER,
        **look,
    )


def _note(ax: Axes, place: int, text: str, above: bool) -> None:
    """Say at the top or the bottom what no scale can show."""
    ax.annotate(
        text,
        (place, 0.99 if above else 0.03),
        xycoords=ax.get_xaxis_transform(),
        ha="center",
        va="top" if above else "bottom",
        rotation=0 if above else 90,
        color=DOT,
        bbox=PAPER,
        size=font_size("ytick.label") * (1.5 if above else 1),
    )


def _log_limits(values: Array, errors: Array, target: float | None) -> tuple[float, float]:
    """Limits that hold all values, their errors as far as they are above 0, and the target."""
    ends = np.concatenate([values, values + errors, values - errors, [target or np.nan]])
    ends = np.log(ends[ends > 0])
    if not len(ends):
        return 1.0, 10.0
    margin = 0.06 * (np.ptp(ends) or 1.0)
    return float(np.exp(ends.min() - margin)), float(np.exp(ends.max() + margin))
