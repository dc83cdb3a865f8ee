"""Files that a command writes, and what a report says of the run."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .library import members

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report


FORMULA = r"[=@\t\r]|[+-](?!\d*\.?\d*(e[+-]?\d+)?$)"
PACKAGES = ("lazyknife", "torch", "numpy", "opacus")


def check_outputs(
    table: Path | None = None,
    html: Path | None = None,
    figure: Path | None = None,
    inputs: tuple[Path, ...] = (),
) -> None:
    """Refuse outputs that cannot be written, or would replace the data, before any computation."""
    from ..files import check_writable
    from .report import SUFFIXES as PAGES
    from .tables import SUFFIXES as TABLES

    figures = members("plots.output", "FORMATS")
    written = [path for path in (table, html, figure) if path is not None]
    for path, suffixes in ((table, TABLES), (html, PAGES), (figure, figures)):
        if path is None:
            continue
        if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
            raise ValueError(f"{path} contains the data: choose another output file")
        check_writable(path, suffixes)
    if len({path.resolve() for path in written}) < len(written):
        raise ValueError("two outputs have the same name: choose different files")


def write_outputs(
    paths: Mapping[str, Any], table: pd.DataFrame, figure: Any, page: Report | None
) -> None:
    """Write what was asked for by ``--output``, ``--figure`` and ``--html``: all files, or none."""
    from ..files import write_together
    from ..plots.output import write_figure
    from .report import render
    from .tables import table_bytes

    given = (paths[name] for name in ("output", "figure", "html"))
    output, drawn, html = (None if path is None else Path(path) for path in given)
    writers: dict[Path, Callable[[Path], object]] = {}
    if output is not None:
        cells = safe_cells(table) if paths.get("safe_cells") else table
        writers[output] = lambda temporary: temporary.write_bytes(table_bytes(cells, output))
    if drawn is not None:
        writers[drawn] = lambda temporary: write_figure(figure, temporary, drawn.suffix.lower())
    if page is not None and html is not None:
        text = render(page)
        writers[html] = lambda temporary: temporary.write_text(text, encoding="utf-8")
    write_together(writers)


def safe_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before texts that a spreadsheet would run."""
    kept = {
        name: [f"'{cell}" if is_formula(cell) else cell for cell in column]
        for name, column in table.items()
        if has_text(column)
    }
    names = {name: f"'{name}" for name in table.columns if is_formula(name)}
    return table.assign(**kept).rename(columns=names)


def has_text(column: Any) -> bool:
    """Whether a column has cells of text."""
    return any(isinstance(cell, str) for cell in column.head(1)) or column.dtype == object


def is_formula(cell: object) -> bool:
    """Whether a spreadsheet takes a text for a formula: it starts like one and is not a number."""
    return isinstance(cell, str) and re.match(FORMULA, cell) is not None


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["lazyknife", *sys.argv[1:]])


@cache
def versions() -> dict[str, str]:
    """Return the versions of the main packages and of Python, by name."""
    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}


def origin(context: typer.Context) -> dict[str, Any]:
    """Return what a report says of a run: all options with a value, the command, the versions."""
    options = [param for param in context.command.params if param.opts[0].startswith("-")]
    values = {param.opts[0]: context.params.get(str(param.name)) for param in options}
    given = {name: value for name, value in values.items() if value not in (None, [], ())}
    return {"settings": given, "command": command_line(), "versions": versions()}
