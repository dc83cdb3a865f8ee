"""Order statistics, and the constructions that turn leave-one-out models into intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .records import LeaveOneOut

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
    most = max(1, *ranks)
    several = len(ranks) > 1
    top = values.topk(most, dim=-1, largest=largest, sorted=several).values
    if not several and ranks[0] > 0:  # the last of the first κ, in whatever order
        return top.amin(dim=-1, keepdim=True) if largest else top.amax(dim=-1, keepdim=True)
    infinite = torch.full_like(top[..., 0], torch.inf if largest else -torch.inf)
    return torch.stack([top[..., k - 1] if k > 0 else infinite for k in ranks], dim=-1)


def plus(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+: order statistics of f_{−j}(x) ± |R_j|."""
    point, predictions = loo.predict(X)
    errors = loo.residuals.abs()
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
