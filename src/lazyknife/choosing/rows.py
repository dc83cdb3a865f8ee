"""Which rows make choices, and which are left out."""

from __future__ import annotations

from typing import NamedTuple

SEARCHED = 400  # rows that a search by every model uses, on average, where there are more
MANY = 1000  # more rows than this are parted, where models can share their choices
# Rows of the part: half of all rows up to the first number, a quarter up to the second, no more.
HALF, QUARTER = 2000, 4000


class Leaving(NamedTuple):
    """What a fit does with the rows that its base leaves to it."""

    rows: int  # left out, one after the other or by folds: the n of the certificate
    apart: int = 0  # set aside for choices and never left out
    coins: bool = False  # whether coins, which the seed decides, tell which rows make choices

    @classmethod
    def choosing(cls, n: int, parted: bool) -> Leaving:
        """Return what models do that choose among candidates, on their own rows or on a part."""
        return cls(n - part_of(n), part_of(n)) if parted else cls(n, coins=n > SEARCHED)


def part_of(n: int) -> int:
    """Rows that are set aside for choices, of n rows that are parted."""
    return min(max(min(n // 2, HALF), n // 4), QUARTER)
