"""All leave-one-fold-out ridge models from one factorisation (CV+).

Leave the rows S of a fold out: with M = (A_SS)⁻¹ the residuals there are e = M c_S, the model is
the full one less what the targets on S move it by, with e in their place. The rows that remain
have the inverse A − A_·S M A_S·, so their own leave-one-out residuals follow from it as c_i/d_i do
from A: the λ of each fold's model is chosen by them, on the rows outside the fold alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .factors import Factor
from .loo import RidgeModels
from .primal import Indefinite
from .progress import track


def draw_folds(n: int, folds: int, seed: int) -> list[Tensor]:
    """Rows in random folds whose sizes differ by one at most."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order.tensor_split(folds)]


def leave_folds_out(
    factor_at: Callable[[float], Factor],
    ridges: Sequence[float],
    folds: Sequence[Tensor],
    progress: bool = False,
) -> RidgeModels:
    """One ridge model without each fold, and the full one.

    Parameters
    ----------
    factor_at
        Factors the ridge at a λ.
    ridges
        The λ to choose from, for each model by the leave-one-out error on its own rows; ties by
        order.
    folds
        The rows of each fold.
    progress
        Whether to show a progress bar.

    """
    every = [*folds, torch.arange(0)]  # at last no rows at all: the full model
    best: list[_Model | None] = [None] * len(every)
    failure: Indefinite | None = None
    for ridge in track(ridges, "choosing ridges", len(ridges), progress and len(ridges) > 1):
        try:
            factor = factor_at(ridge)
            found = [_without(factor, rows.to(factor.dual.device)) for rows in every]
        except Indefinite as error:  # a λ that rounding outweighs is passed over
            failure = error
            continue
        for k, model in enumerate(found):
            before = best[k]
            if before is None or model.error < before.error:
                best[k] = model
    models = [model for model in best if model is not None]
    if not models:
        assert failure is not None
        raise failure
    device = models[-1].coefficients.device
    model_of = torch.cat([torch.full_like(rows, k) for k, rows in enumerate(folds)])
    order = torch.cat(list(folds)).argsort().to(device)
    return RidgeModels(
        columns=torch.stack([model.coefficients for model in models[:-1]], dim=1),
        full=models[-1].coefficients,
        intercepts=torch.stack([model.intercept for model in models]),
        ridges=torch.tensor([m.ridge for m in models], dtype=torch.float64, device=device),
        residuals=torch.cat([model.residuals for model in models])[order],
        training_residuals=models[-1].training_residuals,
        model_of=model_of.to(device)[order],
    )


class _Model(NamedTuple):
    """The ridge without some rows, and its leave-one-out error on the others."""

    error: float
    ridge: float
    coefficients: Tensor
    intercept: Tensor
    residuals: Tensor  # on the rows left out
    training_residuals: Tensor


def _without(factor: Factor, rows: Tensor) -> _Model:
    """Leave these rows out."""
    columns = factor.inverse_columns(rows)  # A_·S
    lower, failed = torch.linalg.cholesky_ex(columns[rows])
    if failed:
        raise Indefinite(factor.ridge, str(columns.dtype).removeprefix("torch."))
    residuals = torch.cholesky_solve(factor.dual[rows, None], lower)
    dual = factor.dual - (columns @ residuals)[:, 0]
    half = torch.linalg.solve_triangular(lower, columns.T, upper=False)
    diagonal = factor.diagonal - half.square().sum(dim=0)
    others = dual / diagonal
    others[rows] = 0.0  # there it is 0/0
    steps, shares = factor.steps(rows, columns)
    error = float(others.square().sum())
    return _Model(
        math.inf if math.isnan(error) else error,
        factor.ridge,
        factor.coefficients - (steps @ residuals)[:, 0],
        factor.intercept - shares @ residuals[:, 0],
        residuals[:, 0],
        factor.ridge * factor.dual,
    )
