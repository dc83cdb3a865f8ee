"""``lazyknife compare``: several methods on the user's own data, cross-validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files, inputs, values
from . import options as opt
from .compared import COLUMNS, MEASURED, Compared, draw, make_report
from .console import FAILED, plainly, plus_minus, print_table, print_text, say, show_progress
from .library import members
from .options import BASE, FILES, LAZY, RUN, option
from .sizes import check_sizes

if TYPE_CHECKING:
    import pandas as pd

    from .tables import Reading, Roles
    from .tables.rows import Rows

DEFAULT, PEERS = (members("compare", name) for name in ("DEFAULT", "PEERS"))

DATA = "Rows with their target: .csv, .csv.gz, .tsv or .parquet."
METHOD = (
    f"Method to compare (may be repeated). By default {', '.join(DEFAULT)}; and, if MAPIE is "
    f"installed (pip install mapie), {', '.join(PEERS)}. With the extra dp, also lazy_dp."
)
TRAIN_ROWS = "Largest number of training rows in a fold; jackknife+ trains as many networks."
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
        train_rows=(int, 500, TRAIN_ROWS),
        test_rows=(int, 5000, "Largest number of test rows in a fold."),
    )
    | {"jobs": (opt.Jobs, -1), "scheduler": (opt.Scheduler, None)}
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
    """Compare methods on your own data, and recommend one of them.

    The features of a fold's training and test rows are scaled together, without labels, so that
    nothing leaks. Methods that train use the same network, two hidden layers of 64 ReLU units plus
    a linear function of the inputs, for the same number of epochs, on standardised targets. The
    lazy_ methods use the ridge and the readout of the paper, lazyknife the defaults of predict:
    without training, every leave-one-out model chooses its network. In Python, compare_methods also
    takes a dict of your own estimators.
    """
    values.check_jobs(given["jobs"])
    files.check_outputs(output, given["html"], given["figure"], inputs=(data,))
    reading, roles = inputs.reading_of(given), inputs.roles_of(target, given)
    check_sizes(inputs.check_inputs((data,), reading, roles), given, fits=False)

    from ..data.checks import check_fraction, check_positive

    check_fraction("alpha", given["alpha"])
    unit = check_positive("unit", given["unit"])
    rows = _read(data, reading, roles)

    from ..compare import compare_methods, messages

    found = compare_methods(
        rows.X,
        rows.y / unit,
        tuple(dict.fromkeys(methods or _usual())),
        scaling=values.make_scaling(given["scaling"] or "standardize"),
        random_state=given["seed"],
        verbose=show_progress(),
        **{name: given[name] for name in SETTINGS},
    )
    found[["width", "score"]] *= unit
    lead = (
        f"{data.name}: {len(rows.y)} rows, {rows.X.shape[1]} features, {given['folds']} folds of "
        f"{found['n'].min()} training rows, alpha = {given['alpha']:g}."
    )
    _show(context, lead, rows.about.notes, found)
    if errors := messages(found, "error"):
        for error in errors:
            say(f"error: {error}")
        raise typer.Exit(FAILED)


def _read(data: Path, reading: Reading, roles: Roles) -> Rows:
    """Read the file, and say what was guessed and done."""
    from .tables.rows import split_rows

    (frame,), notes = inputs.read_inputs((data,), reading, roles)
    rows = split_rows(frame, None, roles, (data.name, data.name))
    for note in rows.about.notes:
        say(f"note: {note}")
    return replace(rows, about=replace(rows.about, notes=(*notes, *rows.about.notes)))


def _usual() -> tuple[str, ...]:
    """Return the methods that are compared where none are named; say which are not installed."""
    from ..compare import usual_methods

    if find_spec("mapie") is None:
        say(f"note: pip install mapie adds {', '.join(PEERS)} to the comparison.")
    return usual_methods()


def _show(context: typer.Context, lead: str, notes: tuple[str, ...], found: pd.DataFrame) -> None:
    """Print the recommendation and the table, and write the files that were asked for."""
    from ..compare import messages, recommend, summarise_folds

    options = context.params
    result = Compared(
        found, summarise_folds(found), recommend(found, options["alpha"]), options["target"]
    )
    drawn = draw(result) if options["figure"] else None
    page = make_report(result, lead, notes, files.origin(context)) if options["html"] else None
    files.write_outputs(options, files.writing(found, options), drawn, page)
    print_text(lead)
    print_table("", COLUMNS, [_cells(row) for row in result.summary.to_dict("records")])
    if len(result.summary) > 1:
        print_text(f"\n{result.advice}")
    if options["output"]:
        print_text(f"\nWrote {len(found)} rows to {options['output']}.")
    for warning in messages(found, "warning"):
        say(f"warning: {warning}")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["coverage"] != row["coverage"]:
        return (row["method"], "failed", "", "", "", "")
    certified = "none" if row["certified"] != row["certified"] else f"{row['certified']:.3f}"
    means = [plus_minus(row[name], row[f"{name}_se"]) for name in MEASURED]
    return (row["method"], *means, f"{row['seconds']:.2g}", certified)
