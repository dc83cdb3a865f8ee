"""``python -m research datasets``: what there is, where it is, and a way to write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from lazyknife.cli.console import plainly, print_table, print_text
from lazyknife.cli.output import check_outputs, write_table

from ..datasets import DATASETS, FORMULAS, find
from ..datasets.formulas import ROWS
from ..study.trial import is_known, load


@plainly
def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A data set to write; without it, all are listed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write it (.csv, .csv.gz, .tsv, .parquet)."),
    ] = None,
) -> None:
    """List the data sets, or write one to a file with its response as the last column."""
    if name is None:
        _list()
        return
    known = (*DATASETS, *FORMULAS, "diabetes")
    if not is_known(name):
        names = ", ".join(known)
        raise ValueError(f"no data set {name!r}: choose from {names}, simulated_p16 (or any p)")
    if output is None:
        raise ValueError(f"give --output to say where to write {name}")
    check_outputs(output)
    data = load(name, None, seed=0)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names))
    write_table(frame.assign(y=data.y), output)
    print_text(f"Wrote {data.label}, {len(frame)} rows, y = {data.target}, to {output}.")


def _list() -> None:
    rows = [(e.name, e.response, e.rows, e.columns) for e in DATASETS.values()]
    rows += [(f"simulated_p{p}", "√relu(Xβ) + noise", 5000, p) for p in (16, 100)]
    rows += [(name, "formula + noise", ROWS, len(f.ranges)) for name, f in FORMULAS.items()]
    rows += [("diabetes", "progression in a year", 442, 10)]
    print_table("", ("name", "response", "rows", "features"), rows, texts=2)
    for entry in DATASETS.values():
        place = find(entry.name)
        absent = "to be fetched" if entry.archive else "not here"
        where = absent if place is None else f"in {place}"
        print_text(
            f"\n{entry.name}: {where}.\n  {entry.publisher}. Terms: {entry.terms}. {entry.url}"
        )
