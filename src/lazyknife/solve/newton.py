"""All leave-one-out models of a convex loss at once, from one kernel matrix, by Newton's method.

Notation: K the kernel of the n training rows, o = f(X; θ0) the offsets, λ the ridge. Model j
minimises, over a move Δ of the weights and an unpenalised intercept β,

    Σ_{i≠j} ℓ(y_i, f_i) + (λ/2)‖Δ‖²,   Δ = Jᵀα,   f = o + Kα + β,

and is where the residual G_i = λα_i + [i ≠ j] ℓ'(y_i, f_i) is 0 for every i; so α_j = 0, and with
an intercept Σα = 0. With W = diag ℓ''(y, f), 0 at row j, a Newton step (a, b) solves

    λa + W(Ka + b1) = −G,   Σa = 0.

The full model's steps solve that directly. The n others start from the full solution and share its
inverse Z = (λI + WK)⁻¹, with an intercept Z − (ZW1)(1ᵀZ)/t, t = 1ᵀZW1. Without row j it is
x = ZR − Z_{:j}(ZR − R/λ)_j/Z_jj, as in the ridge (there Z is A): the first step is the well-known
approximation in closed form. The steps after it have weights of their own, and conjugate gradients
with the shared inverse before them: a few products of n×n matrices for all columns together.

Memory: the kernel, the shared inverse and the models, n×n each, besides the machine's blocks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, track
from ..losses import Loss
from .descent import Problem, share, solve_full, solve_without, unsolved
from .loo import RidgeModels, check_size, leave_one_out_auto
from .rounding import Sensitivity, without_each
from .symmetric import diagonal_tiles, restore_lower_

# Tensors of n numbers that one column takes while it is solved.
TEMPORARIES = 24


def leave_one_out_newton(
    kernel: Tensor,
    y: Tensor,
    offsets: Tensor,
    ridge: float,
    intercept: bool,
    loss: Loss,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All n leave-one-out models of a loss, and the full one, at a given λ.

    Every model is solved until each |G_i| is at most 1e-9 of the model's largest |ℓ'(y_i, f_i)|
    (1e-4 in float32), or at what rounding in f makes of it where λ is tiny against the kernel. It
    takes O(n³) operations for all models together. Where a loss without curvature leaves an
    interval of best intercepts, as Huber's may, its middle is taken, so that each model is a
    function of its own rows alone.

    Parameters
    ----------
    kernel
        K, shape (n, n); it is not changed.
    y
        Targets, shape (n,).
    offsets
        The base's own predictions f(X; θ0), shape (n,), on the scale of the link.
    ridge
        λ > 0.
    intercept
        Whether to fit an unpenalised intercept.
    loss
        ℓ.
    machine
        Where the kernel lives.
    progress
        Whether to show progress bars.

    Returns
    -------
    RidgeModels
        Coefficients and intercepts on the scale of the link, residuals on that of y:
        y_j − mean(f_{−j}(x_j)), and y − mean(f) of the full model.

    """
    size = check_size(kernel, machine)
    problem = _problem(kernel, y, offsets, ridge, intercept, loss, size)
    models = _empty(torch.empty_like(kernel), y)
    every = torch.arange(len(y) + 1, device=y.device)
    left = _solve_into_(models, every, problem, machine, progress)
    return replace(models, unsolved=left)


def working_targets(loss: Loss, y: Tensor, offsets: Tensor) -> Tensor:
    """Targets z, shape (n,), whose squared loss stands for the loss near the offsets.

    With a weight w for ℓ'', ℓ(y, o + g) is about w(z/w − g)²/2 and a constant for z = −ℓ'(y, o),
    and the scale of z does not matter where λ/w is chosen. Where f is the mean of y itself the
    whole difference y − o is taken: Huber's ℓ' is the same for all rows that are far off. z_i is a
    function of row i alone.
    """
    return y - offsets if loss.identity else -loss.gradient(offsets, y)


def working_weights(loss: Loss, y: Tensor) -> Tensor:
    """The weight w that stands for ℓ'' in each of the n models and the full one, shape (n + 1,).

    ℓ'' at the mean of the targets of the model's own rows, with half a target more to keep off 0,
    rounded to a power of 2: few values, so few λ. No number that row j is in enters w_j.
    """
    sums = without_each(y)
    rows = torch.full_like(sums, len(y) - 1)
    rows[-1] = len(y)
    return torch.exp2(torch.log2(loss.variance((sums + 0.5) / (rows + 1))).round())


