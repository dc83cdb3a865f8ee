"""All leave-one-fold-out ridge models from feature rows (CV+), with matrices of G's size alone.

Without the rows S of a fold ΦᵀΦ becomes ΦᵀΦ − Φ_SᵀΦ_S. Its model is solved as that of all rows is,
once for each fold, and its residuals on S are those of rows that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..compute import track
from .folds import FoldModel, joined
from .normal import Normal, Passed
from .primal import PrimalSystem
from .ridge import OwnRidges, RidgeModels
from .rounding import Sensitivity


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
