"""The options of the commands, and the settings of the library that they stand for.

Names and defaults are those of ``LazyJackknifeRegressor`` and of the bases, as the tests check;
help and refusals of wrong values load neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import typer

from .console import show_progress
from .read_table import Formats
from .rows import Roles

if TYPE_CHECKING:
    from ..base import BaseMethod
    from ..networks import mlp

Command = TypeVar("Command", bound=Callable[..., None])
Options = dict[str, tuple[Any, Any]]  # names with annotations and defaults, as in a signature
Names, Number, Count = list[str] | None, float | None, int | None
FILES, TEXTS, LAZY = "Files and columns", "Files, where a guess is wrong", "The intervals"
MODELS, TARGET, BASE, RUN = "The models", "The target", "The base", "The run"


def option(text: str, panel: str, *flags: str, **more: Any) -> Any:
    """Return a typer option with a help text in one of the panels above."""
    return typer.Option(*flags, help=text, rich_help_panel=panel, **more)


def table(panel: str, **entries: tuple[Any, Any, str]) -> Options:
    """Return options of one panel: type, default and help, which ends with the choices."""
    return {
        name: (Annotated[kind, option(text + _choices(kind), panel, metavar=_kind(kind))], default)
        for name, (kind, default, text) in entries.items()
    }


def _choices(kind: Any) -> str:
    values = [value for part in (kind, *get_args(kind)) for value in get_args(part)]
    texts = dict.fromkeys(value for value in values if isinstance(value, str))
    return f" ({' | '.join(texts)})." if texts else ""


def _kind(kind: Any) -> str:
    """What follows the flag in the help: columns of types would leave no room for the texts."""
    names = {"Literal": "", "bool": "", "Path": "FILE", "str": "TEXT", "": "NUMBER"}
    return next(shown for name, shown in names.items() if name in str(kind))


# What --preset stands for; options that are given count all the same.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        **{"base": "dpsgd", "hidden": "64,64", "skip": False, "ridge": "10", "scaling": "none"},
        **{"readout": "network", "widths": "constant", "fit_intercept": False},
    }
}


def _use_preset(context: typer.Context, preset: str | None) -> str | None:
    context.default_map = PRESETS[preset] if preset else None
    return preset


COLUMN = {"metavar": "COLUMN"}
TARGETS = "Column to predict; several (repeated, or as A,B) are predicted together."
Id = Annotated[str | None, option("Column of row names for the output.", FILES, "--id", **COLUMN)]
DATA: Options = {
    name: (Annotated[Names, option(f"Column to {what} (may be repeated).", FILES, **COLUMN)], None)
    for name, what in {"drop": "ignore", "categorical": "encode as categories"}.items()
}
PAGES = table(
    FILES,
    html=(Path | None, None, "Write a self-contained HTML report."),
    figure=(Path | None, None, "Draw a figure (.svg, .pdf or .png)."),
)
READING = table(
    TEXTS,
    sep=(str | None, None, "Separator of fields: a character, or tab."),
    decimal=(Literal[".", ","] | None, None, "Mark of decimals"),
    dates=(str | None, None, "day-first, month-first, or a format such as %d/%m/%y."),
    na=(
        Names,
        None,
        "Text of a missing value (may be repeated), instead of NA, -, ? and the like.",
    ),
    encoding=(str | None, None, "Encoding, such as utf-8, cp1252 or utf-16."),
    sheet=(str | None, None, "Sheet of an Excel file; by default the first."),
)
GROUPS = "Column of groups, or several as A,B: coverage in each group; they remain features."
CLASSES = "Predict sets of classes where the target has numbers, too."
CLUSTERS = "Column of clusters: guarantee rows of new ones; it is not a feature."
GROUPED: Options = {
    "groups": (Annotated[str | None, option(GROUPS, FILES, metavar="COLUMN[,COLUMN]")], None),
    "clusters": (Annotated[str | None, option(CLUSTERS, FILES, **COLUMN)], None),
    "classes": (Annotated[bool, option(CLASSES, FILES, "--classes")], False),
}
SIDE = "Ends of the intervals; a limit has the level for itself"
QUANTILES = "Quantiles of predictive distributions, such as 0.1,0.5,0.9, as further columns."
WEIGHTS = "Account for new rows whose features are distributed differently"
QUESTIONS = table(
    LAZY,
    side=(Literal["both", "upper", "lower"], "both", SIDE),
    quantiles=(str | None, None, QUANTILES),
    weights=(Literal["estimate"] | None, None, WEIGHTS),
)
LEVEL = "Level: intervals aim at a coverage of 1 − alpha (may be repeated); by default 0.1."
WIDTHS = "What widths depend on; by default, models choose with the default network"
HIDDEN = (
    "Widths of the hidden layers of one network, such as 64,64. By default the network is chosen, "
    "or 64,64 where other options require a finite one."
)
SCALING = (
    "Scaling of features: auto, the default, by training rows, so that nothing leaks; standardize, "
    "the default of --hidden, by training and new rows together"
)
LOSS = "Loss of the models; logistic requires targets 0 and 1, poisson counts"
TRANSFORM = "Learn a function of the target, by default a chosen one; ends are transformed back"
TRANSFORMS = Literal["auto", "log", "log1p", "logit", "symlog", "none"]
CONSTRUCTION = Literal["auto", "plus", "minmax", "full", "cv+", "split", "jackknife", "naive"]
SETTINGS = (
    table(
        LAZY,
        alpha=(list[float] | None, None, LEVEL),
        construction=(CONSTRUCTION, "auto", "How intervals are made; the last two certify nothing"),
        folds=(int, 10, "Number of folds of --construction cv+."),
        widths=(Literal["constant", "leverage", "auto"] | None, None, WIDTHS),
        nu=(float, 0.0, "Widen intervals by ν on both sides, in the (transformed) unit."),
    )
    | table(
        MODELS,
        hidden=(str | None, None, HIDDEN),
        skip=(bool, True, "Add a linear part to the network of --hidden."),
        scaling=(Literal["auto", "symlog", "standardize", "none"] | None, None, SCALING),
        feature_weights=(Literal["auto", "none"], "auto", "Whether features are weighted"),
        ridge=(str, "auto", "λ, or auto: it is chosen."),
        fit_intercept=(bool, True, "Fit an intercept."),
        readout=(Literal["network", "tangent"], "tangent", "Network as it is, or linearised"),
        n_starts=(int, 1, "Number of randomly initialised networks to average."),
    )
    | table(
        TARGET,
        loss=(Literal["squared", "huber", "logistic", "poisson"], "squared", LOSS),
        unit=(float, 1.0, "Fixed unit, such as 1000: target ÷ unit is learned."),
        target_transform=(TRANSFORMS, "auto", TRANSFORM),
        lower_bound=(Number, None, "Smallest value that the target can have."),
        upper_bound=(Number, None, "Largest value that the target can have."),
    )
    | table(
        RUN,
        seed=(int, 0, "Seed of all randomness."),
        device=(str, "auto", "Where models are solved: auto, or a device such as cpu or cuda."),
        verbose=(bool | None, None, "Show progress; by default on a terminal."),
    )
)
PRESET = "paper: DP-Lazy PI as in the paper, a 64,64 network trained by dpsgd, and λ = 10."
SETTINGS["preset"] = (
    Annotated[Literal["paper"] | None, option(PRESET, LAZY, is_eager=True, callback=_use_preset)],
    None,
)
KIND = (
    "How base weights are obtained: random initialisation; training on some of the rows; private "
    "training; training, then noise; or training, without a guarantee"
)
BASES = table(
    BASE,
    base=(Literal["public", "split", "dpsgd", "perturbed", "plain"], "public", KIND),
    epsilon=(Number, None, "Privacy ε of dpsgd or perturbed."),
    delta=(Number, None, "Privacy δ of dpsgd."),
    epochs=(Count, None, "Passes over the training rows."),
    batch_size=(Count, None, "Rows in a batch."),
    lr=(Number, None, "Learning rate."),
    max_grad_norm=(Number, None, "Clipping norm of dpsgd."),
    noise_multiplier=(Number, None, "Noise of dpsgd, instead of --epsilon."),
    fraction=(Number, None, "Fraction of the rows that split trains on."),
    sensitivity=(Number, None, "Bound that you assert on how far a row moves the weights."),
    norm=(Literal["l1", "l2"] | None, None, "Norm of --sensitivity and of perturbed's noise"),
)
OF_SETS = {  # options that sets of classes support
    *("alpha", "construction", "ridge", "fit_intercept", "feature_weights", "scaling", "seed"),
    *("device", "verbose", "classes", "html"),
}
# Settings of the command that stand for others of the estimator.
INSTEAD = {*("hidden", "skip", "unit", "lower_bound", "upper_bound", "seed", "preset")}


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


def flag(name: str) -> str:
    """Name of an option as it is typed."""
    return f"--{name.replace('_', '-')}"


def formats_of(given: Mapping[str, Any]) -> Formats:
    """Return how files are written, by the options."""
    options: dict[str, Any] = {name: given[name] or None for name in READING}
    return Formats(**options)


def roles_of(targets: Sequence[str], id_column: str | None, given: Mapping[str, Any]) -> Roles:
    """Return the columns that the options name."""
    drop = tuple(name for name in given["drop"] or () if name != id_column)  # no feature anyway
    categorical, more = tuple(given["categorical"] or ()), (given.get("clusters"),)
    return Roles(tuple(targets), id_column, drop, categorical, *more, given.get("classes", False))


def refuse_joint(kind: str, given: Mapping[str, Any]) -> None:
    """Refuse options that boxes of several targets, or sets of classes, do not support."""
    every = PAGES | GROUPED | QUESTIONS | SETTINGS | BASES
    refused = {
        "intervals": set[str](),
        "boxes": {*QUESTIONS, "groups", "clusters", "unit", "figure"},
        "sets": every.keys() - OF_SETS,
    }[kind]
    what = "several targets" if kind == "boxes" else "classes"
    for name, (_, default) in every.items():
        if name in refused and given.get(name, default) != default:
            raise ValueError(f"{flag(name)} does not support {what}: leave it out")


def levels_of(given: Mapping[str, Any]) -> list[float]:
    """Return the levels of the intervals, each once."""
    from ..data.checks import check_fraction

    return list(dict.fromkeys(check_fraction("alpha", each) for each in given["alpha"] or [0.1]))


def quantiles_of(given: Mapping[str, Any]) -> list[float]:
    """Return the quantiles that are asked for."""
    from ..data.checks import check_fraction

    try:
        numbers = [float(part) for part in (given["quantiles"] or "").split(",") if part.strip()]
    except ValueError:
        raise ValueError(
            f"--quantiles {given['quantiles']}: give numbers such as 0.1,0.5,0.9"
        ) from None
    return list(dict.fromkeys(check_fraction("quantiles", number) for number in numbers))


def settings_of(given: Mapping[str, Any], pooled: bool = True) -> dict[str, Any]:
    """Return the settings of the estimator that the options describe, but for networks and bases.

    ``pooled`` says that the rows to predict are known: scales of features can be learned then.
    """
    from ..data.checks import check_not_negative, check_positive

    unit = check_positive("unit", given["unit"])
    bounds = (given["lower_bound"], given["upper_bound"])
    if unit != 1 and any(bounds):
        raise ValueError(f"--unit {unit:g} with bounds {bounds}: leave one of them out")
    try:
        ridge = "auto" if given["ridge"] == "auto" else float(given["ridge"])
    except ValueError:
        raise ValueError(f"--ridge {given['ridge']}: give auto or a number") from None
    layers_of(given)
    found = {name: given[name] for name in SETTINGS.keys() - INSTEAD} | {
        "alpha": levels_of(given)[0],
        "ridge": ridge,
        "scaling": given["scaling"] or ("standardize" if given["hidden"] and pooled else "auto"),
        "bounds": None if bounds == (None, None) else bounds,
        "random_state": given["seed"],
        "verbose": show(given),
    }
    nu = check_not_negative("nu", given["nu"])
    found["nu"] = nu / unit if given["target_transform"] in ("auto", "none") else nu
    return {name: None if value == "none" else value for name, value in found.items()}


def show(given: Mapping[str, Any]) -> bool:
    """Whether to show progress."""
    return show_progress() if given["verbose"] is None else bool(given["verbose"])


def layers_of(given: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the widths of the layers of ``--hidden``."""
    text = given["hidden"]
    parts = [] if text is None else text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"--hidden {text!r}: give the widths of the layers, such as 64,64")
    return None if text is None else tuple(map(int, parts))


