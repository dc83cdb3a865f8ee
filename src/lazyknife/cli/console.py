"""How the command speaks: results on stdout, everything else on stderr, errors in one line."""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, NoReturn, ParamSpec, TextIO, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from ..errors import one_line, visible
from ..memory import check_room, noticing_memory

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
WIDE = 160  # columns of a table in a file or a pipe
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes: a part failed, the user can fix it, Ctrl-C
# What a user's file, setting or machine can cause; anything else is a bug.
EXPECTED = (ValueError, TypeError, OSError, ImportError, BrokenExecutor)


class OneLineErrors(TyperGroup):
    """The commands; an invalid command line is reported in one line."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        try:
            sys.exit(super().main(*args, **extra | {"standalone_mode": False}))
        except OSError as error:  # of the output: a full disk
            say_error(str(error))
        except Exception as error:
            if not hasattr(error, "format_message"):  # what typer's own errors have
                raise
            context = getattr(error, "ctx", None)
            hint = "" if context is None else f": see {context.command_path} --help"
            say_error(error.format_message().replace("Value error, ", "").rstrip(".?") + hint)
        sys.exit(USAGE)


def plainly(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a command: expected errors become one line and exit code 2, warnings one line each."""

    @functools.wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            try:
                check_room()
                return noticing_memory(command)(*args, **kwargs)
            except BrokenPipeError:  # the reader of the output has closed it; typer ends silently
                raise
            except KeyboardInterrupt:
                say("interrupted")
                raise typer.Exit(INTERRUPTED) from None
            except EXPECTED as error:
                # The library calls the rows X, or X_pool.
                say_error(re.sub(r"^X(_pool)?: ", "", str(error)) or type(error).__name__)
                raise typer.Exit(USAGE) from None

    return wrapped


def say(line: str) -> None:
    """Write one line to stderr."""
    print(visible(one_line(line)), file=sys.stderr, flush=True)


def say_error(message: str) -> None:
    """Write an error to stderr."""
    say(f"error: {message}")


def say_notes(notes: Iterable[str]) -> None:
    """Write what was guessed and done to stderr."""
    for note in notes:
        say(f"note: {note}")


def show_progress() -> bool:
    """Whether stderr is a terminal, which progress bars need."""
    return sys.stderr.isatty()


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    texts: int = 1,
    file: TextIO | None = None,
) -> None:
    """Print a table; the first ``texts`` columns are left-aligned, the others right-aligned."""
    table = Table(
        title=title or None,
        title_justify="left",
        show_header=any(columns),
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, column in enumerate(columns):
        justify = "left" if number < texts else "right"
        table.add_column(visible(column), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(visible(str(cell)) for cell in row))
    _console(file).print(table)


def print_text(text: str, file: TextIO | None = None) -> None:
    """Print lines, wrapped between words where a terminal is too narrow for them."""
    console = _console(file)
    console.print(visible(text), soft_wrap=not console.file.isatty())


def _console(file: TextIO | None) -> Console:
    file = file or sys.stdout
    width = None if file.isatty() else WIDE
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)
