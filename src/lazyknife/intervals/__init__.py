"""Order statistics, and the constructions that turn leave-one-out models into intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..records import Conformal, Ends, LeaveOneOut, Predictions, Predictor

# Rows of up to this many numbers are ordered faster by numpy, longer ones by torch's threads.
SHORT = 256
# Sums and products behind an end, each with a rounding of its own.
SUMS = 4.0


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
    """Jackknife+: order statistics of f_{−j}(x) ± R_j σ_{−j}(x), R the scores."""
    found = loo.scaled(X)
    margins = _stretched(loo.scores.to(found.each.dtype), found)
    lower = kth_smallest(found.each - margins, ranks)
    return _outwards(found, lower, kth_largest(found.each + margins, ranks))


def minmax(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife-minmax: the extremes of f_{−j}(x) ± Q σ_{−j}(x), Q an order statistic of scores."""
    found = loo.scaled(X)
    lowers, uppers = [], []
    for score in kth_largest(loo.scores, ranks).to(found.each.dtype):
        margins = _stretched(score, found)
        lowers.append((found.each - margins).amin(dim=1))
        uppers.append((found.each + margins).amax(dim=1))
    return _outwards(found, torch.stack(lowers, dim=1), torch.stack(uppers, dim=1))


def _stretched(scores: Tensor, found: Predictions) -> Tensor:
    """R σ, rounded up."""
    margins = scores * found.scales
    if found.stretch.dim():
        margins *= (1 + found.stretch)[:, None].to(margins.dtype)
    return margins


def _outwards(found: Predictions, lower: Tensor, upper: Tensor) -> Ends:
    """Widen the ends by what rounding may have taken from them, so that ties are covered."""
    slack = found.slack.expand(len(lower))[:, None]
    low, high = lower.double(), upper.double()
    coarse = SUMS * torch.finfo(lower.dtype).eps
    return (
        found.point,
        low + found.shift - (slack + coarse * low.abs()),
        high + found.shift + (slack + coarse * high.abs()),
    )


def full(loo: Conformal, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full conformal: all candidates that fit in with the training rows."""
    return loo.accepted(X, ranks)


def jackknife(loo: Predictor, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full-data prediction ± the order statistic of the left-out errors |R_j|."""
    return _around_point(loo.point(X), loo.residuals, ranks)


def naive(loo: Predictor, X: Tensor, ranks: Sequence[int]) -> Ends:
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
        The most that it misses when the base is a symmetric function of all n+1 points, from κ, n
        and the number of folds; None where no bound exists.
    miss_without_data
        Another bound, for a base that does not depend on the data at all and n/K new rows.
    widths
        The kinds of widths that it can use, its own choice first.

    """

    ends: Callable[..., Ends]
    miss: Callable[[int, int, int], float | None] | None = None
    miss_without_data: Callable[[int, int, int], float | None] | None = None
    widths: tuple[str, ...] = ("constant",)


def plus_miss(rank: int, n: int, folds: int = 0) -> float:
    """(2κ − 1)/(n + 1)."""
    return max(2 * rank - 1, 0) / (n + 1)


def rank_miss(rank: int, n: int, folds: int = 0) -> float:
    """κ/(n + 1)."""
    return rank / (n + 1)


def cv_plus_miss(rank: int, n: int, folds: int) -> float | None:
    """(2κ − 2 + K)/(n + K) for K equal folds; None where folds are unequal.

    It compares the new row with the n others, so the base may be a function of all n + 1.
    """
    if rank == 0:
        return 0.0
    return None if n % folds else min(1.0, (2 * rank - 2 + folds) / (n + folds))


def cv_plus_miss_without_data(rank: int, n: int, folds: int) -> float | None:
    """(2κ − 2 + m)/(n + m) for folds of m = n/K rows, less than the other where K > m.

    It imagines a whole fold of m new rows, exchangeable with the training rows.
    """
    if rank == 0:
        return 0.0
    m = n // folds
    return None if n % folds else min(1.0, (2 * rank - 2 + m) / (n + m))


class Bound(NamedTuple):
    """The most that a construction misses, and how many exchangeable new rows that takes."""

    miss: float | None
    new_rows: int = 1


def miss_bound(
    construction: str,
    alpha: float,
    n: int,
    folds: int,
    independent: bool,
    new_rows: int | None = None,
) -> Bound:
    """Return the better bound of those that apply.

    Parameters
    ----------
    construction, alpha, n, folds
        Of the intervals.
    independent
        Whether the base never saw the data; otherwise it is a symmetric function of all rows.
    new_rows
        How many new rows there are, where that is known.

    """
    found, rank = CONSTRUCTIONS[construction], kappa(alpha, n)
    bound = Bound(found.miss and found.miss(rank, n, folds))
    if not independent or found.miss_without_data is None:
        return bound
    other = Bound(found.miss_without_data(rank, n, folds), n // folds)
    if bound.miss is None or other.miss is None or other.miss >= bound.miss:
        return bound
    return bound if new_rows is not None and new_rows < other.new_rows else other


SCALED = ("noise", "leverage", "constant")
CONSTRUCTIONS: dict[str, Construction] = {
    "plus": Construction(plus, plus_miss, widths=SCALED),
    "minmax": Construction(minmax, rank_miss, widths=SCALED),
    "full": Construction(full, rank_miss, widths=("leverage",)),
    "cv+": Construction(plus, cv_plus_miss, cv_plus_miss_without_data),
    "jackknife": Construction(jackknife),
    "naive": Construction(naive),
}
# Those that any leave-one-out models can be put in.
GENERAL = ("plus", "minmax", "jackknife", "naive")
