"""All leave-one-fold-out ridge models from one factorisation (CV+).

Leave the rows S of a fold out: with M = (A_SS)⁻¹ the residuals there are e = M c_S, and the model
is the full one minus the step that targets e on S would move it by. The remaining rows have the
inverse A − A_·S M A_S·, so their own leave-one-out residuals follow from it as c_i/d_i do
from A: the λ of each fold's model is chosen by them, on the rows outside the fold alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .choose import Contest, choose
from .ridge import Indefinite, Ridge, RidgeModels, System
from .rounding import GAMMA, Sensitivity


def draw_folds(n: int, folds: int, seed: int) -> list[Tensor]:
    """Split the rows into random folds whose sizes differ by at most one."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order.tensor_split(folds)]


def leave_folds_out(
    system: System, ridges: Sequence[float], folds: Sequence[Tensor], progress: bool = False
) -> RidgeModels:
    """One ridge model without each fold, and the full one.

    Parameters
    ----------
    system
        The equations.
    ridges
        The λ to choose from, for each model by the leave-one-out error on its own rows; ties go to
        the earlier one.
    folds
        The rows of each fold.
    progress
        Whether to show a progress bar.

    """
    norms = system.norms
    every = [rows.to(norms.device) for rows in (*folds, torch.arange(0))]  # last, the full model
    traces = torch.stack([without(norms, rows).sum() for rows in every])
    contest, best = Contest(traces, max(ridges)), dict[int, FoldModel]()

    def solve(ridge: float) -> _Folds:
        solved = system.at(ridge)
        return _Folds([_leave_out(solved, rows, norms) for rows in every])

    def keep(found: _Folds, better: Tensor) -> None:
        for k in better.nonzero()[:, 0].tolist():
            best[k] = found.models[k]

    choose(contest, ridges, solve, keep, progress)
    models = [best[k] for k in range(len(every))]
    return joined(models, every[:-1], contest.doubtful[:-1])


@dataclass(frozen=True)
class _Folds:
    """All models at one λ."""

    models: Sequence[FoldModel]

    @property
    def errors(self) -> Tensor:
        return torch.stack([model.error for model in self.models])

    @property
    def change(self) -> Tensor:
        return torch.stack([model.change for model in self.models])


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
    """The ridge without some rows, and its leave-one-out error on the others."""

    error: Tensor  # a single number
    change: Tensor  # norm of what rounding may have changed in the errors
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
    dual = factor.dual - (columns @ residuals)[:, 0]
    half = torch.linalg.solve_triangular(lower, columns.T, upper=False)
    diagonal = factor.diagonal - half.square().sum(dim=0)
    others = dual / diagonal
    others[rows] = 0.0  # there it is 0/0
    steps = factor.steps(rows, columns.T)
    moved = (steps @ residuals)[:, 0]
    # Left out, the rows have weights A_·S(A_SS)⁻¹; see rounding.py for what follows from them.
    weights = torch.cholesky_solve(steps.T.contiguous(), lower) / factor.unit
    spans = weights.abs() @ factor.roots
    load = (factor.coefficients.abs() + moved.abs()) @ factor.roots + factor.ground
    kept, roots = without(diagonal, rows) * factor.unit, (norms[rows] + factor.ridge).sqrt()
    change = 2 * GAMMA * math.sqrt(factor.strain) * load * kept.rsqrt().norm()
    return FoldModel(
        others.square().sum().nan_to_num(torch.inf),
        change,
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


def without(values: Tensor, rows: Tensor) -> Tensor:
    """All but some of the values."""
    kept = torch.ones_like(values, dtype=torch.bool)
    kept[rows] = False
    return values[kept]
