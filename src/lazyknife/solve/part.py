"""The part of the rows that a choice uses, and the least gain that a move must bring."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SEARCHED = 400  # rows that the search uses, on average, where there are more
COMPARED = 2000  # rows whose errors choose λ in the primal form, likewise
COINS = 0x5BF03635  # keeps the coins apart from what else is drawn with a seed


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
