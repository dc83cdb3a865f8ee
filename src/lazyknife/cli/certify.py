"""``lazyknife certify`` and ``lazyknife plan``: guarantees before any training."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from . import options as opt
from .console import FAILED, plainly, print_text
from .values import make_base

Rows = Annotated[int, typer.Option("--n", help="Training rows.")]


@plainly
def certify(
    context: typer.Context,
    n: Rows,
    alpha: Annotated[
        float, typer.Option(help="Level of the intervals.", rich_help_panel=opt.LAZY)
    ] = 0.1,
    construction: opt.Construction = "plus",
    folds: opt.Folds = 10,
    base: opt.BaseKind = "dpsgd",
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    epochs: opt.Epochs = None,
    batch_size: opt.BatchSize = None,
    noise_multiplier: opt.NoiseMultiplier = None,
    fraction: opt.Fraction = None,
    sensitivity: opt.Sensitivity = None,
    norm: opt.Norm = None,
    eta: Annotated[
        float | None, typer.Option(help="Stability η: shows the paper's Theorem 1 beside.")
    ] = None,
    nu: Annotated[float | None, typer.Option(help="The ν that goes with --eta.")] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Trained weights; sharpens perturbed with --norm l2.")
    ] = None,
) -> None:
    """Say what coverage a fit would certify."""
    from ..certificate import certify as certificate_of

    certificate = certificate_of(
        n=n,
        alpha=alpha,
        construction=construction,
        base=make_base(context.params),
        folds=folds,
        eta=eta,
        nu=nu,
        n_parameters=parameters,
    )
    print_text(str(certificate))


@plainly
def plan(
    context: typer.Context,
    n: Rows,
    coverage: Annotated[float, typer.Option(help="Coverage to be certified.")],
    construction: Annotated[
        Literal["plus", "minmax", "full", "cv+"],
        typer.Option(help="How intervals are made.", rich_help_panel=opt.LAZY),
    ] = "plus",
    folds: opt.Folds = 10,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Given: find the most ε. Not given: find alpha.", rich_help_panel=opt.LAZY
        ),
    ] = None,
    base: opt.BaseKind = "dpsgd",
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    epochs: opt.Epochs = None,
    batch_size: opt.BatchSize = None,
    noise_multiplier: opt.NoiseMultiplier = None,
    fraction: opt.Fraction = None,
    sensitivity: opt.Sensitivity = None,
    norm: opt.Norm = None,
) -> None:
    """Find the settings that certify a wanted coverage.

    Exit code 1 says that there are none.
    """
    from ..certificate import plan as plan_for

    start = dict(context.params)
    if alpha is not None:
        if epsilon is not None or noise_multiplier is not None:
            raise ValueError(
                "give --alpha to find the most ε, or --epsilon or --noise-multiplier to find "
                "alpha, not both"
            )
        if base == "perturbed":
            start["epsilon"] = 1.0  # which has to have one; it is what is looked for
    found = plan_for(
        n=n,
        coverage=coverage,
        construction=construction,
        base=make_base(start),
        alpha=alpha,
        folds=folds,
    )
    print_text(found.sentence)
    if found.certificate is None:
        raise typer.Exit(FAILED)
