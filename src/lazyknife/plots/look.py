"""What all plots share: colours, sizes, axes, number formats, the legend, and files of figures.

The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from ..errors import visible
from ..files import replacing
from ..records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart, ordered so that neighbours
# also differ in grey; the markers differ too.
COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#8c8c8c")
MARKERS = "os^DvPX<>*"
BAND, POINT, MISS, DOT = "#9ecae1", "#08519c", "#d55e00", "#525252"
TARGET: dict[str, Any] = {"color": "#333333", "ls": ":", "lw": 1.2}

GAPS = {"borderaxespad": 0.3, "borderpad": 0.1, "labelspacing": 0.25, "columnspacing": 1.2}
LEGEND: dict[str, Any] = {"handlelength": 1.8, "edgecolor": "none", "framealpha": 0.85, **GAPS}

FAR = 2.0  # times the median: values beyond are cut
COLUMN, PAGE = 3.4, 7.0  # inches: one column of a paper, and both

FONTS: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    **FONTS,
    "mathtext.default": "regular",
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(("xtick.minor.width", "ytick.minor.width"), 0.5),
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "errorbar.capsize": 2,
    "figure.figsize": (COLUMN, 2.5),
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
}

# Metadata that are left out: matplotlib's version and the time.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"Creator": None, "Date": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    ".png": {"Software": None},
}
DOTS_PER_INCH = 200
FILE_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",  # the same letters in every viewer
    "svg.hashsalt": "lazyknife",  # ids are random otherwise
    "pdf.fonttype": 42,  # publishers refuse matplotlib's default, Type 3
    "savefig.bbox": "standard",
    "savefig.facecolor": "white",
}


def style(scale: float = 1.0) -> AbstractContextManager[None]:
    """Return a context in which figures have the size and fonts of one column of a paper.

    Fonts are multiplied by ``scale``.
    """
    fonts = {name: scale * size for name, size in FONTS.items()}
    context: AbstractContextManager[None] = pyplot().rc_context(STYLE | fonts)
    return context


def pyplot() -> Any:
    """Import matplotlib's pyplot, which the library does not need until something is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'lazyknife[plots]'") from error
    return plt


def bare(ax: Axes | None) -> Axes:
    """Return the axes, or the current ones, without their upper and right spines."""
    chosen: Axes = pyplot().gca() if ax is None else ax
    chosen.spines[["top", "right"]].set_visible(False)
    return chosen


def mark(number: int) -> dict[str, Any]:
    """Return colour and marker of the method or curve with this number."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def literal(text: str) -> str:
    """Return a text to draw as it is: dollars are no formula, control characters are spelled."""
    return visible(text).replace("$", r"\$")


def short(value: float) -> str:
    """Return a number with three digits."""
    if np.isinf(value):
        text = "∞" if value > 0 else "-∞"
    elif abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        text = f"{mantissa}e{int(power)}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def cut(values: Array, log: bool = False) -> float:
    """Return where to cut an axis, so that values far above the others do not flatten these.

    On a logarithmic scale nothing is cut.
    """
    finite = values[np.isfinite(values)]
    if log or not len(finite) or finite.max() <= FAR * np.median(finite):
        return np.inf
    limit = FAR * np.median(finite)
    return float(1.15 * finite[finite <= limit].max())


def font_size(of: Literal["legend.font", "xtick.label", "ytick.label"]) -> float:
    """Return the size in points of these letters in the current style."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=pyplot().rcParams[of + "size"]).get_size_in_points())


def text_width(texts: Sequence[str], size: float) -> float:
    """Return the width in points of the widest text."""
    from matplotlib.textpath import TextPath

    return max((TextPath((0, 0), text, size=size).get_extents().width for text in texts), default=0)


def slot(ax: Axes, count: int) -> float:
    """Return the points available for each of so many things side by side."""
    return 1.1 * ax.bbox.width * 72 / ax.figure.dpi / count  # the layout will widen the axes


