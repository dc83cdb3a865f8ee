"""A self-contained HTML report: what to expect, figures, tables, and how to reproduce it."""

from __future__ import annotations

import hashlib
import math
import platform
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import visible

if TYPE_CHECKING:
    import pandas as pd

    from ..certificate import Certificate

SEARCHED = 20  # a longer table has a field to search in it
FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d*\.?\d*(e[+-]?\d+)?$)")
PACKAGES = ("lazyknife", "torch", "numpy")
TEMPLATES = Path(__file__).with_name("templates")


class Figure(NamedTuple):
    """A drawing: its heading, <svg ...> with ids of its own, and a sentence below it."""

    title: str
    svg: str
    caption: str = ""


class Cell(NamedTuple):
    """What a cell shows; ``value`` is its number for JavaScript, ``missing`` sorts it last."""

    text: str
    value: str | None = None
    missing: bool = False


class Table(NamedTuple):
    """A table that can be sorted by any of its columns.

    A float is shown with four significant digits and sorted by its full value; None and NaN are
    always sorted last. ``csv`` is a file to download, with all rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]  # texts, numbers, booleans, None or Cells
    note: str = ""  # a sentence below it
    csv: str = ""


class Verdict(NamedTuple):
    """What the page says first: a sentence in plain words, and paragraphs of details."""

    title: str
    claim: str
    details: tuple[str, ...] = ()
    tone: str = "advice"  # or "certified", "doubtful", "warning": colour and icon


@dataclass(frozen=True)
class Report:
    """The content of a page."""

    title: str
    lead: str  # the paragraph below the title
    verdict: Verdict | None
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    settings: Mapping[str, object]  # everything that was set, by name
    command: str  # produces the same page again
    certificate: Certificate | None = None  # folded below the verdict
    glossary: Mapping[str, str] = field(default_factory=dict)  # methods, each in a line
    notes: tuple[str, ...] = ()  # what was done to the data, one sentence each
    versions: Mapping[str, str] = field(default_factory=dict)  # of the software, by name
    warnings: tuple[str, ...] = ()  # what casts doubt on the results, shown first


def render(report: Report) -> str:
    """Return the page: one HTML document without external resources."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("an HTML report needs jinja2: pip install 'lazyknife[cli]'") from error
    page, style, script = (
        TEMPLATES.joinpath(f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("html.j2", "css", "js")
    )
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # not markup
    )
    return environment.from_string(page).render(
        report=report,
        figures=[(figure, Markup(figure.svg)) for figure in report.figures],
        tables=[_table(table) for table in report.tables],
        searched=SEARCHED,
        settings={name: _setting(value) for name, value in report.settings.items()},
        command=re.split(r"(\s+)", report.command.strip()),  # words, and what is between them
        style=Markup(style),
        script=Markup(script),
        # Only this script may run, so that no figure or name can run another.
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _table(table: Table) -> dict[str, Any]:
    """Return the table as the template takes it: cells as text, columns with their alignment."""
    rows = [[cell_of(value) for value in row] for row in table.rows]
    columns = []
    for place, name in enumerate(table.columns):
        present = [row[place] for row in rows if not row[place].missing]
        numeric = bool(present) and all(cell.value is not None for cell in present)
        columns.append({"name": name, "numeric": numeric})
    return table._asdict() | {
        "columns": columns,
        "rows": rows,
        "link": b64encode(table.csv.encode()).decode(),
        "file": re.sub(r"\W+", "-", table.title.lower()) + ".csv",
    }


def cell_of(value: Any, text: str = "") -> Cell:
    """What a cell shows of a value, or the given text, which is sorted by the value."""
    if isinstance(value, Cell):
        return value
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if value is None or value != value:
        return Cell("–", missing=True)
    if not isinstance(value, float):
        return Cell(str(value), str(value) if isinstance(value, int) else None)
    if math.isinf(value):
        sign = "" if value > 0 else "-"
        return Cell(text or f"{sign}∞", f"{sign}Infinity")
    if text:
        return Cell(text, repr(value))
    # Four significant digits, and all digits before the point up to 1e9.
    text = f"{value:#.4g}".rstrip(".") if value else "0"
    return Cell(f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text, repr(value))


def _setting(value: object) -> str:
    """A setting in full, so that it can be set again."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value))
    words = {"True": "yes", "False": "no", "None": "none"}
    return words.get(str(value), str(value))


def safe_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before texts that a spreadsheet would run."""

    def safe(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell

    texts = [name for name, column in table.items() if column.dtype.kind not in "biufMm"]
    kept = {name: [safe(cell) for cell in table[name]] for name in texts}
    return table.assign(**kept).rename(columns=safe)


def versions_of() -> dict[str, str]:
    """Versions of the software, by name."""
    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}
