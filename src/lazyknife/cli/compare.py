"""``lazyknife compare``: several methods on the user's own data, cross-validated."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options as opt
from .console import FAILED, plainly, print_table, print_text, say, say_notes
from .fit import KINDS
from .options import BASE, FILES, LAZY, RUN, option
from .output import check_outputs, origin, spooled, write_outputs
from .read_table import open_source
from .rows import check_names, read_training

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
        jobs=(int, -1, "Fits at a time, each on one thread; -1: all cores."),
        scheduler=(str | None, None, "Address of a Dask scheduler, whose workers fit."),
    )
)
RUNNING = {name: opt.SETTINGS[name] for name in ("seed", "verbose")}


@plainly
@opt.with_options(opt.DATA, opt.PAGES, opt.READING, SETTINGS, RUNNING)
def compare(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help=ROWS, metavar="DATA")],
    target: Annotated[str, option("Column to predict.", FILES, **opt.COLUMN)],
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
    from ..data.checks import check_choice, check_positive_int

    check_outputs(output, given["html"], given["figure"], [data])
    for name in methods or ():
        check_choice("method", name, NAMES)
    if given["jobs"] != -1:
        check_positive_int("jobs", given["jobs"])
    formats, roles = opt.formats_of(given), opt.roles_of([target], None, given)
    source = open_source(data, formats)
    check_names(source, None, roles)
    rows, _ = read_training(source, None, roles, formats)
    if rows.classes:
        raise ValueError(f"--target {target}: methods are compared on numbers, not on classes")
    say_notes(rows.notes)

    from ..compare import ABOUT, PEERS, compare_methods, messages, recommend, summarise_folds
    from ..report.comparison import COLUMNS, cells_of, draw, make_report
    from ..report.page import render

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
    summary, advice, page = summarise_folds(found), recommend(found, given["alpha"]), ""
    drawn = draw(summary, advice, target) if given["figure"] else None
    if given["html"]:
        glossary = {name: ABOUT[name] for name in summary["method"]}
        more = {"lead": lead, "notes": tuple(rows.notes), "glossary": glossary, **origin(context)}
        page = render(make_report(found, summary, advice, target, more))
    with spooled(output) as (append, move):
        append(found)
        write_outputs(context.params, move, drawn, page)
    print_text(lead)
    lines = [cells_of(row) for row in summary.to_dict("records")]
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
