"""All leave-one-fold-out ridge models from one factorisation (CV+).

Leave the rows S of a fold out: with M = (A_SS)⁻¹ the residuals there are e = M c_S, and the model
is the full one minus the step that targets e on S would move it by.

From feature rows, with matrices of G's size alone: without the rows S of a fold ΦᵀΦ becomes
ΦᵀΦ − Φ_SᵀΦ_S. Its model is solved as that of all rows is,
once for each fold, and its residuals on S are those of rows that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import track
from .primal import Normal, Passed, PrimalSystem
from .rounding import Sensitivity
from .system import Indefinite, OwnRidges, Ridge, RidgeModels, System


def draw_folds(n: int, folds: int, seed: int) -> list[Tensor]:
    """Split the rows into random folds whose sizes differ by at most one."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order.tensor_split(folds)]


def leave_folds_out(
    system: System, own: OwnRidges, folds: Sequence[Tensor], progress: bool = False
) -> RidgeModels:
    """One ridge model without each fold, and the full one, each at its own λ.

    Parameters
    ----------
    system
        The equations.
    own
        λ of each model.
    folds
        The rows of each fold.
    progress
        Whether to show a progress bar.

    """
    norms, distinct = system.norms, own.values.unique().tolist()
    every = [rows.to(norms.device) for rows in (*folds, torch.arange(0))]  # last, the full model
    found = dict[int, FoldModel]()
    for ridge in track(distinct, "leaving folds out", len(distinct), progress):
        solved = system.at(ridge)
        for k in (own.values == ridge).nonzero()[:, 0].tolist():
            found[k] = _leave_out(solved, every[k], norms)
    return joined([found[k] for k in range(len(every))], every[:-1], own.doubtful)


def joined(models: Sequence[FoldModel], folds: Sequence[Tensor], doubtful: Tensor) -> RidgeModels:
    """Combine the models of all folds and, last, the full one."""
    sizes = torch.tensor([len(rows) for rows in folds], device=doubtful.device)
    order = torch.cat(list(folds)).argsort()
    spread = torch.repeat_interleave(torch.arange(len(folds), device=order.device), sizes)[order]
    parts = [model.sensitivity for model in models[:-1]]
    sensitivity = Sensitivity.joined(parts)[order]
    sensitivity.doubtful.copy_(doubtful[spread])
    ridges = [model.ridge for model in models]
    return RidgeModels(
        columns=torch.stack([model.coefficients for model in models[:-1]], dim=1),
        full=models[-1].coefficients,
        intercepts=torch.stack([model.intercept for model in models]),
        ridges=torch.tensor(ridges, dtype=torch.float64, device=order.device),
        residuals=torch.cat([model.residuals for model in models])[order],
        training_residuals=models[-1].training_residuals,
        sensitivity=sensitivity,
        model_of=spread,
    )


class FoldModel(NamedTuple):
    """The ridge without some rows."""

    ridge: float
    coefficients: Tensor
    intercept: Tensor
    residuals: Tensor  # on the rows left out
    training_residuals: Tensor
    sensitivity: Sensitivity  # of the rows left out


def _leave_out(factor: Ridge, rows: Tensor, norms: Tensor) -> FoldModel:
    """Leave these rows out."""
    columns = factor.inverse_rows(rows).T  # A_·S
    lower, failed = torch.linalg.cholesky_ex(columns[rows])
    if failed:
        raise Indefinite(factor.ridge)
    residuals = torch.cholesky_solve(factor.dual[rows, None], lower)
    steps = factor.steps(rows, columns.T)
    moved = (steps @ residuals)[:, 0]
    # Left out, the rows have weights A_·S(A_SS)⁻¹; see rounding.py for what follows from them.
    weights = torch.cholesky_solve(steps.T.contiguous(), lower) / factor.unit
    spans = weights.abs() @ factor.roots
    load = (factor.coefficients.abs() + moved.abs()) @ factor.roots + factor.ground
    roots = (norms[rows] + factor.ridge).sqrt()
    return FoldModel(
        factor.ridge,
        factor.coefficients - moved,
        factor.intercept - factor.share[rows] @ residuals[:, 0],
        residuals[:, 0],
        factor.ridge * factor.dual,
        Sensitivity(
            reach=spans / roots * factor.widening[rows],
            roots=roots,
            load=load.expand(len(rows)),
            own=spans * load,
            strain=spans.square() * factor.diagonal[rows] * factor.unit + 2 * spans,
            ridges=torch.full_like(roots, factor.ridge),
            doubtful=torch.zeros_like(roots),
        ),
    )


def factors_folds(n: int, features: int, folds: int) -> bool:
    """Whether factoring G once for each fold is cheaper than the inverse of the fold's own rows."""
    return n**2 > folds * features**2


def leave_folds_out_primal(
    system: PrimalSystem, own: OwnRidges, folds: Sequence[Tensor], progress: bool = False
) -> RidgeModels:
    """One ridge model without each fold, and the full one; as ``folds.leave_folds_out``."""
    every = [rows.to(system.gram.device) for rows in (*folds, torch.arange(0))]
    pairs = track(
        zip(every, own.values.tolist(), strict=True), "leaving folds out", len(every), progress
    )
    models = [
        _model(system, system.normal(ridge, system.left(rows)), rows) for rows, ridge in pairs
    ]
    return joined(models, every[:-1], own.doubtful)


def _model(system: PrimalSystem, normal: Normal, rows: Tensor) -> FoldModel:
    """The model, its residuals on the rows left out, and what rounding may have changed in them."""
    seen = [normal.over(system.rows[some], system.centred[some])[0] for some in system.picked(rows)]
    empty = [system.centred[:0]] * len(Passed._fields)
    passed = Passed(*map(torch.cat, zip(empty, *seen, strict=True)))
    load = normal.weights.abs() @ normal.roots + normal.size
    roots = (system.norms[rows] + normal.ridge).sqrt()
    reach = torch.maximum(passed.spans, passed.wide)
    return FoldModel(
        normal.ridge,
        normal.weights[: system.width],
        system.mean + normal.weights[system.width :].sum(),
        passed.errors,
        system.centred - system.rows @ normal.weights,
        Sensitivity(
            reach=reach / roots,
            roots=roots,
            load=load.expand(len(rows)),
            own=2 * passed.spans * load + passed.terms,
            strain=(reach.square() + 2 * reach) / (1 + passed.leverages),
            ridges=torch.full_like(roots, normal.ridge),
            doubtful=torch.zeros_like(roots),
        ),
    )
