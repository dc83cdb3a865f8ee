"""Files that a command writes, and what a report says of the run."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report


PACKAGES = ("lazyknife", "torch", "numpy", "opacus")


def check_outputs(
    table: Path | None = None,
    html: Path | None = None,
    figure: Path | None = None,
    inputs: tuple[Path, ...] = (),
) -> None:
    """Refuse outputs that cannot be written, or would replace the data, before any computation."""
    from ..files import check_writable
    from ..plots.output import FORMATS
    from .report import SUFFIXES as PAGES
    from .tables import SUFFIXES as TABLES

    for path, suffixes in ((table, TABLES), (html, PAGES), (figure, FORMATS)):
        if path is None:
            continue
        if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
            raise ValueError(f"{path} contains the data: choose another output file")
        check_writable(path, suffixes)


def write_outputs(
    paths: Mapping[str, Any], table: pd.DataFrame, figure: Any, page: Report | None
) -> None:
    """Write what was asked for by ``--output``, ``--figure`` and ``--html``."""
    from ..files import write_whole
    from ..plots import save_figure
    from .report import render
    from .tables import write_table

    if paths["output"] is not None:
        write_table(table, paths["output"])
    if paths["figure"] is not None:
        save_figure(figure, paths["figure"])
    if page is not None:
        write_whole(paths["html"], render(page))


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
