"""``python -m research``: studies, experiments, data sets and the pages made of them."""

from __future__ import annotations

import typer

from lazyknife.cli.console import OneLineErrors

from .commands.datasets import datasets
from .commands.experiment import experiment
from .commands.pages import pages
from .commands.study import study

app = typer.Typer(
    name="research",
    cls=OneLineErrors,
    help=__doc__,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)
for command in (study, experiment, datasets, pages):
    app.command()(command)

if __name__ == "__main__":
    app(prog_name="python -m research")
