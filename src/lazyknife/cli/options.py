"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

BASE = "The base"
FILES = "Files and columns"
LAZY = "The intervals"
RUN = "The run"

Target = Annotated[
    str,
    typer.Option("--target", help="Column to predict.", metavar="COLUMN", rich_help_panel=FILES),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Column to leave out (may be repeated).", metavar="COLUMN", rich_help_panel=FILES
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of codes to encode as categories (may be repeated).",
        metavar="COLUMN",
        rich_help_panel=FILES,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(help="Write a self-contained page (.html).", rich_help_panel=FILES),
]
FigurePath = Annotated[
    Path | None,
    typer.Option(help="Draw a figure (.svg, .pdf or .png).", rich_help_panel=FILES),
]
Scaling = Annotated[
    Literal["standardize", "symlog", "symlog+standardize", "none"],
    typer.Option(
        help="Of the features: standardize, symlog, symlog+standardize or none. Standardising is "
        "pooled over training and new rows: no leak.",
        metavar="NAME",
        rich_help_panel=LAZY,
    ),
]
Construction = Annotated[
    Literal["plus", "minmax", "full", "cv+", "jackknife", "naive"],
    typer.Option(
        help="How intervals are made: plus, minmax, full or cv+; or, without a guarantee, "
        "jackknife or naive.",
        metavar="NAME",
        rich_help_panel=LAZY,
    ),
]
Folds = Annotated[
    int, typer.Option(help="Number of folds of --construction cv+.", rich_help_panel=LAZY)
]
BaseKind = Annotated[
    Literal["dpsgd", "public", "pretrained", "split", "perturbed", "plain"],
    typer.Option(
        help="Where the base weights come from: dpsgd (private training), public (a random "
        "start), pretrained (trained on the features of both files, without the target), split "
        "(training on a part of the rows), perturbed (training, then noise) or plain (training, "
        "no guarantee).",
        metavar="NAME",
        rich_help_panel=BASE,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Privacy ε of dpsgd (by default 0.01) or of perturbed.", rich_help_panel=BASE
    ),
]
Delta = Annotated[
    float | None, typer.Option(help="δ of dpsgd; by default 0.001.", rich_help_panel=BASE)
]
Epochs = Annotated[
    int | None, typer.Option(help="Passes over the rows; by default 10.", rich_help_panel=BASE)
]
BatchSize = Annotated[
    int | None, typer.Option(help="Rows in a batch; by default 10.", rich_help_panel=BASE)
]
Lr = Annotated[
    float | None,
    typer.Option(
        help="Step size; by default 0.001, or what suits the noise of dpsgd.", rich_help_panel=BASE
    ),
]
MaxGradNorm = Annotated[
    float | None,
    typer.Option(help="Clipping norm of dpsgd; by default 1.", rich_help_panel=BASE),
]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(help="Noise of dpsgd itself, instead of --epsilon.", rich_help_panel=BASE),
]
Fraction = Annotated[
    float | None,
    typer.Option(
        help="Share of the rows that split trains on; by default 0.5.", rich_help_panel=BASE
    ),
]
Sensitivity = Annotated[
    float | None,
    typer.Option(
        help="The most that one row can move perturbed's weights, as you assert.",
        rich_help_panel=BASE,
    ),
]
Norm = Annotated[
    Literal["l1", "l2"] | None,
    typer.Option(help="Norm of perturbed's noise; by default l2.", rich_help_panel=BASE),
]
Unit = Annotated[
    float,
    typer.Option(
        help="Fixed unit of the target, such as 1000: the network learns target ÷ unit.",
        rich_help_panel=LAZY,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, rich_help_panel=RUN)]
Jobs = Annotated[
    int,
    typer.Option(help="Fits at a time, each on one thread; -1: all cores.", rich_help_panel=RUN),
]
