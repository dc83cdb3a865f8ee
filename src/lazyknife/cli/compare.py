"""``lazyknife compare``: several methods on the user's own data, cross-validated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files, values
from . import options as opt
from .console import FAILED, plainly, plus_minus, print_table, print_text, say, show_progress
from .library import members

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report

COLUMNS = ("method", "coverage", "width", "interval score", "seconds", "certified")
DEFAULT, OTHERS = (members("estimators.methods", name) for name in ("DEFAULT", "OTHERS"))


@plainly
def compare(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(
            help="Rows with their target: .csv, .csv.gz, .tsv or .parquet.", metavar="DATA"
        ),
    ],
    target: opt.Target,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a table with a row for each method and fold.",
            rich_help_panel=opt.FILES,
        ),
    ] = None,
    html: opt.Html = None,
    figure: opt.FigurePath = None,
    drop: opt.Drop = None,
    categorical: opt.Categorical = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help=f"Method to compare (may be repeated). By default {', '.join(DEFAULT)}; "
            f"also available: {', '.join(OTHERS)}.",
            metavar="NAME",
            rich_help_panel=opt.LAZY,
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Level of the intervals.", rich_help_panel=opt.LAZY)
    ] = 0.1,
    scaling: opt.Scaling = "standardize",
    unit: opt.Unit = 1.0,
    epochs: Annotated[
        int, typer.Option(help="Epochs of every training.", rich_help_panel=opt.BASE)
    ] = 10,
    batch_size: Annotated[
        int, typer.Option(help="Batch size of every training.", rich_help_panel=opt.BASE)
    ] = 10,
    epsilon: Annotated[
        float, typer.Option(help="Privacy ε of the DP-SGD bases.", rich_help_panel=opt.BASE)
    ] = 0.01,
    folds: Annotated[int, typer.Option(help="Number of folds.", rich_help_panel=opt.RUN)] = 5,
    train_rows: Annotated[
        int,
        typer.Option(
            help="Largest number of training rows in a fold; jackknife+ trains as many networks.",
            rich_help_panel=opt.RUN,
        ),
    ] = 500,
    test_rows: Annotated[
        int, typer.Option(help="Largest number of test rows in a fold.", rich_help_panel=opt.RUN)
    ] = 5000,
    jobs: opt.Jobs = -1,
    seed: opt.Seed = 0,
) -> None:
    """Compare coverage, width and time of several methods on your own data.

    The features of a fold's training and test rows are scaled together, without labels, so that
    nothing leaks. All methods use the same network, two hidden layers of 64 ReLU units plus a
    linear function of the inputs, and train it for the same number of epochs. The lazy_ methods use
    the ridge and the readout of the paper, the lazyknife ones the defaults of predict. In Python,
    compare_methods also takes a dict of your own estimators.
    """
    from ..compare import compare_methods
    from ..data.checks import check_positive
    from .tables import encode_one, read_table

    check_positive("unit", unit)
    values.check_jobs(jobs)
    files.check_outputs(output, html, figure, inputs=(data,))
    rows = encode_one(
        read_table(data), target, drop=drop or (), categorical=categorical or (), name=data.name
    )
    for note in rows.notes:
        say(f"note: {note}")
    found = compare_methods(
        rows.X,
        rows.y / unit,
        tuple(dict.fromkeys(methods or DEFAULT)),
        alpha=alpha,
        epochs=epochs,
        batch_size=batch_size,
        epsilon=epsilon,
        scaling=values.make_scaling(scaling),
        folds=folds,
        train_rows=train_rows,
        test_rows=test_rows,
        random_state=seed,
        jobs=jobs,
        progress=show_progress(),
    )
    found[["width", "score"]] *= unit
    lead = (
        f"{data.name}: {len(rows.y)} rows, {rows.X.shape[1]} features, {folds} folds of "
        f"{found['n'].min()} training rows, alpha = {alpha:g}."
    )
    _show(context, lead, rows.notes, found)
    if _say_grouped("error", found):
        raise typer.Exit(FAILED)


def _show(context: typer.Context, lead: str, notes: tuple[str, ...], found: pd.DataFrame) -> None:
    """Print the table, and write the files that were asked for."""
    from ..compare import summarise_folds

    summary, options = summarise_folds(found), context.params
    drawn = page = None
    if options["figure"] or options["html"]:
        drawn = _draw(summary, options["alpha"])
    if options["html"]:
        page = _make_report(lead, notes, summary, drawn, files.settings_of(context))
    files.write_outputs(options, found, drawn, page)
    print_text(lead)
    print_table("", COLUMNS, [_cells(row) for row in summary.to_dict("records")])
    if options["output"]:
        print_text(f"\nWrote {len(found)} rows to {options['output']}.")
    _say_grouped("warning", found)


def _say_grouped(kind: str, found: pd.DataFrame) -> bool:
    """Print each method's warnings or errors once, with the number of folds; return if any."""
    some = found[found[kind] != ""]
    for (method, text), part in some.groupby(["method", kind], sort=False):
        say(f"{kind}: {method}, {len(part)} of {found['fold'].nunique()} folds: {text}")
    return len(some) > 0


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["coverage"] != row["coverage"]:
        return (row["method"], "failed", "", "", "", "")
    certified = row["certified"]
    return (
        row["method"],
        *(plus_minus(row[name], row[f"{name}_se"]) for name in ("coverage", "width", "score")),
        f"{row['seconds']:.2g}",
        "none" if certified != certified else f"{certified:.3f}",
    )


def _draw(summary: pd.DataFrame, alpha: float) -> Any:
    from matplotlib.figure import Figure

    from ..compare import wants_log
    from ..plots import Panel, plot_comparison, style

    def panel(column: str, label: str, **options: Any) -> Panel:
        means, errors = summary[column].tolist(), summary[f"{column}_se"].tolist()
        return Panel(label, means, errors, **options)

    with style():
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        panels = [
            panel("coverage", "coverage", target=1 - alpha, target_label="1 − α"),
            panel("seconds", "time (s)", log=True),
            panel("width", "width", log=wants_log(summary["width"])),
        ]
        plot_comparison(summary["method"].tolist(), panels, figure.subplots(1, 3))
    return figure


def _make_report(
    lead: str,
    notes: tuple[str, ...],
    summary: pd.DataFrame,
    drawn: Any,
    settings: Mapping[str, object],
) -> Report:
    from ..plots import figure_svg
    from .report import Figure, Report, Table
    from .versions import versions

    shown = {
        "method": "method",
        "coverage": "coverage",
        "coverage_se": "± s.e.",
        "width": "width",
        "width_se": "± s.e.",
        "score": "interval score",
        "score_se": "± s.e.",
        "seconds": "seconds",
        "certified": "certified",
    }
    table = Table(
        "Methods",
        tuple(shown.values()),
        tuple(summary[list(shown)].itertuples(index=False, name=None)),
        "Means over the folds; certified: the coverage that is guaranteed, if any.",
    )
    title = "Coverage, time and width"
    return Report(
        "Methods compared",
        lead,
        None,
        (Figure(title, figure_svg(drawn, title=title, id_prefix="comparison")),),
        (table,),
        settings,
        files.command_line(),
        notes,
        versions(),
    )
