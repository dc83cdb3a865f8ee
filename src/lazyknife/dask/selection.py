"""The exact κ-th largest of numbers in many parts, in two rounds and without moving them.

First each part gives some of its numbers by their place in its order, which bounds the rank of all
numbers: the one that is wanted lies between two of them. Then each part counts its numbers above
and at the upper one and gives those strictly between, at most about twice n over the number of
places. Ties are counted, so the result is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FEWEST, MOST = 64, 4096


class Outline(NamedTuple):
    """Some numbers of a part, from the largest to the smallest, by their place in its order."""

    values: Tensor
    places: Tensor
    size: int


class Inside(NamedTuple):
    """How many numbers of a part are above and at the upper end, and those strictly between."""

    above: int
    at: int
    between: Tensor


def places_for(n: int, parts: int) -> int:
    """Places of each part such that both rounds move about as many numbers."""
    return min(max(math.isqrt(n // max(parts, 1)), FEWEST), MOST)


def outline(values: Tensor, places: int) -> Outline:
    """The largest number, the smallest one, and evenly spread ones."""
    ordered, n = values.sort(descending=True).values, len(values)
    chosen = torch.linspace(0, n - 1, min(n, places), dtype=torch.float64).round().long().unique()
    return Outline(ordered[chosen], chosen, n)


def bracket(outlines: Sequence[Outline], rank: int) -> tuple[float, float]:
    """Two numbers between which the ``rank``-th largest lies."""
    values = torch.cat([part.values for part in outlines])
    starts = torch.cat(
        [part.places.diff(prepend=part.places.new_full((1,), -1)) for part in outlines]
    )
    ends = torch.cat(
        [part.places.diff(append=part.places.new_full((1,), part.size)) for part in outlines]
    )
    order = values.argsort(descending=True)
    distinct, sizes = values[order].unique_consecutive(return_counts=True)
    last = sizes.cumsum(0) - 1
    at_least = starts[order].cumsum(0)[last]  # so many are surely no smaller
    at_most = ends[order].cumsum(0)[last]
    above = torch.cat([at_most.new_zeros(1), at_most[:-1]])  # no more than so many are larger
    low = int((at_least >= rank).nonzero()[0, 0])
    high = int((above < rank).nonzero()[-1, 0])
    return float(distinct[low]), float(distinct[high])


def inside(values: Tensor, low: float, high: float) -> Inside:
    """The second round."""
    between = values[(values > low) & (values < high)]
    return Inside(int((values > high).sum()), int((values == high).sum()), between)


def pick(parts: Sequence[Inside], low: float, high: float, rank: int) -> float:
    """The ``rank``-th largest of all."""
    left = rank - sum(part.above for part in parts)
    if left <= (at := sum(part.at for part in parts)):
        return high
    between = torch.cat([part.between for part in parts]).sort(descending=True).values
    return float(between[left - at - 1]) if left - at <= len(between) else low
