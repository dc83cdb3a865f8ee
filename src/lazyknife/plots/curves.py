"""Plots of curves: measurements with error bars, and the bounds that they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.checks import check_choice
from ..records import Array, to_array
from .look import TARGET, bare, legend_on_top, log_ticks, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        Its points. x may hold inf, which gets a place of its own; y may hold None or NaN, a gap.
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
    """Measured curves with markers and error bars, bounds as broken lines.

    Parameters
    ----------
    curves
        What to draw.
    xlabel, ylabel
        Names of the axes.
    log_x, log_y
        Whether a scale is logarithmic.
    target, target_label
        Where to draw a dotted line, and what it is called.
    ax
        Where to draw; the current axes otherwise.

    """
    ax = bare(ax)
    _draw(ax, curves, log_x)
    if log_y:
        ax.set_yscale("log")
    if target is not None:
        ax.axhline(target, label=target_label, **TARGET)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    legend_on_top(ax)
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
    """Certified coverages as lines, what the first certifies shaded, measured ones as points.

    Parameters
    ----------
    curves
        Lower bounds for the coverage, against ε, α or n.
    xlabel
        Name of the x axis.
    measured
        Measured coverages.
    target
        The coverage that was aimed at, a dotted line.
    log_x
        Whether the x axis is logarithmic.
    ax
        Where to draw; the current axes otherwise.

    """
    ax = bare(ax)
    bounds = [curve._replace(kind="bound") for curve in curves]
    points = [curve._replace(kind="measured") for curve in measured]
    infinity = _draw(ax, [*bounds, *points], log_x, join=False)
    if bounds:
        x, y = _placed(bounds[0], infinity)[:2]
        ax.fill_between(x, 0, y, color=CERTIFIED, lw=0, zorder=0, label="certified")
    if target is not None:
        ax.axhline(target, label=f"target {target:g}", **TARGET)
    ax.set(xlabel=xlabel, ylabel="coverage")
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
    numbers = dict.fromkeys(KINDS, 0)
    for curve in curves:
        check_choice("kind", curve.kind, KINDS)
        number = numbers[curve.kind]
        numbers[curve.kind] += 1
        x, y, errors = _placed(curve, infinity)
        if curve.kind == "bound":
            ax.plot(x, y, label=curve.label, **BOUNDS[number % len(BOUNDS)])
        else:
            look: dict[str, Any] = {"ls": "-" if join else "", "capsize": 2, "elinewidth": 1}
            line = ax.errorbar(x, y, yerr=errors, **look, **mark(number))[0]
            # White edges part markers that overlap; a line's label has no error bars in the legend.
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
    step = 0.15 * ((ends[1] - ends[0]) or 1.0)
    places = ends[1] + step * np.array([1.0, 0.8, 1.2])
    place, left, right = (float(p) for p in (np.exp(places) if log_x else places))
    return _Infinity(place, left, right, float(low), float(high))


def _placed(curve: Curve, infinity: _Infinity | None) -> tuple[Array, Array, Array | None]:
    """A curve's points in the order of x; ∞ at its place, not joined to the others."""
    x, y = to_array(curve.x), _numbers(curve.y)
    errors = None if curve.errors is None else _numbers(curve.errors)
    if x.shape != y.shape or (errors is not None and errors.shape != y.shape):
        raise ValueError(f"curve {curve.label!r}: give as many y, and errors if any, as x")
    order = np.argsort(x, kind="stable")
    ends = order[x[order] == np.inf]
    order = order[np.isfinite(x[order])]
    if infinity is None or not len(ends):
        return x[order], y[order], None if errors is None else errors[order]
    # A line through one point would not be seen: a bound gets a short piece of it.
    places = (infinity.left, infinity.right) if curve.kind == "bound" else (infinity.place,)
    rows = np.repeat(ends[:1], len(places))
    return (
        np.concatenate([x[order], [np.nan], places]),
        np.concatenate([y[order], [np.nan], y[rows]]),
        None if errors is None else np.concatenate([errors[order], [np.nan], errors[rows]]),
    )


def _numbers(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _break_axis(ax: Axes, infinity: _Infinity, log_x: bool) -> None:
    """Mark ∞ on the x axis, and a gap before it."""
    if log_x:
        log_ticks(ax.xaxis, infinity.low, infinity.high)
    ax.set_xlim(ax.get_xlim())  # ticks are chosen within them, and stay
    ticks = _within(ax.get_xticks(), infinity)
    minor = _within(ax.get_xticks(minor=True), infinity)
    labels = ax.xaxis.get_major_formatter().format_ticks(list(ticks))
    ax.set_xticks([*ticks, infinity.place], [*labels, "∞"])
    ax.set_xticks(minor, minor=True)
    middle = (
        np.sqrt(infinity.high * infinity.left) if log_x else (infinity.high + infinity.left) / 2
    )
    # Two slashes, and between them the axis's line painted over.
    floor: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "ls": ""}
    ax.plot(middle, 0, marker="s", ms=3, color=ax.get_facecolor(), zorder=5, **floor)
    for side in (-1, 1):
        slash = [(2 * side - 1, -2), (2 * side + 1, 2)]
        ax.plot(middle, 0, marker=slash, ms=7, color="black", mew=0.7, zorder=6, **floor)


def _within(ticks: NDArray[Any], infinity: _Infinity) -> NDArray[Any]:
    """The finite ticks, those that rounding put a little outside included."""
    low, high = infinity.low, infinity.high
    inside = (low - 1e-9 * abs(low) <= ticks) & (ticks <= high + 1e-9 * abs(high))
    return np.asarray(ticks[inside])
