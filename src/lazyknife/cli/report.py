"""One self-contained HTML page of a result: certificate, figures, tables, and how to repeat it."""

from __future__ import annotations

import hashlib
import math
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..sentences import NO_GUARANTEE, VACUOUS

SUFFIXES = (".html", ".htm")
NOT_CERTIFIED = (NO_GUARANTEE, VACUOUS)
MISSING = "–"
# A figure so many times as wide as high, or so many points wide, gets a row of its own.
WIDE, WIDE_POINTS = 2.0, 500.0


@dataclass(frozen=True)
class Figure:
    """A drawing.

    Attributes
    ----------
    title
        Its heading, and its name for readers who do not see it.
    svg
        The drawing itself, ``<svg ...>...</svg>``, put into the page as it is; its ids must not
        occur in another figure of the page.
    caption
        A sentence below it.

    """

    title: str
    svg: str
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.svg.startswith("<svg"):
            raise ValueError(
                f"Figure {self.title!r}: svg begins with {self.svg[:20]!r}; give the <svg> element "
                "alone, without what an SVG file has before it"
            )


@dataclass(frozen=True)
class Table:
    """A table that sorts by any of its columns.

    Attributes
    ----------
    title
        Its heading.
    columns
        Names of the columns.
    rows
        As many cells as columns each: text, numbers, truth values or None. A float is shown with
        four significant digits and sorts by its full value; None and NaN come last, whichever way
        a column is sorted.
    note
        A sentence below it.

    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Table {self.title!r}: rows[{number}] has {len(row)} cells, but there are "
                    f"{len(self.columns)} columns: give one cell for each"
                )


@dataclass(frozen=True)
class Report:
    """What a page says.

    Attributes
    ----------
    title, lead
        The heading and the paragraph below it.
    certificate
        The text of a ``Certificate``; None leaves that part out.
    figures, tables
        Shown in this order.
    settings
        Everything that was set, by name.
    command
        The command that makes the same page again.
    notes
        Sentences that the reader should know, for instance about dropped rows.
    versions
        Versions of the software, by name.
    warnings
        What casts doubt on the results, shown before everything else.

    """

    title: str
    lead: str
    certificate: str | None
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    settings: Mapping[str, object]
    command: str
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the page to an .html or .htm file, whole or not at all."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path={str(path)!r}: give a name that ends in {' or '.join(SUFFIXES)}")
    write_whole(target, render(report))


def render(report: Report) -> str:
    """Return the page: one HTML document that asks for nothing outside itself."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("An HTML report needs jinja2: pip install 'lazyknife[cli]'") from error
    environment = Environment(
        loader=PackageLoader("lazyknife.cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _template_text("report.js")
    return environment.get_template("report.html.j2").render(
        report=report,
        certificate=None if report.certificate is None else read_certificate(report.certificate),
        figures=[
            {"title": f.title, "svg": Markup(f.svg), "caption": f.caption, "wide": _is_wide(f.svg)}
            for f in report.figures
        ],
        tables=[_table(table) for table in report.tables],
        settings={name: _setting(value) for name, value in report.settings.items()},
        command=re.split(r"(\s+)", report.command.strip()),  # words, and what is between them
        style=Markup(_template_text("report.css")),
        script=Markup(script),
        # Only this very script may run, so that nothing in a figure or a name ever does.
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@dataclass(frozen=True)
class CertificateText:
    """The parts of a printed certificate.

    Attributes
    ----------
    headline, detail
        The first line: its claim, and what it is about (from the first bracket on).
    remarks
        Lines of their own, for instance the theorem.
    scope
        For which rows it holds; empty where the text does not say.
    assumptions
        What it assumes.
    certified
        False where the text says that nothing is guaranteed.

    """

    headline: str
    detail: str
    remarks: tuple[str, ...]
    scope: str
    assumptions: tuple[str, ...]
    certified: bool


def read_certificate(text: str) -> CertificateText:
    """Take the text of a ``Certificate`` apart."""
    first, *others = text.strip().splitlines() or [""]
    headline, bracket, detail = first.partition(" (")
    remarks: list[str] = []
    assumptions: list[str] = []
    scope = ""
    for line in map(str.strip, others):
        if line.startswith("- "):
            assumptions.append(line.removeprefix("- "))
        elif line.startswith("Scope:"):
            scope = line.removeprefix("Scope:").strip()
        elif line and line != "It assumes:":
            remarks.append(line)
    return CertificateText(
        headline,
        (bracket + detail).strip(),
        tuple(remarks),
        scope,
        tuple(assumptions),
        not first.startswith(NOT_CERTIFIED),
    )


@dataclass(frozen=True)
class _Cell:
    """What a cell shows; ``value`` is its number for JavaScript, ``missing`` sorts it last."""

    text: str
    value: str | None = None
    missing: bool = False


def _table(table: Table) -> dict[str, Any]:
    """The table as the template takes it: cells as text, columns with their alignment."""
    rows = [[_cell(value) for value in row] for row in table.rows]
    columns = []
    for place, name in enumerate(table.columns):
        present = [row[place] for row in rows if not row[place].missing]
        numeric = bool(present) and all(cell.value is not None for cell in present)
        columns.append({"name": name, "numeric": numeric})
    return {"title": table.title, "note": table.note, "columns": columns, "rows": rows}


def _cell(value: object) -> _Cell:
    if hasattr(value, "item"):  # one of numpy's numbers: take Python's own
        value = value.item()
    if isinstance(value, bool):
        return _Cell("yes" if value else "no")
    if isinstance(value, Integral):
        return _Cell(str(value), str(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return _Cell(MISSING, missing=True)
        return _Cell(_four_digits(number), repr(number).replace("inf", "Infinity"))
    return _Cell(MISSING, missing=True) if value is None else _Cell(str(value))


def _four_digits(number: float) -> str:
    """Four significant digits, and every digit before the point up to a thousand million."""
    if number == 0:
        return "0"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    text = f"{number:#.4g}"
    if "e+" in text and abs(number) < 1e9:
        return f"{number:.0f}"
    return text.rstrip(".")


def _setting(value: object) -> str:
    """A setting in full, so that it can be set again."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value))
    return "none" if value is None else str(value)


def _is_wide(svg: str) -> bool:
    """Tell from its viewBox whether a figure needs the whole width."""
    box = re.search(r'viewBox="\s*\S+[\s,]+\S+[\s,]+([\d.]+)[\s,]+([\d.]+)\s*"', svg)
    if box is None:
        return False
    width, height = float(box[1]), float(box[2])
    return width >= WIDE * height or width >= WIDE_POINTS


def _template_text(name: str) -> str:
    return (files("lazyknife.cli") / "templates" / name).read_text(encoding="utf-8")
