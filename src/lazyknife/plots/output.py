"""Figures as files and as parts of a page: the same figure gives the same bytes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from ..files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What matplotlib would write of itself and of the time is left out.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"Creator": None, "Date": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    ".png": {"Software": None},
}
DOTS_PER_INCH = 200
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",  # the same letters in every viewer
    "svg.hashsalt": "lazyknife",  # names of parts are drawn at random otherwise
    "pdf.fonttype": 42,  # publishers refuse matplotlib's default, Type 3
    "savefig.bbox": "standard",
    "savefig.facecolor": "white",
}


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as svg, pdf or png, by the path's suffix, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path={str(path)!r}: end it with {', '.join(FORMATS)}")
    with replacing(path) as temporary:
        _write(figure, temporary, suffix)


def figure_svg(figure: Figure, *, title: str, id_prefix: str) -> str:
    """Return a figure as an SVG element for a page, as wide as what it stands in.

    Parameters
    ----------
    figure
        The figure.
    title
        What it shows, for readers who cannot see it.
    id_prefix
        What the names of its parts begin with: another one for each figure of a page.

    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", id_prefix, re.ASCII):
        raise ValueError(f"id_prefix={id_prefix!r}: give letters, digits and '-', a letter first")
    buffer = io.StringIO()
    _write(figure, buffer, ".svg")
    text = buffer.getvalue()
    head, body = text[text.index("<svg") :].split(">", maxsplit=1)
    head = re.sub(r'width="[^"]*" height="[^"]*"', 'width="100%"', head)
    head += f' id="{id_prefix}" role="img" aria-label={quoteattr(title)}'
    body = re.sub(r"\s*<!--.*?-->|\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{id_prefix}-", body)
    body = body.replace("*{", f"#{id_prefix} *{{", 1)  # else the style would be the whole page's
    return f"{head}>\n <title>{escape(title)}</title>{body}"


def _write(figure: Figure, file: Path | IO[str], suffix: str) -> None:
    from matplotlib import rc_context

    # A layout starts from the last one, to the last digit: begin each file from the same.
    figure.draw_without_rendering()
    with rc_context(SETTINGS):
        figure.savefig(
            file, format=suffix.removeprefix("."), dpi=DOTS_PER_INCH, metadata=FORMATS[suffix]
        )
