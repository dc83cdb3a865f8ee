"""All leave-one-fold-out ridge models from feature rows (CV+), with matrices of G's size alone.

Without the rows S of a fold ΦᵀΦ becomes ΦᵀΦ − Φ_SᵀΦ_S. Its model is solved as that of all rows is,
once for each fold, and its residuals on S are those of rows that it never saw. It chooses λ by the
leave-one-out errors of the other rows, or of those of a part of the rows (parted.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..compute import track
from .bounds import bounds_of_all, compare
from .choose import Contest, choose
from .folds import FoldModel, joined, without
from .normal import Left, Normal, Passed
from .parted import Narrowed, Part, solvable, spectrum_of
from .primal import PrimalSystem
from .ridge import RidgeModels, left_out
from .rounding import GAMMA, Sensitivity
from .screen import decide


def factors_folds(n: int, features: int, folds: int) -> bool:
    """Whether factoring G once for each fold is cheaper than the inverse of the fold's own rows."""
    return n**2 > folds * features**2


def leave_folds_out_primal(
    system: PrimalSystem,
    ridges: Sequence[float],
    folds: Sequence[Tensor],
    part: Part,
    progress: bool = False,
) -> RidgeModels:
    """One ridge model without each fold, and the full one; as ``folds.leave_folds_out``."""
    every = [rows.to(system.gram.device) for rows in (*folds, torch.arange(0))]
    models, doubts = list[FoldModel](), list[Tensor]()
    for rows in track(every, "leaving folds out", len(every), progress):
        left = system.left(rows)
        normal, doubtful = _chosen(system, ridges, rows, left, part)
        models.append(_model(system, normal, rows))
        doubts.append(doubtful)
    return joined(models, every[:-1], torch.cat(doubts[:-1]))


def _chosen(
    system: PrimalSystem, ridges: Sequence[float], rows: Tensor, left: Left, part: Part
) -> tuple[Normal, Tensor]:
    """Return the model at the λ that it chooses, and 1 if rounding may have decided, else 0."""
    if len(ridges) == 1:
        return system.normal(ridges[0], left), system.targets.new_zeros(1)
    own = part.rows[~torch.isin(part.rows, rows)]
    contest = Contest(without(system.norms, rows).sum()[None], max(ridges), part.tie)
    admitted = solvable(contest, ridges, partial(system.is_definite, left=left))
    spectrum = spectrum_of(system, ridges, left)
    compared = compare(spectrum, spectrum.at(system.rows[own], system.centred[own]))
    decided = decide(bounds_of_all(spectrum, compared), admitted, part.tie)
    narrowed, best = Narrowed(contest, ridges, decided), list[Normal]()

    def keep(found: _FoldOut, better: Tensor) -> None:
        if better.any():
            best[:] = [found.normal]

    def solve(ridge: float) -> _FoldOut:
        return _FoldOut.at(system, ridge, left, own[: len(own) * int(narrowed.open(ridge))])

    choose(narrowed, ridges, solve, keep)
    return best[0], narrowed.doubtful


@dataclass(frozen=True)
class _FoldOut:
    """The model without a fold at one λ, and its error on some of its own rows."""

    normal: Normal
    errors: Tensor
    change: float

    @classmethod
    def at(cls, system: PrimalSystem, ridge: float, left: Left, own: Tensor) -> _FoldOut:
        """Solve at λ; without rows to be compared at, the error is 1."""
        normal, one = system.normal(ridge, left), system.targets.new_ones(1)
        if not len(own):
            return cls(normal, one, 0.0)
        seen, _ = system.over(normal, own)
        noise = seen.sensitivity(seen.all_spans).noise(GAMMA)
        return cls(normal, left_out(seen).square().sum()[None], noise)


def _model(system: PrimalSystem, normal: Normal, rows: Tensor) -> FoldModel:
    """The model, its residuals on the rows left out, and what rounding may have changed in them."""
    seen = [normal.over(system.rows[some], system.centred[some])[0] for some in system.picked(rows)]
    empty = [system.centred[:0]] * len(Passed._fields)
    passed = Passed(*map(torch.cat, zip(empty, *seen, strict=True)))
    load = normal.weights.abs() @ normal.roots + normal.size
    roots = (system.norms[rows] + normal.ridge).sqrt()
    reach = torch.maximum(passed.spans, passed.wide)
    return FoldModel(
        load,  # the error and its change were entered already
        load,
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