def network_of(given: Mapping[str, Any]) -> mlp | None:
    """Return the network that the options describe; None is the default."""
    from ..networks import mlp

    layers = layers_of(given)
    return None if layers is None else mlp(layers, skip=given["skip"])


def make_base(given: Mapping[str, Any]) -> BaseMethod:
    """Return the base that the options describe; one that was not given is None."""
    from ..base import BASES as KINDS
    from ..base import Plain

    own = {name: {field.name: field for field in fields(of)} for name, of in KINDS.items()}  # type: ignore[arg-type]
    trained = own["plain"].keys()  # which other bases take as one argument, ``training``
    takes = {name: own[name].keys() | (trained if "training" in own[name] else ()) for name in own}
    kind = given["base"]
    chosen = {name: given[name] for name in BASES if name != "base" and given[name] is not None}
    if {"epsilon", "noise_multiplier"} <= chosen.keys():
        raise ValueError("give --epsilon or --noise-multiplier, not both")
    for name in chosen.keys() - takes[kind]:
        others = " or ".join(other for other in KINDS if name in takes[other])
        raise ValueError(f"{flag(name)} requires --base {others}, not {kind}")
    if "training" in own[kind]:
        chosen["training"] = Plain(**{name: chosen.pop(name) for name in trained & chosen.keys()})
    for name, setting in own[kind].items():
        if setting.default is setting.default_factory is MISSING and name not in chosen:
            raise ValueError(f"--base {kind} requires {flag(name)}")
    return KINDS[kind](**chosen)
