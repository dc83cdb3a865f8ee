"""From what was typed to what the library takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal

from .options import BASE_OPTIONS

if TYPE_CHECKING:
    from ..base import BaseMethod

SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def make_base(options: Mapping[str, Any]) -> BaseMethod:
    """Return the base that a command's options describe; an option that was not given is None."""
    from ..base import BASES, Plain
    from ..data.checks import check_choice

    kind = options["base"]
    check_choice("base", kind, BASES)
    bases: dict[str, Any] = dict(BASES)
    own = {name: {field.name: field for field in fields(of)} for name, of in bases.items()}
    trained = own["plain"].keys()  # which other bases take as one argument, ``training``
    takes = {name: own[name].keys() | (trained if "training" in own[name] else ()) for name in own}
    given = {name: options[name] for name in BASE_OPTIONS if options.get(name) is not None}
    if "epsilon" in given and "noise_multiplier" in given:
        raise ValueError("give --epsilon or --noise-multiplier, not both")
    for name in given:
        if name not in takes[kind]:
            others = " or ".join(other for other in BASES if name in takes[other])
            raise ValueError(f"{flag(name)} requires --base {others}, not {kind}")
    if "training" in own[kind]:
        given["training"] = Plain(**{name: given.pop(name) for name in trained & given.keys()})
    for name, field in own[kind].items():
        if field.default is field.default_factory is MISSING and name not in given:
            raise ValueError(f"--base {kind} requires {flag(name)}")
    return BASES[kind](**given)


def make_scaling(name: str) -> Any:
    """Return the estimator's ``scaling``: one of the library's, a pipeline of both, or None."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from ..data.checks import check_choice
    from ..data.scaling import TRANSFORMS, symlog

    both = make_pipeline(FunctionTransformer(symlog), StandardScaler())
    own = {"symlog+standardize": both, "none": None}
    check_choice("scaling", name, [*filter(None, TRANSFORMS), *own])
    return own.get(name, name)


def make_target(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the estimator's ``target_transform``, ``bounds`` and ``nu`` for target ÷ unit."""
    from ..data.checks import check_choice, check_not_negative, check_positive
    from ..data.targets import TARGETS

    unit, name = check_positive("unit", given["unit"]), given["target_transform"]
    if name is not None:
        check_choice("target_transform", name, TARGETS)
    bounds = (given["lower_bound"], given["upper_bound"])
    if unit != 1 and any(bounds):
        raise ValueError(
            f"--unit {unit:g} supports no bounds other than 0, not {bounds}: leave --unit out, "
            "which changes nothing where no network is trained"
        )
    nu = check_not_negative("nu", given["nu"])
    limits = None if bounds == (None, None) else bounds
    return {"target_transform": name, "bounds": limits, "nu": nu if name else nu / unit}


def parse_ridge(text: str) -> float | Literal["auto"]:
    """``"auto"`` or a number."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--ridge {text}: give 'auto' or a number") from None


def parse_hidden(text: str) -> tuple[int, ...]:
    """``"64,64"`` → (64, 64)."""
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise ValueError(f"--hidden {text!r}: give the widths of the layers, such as 64,64")
    return tuple(map(int, text.split(",")))


def parse_bytes(text: str | None) -> int | None:
    """``"4GB"`` → bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+|\d*\.\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if match is None:
        raise ValueError(f"--memory-budget {text}: give a number of bytes, or a size such as 4GB")
    return int(float(match[1]) * SIZES[match[2]])


def parse_parameters(patterns: list[str] | None) -> str | list[str]:
    """``"all"``, ``"last"``, or name patterns."""
    given = patterns or ["all"]
    return given[0] if given in (["all"], ["last"]) else given


def check_jobs(jobs: int) -> None:
    """Refuse what is not a number of processes."""
    if jobs < 1 and jobs != -1:
        raise ValueError(f"--jobs {jobs}: give 1 or more, or -1 for all cores")


def flag(name: str) -> str:
    """Name of an option as it is typed."""
    return f"--{name.replace('_', '-')}"
