"""All leave-one-out ridge models at once, from feature rows (the primal form).

For fewer features than rows. Notation: Φ the n feature rows, with a last entry 1 where there is an
intercept; r the targets; G = ΦᵀΦ + λI, the last entry of its diagonal without λ; w = G⁻¹Φᵀr;
h_j = φ_jᵀG⁻¹φ_j the leverages; ε = r − Φw.

Leave j out: the residual at the left-out point is e_j = ε_j/(1 − h_j), the model w − e_j G⁻¹φ_j.
With A = I − ΦG⁻¹Φᵀ, c = ε and d = diag A, errors with two rows left out are as in the dual form.

Memory: the n feature rows, in which the models take their place, and a few matrices of G's size;
the n models besides, where λ is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, track
from .loo import Candidate, Choice, RidgeModels, check_size, left_out_errors
from .rounding import Sensitivity
from .symmetric import invert_lower_, mirror_lower_, tiles


class Indefinite(ValueError):
    """Rounding outweighs the ridge."""

    def __init__(self, ridge: float, precision: str) -> None:
        super().__init__(
            f"the features' products plus ridge={ridge:.3g} are not positive definite in "
            f"{precision}: rounding outweighs the ridge. Use a larger ridge, precision='float64', "
            "or scale the features (scaling='symlog', or 'standardize' with X_pool)"
        )


@dataclass(frozen=True)
class _Solution:
    """The full-data ridge at one λ."""

    inverse: Tensor  # G⁻¹, (q, q)
    weights: Tensor  # w, (q,)
    errors: Tensor  # ε, (n,)
    diagonal: Tensor  # 1 − h, (n,)
    sensitivity: Sensitivity

    @property
    def residuals(self) -> Tensor:
        return self.errors / self.diagonal


def leave_one_out_primal(
    rows: Tensor,
    targets: Tensor,
    ridge: float,
    intercept: bool,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All n leave-one-out ridge models, and the full one, at a given λ.

    Parameters
    ----------
    rows
        Φ, shape (n, q); with an intercept its last column is 1. Its memory is used for the result.
    targets
        r, shape (n,).
    ridge
        λ > 0.
    intercept
        Whether the last column is an unpenalised intercept.
    machine
        Where the rows live.
    progress
        Whether to show progress bars.

    """
    gram = _gram(rows)
    check_size(gram, machine)
    mean = targets.mean() if intercept else targets.new_zeros(())
    solution = _solve(rows, gram, targets - mean, ridge, intercept, machine)
    residuals = solution.residuals
    parts = list(_blocks(rows, machine))
    for part in track(parts, "leaving out", len(parts), progress and len(parts) > 1):
        steps = rows[part] @ solution.inverse
        rows[part] = solution.weights - steps.mul_(residuals[part, None])
    return _with_intercepts(
        RidgeModels(
            columns=rows.T,
            full=solution.weights,
            intercepts=targets.new_zeros(len(targets) + 1),
            ridges=targets.new_full((len(targets) + 1,), ridge, dtype=torch.float64),
            residuals=residuals,
            training_residuals=solution.errors,
            sensitivity=solution.sensitivity,
        ),
        mean,
        intercept,
    )


