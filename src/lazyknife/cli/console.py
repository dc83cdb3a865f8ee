"""How the command speaks: results on stdout, everything else on stderr, errors in one line."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from ..errors import one_line, visible
from ..memory import check_room, noticing_memory
from .spelling import spelled

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
            sys.exit(USAGE)
        except Exception as error:
            if not hasattr(error, "format_message"):  # what typer's own errors have
                raise
            message = error.format_message().replace("Value error, ", "").rstrip(".")
            context = getattr(error, "ctx", None)
            hint = "" if context is None else f": see {context.command_path} --help"
            say_error(message + hint)
            sys.exit(USAGE)


def plainly(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a command: expected errors become one line and exit code 2, warnings one line each."""
    parameters = tuple(inspect.signature(command).parameters)

    @functools.wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        def warn(message: Warning | str, *_: Any, **__: Any) -> None:
            say(f"warning: {spelled(one_line(message), parameters)}")

        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = warn
            try:
                check_room()
                return noticing_memory(command)(*args, **kwargs)
            except BrokenPipeError:  # the reader of the output has closed it; typer ends silently
                raise
            except KeyboardInterrupt:
                say("interrupted")
                raise typer.Exit(INTERRUPTED) from None
            except EXPECTED as error:
                say_error(spelled(one_line(error) or type(error).__name__, parameters))
                raise typer.Exit(USAGE) from None

    return wrapped


def say_error(message: str) -> None:
    """Write an error to stderr."""
    say(f"error: {message}")


def say(line: str) -> None:
    """Write one line to stderr."""
    print(visible(one_line(line)), file=sys.stderr, flush=True)


def show_progress() -> bool:
    """Whether stderr is a terminal, which progress bars need."""
    return sys.stderr.isatty()


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1
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
        table.add_column(column, justify="left" if number < texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*(visible(str(cell)) for cell in row))
    _console().print(table)


def print_text(text: str) -> None:
    """Print lines, wrapped between words where a terminal is too narrow for them."""
    _console().print(visible(text), soft_wrap=not sys.stdout.isatty())


def _console() -> Console:
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, highlight=False, markup=False, emoji=False)


def plus_minus(mean: float, error: float) -> str:
    """Return a mean with its standard error, rounded to two digits of the error.

    >>> plus_minus(5339.2, 862.1), plus_minus(0.8833, 0.01734)
    ('5340 ± 860', '0.883 ± 0.017')
    """
    if not (math.isfinite(mean) and 0 < error < math.inf):
        return f"{mean:.4g}"
    places = 1 - math.floor(math.log10(error))
    if mean:  # five digits of the mean are enough, however small its error
        places = min(places, 4 - math.floor(math.log10(abs(mean))))
    shown = max(places, 0)
    return f"{round(mean, places):.{shown}f} ± {round(error, places):.{shown}f}"
