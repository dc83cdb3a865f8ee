"""Figures as files and as parts of a page; the same figure gives the same bytes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from ..files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Metadata that are left out: matplotlib's version and the time.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"Creator": None, "Date": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    ".png": {"Software": None},
}
DOTS_PER_INCH = 200
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",  # the same letters in every viewer
    "svg.hashsalt": "lazyknife",  # ids are random otherwise
    "pdf.fonttype": 42,  # publishers refuse matplotlib's default, Type 3
    "savefig.bbox": "standard",
    "savefig.facecolor": "white",
}


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
    with rc_context(SETTINGS):
        figure.savefig(file, format=form, dpi=DOTS_PER_INCH, metadata=FORMATS[suffix])
