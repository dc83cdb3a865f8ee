"""``python -m research study``: run named studies, draw their figures, judge the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lazyknife.cli import options as opt
from lazyknife.cli.console import (
    FAILED,
    plainly,
    print_table,
    print_text,
    say_error,
    show_progress,
)
from lazyknife.cli.output import check_outputs, command_line, versions
from lazyknife.cli.report import Figure, Report, Table, render
from lazyknife.files import write_whole
from lazyknife.plots import figure_svg, save_figure

from .. import study as studies
from ..study import COLLECTIONS, STUDIES, Study, Verdict
from ..study.run import counted
from ..study.show import heading
from ..study.tables import paper_rows, summary_lines
from .module import load_study

if TYPE_CHECKING:
    import pandas as pd

# Columns of a summary, and their heads on a page.
HEADS = {
    "n": "training rows",
    "alpha": "level α",
    "epochs": "epochs",
    "batch_size": "batch size",
    "epsilon": "ε",
    "ridge": "ridge λ",
    "readout": "readout",
    "coverage": "coverage",
    "coverage_se": "its standard error",
    "width": "width",
    "width_se": "its standard error",
    "score": "interval score",
    "seconds": "seconds",
    "certified": "certified",
    "failed": "failed trials",
}


@plainly
def study(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies or collections; without any, all are listed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for NAME.csv and NAME.svg.")
    ] = Path("results"),
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page (.html).")] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Repetitions of every combination; by default the study's own.", min=1),
    ] = None,
    jobs: opt.Jobs = -1,
    scheduler: opt.Scheduler = None,
    module: Annotated[
        Path | None,
        typer.Option(help="A Python file (.py) that defines a study of your own: see the docs."),
    ] = None,
) -> None:
    """Run studies and draw their figures.

    Rows that are already in the folder are kept: an interrupted run continues where it stopped,
    and a finished one only draws its figure again.
    """
    if not names and module is None:
        _list()
        return
    check_outputs(html=html)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: this is a file: give a folder")
    own = None if module is None else load_study(module)
    chosen = list(dict.fromkeys(study for name in names or () for study in studies.named(name)))
    where = {"trials": trials, "jobs": jobs, "scheduler": scheduler}
    failed = [text for study in chosen for text in _run(study, output, where)]
    if own is not None:
        chosen.append(own.study)
        failed += _run(own.study, output, where | {"data": own.data, "methods": own.methods})
    whole = {study.name for study in chosen} >= set(COLLECTIONS["paper"])
    found = studies.verdicts(paper_rows(output)) if whole else ()
    if found:
        rows = [(v.mark, v.claim, v.count) for v in found]
        print_table("The paper's claims", ("verdict", "claim", "holds in"), rows, texts=2)
    if html is not None:
        write_whole(html, render(_make_report(chosen, output, found, trials)))
    if failed:
        say_error(f"trials failed; the next run tries them again: {'; '.join(failed)}")
        raise typer.Exit(FAILED)


def _list() -> None:
    rows = [(s.name, s.title, len(s.expand())) for s in STUDIES.values()]
    print_table("", ("study", "what it shows", "trials"), rows, texts=2)
    print_text("")
    for name, members in COLLECTIONS.items():
        print_text(f"{name}: {', '.join(members)}")


def _run(study: Study, folder: Path, options: Mapping[str, Any]) -> list[str]:
    """Bring a study's rows up to date and draw its figure; return what failed, and how often."""
    path = folder / f"{study.name}.csv"
    try:
        outcome = studies.run_study(study, path, progress=show_progress(), **options)
    except studies.FailedTrials as error:
        outcome = error.outcome
    rows = studies.read_rows(path)
    written = [path]
    if _any_succeeded(rows):
        written.append(path.with_suffix(".svg"))
        save_figure(studies.draw(study, rows), written[-1])
    print_table(study.title, *summary_lines(rows), texts=2)
    files = ", ".join(map(str, written))
    print_text(f"\n{outcome.ran} of {outcome.rows} trials run now; {files}\n")
    return [f"{count} × {text}" for text, count in counted(outcome.failures).items()]


def _any_succeeded(rows: pd.DataFrame) -> bool:
    return bool(rows["error"].isna().any())


def _make_report(
    chosen: list[Study], folder: Path, found: tuple[Verdict, ...], trials: int | None
) -> Report:
    """Put the page together: the claims, then every study's figure and table."""
    figures, tables = [], []
    if found:
        claims = tuple((v.mark, v.claim, v.count, v.rule, v.source) for v in found)
        columns = ("verdict", "claim", "holds in", "rule", "where the paper says it")
        tables.append(Table("The paper's claims", columns, claims))
    for study in chosen:
        rows = studies.read_rows(folder / f"{study.name}.csv")
        tables.append(_table(study, rows))
        if _any_succeeded(rows):
            svg = figure_svg(studies.draw(study, rows), title=study.title, id_prefix=study.name)
            figures.append(Figure(study.title, svg, study.question, wide=True))
    settings = {"studies": [s.name for s in chosen], "trials": trials or "each study's own"}
    parts = (tuple(figures), tuple(tables), settings, command_line())
    return Report("Studies", _lead(found), None, None, *parts, versions=versions())


def _lead(found: tuple[Verdict, ...]) -> str:
    """Say what the page shows, and how many of the paper's claims hold."""
    text = "Means over trials; a standard error follows its mean."
    marks = [verdict.mark for verdict in found]
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in dict.fromkeys(marks))
    claims = f"Of {len(found)} claims of the paper: {counts}; see the table of claims. "
    return claims + text if found else text


def _table(study: Study, rows: pd.DataFrame) -> Table:
    """Means and standard errors of every combination."""
    columns = tuple(HEADS)
    cells = tuple(
        (heading(row["data"], row["transform"]), row["method"], *(row[name] for name in columns))
        for row in studies.summarise(rows).to_dict("records")
    )
    return Table(study.title, ("data", "method", *HEADS.values()), cells)
