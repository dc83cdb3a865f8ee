"""The part of the rows that a choice uses, and the least gain that a move must bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

SEARCHED = 400  # rows that the search uses, on average, where there are more
COMPARED = 2000  # rows whose errors choose λ in the primal form, likewise
COINS = 0x5BF03635  # keeps the coins apart from what else is drawn with a seed
MANY = 1000  # more rows than this are parted, where models can share their choices
# Rows of the part: half of all rows up to the first number, a quarter up to the second, no more.
HALF, QUARTER = 2000, 4000


class Leaving(NamedTuple):
    """What a fit does with the rows that its base leaves to it.

    Attributes
    ----------
    rows
        How many of them are left out, one after the other or by folds: the n of the certificate.
    apart
        How many are set aside for choices and never left out.
    coins
        Whether coins, which the seed decides, tell which of the rows make choices.

    """

    rows: int
    apart: int = 0
    coins: bool = False

    @classmethod
    def choosing(cls, n: int, parted: bool) -> Leaving:
        """Return what models do that choose among candidates, on their own rows or on a part."""
        return cls(n - part_of(n), part_of(n)) if parted else cls(n, coins=n > SEARCHED)


def part_of(n: int) -> int:
    """Rows that are set aside for choices, of n rows that are parted."""
    return min(max(min(n // 2, HALF), n // 4), QUARTER)


def draw_part(n: int, seed: int, rows: int = SEARCHED) -> Tensor:
    """So many rows on average: all, or each with the same probability, by its own coin."""
    if n <= rows:
        return torch.arange(n)
    coins = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nonzero(coins < rows / n)[:, 0]


def toll(rows: int, folds: Sequence[Tensor] | None, left_out: int) -> float:
    """log(rows)/rows of a model's own search rows."""
    if folds is None:
        rows -= int(left_out < rows)
    elif left_out < len(folds):
        rows -= len(folds[left_out])
    return math.log(max(rows, 2)) / max(rows, 2)
