"""All leave-one-fold-out ridge models (CV+).

Leave the rows S of a fold out: with M = (A_SS)⁻¹ the residuals there are e = M c_S, and the model
is the full one minus the step that targets e on S would move it by. One solution serves all folds.

From feature rows, where that is cheaper, with matrices of G's size alone: without the rows S of a
fold ΦᵀΦ becomes ΦᵀΦ − Φ_SᵀΦ_S. Its model is solved as that of all rows is, once for each fold, and
its residuals on S are those of rows that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import track
from .dual import DualSystem
from .primal import Passed, PrimalSystem
from .rounding import RoundingTerms, refitted_fold_terms
from .system import Indefinite, OwnRidges, Ridge, RidgeModels

Folds = int | tuple[Tensor, ...]  # a number of random ones, or the rows of each


def draw_folds(n: int, folds: Folds, seed: int) -> list[Tensor]:
    """Split the rows into random folds whose sizes differ by at most one, or as they are given."""
    if isinstance(folds, tuple):
        return list(folds)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order.tensor_split(folds)]


class FoldModel(NamedTuple):
    """The ridge without some rows."""

    ridge: float
    coefficients: Tensor
    intercept: Tensor
    residuals: Tensor  # on the rows left out
    training_residuals: Tensor
    terms: RoundingTerms  # of the rows left out


def leave_folds_out(
    system: DualSystem | PrimalSystem,
    own: OwnRidges,
    folds: Sequence[Tensor],
    progress: bool = False,
    refit: bool = False,
) -> RidgeModels:
    """One ridge model without each fold, and the full one, each at its own λ.

    With ``refit`` the normal equations are solved without each fold.
    """
    every = [rows.to(own.values.device) for rows in (*folds, torch.arange(0))]  # last: the full one
    found = dict[int, FoldModel]()
    distinct = own.values.unique().tolist()
    for ridge in track(distinct, "leaving folds out", len(distinct), progress):
        solved = None if refit else system.solve(ridge)
        for k in (own.values == ridge).nonzero()[:, 0].tolist():
            if solved is None:
                assert isinstance(system, PrimalSystem), "only features are refitted"
                found[k] = _refitted(system, ridge, every[k])
            else:
                found[k] = _left_out(solved, every[k])
    return _joined([found[k] for k in range(len(every))], every[:-1], own.doubtful)


def refits_folds(n: int, features: int, folds: int) -> bool:
    """Whether factoring G once for each fold is cheaper than the inverse of the fold's own rows."""
    return n**2 > folds * features**2


def _left_out(solved: Ridge, rows: Tensor) -> FoldModel:
    """Leave these rows out."""
    lower, failed = torch.linalg.cholesky_ex(solved.inverse_rows(rows)[:, rows])
    if failed:
        raise Indefinite(solved.ridge)
    residuals = torch.cholesky_solve(solved.dual[rows, None], lower)[:, 0]
    steps = solved.steps(rows)
    moved = steps @ residuals
    weights = torch.cholesky_solve(steps.T.contiguous(), lower)
    return FoldModel(
        solved.ridge,
        solved.coefficients - moved,
        solved.intercept - solved.share[rows] @ residuals,
        residuals,
        solved.ridge * solved.dual,
        solved.fold_terms(rows, weights, moved),
    )


def _refitted(system: PrimalSystem, ridge: float, rows: Tensor) -> FoldModel:
    """Solve without these rows, and pass over them."""
    normal = system.normal(ridge, rows)
    seen = [normal.over(system.rows[some], system.centred[some])[0] for some in system.picked(rows)]
    empty = [system.centred[:0]] * len(Passed._fields)
    passed = Passed(*map(torch.cat, zip(empty, *seen, strict=True)))
    roots = (system.norms[rows] + ridge).sqrt()
    sizes = (passed.leverages, passed.summed)
    return FoldModel(
        ridge,
        normal.weights[: system.width],
        system.mean + normal.weights[system.width :].sum(),
        passed.errors,
        system.centred - system.rows @ normal.weights,
        refitted_fold_terms(passed.spans, passed.wide, roots, normal.load, *sizes),
    )


def _joined(models: Sequence[FoldModel], folds: Sequence[Tensor], doubtful: Tensor) -> RidgeModels:
    """Combine the models of all folds and, last, the full one."""
    sizes = torch.tensor([len(rows) for rows in folds], device=doubtful.device)
    order = torch.cat(list(folds)).argsort()
    owners = torch.repeat_interleave(torch.arange(len(folds), device=order.device), sizes)[order]
    return RidgeModels(
        columns=torch.stack([model.coefficients for model in models[:-1]], dim=1),
        full=models[-1].coefficients,
        intercepts=torch.stack([model.intercept for model in models]),
        ridges=doubtful.new_tensor([model.ridge for model in models]),
        residuals=torch.cat([model.residuals for model in models])[order],
        training_residuals=models[-1].training_residuals,
        terms=RoundingTerms.joined([model.terms for model in models[:-1]]).some(order),
        doubtful=doubtful[owners],
        model_of=owners,
    )
