"""Plots that compare methods: one value per method, in one panel or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..records import to_array
from .figures import BAND, MISS, PAGE, POINT, TARGET, bare, font_size, log_ticks, pyplot, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAR = 2.0  # times the median: values beyond are cut
# Background of numbers, so that they are legible where a line crosses them.
WHITE = {"fc": "white", "ec": "none", "pad": 0.4, "alpha": 0.8}


class Panel(NamedTuple):
    """One quantity of all methods."""

    label: str  # its name, with its unit
    values: ArrayLike  # one for each method; may be infinite or, where the method failed, NaN
    errors: ArrayLike  # their standard errors
    log: bool = False  # whether the scale is logarithmic
    target: float | None = None  # a dotted line
    target_label: str | None = None


def plot_comparison(
    names: Sequence[str], panels: Sequence[Panel], axes: Any = None, *, best: str | None = None
) -> tuple[Axes, ...]:
    """Draw methods one below the other, one panel per quantity; names are left of the first.

    ``axes`` are as many as panels, by default of a new figure of a page's width; ``best`` is the
    method to emphasise.
    """
    if axes is None:
        size = (PAGE * min(len(panels), 3) / 3, 0.7 + 0.28 * len(names))
        _, axes = pyplot().subplots(1, len(panels), figsize=size, layout="constrained")
    drawn: tuple[Axes, ...] = tuple(np.ravel(axes))
    if len(drawn) != len(panels):
        raise ValueError(f"axes has {len(drawn)} axes: give {len(panels)}, one per panel")
    for ax, panel in zip(drawn, panels, strict=True):
        plot_methods(names, **panel._asdict(), best=best, ax=ax)
        if ax is not drawn[0]:
            ax.tick_params(axis="y", labelleft=False)
    return drawn


def plot_methods(
    names: Sequence[str],
    values: ArrayLike,
    errors: ArrayLike,
    *,
    label: str,
    log: bool = False,
    target: float | None = None,
    target_label: str | None = None,
    best: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one value with its error bar and its number for each method, from the top.

    ``target`` is a dotted line, and ``best`` the method to emphasise. Values far above the others
    are not drawn to scale, nor infinite ones: an arrow and the number stand at the edge.
    """
    ax, values = bare(ax), to_array(values)
    errors = np.nan_to_num(to_array(errors), posinf=0.0)
    if not len(names) == len(values) == len(errors):
        raise ValueError(
            f"{label!r} has {len(values)} values and {len(errors)} errors: give one of each for "
            f"each of the {len(names)} names"
        )
    if log:
        ax.set_xscale("log")
    edge, finite = np.inf, values[np.isfinite(values)]
    # Values far above the others do not flatten these; what may be negative has no such size.
    if not log and len(finite) and finite.min() >= 0:
        near = finite[finite <= FAR * np.median(finite)]
        edge = np.inf if len(near) == len(finite) else float(1.15 * near.max())
    shown = np.isfinite(values) & (values <= edge) & ((values > 0) | (not log))
    font: dict[str, Any] = {"size": 0.85 * font_size("ytick.label"), "bbox": WHITE}
    rows = np.arange(len(names))[::-1]
    bars: dict[str, Any] = {"fmt": "o", "color": POINT, "ecolor": BAND, "capsize": 3}
    # On a logarithmic scale a bar that reaches zero ends at half of its value.
    below = np.minimum(errors, values / 2) if log else errors
    ends = np.stack([below, errors])[:, shown]
    ax.errorbar(values[shown], rows[shown], xerr=ends, **bars)
    for row, value, inside in zip(rows, values, shown, strict=True):
        if inside:
            spot: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points"}
            ax.annotate(short(value), (value, row), ha="center", va="bottom", **spot, **font)
        else:
            text = "failed" if np.isnan(value) else f"{short(value)}{' →' if value > 0 else ''}"
            spot = {"xycoords": ax.get_yaxis_transform(), "color": MISS}
            ax.annotate(text, (0.995, row), ha="right", va="center", **spot, **font)
    ax.margins(x=0.1)  # numbers at the edges stay inside
    if edge < np.inf:
        ax.set_xlim(right=edge)
    if target is not None:
        ax.axvline(target, zorder=0, **TARGET)
        if target_label is not None:
            spot = {"xycoords": ax.get_xaxis_transform(), "size": font["size"]}
            ax.annotate(target_label, (target, 1), ha="center", va="bottom", **spot)
    ax.set_yticks(rows, list(names))
    for tick, name in zip(ax.get_yticklabels(), names, strict=False):  # shared axes may have none
        tick.set_fontweight("bold" if name == best else "normal")
    ax.set_ylim(-0.5, len(names) - 0.25)
    ax.set_xlabel(label)
    if not shown.any():  # the scale would be arbitrary
        ax.set_xticks([])
        ax.set_xticks([], minor=True)
    elif log:
        log_ticks(ax.xaxis, *ax.get_xlim())
    else:
        ax.locator_params(axis="x", nbins=5)
    return ax
