"""Plots that compare methods: one value per method, in one panel or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..records import Array, to_array
from . import look
from .look import TARGET, bare

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Background of numbers, so that they are legible where a line crosses them.
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
        Position and name of a dotted horizontal line.

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
    """Draw methods side by side, one panel per quantity, with standard errors and the numbers.

    Parameters
    ----------
    names
        The methods' names.
    panels
        The quantities, for instance coverage, time and width.
    axes
        As many axes as panels; by default a new figure of a page's width.

    """
    if axes is None:
        size = (look.PAGE * min(len(panels), 3) / 3, 2.5)
        _, axes = look.pyplot().subplots(1, len(panels), figsize=size, layout="constrained")
    drawn: tuple[Axes, ...] = tuple(np.ravel(axes))
    if len(drawn) != len(panels):
        raise ValueError(f"axes has {len(drawn)} axes: give {len(panels)}, one per panel")
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
    log: bool = False,
    best: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one value with its error bar for each method.

    ``target`` is a dotted line, and ``best`` the method to emphasise. Values far above the others
    are not drawn to scale, nor infinite ones: an arrow and the number stand at the edge.
    """
    ax = bare(ax)
    if log:
        ax.set_xscale("log")
    rows = np.arange(len(names))[::-1]
    values, errors = to_array(values), np.nan_to_num(to_array(errors), posinf=0.0)
    edge = look.cut(values, log)
    inside = np.isfinite(values) & (values <= edge)
    bars: dict[str, Any] = {"fmt": "o", "color": look.POINT, "ecolor": look.BAND, "capsize": 3}
    ax.errorbar(values[inside], rows[inside], xerr=errors[inside], **bars)
    for row, value in zip(rows[~inside], values[~inside], strict=True):
        _beyond(ax, row, value)
    if edge < np.inf:
        ax.set_xlim(right=edge)
    if target is not None:
        ax.axvline(target, **TARGET)
    ax.set_yticks(rows, list(names))
    # Panels beside the first one have no labels.
    for tick, name in zip(ax.get_yticklabels(), names, strict=False):
        tick.set_fontweight("bold" if name == best else "normal")
    ax.set_ylim(-0.5, len(names) - 0.5)
    ax.set_xlabel(label)
    if log:
        look.log_ticks(ax.xaxis, *ax.get_xlim())
    else:
        ax.locator_params(axis="x", nbins=5)
    return ax


def _beyond(ax: Axes, row: float, value: float) -> None:
    """Write at the right edge what is beyond it, or that a method failed."""
    text = "failed" if np.isnan(value) else f"{look.short(value)} →"
    font: dict[str, Any] = {"size": look.font_size("ytick.label"), "color": look.MISS}
    across = ax.get_yaxis_transform()
    ax.annotate(text, (0.995, row), xycoords=across, ha="right", va="center", bbox=PAPER, **font)


def _draw_panel(ax: Axes, names: list[str], panel: Panel, values: Array, errors: Array) -> None:
    if panel.log:
        ax.set_yscale("log")
    edge = look.cut(values, panel.log)
    shown = np.isfinite(values) & ((values > 0) | (not panel.log)) & (values <= edge)
    size = 0.8 * look.font_size("ytick.label")
    wide = look.text_width([look.short(value) for value in values[shown]], size)
    upright = wide + 1.5 > look.slot(ax, len(names))
    for place, (value, error) in enumerate(zip(values, errors, strict=True)):
        if shown[place]:
            _draw_value(ax, place, value, error, panel.log, size=size, rotation=90 * upright)
        else:
            _note(ax, place, value)
    if panel.target is not None:
        ax.axhline(panel.target, zorder=0, label=panel.target_label, **TARGET)
    limits = _log_limits(values[shown], errors[shown], panel.target) if panel.log else None
    look.headroom(ax, (wide if upright else 1.2 * size) + 4, limits or look.data_limits(ax))
    if panel.log:
        look.log_ticks(ax.yaxis, *ax.get_ylim())
    if not shown.any():  # the scale would be arbitrary
        ax.yaxis.set_ticks([])
        ax.yaxis.set_ticks([], minor=True)
    ax.set_ylabel(panel.label)
    look.name_ticks(ax, names)
    ax.tick_params(axis="x", length=0)
    if panel.target_label is not None:  # above the axes: inside, it would hide values
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, borderpad=0.1)


def _draw_value(ax: Axes, place: int, value: float, error: float, log: bool, **font: Any) -> None:
    # On a logarithmic scale a bar that reaches zero ends just above it.
    below = min(error, value * (1 - 1e-9)) if log else error
    bars = {"ls": "", "capsize": 2, "elinewidth": 1, **look.mark(place)}
    ax.errorbar(place, value, yerr=[[below], [error]], **bars)
    font |= {"xytext": (0, 4), "textcoords": "offset points", "va": "bottom", "ha": "center"}
    ax.annotate(look.short(value), (place, value + error), bbox=PAPER, **font)


def _note(ax: Axes, place: int, value: float) -> None:
    """Write at the top or the bottom what the scale cannot show."""
    text = "failed" if np.isnan(value) else look.short(value)
    font: dict[str, Any] = {"rotation": 90, "va": "bottom", "size": look.font_size("ytick.label")}
    if value == np.inf:
        font = {"va": "top", "size": 1.5 * font["size"]}
    elif value > 0:  # beyond the cut
        text, font["va"] = f"{text} →", "top"
    spot = (place, 0.99 if value > 0 else 0.03)
    across = ax.get_xaxis_transform()
    ax.annotate(text, spot, xycoords=across, ha="center", color=look.DOT, bbox=PAPER, **font)


def _log_limits(values: Array, errors: Array, target: float | None) -> tuple[float, float]:
    """Return limits that contain all values, the positive ends of their errors, and the target."""
    ends = np.concatenate([values, values + errors, values - errors, [target or np.nan]])
    ends = np.log(ends[ends > 0])
    if not len(ends):
        return 1.0, 10.0
    margin = 0.06 * (np.ptp(ends) or 1.0)
    return float(np.exp(ends.min() - margin)), float(np.exp(ends.max() + margin))
