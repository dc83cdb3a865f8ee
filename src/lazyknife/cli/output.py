"""Files that a command writes: all of them or none, and what a report says of the run."""

from __future__ import annotations

import gzip
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from ..report.page import safe_cells, versions_of
from .read_table import STANDARD, SUFFIXES, TEXTS, suffix_of

if TYPE_CHECKING:
    import pandas as pd

PAGES, FIGURES = (".html", ".htm"), (".svg", ".pdf", ".png")
Append = Callable[["pd.DataFrame"], None]


def check_outputs(
    table: Path | None = None,
    html: Path | None = None,
    figure: Path | None = None,
    inputs: Sequence[Path] = (),
) -> None:
    """Refuse outputs that cannot be written, or would replace the data, before any computation."""
    from ..files import check_writable

    table = None if table == STANDARD else table
    for path, suffixes in ((table, SUFFIXES), (html, PAGES), (figure, FIGURES)):
        if path is None:
            continue
        if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
            raise ValueError(f"{path} contains the data: choose another output file")
        check_writable(path, suffixes)
    written = [path for path in (table, html, figure) if path is not None]
    if len({path.resolve() for path in written}) < len(written):
        raise ValueError("two outputs have the same name: choose different files")


@contextmanager
def spooled(path: Path | None) -> Iterator[tuple[Append, Any]]:
    """Yield a function that takes a table in parts, and one that moves the finished file.

    The parts are in a temporary file until then; without a path they are dropped.
    """
    from ..files import beside

    if path is None or path == STANDARD:
        with appending(sys.stdout.buffer, ".csv") as append:
            yield append if path else lambda _: None, None
        return
    with beside(path) as spool, ExitStack() as stack:
        file = stack.enter_context(spool.open("wb"))

        def move(temporary: Path) -> None:
            stack.close()
            os.replace(spool, temporary)

        yield stack.enter_context(appending(file, suffix_of(path))), move


@contextmanager
def appending(file: IO[bytes], suffix: str) -> Iterator[Append]:
    """Yield a function that writes further rows of a table."""
    parts: list[pd.DataFrame] = []  # of a workbook
    first = True
    with ExitStack() as stack:
        # Without a name and a time, the same table gives the same bytes.
        packed: Any = file
        writer: Any = None
        if suffix.endswith(".gz"):
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))

        def append(frame: pd.DataFrame) -> None:
            nonlocal first, writer
            frame = frame if suffix == ".parquet" else safe_cells(frame)
            if suffix == ".parquet":
                import pyarrow as pa
                from pyarrow import parquet

                table = pa.Table.from_pandas(frame, writer and writer.schema, preserve_index=False)
                writer = writer or stack.enter_context(parquet.ParquetWriter(file, table.schema))
                writer.write_table(table)
            elif suffix == ".xlsx":
                parts.append(frame)
            else:
                text = frame.to_csv(index=False, sep=TEXTS[suffix], header=first)
                packed.write(text.encode())
            first = False

        yield append
        if suffix == ".xlsx":
            import pandas as pd

            pd.concat(parts).to_excel(file, index=False)


def write_outputs(paths: Mapping[str, Any], move: Any, drawn: Any, page: str) -> None:
    """Write the ``--output`` (by ``move``), the ``--figure`` and the ``--html`` page, or none."""
    from ..files import write_together
    from ..plots.figures import write_figure

    output, figure, html = (paths[name] for name in ("output", "figure", "html"))
    writers: dict[Path, Callable[[Path], object]] = {}
    if move is not None:
        writers[output] = move
    if figure is not None:
        writers[figure] = lambda temporary: write_figure(drawn, temporary, figure.suffix.lower())
    if html is not None:
        writers[html] = lambda temporary: temporary.write_text(page, "utf-8", "replace")
    write_together(writers)


def origin(context: typer.Context) -> dict[str, Any]:
    """Return what a report says of a run: all options with a value, the command, the versions."""
    options = [param for param in context.command.params if param.opts[0].startswith("-")]
    values = {param.opts[0]: context.params.get(str(param.name)) for param in options}
    given = {name: value for name, value in values.items() if value not in (None, [], ())}
    command = shlex.join(["lazyknife", *sys.argv[1:]])
    return {"settings": given, "command": command, "versions": versions_of()}
