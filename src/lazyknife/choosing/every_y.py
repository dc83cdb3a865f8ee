"""The search of all training rows and a new one, for every y of the new row at once.

Full conformal prediction asks what n + 1 rows choose, whatever the new row's y. In the notation of
likelihood.py for the n rows, and with ŷ their prediction of the new row and s its distance from
them (intervals/full_conformal.py), the n + 1 rows have

    rᵀc + (y − ŷ)²/s for rᵀc,   log det + log s for log det,   ν + 1 for ν,

so exp(value) is a parabola in y. The search is that of ``per_model``: its decisions compare values,
less a gain, and thus two parabolas, which cross at most twice. So the line of y falls into pieces,
each with a walk of its own. Pieces at the same grid point, of whatever new row, walk together and
share the factor of the n rows there: L⁻¹ takes O(n²) for a new row.

Rounding moves a value by at most γ(2 tr G/λ + 2w + 4) to first order, G of the n + 1 rows and w the
ratio of rᵀc before and after the intercept was eliminated: this is the bound of likelihood.py, with
‖c‖² ≤ rᵀc/λ and tr A ≤ (n + 1)/λ. Where two values are closer than that a piece goes both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ridge.rounding import FIRST_ORDER, GAMMA, TINY
from .likelihood import Factor
from .per_model import CYCLES, TIE, Numbers
from .space import CandidateKernels, Grid, GridPoint

Whole = NDArray[np.int_]
Blocks = tuple[Tensor, Tensor, Tensor]  # K(x, X), (m, n), k(x, x), (m,), and f(x; θ0), (m,)
Moves = Callable[[GridPoint], Iterable[GridPoint]]
LEAST_NOISE = 1e-9  # also hides rounding of the crossings
LEVEL, MIDDLE, OPEN, QUADRATIC, NOISE = range(5)


class Pieces(NamedTuple):
    """Intervals of y and the grid point where each stands; every field has shape (pieces,)."""

    row: Whole  # the new row whose y it is
    low: Numbers
    high: Numbers
    point: Whole

    def some(self, which: NDArray[np.int_] | NDArray[np.bool_]) -> Pieces:
        """Some of the pieces."""
        return Pieces(self.row[which], self.low[which], self.high[which], self.point[which])

    def joined(self) -> Pieces:
        """The same with pieces that overlap and stand at the same point in one."""
        found = self.some(np.lexsort((self.low, self.point, self.row)))
        apart = found.low[1:] > found.high[:-1]
        for part in (found.row, found.point):
            apart |= part[1:] != part[:-1]
        firsts = np.flatnonzero(np.concatenate([[True], apart])[: len(found.row)])
        if not len(firsts):
            return found
        high = np.maximum.reduceat(found.high, firsts)
        return found.some(firsts)._replace(high=high)


def groups_of(numbers: Whole) -> Iterator[tuple[int, Whole]]:
    """Each number that occurs, and where it does."""
    order = np.argsort(numbers, kind="stable")
    found, firsts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, firsts[1:]), strict=True)


def below(
    square: Numbers, slope: Numbers, constant: Numbers, low: Numbers, high: Numbers
) -> tuple[Numbers, Numbers]:
    """Where in [low, high] square·t² + slope·t + constant ≤ 0: two intervals, (2, n) each.

    Empty ones have their ends in the wrong order. What is not a number counts as everywhere.
    """
    square = square + 0.0  # -0.0 would put the other root of a line at the wrong end
    with np.errstate(all="ignore"):
        discriminant = slope**2 - 4 * square * constant
        far = -(slope + np.copysign(np.sqrt(np.maximum(discriminant, 0.0)), slope)) / 2
        roots = np.stack([far / square, constant / far])
        least, most = roots.min(axis=0), roots.max(axis=0)
    between, nowhere = square >= 0, discriminant < 0
    everywhere = np.isnan(least) | np.isnan(most) | (nowhere & ~between)
    lows = np.stack([np.where(between, np.maximum(low, least), low), np.maximum(low, most)])
    highs = np.stack([np.minimum(high, np.where(between, most, least)), high])
    empty = np.stack([nowhere & between & ~everywhere, between | everywhere])
    lows[0, everywhere], highs[0, everywhere] = low[everywhere], high[everywhere]
    lows[empty], highs[empty] = np.inf, -np.inf
    return lows, highs


@dataclass
class ParabolaTable:
    """The parabolas of all grid points and new rows that were asked for, on one scale of y.

    Attributes
    ----------
    kernels
        Of the n training rows that choose.
    targets
        Their y, shape (n,).
    new
        From a grid point and numbers of new rows to their kernels with the training rows.
    count
        Number of new rows.
    points
        The grid points that were met, in the order of their numbers.
    memo
        Level, middle, open, rᵀc and noise of each point, (5, count): exp(value) is
        exp(level)·(rᵀc + (y − middle)²/open). NaN where it was not asked for.
    unknown
        New rows at which rounding leaves some value unknown, shape (count,): nothing is known of
        their choices. Points are not moved to there.

    """

    kernels: CandidateKernels
    targets: Tensor
    intercept: bool
    new: Callable[[GridPoint, Whole], Blocks]
    count: int
    points: list[GridPoint] = field(default_factory=list)
    numbers: dict[GridPoint, int] = field(default_factory=dict)
    memo: dict[int, Numbers] = field(default_factory=dict)
    unknown: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.unknown = np.zeros(self.count, dtype=bool)

    def number(self, point: GridPoint) -> int:
        """The number of a point."""
        if point not in self.numbers:
            self.numbers[point] = len(self.points)
            self.points.append(point)
        return self.numbers[point]

    def evaluate(self, asked: Iterable[tuple[int, Whole]]) -> None:
        """Evaluate points, by number, at new rows where they were not evaluated before."""
        for number, rows in asked:
            known = self.memo.get(number)
            if known is None:
                known = self.memo[number] = np.full((5, self.count), np.nan)
            missing = np.zeros(self.count, dtype=bool)
            missing[rows] = True
            rows = np.flatnonzero(missing & np.isnan(known[LEVEL]))
            if len(rows):
                known[:, rows] = self._parabolas(self.points[number], rows)

    def _parabolas(self, point: GridPoint, rows: Whole) -> Numbers:
        K, ridges, outputs = self.kernels.at(0, [point])()
        factor = Factor.of(K, ridges, self.intercept, K.new_empty(0, dtype=torch.long))
        ridge, n = float(ridges), len(self.targets)
        residuals = self.targets - outputs[0]
        shift = residuals.median() if self.intercept else residuals.new_zeros(())
        half = partial(torch.linalg.solve_triangular, factor.lower[0], upper=False)
        ones, total = factor.ones[0], factor.ones.square().sum()
        own = half((residuals - shift)[:, None])[:, 0]
        quadratic = whole = own.square().sum()
        slope = residuals.new_zeros(())
        if self.intercept:
            slope = own @ ones / total
            quadratic = whole - slope.square() * total
        # Where the rows are explained to the last digit, all parabolas would touch at one y.
        least = max((GAMMA * float(self.targets.abs().max())) ** 2, TINY)
        quadratic, whole = quadratic.clamp(min=least), whole.clamp(min=least)
        cross, norms, base = self.new(point, rows)
        reached = half(cross.T).T
        left_open = (norms + ridge - reached.square().sum(dim=1)).clamp(min=ridge)
        middle = reached @ own + shift + base
        if self.intercept:
            missing = 1 - reached @ ones
            left_open = left_open + missing.square() / total
            middle = middle + slope * missing
        freedom = n + 1 - int(self.intercept)
        level = (factor.logs[0] + left_open.log()) / freedom
        sizes = (factor.roots.square().sum() + norms + ridge) / ridge + whole / quadratic
        noise = GAMMA * (2 * sizes + 4) + LEAST_NOISE
        found = [level, middle, left_open, quadratic.expand_as(level), noise]
        values: Numbers = torch.stack(found).cpu().numpy()
        bad = ~np.isfinite(values).all(axis=0) | (values[NOISE] > FIRST_ORDER)
        bad |= bool(factor.failed[0])
        self.unknown[rows[bad]] = True
        values[LEVEL, bad] = np.inf
        return values

    def at(self, numbers: Whole, rows: Whole) -> Numbers:
        """Parabolas of pairs of a point, −1 for none, and a new row, (5, pairs)."""
        if len(numbers) and (numbers == numbers[0]).all() and numbers[0] >= 0:
            return self.memo[int(numbers[0])][:, rows]
        found = np.full((5, len(rows)), np.nan)
        for number, those in groups_of(numbers):
            if number >= 0:
                found[:, those] = self.memo[number][:, rows[those]]
        return found


def _crossed(
    best: Numbers, other: Numbers, low: Numbers, high: Numbers
) -> list[tuple[Numbers, Numbers, bool]]:
    """Intervals in which the other parabola may be smaller than the best one, less a tie, or not.

    Up to two of each kind; the last entry says whether the other one is smaller there.
    """
    with np.errstate(all="ignore"):
        ahead, doubt = other[LEVEL] - best[LEVEL] + TIE, other[NOISE] + best[NOISE]
        apart, middle = other[MIDDLE] - best[MIDDLE], best[MIDDLE]
        found = []
        for sign, wins in ((-1.0, False), (1.0, True)):
            ratio = np.exp(ahead - sign * doubt)
            square = ratio / other[OPEN] - 1 / best[OPEN]
            slope = -2 * ratio * apart / other[OPEN]
            constant = ratio * (other[QUADRATIC] + apart**2 / other[OPEN]) - best[QUADRATIC]
            terms = sign * square, sign * slope, sign * constant
            lows, highs = below(*terms, low - middle, high - middle)
            # The ends of a piece stay what they are, to the bit.
            lows, highs = np.maximum(lows + middle, low), np.minimum(highs + middle, high)
            found += [(*ends, wins) for ends in zip(lows, highs, strict=True)]
    return found


def offer(
    table: ParabolaTable, pieces: Pieces, slots: Sequence[Whole], gain: float
) -> tuple[Pieces, bool]:
    """Compare points one after another with the best so far, as ``per_model`` does.

    Parameters
    ----------
    table
        Where their parabolas are.
    pieces
        Where they stand; −1 for nowhere yet.
    slots
        For each point that is offered its number for every piece, −1 for none.
    gain
        What the first move must bring.

    Returns
    -------
    tuple
        The pieces where they stand now, and whether any moved.

    """
    asked = [
        (number, pieces.row[those])
        for part in (pieces.point, *slots)
        for number, those in groups_of(part)
        if number >= 0
    ]
    table.evaluate(asked)
    origin = np.arange(len(pieces.row))
    low, high, stand = pieces.low, pieces.high, pieces.point
    best = table.at(stand, pieces.row)
    best[LEVEL] -= gain
    for slot in slots:
        offered = slot[origin]
        other = table.at(offered, pieces.row[origin])
        nowhere = (stand < 0) & (offered >= 0)
        alone = (offered < 0) | nowhere | np.isinf(other[LEVEL])
        kept = np.where(nowhere, offered, stand)
        best = np.where(nowhere, other, best)
        parts = [(np.flatnonzero(alone), low, high, False)]
        if not alone.all():
            parts += [
                (np.flatnonzero(~alone & (lows <= highs)), lows, highs, wins)
                for lows, highs, wins in _crossed(best, other, low, high)
            ]
        which = np.concatenate([those for those, _, _, _ in parts])
        wins = np.concatenate([np.full(len(those), won) for those, _, _, won in parts])
        low = np.concatenate([lows[those] for those, lows, _, _ in parts])
        high = np.concatenate([highs[those] for those, _, highs, _ in parts])
        stand = np.where(wins, offered[which], kept[which])
        best = np.where(wins, other[:, which], best[:, which])
        origin = origin[which]
    moved = bool((stand != pieces.point[origin]).any())
    return Pieces(pieces.row[origin], low, high, stand).joined(), moved


def begin(table: ParabolaTable, grid: Grid) -> Pieces:
    """All y at the best starting points."""
    rows, everything = np.arange(table.count), np.full(table.count, np.inf)
    pieces = Pieces(rows, -everything, everything, np.full(table.count, -1))
    slots = [np.full(table.count, table.number(point)) for point in grid.starts()]
    return offer(table, pieces, slots, 0.0)[0]


def walk(table: ParabolaTable, pieces: Pieces, grid: Grid, relevance: bool) -> Pieces:
    """Move, one setting after another, until no piece does."""
    rows = len(table.targets) + 1
    gain = math.log(rows) / rows

    def step(pieces: Pieces, moves: Moves) -> tuple[Pieces, bool]:
        groups = dict(groups_of(pieces.point))
        offers = {key: list(map(table.number, moves(table.points[key]))) for key in groups}
        slots = np.full((max(map(len, offers.values()), default=0), len(pieces.row)), -1)
        for key, those in groups.items():
            slots[: len(offers[key]), those] = np.array(offers[key], dtype=int)[:, None]
        return offer(table, pieces, list(slots), gain)

    count = grid.features if relevance and any(grid.weighted) else 0
    turns: list[Moves] = [partial(grid.feature_moves, feature=f) for f in range(count)]
    for _ in range(CYCLES):
        any_moved = False
        for moves in (*turns, grid.common_moves, grid.common_moves):
            pieces, moved = step(pieces, moves)
            any_moved |= moved
        if not any_moved:
            break
    return pieces
