"""Order statistics, and the constructions that turn leave-one-out models into intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .records import LeaveOneOut

# Rows of up to this many numbers are ordered faster by numpy, longer ones by torch's threads.
SHORT = 256
Ends = tuple[Tensor, Tensor, Tensor]  # point (m,), lower (m, levels), upper (m, levels)


def kappa(alpha: float, n: int) -> int:
    """κ = ⌊α(n+1)⌋, the rank of both order statistics.

    In plain floats ⌊α(n+1)⌋ is wrong at (.29, 99) and at α = 1 − .9 for every n = 9, 19, …; the
    allowance for rounding mends that and is too small to reach the next whole number otherwise.
    """
    return math.floor(alpha * (n + 1) * (1 + 1e-12) + 1e-9)


def rows_needed(alpha: float) -> int:
    """Return the least n with a finite interval, ⌈1/α⌉ − 1."""
    n = max(math.floor(1 / alpha) - 2, 1)
    while kappa(alpha, n) < 1:
        n += 1
    return n


def kth_largest(values: Tensor, ranks: Sequence[int]) -> Tensor:
    """For each rank κ the κ-th largest along the last axis; inf for κ = 0. Shape (..., ranks).

    The κ-th largest of n is the (n+1−κ)-th smallest, Q⁺ of the paper.
    """
    return _kth(values, ranks, largest=True)


def kth_smallest(values: Tensor, ranks: Sequence[int]) -> Tensor:
    """For each rank κ the κ-th smallest along the last axis (Q⁻); −inf for κ = 0."""
    return _kth(values, ranks, largest=False)


def _kth(values: Tensor, ranks: Sequence[int], largest: bool) -> Tensor:
    n = values.shape[-1]
    infinite = torch.full_like(values[..., :1], torch.inf if largest else -torch.inf)
    if max(ranks) == 0:
        return infinite.expand(*infinite.shape[:-1], len(ranks))
    places = [(n - k if largest else k - 1) if k else -1 for k in ranks]
    if values.device.type == "cpu" and n <= SHORT:
        wanted = sorted({place for place in places if place >= 0})
        ordered = torch.from_numpy(np.partition(values.numpy(), wanted, axis=-1))
        finite = ordered[..., places]
    else:
        top = values.topk(max(ranks), dim=-1, largest=largest, sorted=len(ranks) > 1).values
        if len(ranks) == 1:  # the last of the first κ, in whatever order
            return (top.amin if largest else top.amax)(dim=-1, keepdim=True)
        finite = top[..., [k - 1 for k in ranks]]
    return torch.where(torch.tensor(ranks, device=values.device) > 0, finite, infinite)


def plus(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+: order statistics of f_{−j}(x) ± |R_j|."""
    point, predictions = loo.predict(X)
    errors = loo.residuals.abs().to(predictions.dtype)
    lower = kth_smallest(predictions - errors, ranks)
    return point, lower, kth_largest(predictions + errors, ranks)


def minmax(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife-minmax: the extremes of f_{−j}(x), widened by the order statistic of |R_j|."""
    point, predictions = loo.predict(X)
    margin = kth_largest(loo.residuals.abs(), ranks)
    lowest, highest = predictions.aminmax(dim=1)
    return point, lowest[:, None] - margin, highest[:, None] + margin


def jackknife(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full-data prediction ± the order statistic of the left-out errors |R_j|."""
    return _around_point(loo.point(X), loo.residuals, ranks)


def naive(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full-data prediction ± the order statistic of the errors on the training rows."""
    return _around_point(loo.point(X), loo.training_residuals, ranks)


def _around_point(point: Tensor, residuals: Tensor, ranks: Sequence[int]) -> Ends:
    margin = kth_largest(residuals.abs(), ranks)
    return point, point[:, None] - margin, point[:, None] + margin


@dataclass(frozen=True)
class Construction:
    """A way to make intervals, and how often it can miss.

    Attributes
    ----------
    ends
        From leave-one-out models, rows and ranks κ to point, lower and upper ends.
    miss
        The most that it misses when the base is a symmetric function of all n+1 points, from κ
        and n; None where no bound exists.

    """

    ends: Callable[[LeaveOneOut, Tensor, Sequence[int]], Ends]
    miss: Callable[[int, int], float] | None


CONSTRUCTIONS: dict[str, Construction] = {
    "plus": Construction(plus, lambda k, n: max(2 * k - 1, 0) / (n + 1)),
    "minmax": Construction(minmax, lambda k, n: k / (n + 1)),
    "jackknife": Construction(jackknife, None),
    "naive": Construction(naive, None),
}
