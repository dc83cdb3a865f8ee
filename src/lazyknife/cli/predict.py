"""``lazyknife predict``: intervals for the rows of one file from the rows of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from . import files, values
from . import options as opt
from .console import plainly, say, show_progress
from .predict_run import fit_and_predict, read_rows, write_results


@plainly
def predict(
    context: typer.Context,
    train: Annotated[
        Path,
        typer.Argument(help="Training rows: .csv, .csv.gz, .tsv or .parquet.", metavar="TRAIN"),
    ],
    test: Annotated[Path, typer.Argument(help="New rows, with the same columns.", metavar="TEST")],
    target: opt.Target,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Where to write the intervals.", rich_help_panel=opt.FILES
        ),
    ],
    html: opt.Html = None,
    figure: opt.FigurePath = None,
    drop: opt.Drop = None,
    categorical: opt.Categorical = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Column that names the rows; copied, not used.",
            metavar="COLUMN",
            rich_help_panel=opt.FILES,
        ),
    ] = None,
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            help="Level: intervals aim at covering 1 − alpha (may be repeated); by default 0.1.",
            metavar="NUMBER",
            rich_help_panel=opt.LAZY,
        ),
    ] = None,
    scaling: opt.Scaling = "standardize",
    construction: opt.Construction = "plus",
    widths: Annotated[
        Literal["noise", "leverage", "constant"] | None,
        typer.Option(
            help="What widths follow: noise (how large errors are nearby), leverage (how far a row "
            "is from the others) or absolute (nothing); by default what suits the construction.",
            metavar="NAME",
            rich_help_panel=opt.LAZY,
        ),
    ] = None,
    folds: opt.Folds = 10,
    readout: Annotated[
        Literal["tangent", "network"],
        typer.Option(
            help="Predict with the network linearised (tangent) or moved (network).",
            metavar="NAME",
            rich_help_panel=opt.LAZY,
        ),
    ] = "tangent",
    ridge: Annotated[
        str,
        typer.Option(
            help="λ, or auto: chosen without leaking.", metavar="NUMBER", rich_help_panel=opt.LAZY
        ),
    ] = "auto",
    intercept: Annotated[
        bool, typer.Option(help="Whether to fit an intercept.", rich_help_panel=opt.LAZY)
    ] = True,
    hidden: Annotated[
        str,
        typer.Option(
            help="Widths of the network's layers.", metavar="WIDTHS", rich_help_panel=opt.LAZY
        ),
    ] = "64,64",
    skip: Annotated[
        bool,
        typer.Option(
            help="Whether the network has a linear function of the features beside its layers.",
            rich_help_panel=opt.LAZY,
        ),
    ] = True,
    starts: Annotated[
        int,
        typer.Option(help="Networks with random starts to average.", rich_help_panel=opt.LAZY),
    ] = 1,
    loss: Annotated[
        Literal["squared", "huber", "logistic", "poisson"],
        typer.Option(
            help="What the models minimise: squared, huber (in --unit), logistic (targets 0 and "
            "1) or poisson (counts).",
            metavar="NAME",
            rich_help_panel=opt.LAZY,
        ),
    ] = "squared",
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            help="What the lazy step moves: all (the default), last, or a pattern of parameters' "
            "names (may be repeated).",
            metavar="NAMES",
            rich_help_panel=opt.LAZY,
        ),
    ] = None,
    sketch: Annotated[
        int | None,
        typer.Option(
            help="Project the features to so many, for very many rows.", rich_help_panel=opt.LAZY
        ),
    ] = None,
    nu: Annotated[
        float,
        typer.Option(
            help="Widen every interval by ν on both sides, in the target's unit.",
            rich_help_panel=opt.LAZY,
        ),
    ] = 0.0,
    unit: opt.Unit = 1.0,
    base: opt.BaseKind = "dpsgd",
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    epochs: opt.Epochs = None,
    batch_size: opt.BatchSize = None,
    lr: opt.Lr = None,
    max_grad_norm: opt.MaxGradNorm = None,
    noise_multiplier: opt.NoiseMultiplier = None,
    fraction: opt.Fraction = None,
    sensitivity: opt.Sensitivity = None,
    norm: opt.Norm = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=opt.RUN)
    ] = "auto",
    precision: Annotated[
        Literal["float64", "mixed", "float32", "tf32"],
        typer.Option(
            help="Of the lazy step; mixed solves in float64 and predicts in float32.",
            rich_help_panel=opt.RUN,
        ),
    ] = "mixed",
    memory_budget: Annotated[
        str | None,
        typer.Option(
            help="Memory for blocks, such as 4GB; by default a quarter of what is free.",
            metavar="SIZE",
            rich_help_panel=opt.RUN,
        ),
    ] = None,
    seed: opt.Seed = 0,
) -> None:
    """Write a prediction interval for every row of TEST, learnt from the rows of TRAIN.

    By default features are standardised over the rows of both files together, which leaks
    nothing; the certificate then holds for the rows of TEST.
    """
    from ..data.checks import check_fraction, check_not_negative, check_positive
    from ..networks import mlp
    from ..tangent import Sketch

    levels = [check_fraction("alpha", level) for level in dict.fromkeys(alpha or [0.1])]
    settings: dict[str, Any] = {
        "network": mlp(values.parse_widths(hidden), skip=skip),
        "features": None if sketch is None else Sketch(sketch),
        "base": values.make_base(context.params),
        "ridge": values.parse_ridge(ridge),
        "construction": construction,
        "widths": widths,
        "folds": folds,
        "starts": starts,
        "loss": loss,
        "readout": readout,
        "intercept": intercept,
        "parameters": values.parse_parameters(parameters),
        "scaling": values.make_scaling(scaling),
        "alpha": levels[0],
        "nu": check_not_negative("nu", nu) / check_positive("unit", unit),
        "device": device,
        "precision": precision,
        "memory_budget": values.parse_bytes(memory_budget),
        "random_state": seed,
        "progress": show_progress(),
    }
    files.check_outputs(output, html, figure, inputs=(train, test))
    rows = read_rows(train, test, target, drop or (), categorical or (), id_column)
    for note in rows.notes:
        say(f"note: {note}")
    outcome = fit_and_predict(rows, levels, unit, test.name, settings)
    write_results(context, outcome, f"{train} → {test}")
