"""From what was typed to what the library takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..base import BaseMethod

BASE_OPTIONS = (
    "epsilon",
    "delta",
    "epochs",
    "batch_size",
    "lr",
    "max_grad_norm",
    "noise_multiplier",
    "fraction",
    "sensitivity",
    "norm",
)
SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def make_base(options: Mapping[str, Any]) -> BaseMethod:
    """Return the base that a command's options describe; what was not given is None."""
    from ..base import DPSGD, Perturbed, Plain, Pretrained, Public, Split

    kinds: dict[str, Any] = {
        "dpsgd": DPSGD,
        "perturbed": Perturbed,
        "public": Public,
        "pretrained": Pretrained,
        "split": Split,
        "plain": Plain,
    }
    kind = options["base"]
    own = {field.name: field for field in fields(kinds[kind])}
    given = {name: options[name] for name in BASE_OPTIONS if options.get(name) is not None}
    if "epsilon" in given and "noise_multiplier" in given:
        raise ValueError("give --epsilon or --noise-multiplier, not both")
    if "training" in own:
        training = {field.name for field in fields(Plain)}
        given["training"] = Plain(**{name: given.pop(name) for name in training & given.keys()})
    strange = [name for name in given if name not in own]
    if strange:
        raise ValueError(f"{flag(strange[0])} does not go with --base {kind}: leave it out")
    for name, field in own.items():
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and name not in given:
            raise ValueError(f"--base {kind} needs {flag(name)}")
    base: BaseMethod = kinds[kind](**given)
    return base


def make_scaling(name: str) -> Any:
    """Return the estimator's ``scaling`` for an option."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from ..data.scaling import symlog

    if name == "symlog+standardize":
        return make_pipeline(FunctionTransformer(symlog), StandardScaler())
    return None if name == "none" else name


def parse_ridge(text: str) -> float | Literal["auto"]:
    """``"auto"`` or a number."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--ridge {text}: give 'auto' or a number") from None


def parse_widths(text: str) -> tuple[int, ...]:
    """``"64,64"`` → (64, 64)."""
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise ValueError(f"--hidden {text!r}: give widths of layers such as 64,64")
    return tuple(map(int, text.split(",")))


def parse_bytes(text: str | None) -> int | None:
    """``"4GB"`` → bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+|\d*\.\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if match is None:
        raise ValueError(f"--memory-budget {text}: give bytes, or such as 800MB or 4GB")
    return int(float(match[1]) * SIZES[match[2]])


def parse_parameters(patterns: list[str] | None) -> str | list[str]:
    """``"all"``, ``"last"``, or name patterns."""
    if not patterns:
        return "all"
    return patterns[0] if patterns in (["all"], ["last"]) else patterns


def check_jobs(jobs: int) -> None:
    """Refuse what is not a number of processes."""
    if jobs < 1 and jobs != -1:
        raise ValueError(f"--jobs {jobs}: give 1 or more, or -1 for all cores")


def flag(name: str) -> str:
    """Name of an option as it is typed."""
    return f"--{name.replace('_', '-')}"
