"""Step lengths of Newton's method; newton.py has the notation."""

from __future__ import annotations

import torch
from torch import Tensor

from .convex import ConvexProblem, Models, Step

# Share of the predicted decrease to reach, shares of the slope that may be left.
DECREASE, FALL, RISE, TRIALS = 1e-4, 0.1, 0.5, 80
# What K maps to 0 is solved by a step of length 1, and a length s leaves |1 − s| of it: below 2.
LONGEST = 1.9


def step_length(problem: ConvexProblem, models: Models, step: Step) -> Tensor:
    """Length of each step, shape (m,): a sufficient decrease, and not too short.

    The objective along it is convex; its slope is Σ ℓ'φ + λaᵀ(f − o) + λs aᵀφ, as Kα = f − o − β
    and Σa = 0. Where that still falls steeply the length grows; where it has turned, or the
    objective has not fallen enough, it shrinks.
    """
    ridge = problem.ridge
    linear = ridge * (step.dual * (models.values - problem.offsets)).sum(dim=0)
    square = ridge * (step.dual * step.values).sum(dim=0)
    value = models.keep * problem.loss.value(models.values, problem.y)
    slopes = models.keep * problem.loss.gradient(models.values, problem.y)
    slope = (slopes * step.values).sum(dim=0) + linear
    slack = 8 * torch.finfo(slope.dtype).eps * value.abs().sum(dim=0)
    length = torch.ones_like(slope)
    low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)
    open_ = torch.arange(len(slope), device=slope.device)
    for _ in range(TRIALS):
        s, keep = length[open_], models.keep[:, open_]
        moved = models.values[:, open_] + s * step.values[:, open_]
        change = (keep * problem.loss.value(moved, problem.y) - value[:, open_]).sum(dim=0)
        change = change + s * linear[open_] + s.square() / 2 * square[open_]
        slopes = keep * problem.loss.gradient(moved, problem.y)
        ahead = (slopes * step.values[:, open_]).sum(dim=0) + linear[open_] + s * square[open_]
        large = slope[open_] < -slack[open_]  # smaller ones are known only up to rounding
        far = change > DECREASE * s * slope[open_] + slack[open_]
        far |= ~torch.isfinite(change) | (large & (ahead > -RISE * slope[open_]))
        near = ~far & large & (ahead < FALL * slope[open_]) & (s < LONGEST)
        low[open_] = torch.where(near, s, low[open_])
        high[open_] = torch.where(far, s, high[open_])
        open_ = open_[near | far]
        if not len(open_):
            break
        middle = (low[open_] + high[open_]) / 2
        longer = (2 * length[open_]).clamp(max=LONGEST)
        length[open_] = torch.where(torch.isinf(middle), longer, middle)
    length[open_] = low[open_]
    return length
