"""All leave-one-out and leave-one-fold-out models of a problem, each at its own λ.

The residuals with both i and j left out are

    (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),   i ≠ j,

so one solution of the equations serves all n models.

Leave the rows S of a fold out (CV+): with M = (A_SS)⁻¹ the residuals there are e = M c_S, and the
model is the full one minus the step that targets e on S would move it by. One solution serves all
folds. From feature rows, where that is cheaper, with matrices of G's size alone: without the rows S
ΦᵀΦ becomes ΦᵀΦ − Φ_SᵀΦ_S. Its model is solved as that of all rows is, once for each fold, and its
residuals on S are those of rows that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import track
from .convex import leave_one_out_newton
from .dual import DualSystem
from .primal import Passed, PrimalSystem
from .problem import Problem, System, Visit, make_system
from .rounding import RoundingTerms, product_errors
from .system import Indefinite, OwnRidges, Ridge, RidgeModels, joined

Folds = int | tuple[Tensor, ...]  # a number of random ones, or the rows of each


def leave_rows(problem: Problem) -> RidgeModels:
    """One model without each row: in closed form, or by Newton's method for another loss."""
    system, own = problem.system, problem.own_ridges(len(problem.y))
    if not problem.loss.closed_form:
        assert isinstance(system, DualSystem), "checked where the basis is chosen"
        found = leave_one_out_newton(system, problem.y, own, problem.loss, problem.progress)
    else:
        settings = (own, problem.progress, problem.visit, problem.widths.needs_factors)
        in_place = not (problem.visit or problem.widths.needs_factors)
        try:
            found = leave_one_out(system, *settings, in_place=in_place)
        except Indefinite:
            if not (in_place and problem.dual):
                raise
            again = make_system(problem.basis, problem.X, problem.y, system.intercept)
            found = leave_one_out(again, *settings)
    rows = slice(problem.models)
    return replace(found.some(rows), training_residuals=found.training_residuals[rows])


def leave_folds(problem: Problem) -> RidgeModels:
    """One model without each random fold."""
    folds = draw_folds(problem.models, problem.folds, problem.seed)
    system, own = problem.system, problem.own_ridges(len(folds))
    sizes = (len(system.targets), system.width, len(folds))
    refit = isinstance(system, PrimalSystem) and refits_folds(*sizes)
    return leave_folds_out(system, own, folds, problem.progress, refit)


def leave_one_out(
    system: System,
    own: OwnRidges,
    progress: bool = False,
    visit: Visit | None = None,
    keep_factors: bool = False,
    in_place: bool = False,
) -> RidgeModels:
    """All n leave-one-out models, and the full one, each at its own λ.

    ``visit`` is called with the system and its solution at every λ, and with a mask of the models
    that have it, (n + 1,). ``keep_factors`` keeps what new rows need of the solutions. With
    ``in_place`` models of a single λ overwrite the system.
    """
    distinct, factors = own.values.unique().tolist(), list[Ridge]()
    in_place = in_place and len(distinct) == 1
    found: RidgeModels | None = None
    for ridge in track(distinct, "leaving rows out", len(distinct), progress):
        solved, which = system.solve(ridge, keep_factors, in_place), own.values == ridge
        if visit is not None:
            visit(system, solved, which)
        factors += [solved.factor()] if keep_factors else []
        models = solved.models()
        found = models if found is None else found.updated(which, models)
    assert found is not None
    return replace(found, doubtful=own.doubtful, factors=tuple(factors))


def two_left_out(solved: Ridge, members: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals at row i with i and j left out, for some j, and d_i − A_ij²/d_j, each (n, members).

    0 and infinite at i = j.
    """
    inverse = solved.inverse_rows(members).T
    open_part = solved.diagonal[:, None] - inverse.square() / solved.diagonal[members]
    open_part[members, torch.arange(len(members), device=members.device)] = torch.inf
    errors = inverse.mul_(-solved.left_out[members]).add_(solved.dual[:, None])
    return errors.div_(open_part), open_part


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
    normal = system.normal(ridge, rows)
    empty = Passed(*[system.centred[:0]] * len(Passed._fields))
    seen = [normal.over(system.rows[some], system.centred[some])[0] for some in system.picked(rows)]
    passed = joined([empty, *seen])
    roots, spans = (system.norms[rows] + ridge).sqrt(), passed.spans
    farthest = torch.maximum(spans, passed.wide)
    load, own = normal.load.expand(len(roots)), 2 * spans * normal.load + passed.summed
    strain = product_errors(farthest) / (1 + passed.leverages)
    return FoldModel(
        ridge,
        normal.weights[: system.width],
        system.mean + normal.weights[system.width :].sum(),
        passed.errors,
        system.centred - system.rows @ normal.weights,
        RoundingTerms(farthest / roots, roots, load, own, strain),
    )


def _joined(models: Sequence[FoldModel], folds: Sequence[Tensor], doubtful: Tensor) -> RidgeModels:
    """Combine the models of all folds and, last, the full one."""
    order = torch.cat(list(folds)).argsort()
    owners = torch.cat([torch.full_like(rows, k) for k, rows in enumerate(folds)])[order]
    return RidgeModels(
        columns=torch.stack([model.coefficients for model in models[:-1]], dim=1),
        full=models[-1].coefficients,
        intercepts=torch.stack([model.intercept for model in models]),
        ridges=doubtful.new_tensor([model.ridge for model in models]),
        residuals=torch.cat([model.residuals for model in models])[order],
        training_residuals=models[-1].training_residuals,
        terms=joined([model.terms for model in models[:-1]]).some(order),
        doubtful=doubtful[owners],
        model_of=owners,
    )
