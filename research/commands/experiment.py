"""``python -m research experiment``: run the experiments behind pages of docs/."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from lazyknife.cli.console import plainly, print_text

from ..pages import DOCS

EXPERIMENTS = {
    "choosing": "what the default's models choose on three tables: docs/default.md",
    "diabetes": "seven methods on scikit-learn's diabetes data: docs/comparison.md",
    "gallery": "the figures of docs/gallery.md",
    "trade": "width at a certified coverage, for each base: docs/evidence.md",
    "unlabelled": "rows without labels: docs/evidence.md",
}


@plainly
def experiment(
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"One of {', '.join(EXPERIMENTS)}; without it, all are listed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    docs: Annotated[Path, typer.Option(help="Folder to write to.")] = DOCS,
) -> None:
    """Run an experiment and write its rows, figures and tables."""
    if name is None:
        for each, what in EXPERIMENTS.items():
            print_text(f"{each}: {what}")
        return
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    import_module(f"research.experiments.{name}").main(docs)