def leave_one_out_newton_auto(
    kernel: Tensor,
    y: Tensor,
    offsets: Tensor,
    grid: Tensor,
    intercept: bool,
    loss: Loss,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All models with λ chosen for each of them on its own rows alone.

    The choice is that of ``leave_one_out_auto`` on ``working_targets``, times the
    ``working_weights``: λ_j is a function of the rows without j, so jackknife+ and minmax keep
    their guarantee. Each λ that was chosen for some model is then solved for those models. The
    arguments are those of ``leave_one_out_newton``, and the grid; the kernel's memory is worked
    in, and holds the kernel again at the end.
    """
    size = check_size(kernel, machine)
    problem = _problem(kernel, y, offsets, 1.0, intercept, loss, size)
    targets = working_targets(loss, y, offsets)
    diagonal = diagonal_tiles(kernel)
    chosen = leave_one_out_auto(kernel, targets, grid, intercept, machine, progress)
    restore_lower_(kernel, diagonal)
    models = _empty(chosen.columns, y)
    ridges = working_weights(loss, y) * chosen.ridges
    distinct, left = ridges.unique().tolist(), 0.0
    for ridge in track(distinct, "solving", len(distinct), progress):
        which = (ridges == ridge).nonzero()[:, 0]
        left = max(left, _solve_into_(models, which, replace(problem, ridge=ridge), machine))
    models.sensitivity.doubtful.copy_(chosen.sensitivity.doubtful)
    return replace(models, unsolved=left)


def _problem(
    kernel: Tensor,
    y: Tensor,
    offsets: Tensor,
    ridge: float,
    intercept: bool,
    loss: Loss,
    size: float,
) -> Problem:
    """Return the problem; refuse one that has no finite solution or no finite start."""
    slopes = loss.gradient(offsets, y)
    if not torch.isfinite(slopes).all():
        raise ValueError(
            f"the {loss.name} loss overflows at the base's own predictions, which reach "
            f"{float(offsets.abs().max()):.3g} on the scale of the link: scale the features "
            "(scaling='symlog', or 'standardize' with X_pool), or use another base"
        )
    if intercept:
        far = torch.full_like(y, torch.inf)
        rising, falling = loss.gradient(far, y) > 0, loss.gradient(-far, y) < 0
        if min(int(rising.sum()), int(falling.sum())) < 2:
            raise ValueError(
                f"without one of the rows, the {loss.name} loss has no best intercept: all other "
                f"rows have the same y={float(y.median()):g}. Give at least two rows that differ "
                "from them, or intercept=False"
            )
    return Problem(kernel, y[:, None], offsets[:, None], ridge, intercept, loss, size)


def _empty(columns: Tensor, y: Tensor) -> RidgeModels:
    """Return memory for the models."""
    return RidgeModels(
        columns=columns,
        full=torch.empty_like(y),
        intercepts=y.new_empty(len(y) + 1),
        ridges=y.new_empty(len(y) + 1, dtype=torch.float64),
        residuals=torch.empty_like(y),
        training_residuals=torch.empty_like(y),
        sensitivity=Sensitivity.unknown(len(y), y),
    )


def _solve_into_(
    models: RidgeModels, which: Tensor, problem: Problem, machine: Machine, progress: bool = False
) -> float:
    """Solve some of the n + 1 models, the full one being the last, and write them down.

    Returns what is left of their equations, as in ``RidgeModels``.
    """
    y, loss = problem.y[:, 0], problem.loss
    full = solve_full(problem)
    models.ridges[which] = problem.ridge
    if which[-1] == len(y):
        which = which[:-1]
        models.full.copy_(full.dual[:, 0])
        models.intercepts[-1] = full.intercepts[0]
        models.training_residuals.copy_(y - loss.mean(full.values[:, 0]))
    if not len(which):
        return 0.0
    shared = share(problem, full)
    found, roots = models.sensitivity, (problem.kernel.diagonal() + problem.ridge).sqrt()
    # Row j, left out, has the weights −Z_:j/Z_jj.
    reach = (roots @ shared.inverse.abs()) / (shared.inverse.diagonal().abs() * roots)
    left = 0.0
    parts = list(blocks(len(which), machine.item * TEMPORARIES * len(y), machine.block))
    for part in track(parts, "leaving rows out", len(parts), progress):
        rows = which[part]
        each = solve_without(problem, full, shared, rows)
        own = each.values[rows, torch.arange(len(rows), device=rows.device)]
        models.columns[:, rows] = each.dual * each.keep  # exactly 0, not to rounding
        models.intercepts[rows] = each.intercepts
        models.residuals[rows] = y[rows] - loss.mean(own)
        found.load[rows] = roots @ each.dual.abs()
        left = max(left, unsolved(problem, each, roots))
    found.reach[which], found.roots[which] = reach[which], roots[which]
    found.ridges[which] = problem.ridge
    found.own[which] = (found.reach * found.roots * found.load)[which]
    return left
