"""A part of the rows, into which each is drawn by a coin of its own."""

from __future__ import annotations

import torch
from torch import Tensor

COMPARED = 2000  # rows whose errors choose λ in the primal form, on average, where there are more
SEED_SALT = 0x5BF03635  # keeps these coins apart from what else is drawn with a seed


def draw_part(n: int, seed: int, rows: int) -> Tensor:
    """So many rows on average: all, or each with the same probability, by its own coin."""
    if n <= rows:
        return torch.arange(n)
    coins = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nonzero(coins < rows / n)[:, 0]
