"""Ranks and order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# Rows of up to this many numbers are sorted faster by numpy, longer ones by torch's threads.
SHORT = 256
# Relative error of sums of weights, as ``kappa`` allows for that of α(n+1).
MASS_SLACK = 1e-12


def kappa(alpha: float, n: int) -> int:
    """κ = ⌊α(n+1)⌋ ≤ n, the rank of both order statistics.

    In plain floats ⌊α(n+1)⌋ is wrong at (.29, 99) and at α = 1 − .9 for every n = 9, 19, …; the
    allowance for rounding corrects that, and otherwise is too small to reach the next integer.
    """
    return min(n, math.floor(alpha * (n + 1) * (1 + 1e-12) + 1e-9))


def rows_needed(alpha: float) -> int:
    """Return the smallest n with a finite interval, ⌈1/α⌉ − 1."""
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


def mass_largest(values: Tensor, own: Tensor, new: Tensor, levels: Sequence[float]) -> Tensor:
    """Like ``kth_largest``, for values (m, n) of weight ``own``, (n,) or (m, n): (m, levels).

    The smallest value above which no more than the share α of all weight lies, with the weight of
    the new row, (m,), above all values. Equal weights give κ = ⌊α(n+1)⌋.
    """
    ordered, places = values.sort(dim=-1, descending=True)
    unit = torch.maximum(own.max(), own.new_tensor(torch.finfo(own.dtype).tiny))
    first = (new / unit)[:, None]
    above = first + (own / unit).expand_as(values).gather(-1, places).cumsum(dim=-1)
    total = above[:, -1:]
    ends = torch.cat([torch.full_like(first, torch.inf), ordered], dim=-1)
    above = torch.cat([first, above], dim=-1)
    found = [(above > level * total * (1 + MASS_SLACK)).to(torch.int8) for level in levels]
    return torch.cat([ends.gather(-1, each.argmax(dim=-1, keepdim=True)) for each in found], dim=-1)


def mass_smallest(values: Tensor, own: Tensor, new: Tensor, levels: Sequence[float]) -> Tensor:
    """The same for lower ends."""
    return -mass_largest(-values, own, new, levels)


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
        if len(ranks) == 1:  # the last of the first κ, in any order
            return (top.amin if largest else top.amax)(dim=-1, keepdim=True)
        finite = top[..., [k - 1 for k in ranks]]
    return torch.where(torch.tensor(ranks, device=values.device) > 0, finite, infinite)
