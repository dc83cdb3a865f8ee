"""``lazyknife compare``: several methods on the user's own data, cross-validated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import in_figures
from ..report.page import Cell, Figure, Report, Table, Verdict, cell_of, render
from . import options as opt
from .console import FAILED, plainly, print_table, print_text, say, say_notes
from .fit import KINDS
from .options import BASE, FILES, LAZY, RUN, option
from .output import check_outputs, origin, spooled, write_outputs
from .read_table import open_source
from .rows import check_names, read_training

if TYPE_CHECKING:
    import pandas as pd

    from ..compare import Recommendation

# Columns that are shown, with their titles and captions.
SHOWN = {
    "coverage": ("Coverage", "The share of new values inside their intervals; dotted: the aim."),
    "score": ("Interval score", "Width plus a penalty for each miss: smaller is better."),
    "width": ("Width", "Narrow intervals are useful if they cover enough."),
    "seconds": ("Time", "Seconds to fit and to predict one fold, on one thread."),
}
FAILURE = ("failed", *[""] * len(SHOWN))  # instead of the numbers
COLUMNS = ("method", *(title.lower() for title, _ in SHOWN.values()), "certified")
NOTE = (
    "Means over the folds ± standard errors; certified: the coverage that is guaranteed, if any. "
    "The CSV file has every fold."
)
ROWS = f"Rows with their target: {KINDS}."
NAMES = (  # of lazyknife.compare, which loads torch
    *("naive", "jackknife+", "cv+", "split_conformal", "lazy_finetune", "lazyknife", "lazy_dp"),
    *("mapie_cv_boosting", "mapie_cv_forest", "mapie_cv_gp"),
)
METHOD = f"Method to compare (may be repeated), instead of the usual ones ({', '.join(NAMES)})."
SETTINGS = (
    opt.table(LAZY, alpha=(float, 0.1, "Level of the intervals."))
    | opt.table(
        BASE,
        epochs=(int, 10, "Epochs of every training."),
        batch_size=(int, 10, "Batch size of every training."),
    )
    | opt.table(
        RUN,
        folds=(int, 5, "Number of folds."),
        train_rows=(int, 500, "Largest number of training rows in a fold."),
        test_rows=(int, 5000, "Largest number of test rows in a fold."),
    )
    | {"jobs": (opt.Jobs, -1), "scheduler": (opt.Scheduler, None)}
)
RUNNING = {name: opt.SETTINGS[name] for name in ("seed", "verbose")}


@plainly
@opt.with_options(opt.DATA, opt.PAGES, opt.READING, SETTINGS, RUNNING)
def compare(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help=ROWS, metavar="DATA")],
    target: opt.Target,
    output: Annotated[
        Path | None, option("Table with a row for each method and fold.", FILES, "--output", "-o")
    ] = None,
    methods: Annotated[list[str] | None, option(METHOD, LAZY, "--method", metavar="NAME")] = None,
    **given: Any,
) -> None:
    """Compare methods on your own data, and recommend one of them.

    Features of a fold's training and test rows are scaled together, without labels, so that nothing
    leaks. Methods that train use the same network, two hidden layers of 64 ReLU units plus a linear
    function of the inputs, on standardised targets. lazyknife is the default of predict. In Python,
    compare_methods also takes a dict of your own estimators.
    """
    from ..data.checks import check_choice

    check_outputs(output, given["html"], given["figure"], [data])
    for name in methods or ():
        check_choice("method", name, NAMES)
    formats, roles = opt.formats_of(given), opt.roles_of([target], None, given)
    source = open_source(data, formats)
    check_names(source, None, roles)
    rows, _ = read_training(source, None, roles, formats)
    say_notes(rows.notes)

    from ..compare import PEERS, compare_methods, messages, recommend, summarise_folds

    if not methods and find_spec("mapie") is None:
        say(f"note: pip install mapie adds {', '.join(PEERS)} to the comparison.")
    found = compare_methods(
        rows.X,
        rows.y,
        tuple(dict.fromkeys(methods)) if methods else None,
        random_state=given["seed"],
        verbose=opt.show(given),
        **{name: given[name] for name in SETTINGS},
    )
    lead = (
        f"{source.name}: {len(rows.X)} rows, {rows.X.shape[1]} features, {given['folds']} folds of "
        f"{found['n'].min()} training rows, alpha = {given['alpha']:g}."
    )
    summary, advice = summarise_folds(found), recommend(found, given["alpha"])
    drawn = draw(summary, advice, target) if given["figure"] else None
    page = ""
    if given["html"]:
        more = {"lead": lead, "notes": tuple(rows.notes), **origin(context)}
        page = render(make_report(found, summary, advice, target, more))
    with spooled(output) as (append, move):
        append(found)
        write_outputs(context.params, move, drawn, page)
    print_text(lead)
    lines = [_cells(row) for row in summary.to_dict("records")]
    print_table("", COLUMNS, [[cell.text for cell in line] for line in lines])
    if len(summary) > 1:
        print_text(f"\n{advice}")
    if output:
        print_text(f"\nWrote {len(found)} rows to {output}.")
    for kind in ("warning", "error"):
        for message in messages(found, kind):
            say(f"{kind}: {message}")
    if found["error"].any():
        raise typer.Exit(FAILED)


def _cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """Return the means of a method, with their standard errors, as they are shown and sorted."""
    if row["coverage"] != row["coverage"]:
        return (Cell(row["method"]), *[Cell(text, missing=True) for text in FAILURE])
    texts = {
        "coverage": f"{row['coverage']:.3f} ± {row['coverage_se']:.3f}",
        **{name: _with_error(row[name], row[f"{name}_se"]) for name in ("score", "width")},
        "seconds": in_figures(row["seconds"], 2),
        "certified": f"{row['certified']:.3f}",
    }
    cells = [
        Cell("none", missing=True) if row[name] != row[name] else cell_of(row[name], text)
        for name, text in texts.items()
    ]
    return (Cell(row["method"]), *cells)


def _with_error(mean: float, error: float) -> str:
    return "∞" if mean == math.inf else f"{in_figures(mean, 3)} ± {in_figures(error, 2)}"


def draw(
    summary: pd.DataFrame,
    advice: Recommendation,
    target: str,
    columns: Iterable[str] = SHOWN,
    scale: float = 1.0,
) -> Any:
    """Draw quantities side by side."""
    from matplotlib import figure as figures

    from ..plots import Panel, plot_comparison, style
    from ..plots.figures import literal

    panels = []
    for column in columns:
        name = SHOWN[column][0].lower()
        unit = {"coverage": "", "seconds": ", seconds"}.get(column, f", {literal(target)}")
        aim = 1 - advice.alpha if column == "coverage" else None
        errors = summary[f"{column}_se"]
        log = column == "seconds"
        panels.append(Panel(name + unit, summary[column], errors, log, aim, "1 − α"))
    with style(scale):
        size = (3.1 * len(panels) + 1.9, max(4.2, 0.35 * len(summary)))
        figure = figures.Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(panels))
        plot_comparison(list(summary["method"]), panels, axes, best=advice.method)
    return figure


def make_report(
    found: pd.DataFrame,
    summary: pd.DataFrame,
    advice: Recommendation,
    target: str,
    more: Mapping[str, Any],
) -> Report:
    """Put the page together; ``more`` are parts that it does not make."""
    from ..compare import ABOUT
    from ..plots import figure_svg

    figures = []
    for column, (title, caption) in SHOWN.items():
        drawn = draw(summary, advice, target, [column], scale=1.6)  # for a phone
        figures.append(Figure(title, figure_svg(drawn, title=title, id_prefix=column), caption))
    lines = tuple(_cells(row) for row in summary.to_dict("records"))
    verdict = Verdict("Recommendation", advice.claim, advice.reasons)
    return Report(
        title="Methods compared",
        verdict=verdict if len(summary) > 1 else None,
        figures=tuple(figures),
        tables=(Table("Methods", COLUMNS, lines, NOTE, found.to_csv(index=False)),),
        glossary={name: ABOUT[name] for name in summary["method"]},
        **more,
    )
