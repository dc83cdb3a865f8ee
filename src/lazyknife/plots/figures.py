"""What all figures share: colours, sizes, number formats, the legend; and their files.

The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from ..errors import visible
from ..files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BAND, POINT, MISS, DOT = "#9ecae1", "#08519c", "#d55e00", "#525252"
TARGET: dict[str, Any] = {"color": "#333333", "ls": ":", "lw": 1.2}

GAPS = {"borderaxespad": 0.3, "borderpad": 0.1, "labelspacing": 0.25, "columnspacing": 1.2}
LEGEND: dict[str, Any] = {"handlelength": 1.8, "edgecolor": "none", "framealpha": 0.85, **GAPS}

COLUMN, PAGE = 3.4, 7.0  # inches: one column of a paper, and both

FONTS: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
}
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    **FONTS,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.figsize": (COLUMN, 2.5),
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


def font_size(of: Literal["legend.font", "xtick.label", "ytick.label"]) -> float:
    """Return the size in points of these letters in the current style."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=pyplot().rcParams[of + "size"]).get_size_in_points())


def legend_on_top(ax: Axes, limits: tuple[float, float] | None = None) -> None:
    """Put the legend inside the axes, above the data, which lie within these limits of y.

    Outside the axes it would be cut off, or overlap a title.
    """
    ax.autoscale(axis="y")
    labels = ax.get_legend_handles_labels()[1]
    rows, height = -(-len(labels) // 2), ax.bbox.height * 72 / ax.figure.dpi
    share = min((1.35 * rows + 0.8) * font_size("legend.font") / height, 0.6) if rows else 0.0
    transform = ax.yaxis.get_transform()
    low, high = transform.transform(np.asarray(limits or ax.get_ylim()))
    high += (high - low) * share / (1 - share)
    ax.set_ylim(*transform.inverted().transform(np.array([low, high])))
    if rows:
        ax.legend(loc="upper left", ncols=min(len(labels), 2), **LEGEND)


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Put plain numbers, at least two, on a logarithmic axis with these limits."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    decades = np.log10(high / low)
    many = LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1,))
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if decades < 0.7 else many)
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as svg, pdf or png, by the path's suffix, atomically."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path={str(path)!r}: give a name that ends in {', '.join(FORMATS)}")
    with replacing(Path(path)) as temporary:
        write_figure(figure, temporary, suffix)


def figure_svg(figure: Figure, *, title: str, id_prefix: str) -> str:
    """Return a figure as an SVG element for a page, with the width of its container.

    ``title`` says what it shows, for screen readers; ``id_prefix`` starts the ids of its parts, and
    must differ for each figure of a page.
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
    for ax in figure.axes:
        if ax.get_in_layout() and (place := ax.get_subplotspec()) is not None:
            ax.set_position(place.get_position(figure))
            ax.set_in_layout(True)
    figure.draw_without_rendering()
    form = suffix.removeprefix(".")
    with rc_context(FILE_SETTINGS):
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH, metadata=FORMATS[suffix])
