"""Which rows make choices, and which are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SEARCHED = 400  # rows that a search by every model uses, on average, where there are more
MANY = 1000  # with more rows than this, a part of them chooses for all models
SHARED = 1000  # rows of the part that choose among networks of one's own, or their λ
# Few rows must be left out to know how wide intervals are, and many must choose: of n rows this
# share is left out, but at least FEWEST (of few rows half of them) and at most ENOUGH. More rows
# are left out only where LARGEST choose.
LEFT_OUT, FEWEST, ENOUGH, LARGEST = 0.15, 150, 1000, 20_000
FEWEST_PARTED = 8  # rows: half of them choose, among candidates that require 4


class Leaving(NamedTuple):
    """What a fit does with the rows that its base leaves to it."""

    rows: int  # left out, one after the other or by folds: the n of the certificate
    apart: int = 0  # set aside for choices and never left out
    coins: bool = False  # whether coins, which the seed decides, tell which rows make choices

    @classmethod
    def choosing(cls, n: int, folds: bool = False, parted: bool = False) -> Leaving:
        """Return what models do that choose: on their own rows, or, if there are many, on a part.

        ``folds``: whether models leave folds out, for which coins do not matter. ``parted``:
        whether a part chooses even where there are few rows.
        """
        if n > MANY or parted:
            return cls(n - part_of(n), part_of(n))
        return cls(n, coins=n > SEARCHED and not folds)


def part_of(n: int) -> int:
    """Rows that are set aside for choices, of n rows that are parted."""
    return min(n - min(max(int(LEFT_OUT * n), min(n // 2, FEWEST)), ENOUGH), LARGEST)


def drawn_part(n: int, seed: int) -> NDArray[np.intp]:
    """Numbers of the rows of the part, in a random order; takes no memory of size n if n is large.

    They depend on the number of rows alone, and not on how the rows are partitioned.
    """
    return np.random.default_rng(seed).choice(n, part_of(n), replace=False)


def rows_apart(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that are left out, in their order, and those of the part."""
    apart = torch.from_numpy(drawn_part(n, seed))
    rest = torch.ones(n, dtype=torch.bool)
    rest[apart] = False
    return torch.nonzero(rest)[:, 0], apart


def draw_part(n: int, seed: int, rows: int = SEARCHED) -> Tensor:
    """So many rows on average: all, or each with the same probability, by its own coin."""
    if n <= rows:
        return torch.arange(n)
    coins = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nonzero(coins < rows / n)[:, 0]


def first_of_each(sets: Sequence[Tensor], rows: int) -> Tensor:
    """The first rows of every set, about so many in all.

    How many of each depends on the number of sets and not on their sizes, of which a model that
    leaves a set out must know nothing.
    """
    count = -(-rows // len(sets))
    return torch.cat([own[:count] for own in sets]).sort().values


def places_in(
    part: Tensor, n: int, sets: Sequence[Tensor] | None
) -> tuple[list[Tensor] | None, list[int]]:
    """Where rows of a part are left out, of models that leave out sets of n rows, or each in turn.

    Returns the sets within the part, or None, and for each model, the full one last, which row of
    the part, or set, it leaves out; their number if none.
    """
    place_of = {row: k for k, row in enumerate(part.tolist())}
    if sets is None:
        columns = [place_of.get(row, len(part)) for row in range(n)]
        return None, [*columns, len(part)]
    inside = [[place_of[r] for r in rows.tolist() if r in place_of] for rows in sets]
    return [torch.tensor(rows, dtype=torch.long) for rows in inside], list(range(len(inside) + 1))
