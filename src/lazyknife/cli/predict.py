"""``lazyknife predict``: intervals for the rows of one file from the rows of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options as opt
from . import values
from .console import plainly, say, show_progress
from .files import check_outputs
from .library import names
from .options import FILES, LAZY, LIBRARY, RUN, option
from .predict_run import fit_and_predict, read_rows, write_results

LEVEL = "Level: intervals aim at a coverage of 1 − alpha (may be repeated); by default {alpha}."
MOVED = "Parameters that are fitted: all (the default), last, or name patterns (may be repeated)."
MIXED = "mixed solves in float64 and predicts in float32."


@plainly
@opt.with_options(opt.SETTINGS, opt.BASES)
def predict(
    context: typer.Context,
    train: Annotated[
        Path,
        typer.Argument(help="Training rows: .csv, .csv.gz, .tsv or .parquet.", metavar="TRAIN"),
    ],
    test: Annotated[Path, typer.Argument(help="New rows, with the same columns.", metavar="TEST")],
    target: opt.Target,
    output: Annotated[Path, option("File for the intervals.", FILES, "--output", "-o")],
    html: opt.Html = None,
    figure: opt.FigurePath = None,
    drop: opt.Drop = None,
    categorical: opt.Categorical = None,
    id_column: Annotated[
        str | None,
        option("Column of row names, copied to the output.", FILES, "--id", metavar="COLUMN"),
    ] = None,
    alpha: Annotated[
        list[float] | None, option(LEVEL.format(**LIBRARY), LAZY, metavar="NUMBER")
    ] = None,
    scaling: opt.Scaling = "standardize",
    hidden: Annotated[
        str, option("Widths of the network's hidden layers.", LAZY, metavar="WIDTHS")
    ] = "64,64",
    skip: Annotated[
        bool, option("Add a linear function of the features to the network.", LAZY)
    ] = True,
    parameters: Annotated[list[str] | None, option(MOVED, LAZY, metavar="NAMES")] = None,
    sketch: Annotated[
        int | None, option("Number of random features, for very many rows.", LAZY)
    ] = None,
    unit: opt.Unit = 1.0,
    precision: Annotated[
        str, option(f"{names('compute', 'PRECISIONS')}; {MIXED}", RUN, metavar="NAME")
    ] = "mixed",
    memory_budget: Annotated[
        str | None,
        option(
            "Memory for temporary blocks, such as 4GB; by default a quarter of what is free.",
            RUN,
            metavar="SIZE",
        ),
    ] = None,
    seed: opt.Seed = 0,
    **settings: Any,
) -> None:
    """Write a prediction interval for every row of TEST, learned from the rows of TRAIN.

    By default, features are standardised over the rows of both files together, which does not
    leak; the certificate then holds for the rows of TEST.
    """
    from ..data.checks import check_fraction, check_not_negative, check_positive
    from ..networks import mlp
    from ..tangent import Sketch

    given = alpha or [LIBRARY["alpha"]]
    levels = [check_fraction("alpha", level) for level in dict.fromkeys(given)]
    estimator = {name: settings[name] for name in opt.SETTINGS} | {
        "network": mlp(values.parse_hidden(hidden), skip=skip),
        "features": None if sketch is None else Sketch(sketch),
        "base": values.make_base(settings),
        "ridge": values.parse_ridge(settings["ridge"]),
        "parameters": values.parse_parameters(parameters),
        "scaling": values.make_scaling(scaling),
        "alpha": levels[0],
        "nu": check_not_negative("nu", settings["nu"]) / check_positive("unit", unit),
        "precision": precision,
        "memory_budget": values.parse_bytes(memory_budget),
        "random_state": seed,
        "progress": show_progress(),
    }
    check_outputs(output, html, figure, inputs=(train, test))
    rows = read_rows(train, test, target, drop or (), categorical or (), id_column)
    for note in rows.notes:
        say(f"note: {note}")
    outcome = fit_and_predict(rows, levels, unit, test.name, estimator)
    write_results(context, outcome, f"{train} → {test}")
