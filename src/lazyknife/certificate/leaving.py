"""Which of n rows a fit leaves out, before there is one: the n of its certificate."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from ..base import BaseMethod, Public
from ..choosing.rows import MANY, Leaving
from ..intervals import Construction, find_construction
from ..networks import is_known, listed_networks
from ..solve.widths import WIDTHS

MOST = 2**60  # rows; more than any level takes


def left_out(
    n: int,
    construction: str | Construction[Any],
    base: BaseMethod,
    network: Any = None,
    n_parameters: int | None = None,
) -> Leaving:
    """What ``LazyJackknifeRegressor`` does with n rows, its other settings being the default ones.

    Without ``n_parameters``, one network has few enough of them for λ to be chosen by coins.
    """
    rows, kind = base.rows_left(n), find_construction(construction)
    if not kind.leaves_rows:
        return Leaving(rows)
    networks = listed_networks(network)
    if networks is not None or (network is None and type(base) is Public):
        return Leaving.choosing(rows, rows > MANY and all(map(is_known, networks or ())))
    primal = n_parameters is None or n_parameters < rows
    return Leaving(rows, coins=primal and rows > WIDTHS[kind.preferred].most_rows)


def rows_in_all(needed: int, n: int, base: BaseMethod, left: Callable[[int], int]) -> int:
    """Return the fewest rows, but at least n, of which ``left`` leaves so many out."""
    edge = most_rows(MANY, base)  # beyond it rows may be parted, so that fewer are left out
    found = fewest(lambda total: left(total) >= needed, (n - 1, max(n - 1, edge), MOST))
    return found or MOST


def most_rows(left: int, base: BaseMethod) -> int:
    """Return the largest number of rows of which a base leaves no more than so many."""
    return bisect_right(range(1, MOST), left, key=base.rows_left)


def fewest(enough: Callable[[int], bool], edges: Iterable[int]) -> int | None:
    """Return the smallest number above the first edge that is enough; None if none is.

    From one edge to the next, whatever is above a number that is enough must be enough, too.
    """
    for low, high in pairwise(edges):
        if low < high and enough(high):
            return low + 1 + bisect_left(range(low + 1, high), True, key=enough)
    return None
