"""The command ``lazyknife``: intervals, comparisons and certificates from a shell."""

from __future__ import annotations

import inspect
import io
import sys
from typing import Annotated

try:
    import rich  # noqa: F401, both are needed from here on
    import typer
except ImportError as error:  # pragma: no cover, the tests have the extra
    raise SystemExit(f"lazyknife: {error.name} is missing: pip install 'lazyknife[cli]'") from error

from .certify import certify, plan
from .compare import compare
from .console import OneLineErrors, print_text
from .predict import predict

app = typer.Typer(
    name="lazyknife",
    cls=OneLineErrors,
    help="Prediction intervals for neural networks, with a coverage guarantee.",
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Do what is no command's own."""
    if version:
        from importlib.metadata import version as version_of

        print_text(f"lazyknife {version_of('lazyknife')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(context.get_help())


def _unwrapped(text: str) -> str:
    """A docstring's paragraphs, each on one line: it is the screen that says where to break."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


for command in (predict, compare, certify, plan):
    app.command(help=_unwrapped(command.__doc__ or ""))(command)


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a screen without Greek letters is no error
    app(prog_name="lazyknife")  # also where it is run as a module
