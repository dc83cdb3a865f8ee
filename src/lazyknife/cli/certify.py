"""``lazyknife certify`` and ``lazyknife plan``: guarantees before any training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from . import options as opt
from .console import FAILED, plainly, print_text

INTERVALS = {name: opt.SETTINGS[name] for name in ("construction", "folds")}
SEARCHED = "If given, find the largest ε of a private base; otherwise, find the largest alpha."
MOST = "Certify a given training set, for this share of all sets (--construction split or cv+)."
PLANNED = "Number of training rows; without it, find the fewest that are needed."


@plainly
@opt.with_options(INTERVALS, opt.BASES)
def certify(
    n: Annotated[int, typer.Option("--n", help="Number of training rows.")],
    alpha: Annotated[float, opt.option("Level of the intervals.", opt.LAZY)] = 0.1,
    confidence: Annotated[float | None, opt.option(MOST, opt.LAZY)] = None,
    **given: Any,
) -> None:
    """Show the coverage that a fit would certify."""
    from ..certificate import certify as certificate_of

    terms = {"alpha": alpha, "confidence": confidence, **_common(given)}
    print_text(certificate_of(n=n, **terms).details)


@plainly
@opt.with_options(INTERVALS, opt.BASES)
def plan(
    coverage: Annotated[float, typer.Option(help="Coverage to certify, such as 0.9.")],
    n: Annotated[int | None, typer.Option("--n", help=PLANNED)] = None,
    alpha: Annotated[float | None, opt.option(SEARCHED, opt.LAZY)] = None,
    **given: Any,
) -> None:
    """Find the rows that a certified coverage takes, or the alpha to use with the rows you have.

    With --coverage alone, how many training rows are needed; with --n, the largest alpha whose
    intervals certify the coverage. The exit code is 1 if there are no such settings.
    """
    from ..certificate import plan as plan_for
    from ..certificate import plan_rows

    if n is None and alpha is not None:
        raise ValueError("--alpha requires --n: give both, or neither to find the number of rows")
    if alpha is not None and given["base"] == "perturbed" and given["epsilon"] is None:
        given["epsilon"] = 1.0  # a base has to have one, though it is what is searched for
    elif alpha is not None and {given["epsilon"], given["noise_multiplier"]} != {None}:
        raise ValueError(
            "give --alpha to find ε, or --epsilon or --noise-multiplier to find alpha, not both"
        )
    if n is None:
        found = plan_rows(coverage=coverage, **_common(given))
    else:
        found = plan_for(n=n, coverage=coverage, alpha=alpha, **_common(given))
    print_text(found.sentence)
    if found.certificate is None:
        raise typer.Exit(FAILED)


def _common(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"base": opt.make_base(given)} | {name: given[name] for name in INTERVALS}
