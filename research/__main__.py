"""``python -m research``: studies, experiments, data sets and the pages made of them."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pathlib import Path
from shutil import copyfile
from typing import Annotated, Any

import pandas as pd
import typer

from lazyknife.cli.console import (
    FAILED,
    OneLineErrors,
    plainly,
    print_table,
    print_text,
    say_error,
    show_progress,
)
from lazyknife.files import check_writable
from lazyknife.plots import save_figure

from .datasets import DATASETS, FORMULAS, find
from .datasets.formulas import ROWS
from .pages import DOCS, RESULTS, write_whole
from .study import (
    COLLECTIONS,
    STUDIES,
    FailedTrials,
    Study,
    draw,
    fill,
    moved,
    named,
    read_rows,
    run_study,
)
from .study import verdicts as judge
from .study.own import Own, load_study
from .study.renew import renew as renew_rows
from .study.run import counted
from .study.tables import paper_rows, summary_lines
from .study.trial import is_known, load

EXPERIMENTS = {
    "choosing": "what the default's models choose on three tables: docs/default.md",
    "constructions": "what certificates of 1 − alpha cost: docs/settings.md",
    "diabetes": "seven methods on scikit-learn's diabetes data: docs/comparison.md",
    "gallery": "the figures of docs/gallery.md",
    "questions": "distributions, groups and shift, beside peers: docs/evidence.md",
    "trade": "width at a certified coverage, for each base: docs/evidence.md",
}
Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Without it, all are listed.")]


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
    trials: Annotated[
        int | None,
        typer.Option(help="Repetitions of every combination; by default the study's own.", min=1),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Trials at a time, each on one thread; -1 takes all cores.")
    ] = -1,
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
        rows = [(s.name, s.title, len(s.expand())) for s in STUDIES.values()]
        print_table("", ("study", "what it shows", "trials"), rows, texts=2)
        print_text("")
        for name, members in COLLECTIONS.items():
            print_text(f"{name}: {', '.join(members)}")
        return
    if jobs < 1 and jobs != -1:
        raise ValueError(f"--jobs {jobs}: give 1 or more, or -1 for all cores")
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: this is a file: give a folder")
    chosen: dict[Study, Own] = {one: Own() for name in names or () for one in named(name)}
    if module is not None:
        chosen |= dict([load_study(module)])
    options = {"trials": trials, "jobs": jobs}
    failed = [text for one, own in chosen.items() for text in _run(one, own, output, options)]
    if failed:
        say_error(f"trials failed; the next run tries them again: {'; '.join(failed)}")
        raise typer.Exit(FAILED)


def _run(study: Study, own: Own, folder: Path, options: dict[str, Any]) -> list[str]:
    """Bring a study's rows up to date and draw its figure; return what failed, and how often."""
    path = folder / f"{study.name}.csv"
    options = options | {"data": own.data, "methods": own.methods, "progress": show_progress()}
    try:
        outcome = run_study(study, path, **options)
    except FailedTrials as error:
        outcome = error.outcome
    rows = read_rows(path)
    written = [path]
    if rows["error"].isna().any():
        written.append(path.with_suffix(".svg"))
        save_figure(draw(study, rows), written[-1])
    print_table(study.title, *summary_lines(rows), texts=2)
    files = ", ".join(map(str, written))
    print_text(f"\n{outcome.ran} of {outcome.rows} trials run now; {files}\n")
    return [f"{count} × {text}" for text, count in counted(outcome.failures).items()]


@plainly
def verdicts(
    folder: Annotated[Path, typer.Argument(help="Folder of the paper's rows.")] = RESULTS,
    keep: Annotated[
        bool, typer.Option("--keep", help="Put rows and figures in place of the committed ones.")
    ] = False,
) -> None:
    """Judge the paper's claims by the rows in a folder; say where they fail and what has moved."""
    found = judge(paper_rows(folder))
    lines = [(f"{k}. {v.claim}", v.mark, v.count) for k, v in enumerate(found, start=1)]
    print_table("The paper's claims", ("claim", "verdict", "holds in"), lines, texts=2)
    failed = [
        (f"{k}.", cell.where, cell.measured)
        for k, verdict in enumerate(found, start=1)
        for cell in verdict.cells
        if not cell.holds
    ]
    print_table("\nWhere they do not hold", ("claim", "where", "measured"), failed, texts=3)
    if moves := moved(judge(paper_rows(RESULTS)), found):
        heads = ("claim", "committed", "now", "where it changed")
        print_table("\nVerdicts that moved", heads, moves, texts=4)
    else:
        print_text("\nNo verdict has moved against the committed rows.")
    if keep:
        for name, suffix in product(COLLECTIONS["paper"], (".csv", ".svg")):
            copyfile(folder / f"{name}{suffix}", RESULTS / f"{name}{suffix}")
        pages(["reproduction.md"])


@plainly
def renew(
    names: Annotated[list[str], typer.Argument(help="Studies or collections.", metavar="NAME")],
    jobs: Annotated[int, typer.Option(help="Trials at a time; -1 takes all cores.")] = -1,
    method: Annotated[list[str] | None, typer.Option(help="Only rows of this method.")] = None,
) -> None:
    """Bring committed rows up to today's code: run again what gives other numbers than it did."""
    for one in (one for name in names for one in named(name)):
        path = RESULTS / f"{one.name}.csv"
        changed = renew_rows(one, path, jobs, method or ())
        save_figure(draw(one, read_rows(path)), path.with_suffix(".svg"))
        print_table(
            one.title, ("run again", "what differed"), changed or [("nothing", "")], texts=2
        )


@plainly
def experiment(name: Name = None) -> None:
    """Run an experiment behind pages of docs/, and write its rows, figures and tables."""
    if name is None:
        for each, what in EXPERIMENTS.items():
            print_text(f"{each}: {what}")
        return
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    import_module(f"research.experiments.{name}").main(DOCS)


@plainly
def datasets(
    name: Name = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it (.csv, .parquet).")
    ] = None,
) -> None:
    """List the data sets, or write one to a file with its response as the last column."""
    if name is None:
        _list_datasets()
        return
    if not is_known(name):
        names = ", ".join((*DATASETS, *FORMULAS, "diabetes"))
        raise ValueError(f"no data set {name!r}: choose from {names}, simulated_p16 (or any p)")
    if output is None:
        raise ValueError(f"give --output to say where to write {name}")
    check_writable(output, (".csv", ".parquet"))
    data = load(name, None, seed=0)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names)).assign(y=data.y)
    output.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(output) if output.suffix == ".parquet" else frame.to_csv(output, index=False)
    print_text(f"Wrote {data.label}, {len(frame)} rows, y = {data.target}, to {output}.")


def _list_datasets() -> None:
    rows = [(e.name, e.response, e.rows, e.columns) for e in DATASETS.values()]
    rows += [(f"simulated_p{p}", "√relu(Xβ) + noise", ROWS, p) for p in (16, 100)]
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


@plainly
def pages(
    names: Annotated[list[str], typer.Argument(help="Pages in docs/: evidence.md", metavar="PAGE")],
) -> None:
    """Fill the tables of studies on pages in docs/ from the rows of the studies."""
    for path in (DOCS / name for name in names):
        write_whole(path, fill(path.read_text(encoding="utf-8"), RESULTS))
        print_text(f"Filled {path}.")


app = typer.Typer(
    name="research",
    cls=OneLineErrors,
    help=__doc__,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)
for command in (study, verdicts, renew, experiment, datasets, pages):
    app.command()(command)

if __name__ == "__main__":
    app(prog_name="python -m research")
