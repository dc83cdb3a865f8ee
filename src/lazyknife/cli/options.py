"""The options of the commands; those that are settings of the library have its defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from .library import defaults, members, names

Command = TypeVar("Command", bound=Callable[..., None])

BASE = "The base"
FILES = "Files and columns"
LAZY = "The intervals"
RUN = "The run"


def option(text: str, panel: str, *flags: str, metavar: str | None = None, **more: Any) -> Any:
    """Return a typer option with a help text in one of the panels above."""
    return typer.Option(*flags, help=text, rich_help_panel=panel, metavar=metavar, **more)


Target = Annotated[str, option("Column to predict.", FILES, "--target", metavar="COLUMN")]
Drop = Annotated[
    list[str] | None, option("Column to ignore (may be repeated).", FILES, metavar="COLUMN")
]
Categorical = Annotated[
    list[str] | None,
    option("Column to encode as categories (may be repeated).", FILES, metavar="COLUMN"),
]
Html = Annotated[Path | None, option("Write a self-contained HTML report.", FILES)]
FigurePath = Annotated[Path | None, option("Draw a figure (.svg, .pdf or .png).", FILES)]
Scaling = Annotated[
    str,
    option(
        f"How features are scaled: {names('data.scaling', 'TRANSFORMS')}; or symlog+standardize or "
        "none. standardize uses training and new rows together, which does not leak.",
        LAZY,
        metavar="NAME",
    ),
]
Unit = Annotated[
    float, option("Fixed unit of the target, such as 1000: target ÷ unit is learned.", LAZY)
]
Alpha = Annotated[float, option("Level: intervals aim at a coverage of 1 − alpha.", LAZY)]
Seed = Annotated[int, option("Seed of all randomness.", RUN, min=0)]
Jobs = Annotated[int, option("Fits at a time, each on one thread; -1: all cores.", RUN)]

# Settings of LazyJackknifeRegressor under their own names, and of the bases: type and help.
_SETTINGS: dict[str, tuple[Any, str]] = {
    "construction": (
        str,
        f"How intervals are made: {names('intervals.constructions', 'CONSTRUCTIONS')}. "
        "jackknife and naive have no guarantee.",
    ),
    "widths": (
        str | None,
        f"What widths depend on: {names('solve.widths', 'WIDTHS')}. leverage is the distance from "
        "other rows, noise the size of errors nearby. By default, what suits the construction.",
    ),
    "folds": (int, "Number of folds of --construction cv+."),
    "readout": (
        str,
        f"Model that predicts: {names('solve.readout', 'READOUTS')}; tangent is the linearised "
        "network, network the network at the moved weights.",
    ),
    "ridge": (str, "λ, or auto: each model chooses it on its own rows."),
    "intercept": (bool, "Fit an intercept."),
    "starts": (int, "Number of randomly initialised networks to average."),
    "loss": (
        str,
        f"Loss of the models: {names('losses', 'LOSSES')}. logistic requires targets 0 and 1, "
        "poisson counts; huber is in units of --unit.",
    ),
    "nu": (float, "Widen every interval by ν on both sides, in the target's unit."),
    "device": (str, "Where the models are solved: auto, or a device such as cpu or cuda."),
}
BASE_OPTIONS: dict[str, tuple[Any, str]] = {
    "epsilon": (float, "Privacy ε of dpsgd or perturbed"),
    "delta": (float, "Privacy δ of dpsgd"),
    "epochs": (int, "Passes over the training rows"),
    "batch_size": (int, "Rows in a batch"),
    "lr": (float, "Learning rate"),
    "max_grad_norm": (float, "Clipping norm of dpsgd"),
    "noise_multiplier": (float, "Noise of dpsgd, instead of --epsilon"),
    "fraction": (float, "Fraction of the rows that split trains on"),
    "sensitivity": (float, "Bound that you assert on how far one row moves perturbed's weights"),
    "norm": (str, "Norm of --sensitivity and of the noise of perturbed"),
}
_BASE_HELP = (
    f"How the base weights are obtained: {names('base', 'BASES')}. public: random initialisation; "
    "split: training on some of the rows; dpsgd: private training; perturbed: training, then "
    "noise; pretrained: training on the features of both files, without the target; plain: "
    "training, without a guarantee."
)
_FIELDS = {kind: defaults(f"base.{kind}", of) for kind, of in members("base", "BASES").items()}


def _with_defaults(name: str, text: str) -> str:
    """Append the defaults that an option has in the library, and for which bases."""
    found: dict[object, list[str]] = {}
    for kind, fields in _FIELDS.items():
        if fields.get(name) is not None:
            found.setdefault(fields[name], []).append(kind)
    shown = " or ".join(f"{value} ({', '.join(kinds)})" for value, kinds in found.items())
    return f"{text}; by default {shown}." if shown else f"{text}."


# Name of an option with its annotation and its default, as a signature has them.
Options = dict[str, tuple[Any, Any]]
LIBRARY = defaults("estimators.lazy", "LazyJackknifeRegressor")
SETTINGS: Options = {
    name: (Annotated[kind, option(text, LAZY)], LIBRARY[name])
    for name, (kind, text) in _SETTINGS.items()
}
BASES: Options = {"base": (Annotated[str, option(_BASE_HELP, BASE)], "public")} | {
    name: (Annotated[kind | None, option(_with_defaults(name, text), BASE)], None)
    for name, (kind, text) in BASE_OPTIONS.items()
}


def with_options(*tables: Options) -> Callable[[Command], Command]:
    """Add options to a command, which takes their values as keyword arguments."""

    def extended(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=of)
            for table in tables
            for name, (of, default) in table.items()
        ]
        command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return command

    return extended