def name_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Write names below the x axis at 0, 1, …, rotated where they would overlap."""
    crowded = text_width(names, font_size("xtick.label")) + 3 > slot(ax, len(names))
    rotated: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(names)), names, **(rotated if crowded else {}))
    ax.set_xlim(-0.6, len(names) - 0.4)


def headroom(ax: Axes, height: float, limits: tuple[float, float]) -> None:
    """Set the limits of y, and leave ``height`` points free above them."""
    share = min(height / (ax.bbox.height * 72 / ax.figure.dpi), 0.6)
    transform = ax.yaxis.get_transform()
    low, high = transform.transform(np.asarray(limits))
    high += (high - low) * share / (1 - share)
    ax.set_ylim(*transform.inverted().transform(np.array([low, high])))


def data_limits(ax: Axes) -> tuple[float, float]:
    """Return limits of y that contain the data, also of axes that share y."""
    ax.autoscale(axis="y")
    return ax.get_ylim()


def legend_on_top(ax: Axes, limits: tuple[float, float] | None = None) -> None:
    """Put the legend inside the axes, in a strip above the data without ticks of y.

    Outside the axes it would be cut off, or overlap a title.
    """
    low, high = limits or data_limits(ax)
    labels = ax.get_legend_handles_labels()[1]
    size = font_size("legend.font")
    rows = -(-len(labels) // _columns(labels, size, slot(ax, 1)))
    _ticks_within(ax, low, high)
    headroom(ax, (1.35 * rows + 0.8) * size if rows else 0, (low, high))
    if rows:
        ax.legend(loc="upper left", ncols=-(-len(labels) // rows), **LEGEND)


def _columns(labels: Sequence[str], size: float, room: float) -> int:
    """Return the largest number of columns of a legend that fit."""
    for columns in range(len(labels), 1, -1):
        filled = np.array_split(np.asarray(labels, dtype=object), columns)
        # 2.6: a line's sample and the gap after it; 1.2: the gap between columns.
        widths = [text_width(list(texts), size) + (2.6 + 1.2) * size for texts in filled]
        if sum(widths) <= room:
            return columns
    return 1


def _ticks_within(ax: Axes, low: float, high: float) -> None:
    """End the y axis and its ticks at the limits of the data."""
    from matplotlib.ticker import AutoLocator

    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(AutoLocator())
    if ax.get_yscale() == "log":
        log_ticks(ax.yaxis, low, high)
    for minor in (True, False):
        ax.set_yticks(ticks_between(ax.get_yticks(minor=minor), low, high), minor=minor)
    for sharing in ax.get_shared_y_axes().get_siblings(ax):
        sharing.spines["left"].set_bounds(low, high)


def ticks_between(ticks: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Return the ticks between the limits, up to rounding."""
    inside = (low - 1e-9 * abs(low) <= ticks) & (ticks <= high + 1e-9 * abs(high))
    return np.asarray(ticks[inside])


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Put plain numbers, at least two, on a logarithmic axis with these limits."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    decades = np.log10(high / low)
    many = LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1,))
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if decades < 0.7 else many)
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))
    axis.set_minor_formatter(NullFormatter())


def tick_label(value: float) -> str:
    """Return a tick's number: plain, or with a power of ten where it would be long."""
    if 1e-4 <= abs(value) < 1e6 or value == 0:
        return f"{value:g}".replace("-", "−")
    mantissa, power = f"{value:.0e}".split("e")
    factor = "" if mantissa == "1" else rf"{mantissa}\times "
    return f"${factor}10^{{{int(power)}}}$"


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as svg, pdf or png, by the path's suffix, atomically."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path={str(path)!r}: give a name that ends in {', '.join(FORMATS)}")
    with replacing(Path(path)) as temporary:
        write_figure(figure, temporary, suffix)


def figure_svg(figure: Figure, *, title: str, id_prefix: str) -> str:
    """Return a figure as an SVG element for a page, with the width of its container.

    Parameters
    ----------
    figure
        The figure.
    title
        What it shows, for screen readers.
    id_prefix
        Prefix of the ids of its parts, different for each figure of a page.

    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", id_prefix, re.ASCII):
        raise ValueError(f"id_prefix={id_prefix!r}: give letters, digits and '-', a letter first")
    buffer = io.StringIO()
    write_figure(figure, buffer, ".svg")
    text = buffer.getvalue()
    head, body = text[text.index("<svg") :].split(">", maxsplit=1)
    head = re.sub(r'width="[^"]*" height="[^"]*"', 'width="100%"', head)
    head += f' id="{id_prefix}" role="img" aria-label={quoteattr(title)}'
    body = re.sub(r"\s*<!--.*?-->|\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{id_prefix}-", body)
    body = body.replace("*{", f"#{id_prefix} *{{", 1)  # keep the style from the rest of the page
    return f"{head}>\n <title>{escape(title)}</title>{body}"


def write_figure(figure: Figure, file: Path | IO[str], suffix: str) -> None:
    """Write a figure in the format of a suffix, a key of ``FORMATS``."""
    from matplotlib import rc_context

    # A layout starts from the last one, to the last digit: start every file from the same.
    figure.draw_without_rendering()
    form = suffix.removeprefix(".")
    with rc_context(FILE_SETTINGS):
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH, metadata=FORMATS[suffix])
