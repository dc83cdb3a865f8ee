"""All leave-one-out models of a convex loss at once, from one kernel matrix, by Newton's method.

Notation: K the kernel of the n training rows, o = f(X; θ0) the offsets, λ the ridge. Model j
minimises, over a move Δ of the weights and an unpenalised intercept β,

    Σ_{i≠j} ℓ(y_i, f_i) + (λ/2)‖Δ‖²,   Δ = Jᵀα,   f = o + Kα + β,

and at its solution the residual G_i = λα_i + [i ≠ j] ℓ'(y_i, f_i) is 0 for every i; so α_j = 0,
and with an intercept Σα = 0. With W = diag ℓ''(y, f), 0 at row j, a Newton step (a, b) solves

    λa + W(Ka + b1) = −G,   Σa = 0.

The full model's steps solve that directly. The n others start from the full solution and share its
inverse Z = (λI + WK)⁻¹, with an intercept Z − (ZW1)(1ᵀZ)/t, t = 1ᵀZW1. Without row j it is
x = ZR − Z_{:j}(ZR − R/λ)_j/Z_jj, as in the ridge (there Z is A): the first step is the well-known
approximation in closed form. The following steps have weights of their own and are solved by
conjugate gradients, preconditioned by the shared inverse: a few products of n×n matrices for all
columns together.

Memory: the kernel, the shared inverse and the models, n×n each, besides the machine's blocks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..compute import Machine, blocks, track
from ..losses import Loss
from .choose import without_each
from .convex import LIMITS, ConvexProblem, Limits
from .descent import share, solve_full, solve_without, unsolved
from .dual import DualSystem
from .ridge import OwnRidges, RidgeModels

# Tensors of n numbers that one column takes while it is solved.
TEMPORARIES = 24


def leave_one_out_newton(
    system: DualSystem,
    y: Tensor,
    own: OwnRidges,
    loss: Loss,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> RidgeModels:
    """All n leave-one-out models of a loss, and the full one.

    Every model is solved until each |G_i| is at most 1e-9 of the model's largest |ℓ'(y_i, f_i)|, or
    down to the rounding of f where λ is tiny relative to the kernel. It takes O(n³) operations for
    all models together. Where a loss without curvature leaves an interval of optimal intercepts, as
    Huber's may, its middle is taken, so that each model is a function of its own rows alone.

    Parameters
    ----------
    system
        The kernel K and the targets y − f(X; θ0), on the scale of the link.
    y
        Targets, shape (n,).
    own
        λ of each model. Each of them is solved for those models that have it. Models choose on
        ``working_targets``, and multiply by ``working_weights``.
    loss
        ℓ.
    progress
        Whether to show progress bars.
    limits
        Largest numbers of steps.

    Returns
    -------
    RidgeModels
        Coefficients and intercepts on the scale of the link, residuals on that of y:
        y_j − mean(f_{−j}(x_j)), and y − mean(f) of the full model.

    """
    problem = replace(_problem(system, y, y - system.targets, loss), limits=limits)
    models = RidgeModels.empty(torch.empty_like(system.kernel), y)
    left, distinct = 0.0, own.values.unique().tolist()
    for ridge in track(distinct, "solving", len(distinct), progress and len(distinct) > 1):
        which = (own.values == ridge).nonzero()[:, 0]
        here = replace(problem, ridge=ridge)
        left = max(left, _solve_into_(models, which, here, system.machine, progress))
    models.sensitivity.doubtful.copy_(own.doubtful)
    return replace(models, unsolved=left)


def working_targets(loss: Loss, y: Tensor, offsets: Tensor) -> Tensor:
    """Targets z, shape (n,), whose squared loss approximates the loss near the offsets.

    With a weight w for ℓ'', ℓ(y, o + g) is about w(z/w − g)²/2 and a constant for z = −ℓ'(y, o),
    and the scale of z does not matter where λ/w is chosen. Where f is the mean of y itself the
    whole difference y − o is taken: Huber's ℓ' is the same for all rows that are far off. z_i is a
    function of row i alone.
    """
    return y - offsets if loss.identity else -loss.gradient(offsets, y)


def working_weights(loss: Loss, y: Tensor) -> Tensor:
    """The weight w used for ℓ'' in each of the n models and the full one, shape (n + 1,).

    ℓ'' at the mean of the targets of the model's own rows, with half a unit added to avoid 0,
    rounded to a power of 2: few values, so few λ. Row j never enters w_j.
    """
    sums = without_each(y)
    rows = torch.full_like(sums, len(y) - 1)
    rows[-1] = len(y)
    return torch.exp2(torch.log2(loss.variance((sums + 0.5) / (rows + 1))).round())


def _problem(system: DualSystem, y: Tensor, offsets: Tensor, loss: Loss) -> ConvexProblem:
    """Return the problem; raise an error if it has no finite solution or no finite start."""
    slopes = loss.gradient(offsets, y)
    if not torch.isfinite(slopes).all():
        raise ValueError(
            f"the {loss.name} loss overflows at the base's own predictions, which reach "
            f"{float(offsets.abs().max()):.3g} on the scale of the link: scale the features "
            "(scaling='symlog', or 'standardize' with X_pool), or use another base"
        )
    if system.intercept:
        far = torch.full_like(y, torch.inf)
        rising, falling = loss.gradient(far, y) > 0, loss.gradient(-far, y) < 0
        if min(int(rising.sum()), int(falling.sum())) < 2:
            raise ValueError(
                f"without one of the rows, the {loss.name} loss has no finite intercept: all other "
                f"rows have the same y={float(y.median()):g}. Give at least two rows with another "
                "y, or use intercept=False"
            )
    columns = (y[:, None], offsets[:, None])
    return ConvexProblem(system.kernel, *columns, 1.0, system.intercept, loss, system.size)


def _solve_into_(
    models: RidgeModels,
    which: Tensor,
    problem: ConvexProblem,
    machine: Machine,
    progress: bool = False,
) -> float:
    """Solve some of the n + 1 models, the full one being the last, and store them.

    Returns the remaining error of their equations, as in ``RidgeModels``.
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
        models.columns[:, rows] = each.dual * each.keep  # exactly 0, not up to rounding
        models.intercepts[rows] = each.intercepts
        models.residuals[rows] = y[rows] - loss.mean(own)
        found.load[rows] = roots @ each.dual.abs()
        left = max(left, unsolved(problem, each, roots))
    found.reach[which], found.roots[which] = reach[which], roots[which]
    found.ridges[which] = problem.ridge
    found.own[which] = (found.reach * found.roots * found.load)[which]
    return left
