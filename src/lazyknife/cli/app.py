"""The command ``lazyknife``: intervals, comparisons and certificates from a shell."""

from __future__ import annotations

import inspect
import io
import sys
from importlib.metadata import version as version_of
from typing import Annotated

try:
    import rich  # noqa: F401, both are needed from here on
    import typer
except ImportError as error:  # pragma: no cover, the tests have the extra
    raise SystemExit(f"lazyknife: {error.name} is missing: pip install 'lazyknife[cli]'") from error

from .certify import certify, plan
from .compare import compare
from .console import OneLineErrors, print_text
from .fit import fit
from .predict import predict

TITLE = (
    "Prediction intervals with a coverage guarantee, for tables and PyTorch networks. "
    "No tuning, no calibration split."
)
app = typer.Typer(
    name="lazyknife",
    cls=OneLineErrors,
    help=TITLE,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Show the version, or the help where no command is given."""
    if version:
        print_text(f"lazyknife {version_of('lazyknife')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(context.get_help())


for command in (predict, fit, compare, certify, plan):
    # Paragraphs on one line each: the terminal decides where lines break.
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    app.command(help="\n\n".join(" ".join(text.split()) for text in paragraphs))(command)


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals without Greek letters
    app(prog_name="lazyknife")  # also when run as a module
