"""The options of the commands; those that are settings of the library have its defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from .library import defaults, members, names

Command = TypeVar("Command", bound=Callable[..., None])
Options = dict[str, tuple[Any, Any]]  # names with annotations and defaults, as in a signature

BASE, FILES, LAZY, RUN = "The base", "Files and columns", "The intervals", "The run"
TEXTS = "Text files, where a guess is wrong"


def option(text: str, panel: str, *flags: str, metavar: str | None = None, **more: Any) -> Any:
    """Return a typer option with a help text in one of the panels above."""
    return typer.Option(*flags, help=text, rich_help_panel=panel, metavar=metavar, **more)


def table(panel: str, **entries: tuple[Any, ...]) -> Options:
    """Return options of one panel: type, default, help and, if needed, the name of the value."""
    return {
        name: (Annotated[kind, option(text, panel, metavar=next(iter(metavar), None))], default)
        for name, (kind, default, text, *metavar) in entries.items()
    }


Target = Annotated[str, option("Column to predict.", FILES, "--target", metavar="COLUMN")]
OptionalTarget = Annotated[
    str | None, option("Column to predict.", FILES, "--target", metavar="COLUMN")
]
Alpha = Annotated[float, option("Level: intervals aim at a coverage of 1 − alpha.", LAZY)]
Jobs = Annotated[int, option("Fits at a time, each on one thread; -1: all cores.", RUN)]
Scheduler = Annotated[
    str | None,
    option("Address of a Dask scheduler, on whose workers fits run.", RUN, metavar="ADDRESS"),
]
SEED: Options = {"seed": (Annotated[int, option("Seed of all randomness.", RUN, min=0)], 0)}

_SCALING = (
    f"How features are scaled: {names('data.scaling', 'TRANSFORMS')}; or symlog+standardize or "
    "none. standardize uses training and new rows together, which does not leak."
)
_CATEGORICAL = "Column to encode as categories (may be repeated)."
_UNIT = "Fixed unit of the target, such as 1000: target ÷ unit is learned."
DATA = table(
    FILES,
    html=(Path | None, None, "Write a self-contained HTML report."),
    figure=(Path | None, None, "Draw a figure (.svg, .pdf or .png)."),
    drop=(list[str] | None, None, "Column to ignore (may be repeated).", "COLUMN"),
    categorical=(list[str] | None, None, _CATEGORICAL, "COLUMN"),
) | table(LAZY, scaling=(str | None, None, _SCALING, "NAME"), unit=(float, 1.0, _UNIT))

_NA = (
    "Text of a missing value (may be repeated), instead of NA, NaN, null and the like in all "
    "columns and ?, - and the like in columns of numbers or dates. Empty fields always are."
)
_DATES = "day-first, month-first, or a format such as %d/%m/%y; by default what all values fit."
READING = table(
    TEXTS,
    sep=(str | None, None, "Separator of fields: a character, or tab.", "CHARACTER"),
    decimal=(str | None, None, "Mark of decimals: . or ,", "CHARACTER"),
    thousands=(str | None, None, "Mark between thousands: , . ' or space.", "CHARACTER"),
    na=(list[str] | None, None, _NA, "TEXT"),
    encoding=(str | None, None, "Encoding, such as utf-8, cp1252 or utf-16.", "NAME"),
    dates=(str | None, None, _DATES, "ORDER"),
)

_BOUND = "{end} value that the target can have: intervals end there."
TARGET = table(
    LAZY,
    target_transform=(
        str | None,
        None,
        f"Learn a function of the target: {names('data.targets', 'TARGETS')}; log requires values "
        "above 0, logit between 0 and 1. Intervals are transformed back.",
        "NAME",
    ),
    lower_bound=(float | None, None, _BOUND.format(end="Smallest")),
    upper_bound=(float | None, None, _BOUND.format(end="Largest")),
)

# Settings of LazyJackknifeRegressor under their own names, and of the bases: type and help.
_OWN: dict[str, tuple[Any, str]] = {
    "construction": (
        str,
        f"How intervals are made: {names('intervals.constructions', 'CONSTRUCTIONS')}. "
        "jackknife and naive have no guarantee.",
    ),
    "widths": (
        str | None,
        f"What widths depend on: {names('ridge.widths', 'WIDTHS')}. leverage is the distance from "
        "other rows, auto lets models choose. By default, what suits the construction.",
    ),
    "feature_weights": (str, "auto: each model weighs the features; none: all weigh the same."),
    "folds": (int, "Number of folds of --construction cv+."),
    "readout": (
        str,
        f"Model that predicts: {names('ridge.readout', 'READOUTS')}; tangent is the linearised "
        "network, network the network at the moved weights.",
    ),
    "ridge": (str, "λ, or auto: each model chooses it on its own rows."),
    "fit_intercept": (bool, "Fit an intercept."),
    "n_starts": (int, "Number of randomly initialised networks to average."),
    "loss": (
        str,
        f"Loss of the models: {names('losses', 'LOSSES')}. logistic requires targets 0 and 1, "
        "poisson counts; huber is in units of --unit.",
    ),
    "nu": (float, "Widen every interval by ν on both sides, in the target's (transformed) unit."),
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
    "noise; plain: training, without a guarantee."
)
_FILES = {"public": "public_split", "split": "public_split"}
_FIELDS = {
    kind: defaults(f"base.{_FILES.get(kind, kind)}", of)
    for kind, of in members("base", "BASES").items()
}


def _base_option(name: str, kind: Any, text: str) -> tuple[Any, None, str]:
    """Return an option of the bases; its help names the defaults, and for which bases."""
    found: dict[object, list[str]] = {}
    for base, fields in _FIELDS.items():
        if fields.get(name) is not None:
            found.setdefault(fields[name], []).append(base)
    shown = " or ".join(f"{value} ({', '.join(bases)})" for value, bases in found.items())
    return kind | None, None, f"{text}; by default {shown}." if shown else f"{text}."


LIBRARY = defaults("estimators.lazy", "LazyJackknifeRegressor")
SETTINGS = table(LAZY, **{name: (of, LIBRARY[name], text) for name, (of, text) in _OWN.items()})
BASES = table(
    BASE,
    base=(str, "public", _BASE_HELP),
    **{name: _base_option(name, *option) for name, option in BASE_OPTIONS.items()},
)


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
