"""``lazyknife compare``: several methods on the user's own data, cross-validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files, inputs, values
from . import options as opt
from .console import FAILED, plainly, plus_minus, print_table, print_text, say, show_progress
from .library import members
from .options import BASE, FILES, LAZY, RUN, option

if TYPE_CHECKING:
    import pandas as pd

    from .report import Report
    from .tables import Reading, Roles
    from .tables.rows import Rows

MEASURED = {"coverage": "coverage", "width": "width", "score": "interval score"}
COLUMNS = ("method", *MEASURED.values(), "seconds", "certified")
DEFAULT, OTHERS = (members("estimators.methods", name) for name in ("DEFAULT", "OTHERS"))

DATA = "Rows with their target: .csv, .csv.gz, .tsv or .parquet."
METHOD = (
    f"Method to compare (may be repeated). By default {', '.join(DEFAULT)}; also available: "
    f"{', '.join(OTHERS)}."
)
TRAIN_ROWS = "Largest number of training rows in a fold; jackknife+ trains as many networks."
SETTINGS = (
    opt.table(LAZY, alpha=(float, 0.1, "Level of the intervals."))
    | opt.table(
        BASE,
        epochs=(int, 10, "Epochs of every training."),
        batch_size=(int, 10, "Batch size of every training."),
        epsilon=(float, 0.01, "Privacy ε of the DP-SGD bases."),
    )
    | opt.table(
        RUN,
        folds=(int, 5, "Number of folds."),
        train_rows=(int, 500, TRAIN_ROWS),
        test_rows=(int, 5000, "Largest number of test rows in a fold."),
    )
    | {"jobs": (opt.Jobs, -1)}
)


@plainly
@opt.with_options(opt.DATA, opt.READING, SETTINGS, opt.SEED)
def compare(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help=DATA, metavar="DATA")],
    target: opt.Target,
    output: Annotated[
        Path | None, option("Table with a row for each method and fold.", FILES, "--output", "-o")
    ] = None,
    methods: Annotated[list[str] | None, option(METHOD, LAZY, "--method", metavar="NAME")] = None,
    **given: Any,
) -> None:
    """Compare coverage, width and time of several methods on your own data.

    The features of a fold's training and test rows are scaled together, without labels, so that
    nothing leaks. Methods that train use the same network, two hidden layers of 64 ReLU units plus
    a linear function of the inputs, for the same number of epochs. The lazy_ methods use the ridge
    and the readout of the paper, the lazyknife ones the defaults of predict: without training,
    every leave-one-out model chooses its network. In Python, compare_methods also takes a dict of
    your own estimators.
    """
    from ..data.checks import check_positive

    unit = check_positive("unit", given["unit"])
    values.check_jobs(given["jobs"])
    files.check_outputs(output, given["html"], given["figure"], inputs=(data,))
    reading, roles = inputs.reading_of(given), inputs.roles_of(target, given)
    inputs.check_inputs((data,), reading, roles)
    rows = _read(data, reading, roles)

    from ..compare import compare_methods

    found = compare_methods(
        rows.X,
        rows.y / unit,
        tuple(dict.fromkeys(methods or DEFAULT)),
        scaling=values.make_scaling(given["scaling"] or "standardize"),
        random_state=given["seed"],
        progress=show_progress(),
        **{name: given[name] for name in SETTINGS},
    )
    found[["width", "score"]] *= unit
    lead = (
        f"{data.name}: {len(rows.y)} rows, {rows.X.shape[1]} features, {given['folds']} folds of "
        f"{found['n'].min()} training rows, alpha = {given['alpha']:g}."
    )
    _show(context, lead, rows.notes, found)
    if _say_grouped("error", found):
        raise typer.Exit(FAILED)


def _read(data: Path, reading: Reading, roles: Roles) -> Rows:
    """Read the file, and say what was guessed and done."""
    from .tables.rows import split_rows

    (frame,), notes = inputs.read_inputs((data,), reading, roles)
    rows = split_rows(frame, None, roles, (data.name, data.name))
    for note in rows.notes:
        say(f"note: {note}")
    return replace(rows, notes=(*notes, *rows.notes))


def _show(context: typer.Context, lead: str, notes: tuple[str, ...], found: pd.DataFrame) -> None:
    """Print the table, and write the files that were asked for."""
    from ..compare import summarise_folds

    summary, options = summarise_folds(found), context.params
    drawn = page = None
    if options["figure"] or options["html"]:
        drawn = _draw(summary, options["alpha"])
    if options["html"]:
        page = _make_report(lead, notes, summary, drawn, files.origin(context))
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
    certified = "none" if row["certified"] != row["certified"] else f"{row['certified']:.3f}"
    means = [plus_minus(row[name], row[f"{name}_se"]) for name in MEASURED]
    return (row["method"], *means, f"{row['seconds']:.2g}", certified)


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
    origin: Mapping[str, Any],
) -> Report:
    from ..plots import figure_svg
    from .report import Figure, Report, Table

    pairs = [((name, label), (f"{name}_se", "± s.e.")) for name, label in MEASURED.items()]
    both = [("method", "method"), *sum(pairs, ()), *((name, name) for name in COLUMNS[-2:])]
    columns, labels = zip(*both, strict=True)
    rows = tuple(summary[list(columns)].itertuples(index=False, name=None))
    note = "Means over the folds; certified: the coverage that is guaranteed, if any."
    title = "Coverage, time and width"
    return Report(
        title="Methods compared",
        lead=lead,
        certificate=None,
        figures=(Figure(title, figure_svg(drawn, title=title, id_prefix="comparison")),),
        tables=(Table("Methods", labels, rows, note),),
        notes=notes,
        **origin,
    )
