"""Files that a command writes, and what a report says of the run."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .library import members

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report
    from .tables.writing import Append


FORMULA = r"[=@\t\r]|[+-](?!\d*\.?\d*(e[+-]?\d+)?$)"
PACKAGES = ("lazyknife", "torch", "numpy")


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

    figures = members("plots.figures", "FORMATS")
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
    paths: Mapping[str, Any],
    table: Callable[[Path], object],
    figure: Any,
    page: Report | None,
) -> None:
    """Write what was asked for by ``--output``, ``--figure`` and ``--html``: all files, or none.

    ``table`` writes the output to a path.
    """
    from ..files import write_together
    from ..plots.figures import write_figure
    from .report import render

    given = (paths[name] for name in ("output", "figure", "html"))
    output, drawn, html = (None if path is None else Path(path) for path in given)
    writers: dict[Path, Callable[[Path], object]] = {} if output is None else {output: table}
    if drawn is not None:
        writers[drawn] = lambda temporary: write_figure(figure, temporary, drawn.suffix.lower())
    if page is not None and html is not None:
        text = render(page)
        writers[html] = lambda temporary: temporary.write_text(text, "utf-8", "replace")
    write_together(writers)


def writing(table: pd.DataFrame, paths: Mapping[str, Any]) -> Callable[[Path], object]:
    """Return the function that writes a table to a path, as ``--output``."""
    from .tables import table_bytes

    cells = safe_cells(table) if paths.get("safe_cells") else table
    return lambda temporary: temporary.write_bytes(table_bytes(cells, Path(paths["output"])))


@contextmanager
def spooled(paths: Mapping[str, Any]) -> Iterator[tuple[Append, Callable[[Path], object]]]:
    """Yield a function that takes a table for ``--output`` in parts, and one that moves the file.

    The parts are in a temporary file until then. Without ``--output`` they are dropped.
    """
    from ..files import beside
    from .tables.writing import appending

    if paths["output"] is None:
        yield lambda _: None, lambda _: None
        return
    output = Path(paths["output"])
    with beside(output) as spool, ExitStack() as stack:
        append = stack.enter_context(appending(stack.enter_context(spool.open("wb")), output))

        def add(table: pd.DataFrame) -> None:
            append(safe_cells(table) if paths.get("safe_cells") else table)

        def move(temporary: Path) -> None:
            stack.close()
            os.replace(spool, temporary)

        yield add, move


def safe_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before texts that a spreadsheet would run."""
    kept = {
        name: [f"'{cell}" if is_formula(cell) else cell for cell in column]
        for name, column in table.items()
        if has_text(column)
    }
    names = {name: f"'{name}" for name in table.columns if is_formula(name)}
    return table.assign(**kept).rename(columns=names)


def formulas_in(names: Any) -> int:
    """Return how many names of rows a spreadsheet takes for formulas; 0 if there are none."""
    return 0 if names is None or not has_text(names) else sum(map(is_formula, names))


def has_text(column: Any) -> bool:
    """Whether a column may have cells of text."""
    return column.dtype.kind not in "biufMm"


def is_formula(cell: object) -> bool:
    """Whether a spreadsheet takes a text for a formula: it starts like one and is not a number."""
    return isinstance(cell, str) and re.match(FORMULA, cell) is not None


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["lazyknife", *sys.argv[1:]])


@cache
def versions() -> dict[str, str]:
    """Return the versions of the main packages and of Python, by name."""
    installed = [name for name in PACKAGES if find_spec(name)]
    return {name: version(name) for name in installed} | {"python": platform.python_version()}


def origin(context: typer.Context) -> dict[str, Any]:
    """Return what a report says of a run: all options with a value, the command, the versions."""
    options = [param for param in context.command.params if param.opts[0].startswith("-")]
    values = {param.opts[0]: context.params.get(str(param.name)) for param in options}
    given = {name: value for name, value in values.items() if value not in (None, [], ())}
    return {"settings": given, "command": command_line(), "versions": versions()}