def leave_one_out_primal_auto(
    rows: Tensor,
    targets: Tensor,
    grid: Tensor,
    intercept: bool,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All models with λ chosen for each of them on its own rows alone, as in the dual form.

    It looks at all pairs of rows, block by block: n²·q operations for each λ.
    """
    mean = targets.mean() if intercept else targets.new_zeros(())
    gram = _gram(rows)
    check_size(gram, machine)
    norms = torch.linalg.vector_norm(rows[:, : rows.shape[1] - intercept], dim=1).square()
    choice = Choice(targets.new_empty(rows.shape).T, targets, norms, float(grid.max()))
    columns = choice.best.columns.T
    for ridge in track(grid.tolist(), "choosing ridges", len(grid), progress):
        admitted = choice.contest.admits(ridge)
        if not admitted.any():
            continue
        try:
            solution = _solve(rows, gram.clone(), targets - mean, ridge, intercept, machine)
        except Indefinite:
            choice.contest.fail(admitted)
            continue
        residuals, left_out = solution.residuals, torch.zeros_like(targets)
        for part in blocks(len(rows), 2 * machine.item * sum(rows.shape), machine.tile):
            hat = (rows[part] @ solution.inverse) @ rows.T
            # Rows of A but for its diagonal, which is not looked at.
            left_out += left_out_errors(hat.neg_(), part, solution.errors, solution.diagonal)
        better = choice.improve(
            Candidate(
                ridge,
                left_out,
                residuals,
                targets.new_zeros(len(targets) + 1),
                solution.weights,
                solution.errors,
                solution.sensitivity,
            ),
            admitted,
        )
        for part in _blocks(rows, machine) if better.any() else ():
            moved = solution.weights - (rows[part] @ solution.inverse) * residuals[part, None]
            columns[part] = torch.where(better[part, None], moved, columns[part])
    return _with_intercepts(choice.models(), mean, intercept)


def _with_intercepts(models: RidgeModels, mean: Tensor, intercept: bool) -> RidgeModels:
    """Move the last row of the models into their intercepts, and put the mean back."""
    if not intercept:
        return models
    last = torch.cat([models.columns[-1], models.full[-1:]])
    return replace(
        models, columns=models.columns[:-1], full=models.full[:-1], intercepts=last + mean
    )


def _gram(rows: Tensor) -> Tensor:
    """ΦᵀΦ, its lower tiles mirrored."""
    q = rows.shape[1]
    gram = rows.new_zeros(q, q)
    for i in tiles(gram):
        torch.mm(rows[:, i].T, rows[:, : i.stop], out=gram[i, : i.stop])
    mirror_lower_(gram)
    return gram


def _solve(
    rows: Tensor, gram: Tensor, targets: Tensor, ridge: float, intercept: bool, machine: Machine
) -> _Solution:
    """Invert G in the gram matrix's memory; one step of refinement for w."""
    penalty = gram.new_full((len(gram),), ridge)
    if intercept:
        penalty[-1] = 0.0
    gram.diagonal().add_(penalty)
    weights = (targets @ rows)[None]
    roots = gram.diagonal().sqrt()
    if not invert_lower_(gram, weights):
        raise Indefinite(ridge, machine.precision)
    mirror_lower_(gram)
    w = weights[0]
    w = w + gram @ ((targets - rows @ w) @ rows - penalty * w)
    leverages, spans = torch.empty_like(targets), torch.empty_like(targets)
    # |G⁻¹φ| would do if it came from G; from an inverse that is a matrix of its own, |G⁻¹||φ| does.
    weighted = gram.abs() @ roots
    for part in _blocks(rows, machine):
        leverages[part] = ((rows[part] @ gram) * rows[part]).sum(dim=1)
        spans[part] = rows[part].abs() @ weighted
    errors, diagonal = targets - rows @ w, 1 - leverages
    total = w.abs() @ roots + targets.norm()
    lengths = (torch.linalg.vector_norm(rows, dim=1).square() + ridge).sqrt()
    sensitivity = Sensitivity.of(spans, total, errors / diagonal, diagonal, lengths, ridge)
    # Here the diagonal is a difference from 1, and spans are the products' own errors too.
    strain = (spans.square() + 2 * spans) / diagonal.abs()
    own = sensitivity.own + strain * (errors / diagonal).abs() + targets.abs() / diagonal.abs()
    strained = replace(sensitivity, strain=strain, own=own)
    return _Solution(gram, w, errors, diagonal, strained)


def _blocks(rows: Tensor, machine: Machine) -> Iterator[slice]:
    return blocks(len(rows), 3 * machine.item * rows.shape[1], machine.block)
