"""``python -m research pages``: make the tables of pages anew from the committed rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lazyknife.cli.console import plainly, print_text
from lazyknife.files import write_whole

from ..pages import DOCS, RESULTS, fill, marked
from ..study.catalogue import STUDIES
from ..study.tables import SPECIAL, make_table


@plainly
def pages(
    names: Annotated[list[str], typer.Argument(help="Pages in docs/: evidence.md", metavar="PAGE")],
    results: Annotated[Path, typer.Option(help="Folder of the studies' rows.")] = RESULTS,
) -> None:
    """Fill the tables of studies on pages in docs/ from the rows of the studies."""
    for path in (DOCS / name for name in names):
        write_whole(path, filled(path.read_text(encoding="utf-8"), results))
        print_text(f"Filled {path}.")


def filled(page: str, results: Path) -> str:
    """Return a page with its tables made anew, but for those that experiments fill."""
    known = {*SPECIAL, *STUDIES}
    return fill(page, {name: make_table(name, results) for name in marked(page) if name in known})
