"""Full conformal prediction in which all rows and the new one choose everything together.

For every candidate value of the new row's y the n + 1 rows scale the features, which takes their
covariates alone, and search the network, the weights of its features and λ as leave-one-out models
do on theirs (choosing/every_y.py). Both treat the n + 1 rows alike, so ranks of scores stay
exchangeable. Being rounded, the scaling is the same for nearly all new rows.

**Screening.** An outlier y leads the search astray, and every wrong turn has to be factored. So
rows are ranked in two rounds. In the first, at the best starting point, the rows of the J largest
scores are *extreme*: more than any other. They rank first, all others by their scores where the
search ends. This is one more symmetric score. With J ≤ κ an extreme y is not accepted: fewer than κ
rows rank as high. So only y among the candidates that J rows accept at the start need a search; and
training rows that may be extreme for some of them accept every y.

**Many rows.** A search uses about 400 rows: those for which a hash of their covariates, with a
seed, is small. That is a function of each row alone, so the rule stays symmetric for every seed. If
the new row is not among them, its y has no part in the choice, but is screened by the same start.
Where rows are so alike that the hash picks far fewer of the n + 1 rows, or far more, all search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..choosing.candidates import CandidateStep, is_narrow
from ..choosing.every_y import Blocks, ParabolaTable, Pieces, Whole, begin, groups_of, walk
from ..choosing.per_model import TIE, ModelSearch, PointValues, SearchResult, coordinate_search
from ..choosing.record import ChosenSettings
from ..choosing.rows import SEARCHED
from ..choosing.space import CandidateKernels, GridPoint
from ..compute import few_threads
from ..data.own_scaling import FeatureScale, FeatureScales, own_scales, unscaled
from ..intervals.full_conformal import Acceptance, FullModels, fit_full
from ..records import Ends
from ..ridge.problem import Problem, make_system
from ..tangent import Basis, Dual, FeatureMap, Linear

EXTREME = 5  # one in so many of the κ largest scores is extreme at the start
NEW_ROWS = 1000  # that share a search


@dataclass(frozen=True)
class FullStep(CandidateStep):
    """Settings: those of ``CandidateStep``, and these."""

    relevance: bool  # whether a weight for each feature is searched
    features: FeatureMap
    progress: bool = False

    def models(self, X: Tensor, y: Tensor) -> tuple[ChosenFull, ChosenSettings]:
        """Models of all rows, ready for new ones, and what they chose without them."""
        frame = self.frames(X, [torch.arange(0)], is_narrow(X))[0]
        rows = FramedRows(self, X, y, frame, chosen_share(coins(X, self.seed), len(y)))
        found = rows.search
        choice = self.choice(found, ("leverage",), len(y), len(rows.part), X.shape[1])
        return full_at(self, X, y, frame, found.points[-1]), choice

    def basis(self, tangent: Linear, X: Tensor, kernel: bool = False) -> Basis:
        """Coordinates for some rows; ``kernel`` asks for the dual form where there is one."""
        features = self.features.for_rows(len(X), self.machine)
        return features.basis(tangent, X, self.seed, kernel and features.has_kernel)


def coins(X: Tensor, seed: int) -> Tensor:
    """A number in [0, 1) for each row, a function of the row alone."""
    bits = (X.reshape(len(X), -1).double().nan_to_num(nan=0.5) + 0.0).numpy().view(np.uint64)
    state = np.full(len(X), seed, dtype=np.uint64)
    for column in bits.T:
        state = (state ^ column) * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return torch.from_numpy((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def chosen_share(tosses: Tensor, n: int) -> float:
    """The share of the rows that search, by the coins of n + 1 rows, or of n."""
    share = SEARCHED / (n + 1)
    count = int((tosses < share).sum())
    return share if share < 1 and SEARCHED <= 2 * count <= 4 * SEARCHED else 1.0


@dataclass(frozen=True)
class FramedRows:
    """The training rows on one scale of their features."""

    step: FullStep
    X: Tensor
    y: Tensor
    frame: FeatureScale
    share: float = 1.0  # of the rows that search: those with smaller coins

    @cached_property
    def part(self) -> Tensor:
        """Numbers of the rows that search."""
        return torch.nonzero(coins(self.X, self.step.seed) < self.share)[:, 0]

    @cached_property
    def kernels(self) -> CandidateKernels:
        """Of the rows that search."""
        return self.step.kernels(self.X[self.part], [self.frame])

    @property
    def targets(self) -> Tensor:
        """Of the rows that search."""
        return self.step.machine.put(self.y[self.part])

    @property
    def free(self) -> tuple[bool, bool]:
        """Whether weights of single features are searched, and λ."""
        return self.step.relevance and is_narrow(self.X), self.step.ridge is None

    @cached_property
    def values(self) -> PointValues:
        """The likelihood of the rows that search."""
        step = self.step
        return PointValues(self.kernels, self.targets, step.intercept, step.machine)

    @cached_property
    def search(self) -> SearchResult:
        """What the training rows choose alone."""
        models, count = [ModelSearch(0, len(self.part))], len(self.part)
        with few_threads(count):
            return coordinate_search(self.values, models, *self.free, self.step.progress)

    @cached_property
    def start(self) -> GridPoint:
        """The best starting point of that search."""
        points, count = self.kernels.grid(self.free[1]).starts(), len(self.part)
        self.values.evaluate([(0, points, [count])])
        start, best = points[0], np.inf
        for point in points:
            value = self.values.memo[0, point][0][0, count]
            if value < best - TIE:
                start, best = point, value
        return start

    def tangent(self, point: GridPoint) -> Linear:
        """The network of a point."""
        return self.step.tangent(point.network, point.weights, self.frame)

    def full(self, point: GridPoint) -> FullModels:
        """The model of all training rows at a point."""
        step = self.step
        X, y = step.machine.put(self.X), step.machine.put(self.y)
        basis = step.basis(self.tangent(point), X)
        system = make_system(basis, X, y, step.intercept)
        return fit_full(Problem(basis, X, y, system, (self.kernels.ridge(point),)))

    def accepted(self, new: Tensor, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Ends of new rows, (m, ranks)."""
        lower = self.y.new_full((len(new), len(ranks)), -torch.inf)
        upper = -lower
        joins = coins(new, self.step.seed) < self.share
        alone = torch.nonzero(~joins)[:, 0]
        if len(alone) and not self.search.doubtful[-1]:
            lower[alone], upper[alone] = (end.cpu() for end in self._apart(new[alone], ranks))
        rows = torch.nonzero(joins)[:, 0]
        if len(rows) and max(ranks):
            lower[rows], upper[rows] = _Joint(self, new[rows]).ends(ranks)
        return lower, upper

    def _apart(self, new: Tensor, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Ends of new rows that do not search: the same scores, at places that are known."""
        rows, places = self.step.machine.put(new), (self.start, self.search.points[-1])
        start, end = (self.full(point).accepts(rows) for point in places)
        found = list[tuple[Tensor, Tensor]]()
        for rank in ranks:
            screen = max(1, rank // EXTREME)
            low, high = (each[:, 0] for each in start.ends([screen]))
            extreme = start.outranked(low, high, screen)
            least, most = (each[:, 0] for each in end.ends([rank], extreme))
            inside = torch.maximum(least, low), torch.minimum(most, high)
            found.append(inside if rank else (least, most))
        lower, upper = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        return lower, upper


@dataclass
class _NewKernels:
    """Kernels of new rows with those that search; points that differ in λ share them."""

    known: FramedRows
    new: Tensor
    last: tuple[object, Blocks] | None = None  # what was asked for last, and the answer

    def __call__(self, point: GridPoint, rows: Whole) -> Blocks:
        key = (point.network, point.weights, rows.tobytes())
        if self.last is None or self.last[0] != key:
            step, known = self.known.step, self.known
            part = step.machine.put(known.X[known.part])
            basis = step.basis(known.tangent(point), part, True)
            outputs, cross, norms = basis.at(self.new[torch.from_numpy(rows)])
            if not isinstance(basis, Dual):
                cross = cross @ basis.at(part).coordinates.T
            self.last = key, (cross, norms, outputs)
        return self.last[1]


class _Joint:
    """New rows that search together with the training rows."""

    def __init__(self, known: FramedRows, new: Tensor) -> None:
        step = known.step
        self.known, self.new = known, step.machine.put(new)
        self.relevance, any_ridge = known.free
        self.grid = known.kernels.grid(any_ridge)
        # In an object of its own: a cycle of references would keep all kernels in memory.
        kernels = _NewKernels(known, self.new)
        terms = (known.targets, step.intercept, kernels, len(new))
        self.table = ParabolaTable(known.kernels, *terms)

    def ends(self, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Hulls of the accepted y, (m, ranks); the whole line where rounding leaves it open."""
        start = begin(self.table, self.grid)
        found = [self._hull(start, rank) for rank in ranks]
        lower, upper = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        unknown = torch.from_numpy(self.table.unknown)[:, None]
        return lower.masked_fill(unknown, -torch.inf), upper.masked_fill(unknown, torch.inf)

    def _hull(self, start: Pieces, rank: int) -> tuple[Tensor, Tensor]:
        count = len(self.new)
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        if not rank:
            return torch.from_numpy(-low), torch.from_numpy(-high)
        pieces, extreme = self._screened(start, max(1, rank // EXTREME))
        pieces = walk(self.table, pieces, self.grid, self.relevance)
        for number, those in groups_of(pieces.point):
            own = pieces.some(those)
            rows, which = np.unique(own.row, return_inverse=True)
            accepts = self._accepts(number, rows)
            always = torch.from_numpy(extreme[rows]).to(self.new.device)
            least, most = (end[:, 0].cpu().numpy()[which] for end in accepts.ends([rank], always))
            least, most = np.maximum(least, own.low), np.minimum(most, own.high)
            some = least <= most
            np.minimum.at(low, own.row[some], least[some])
            np.maximum.at(high, own.row[some], most[some])
        return torch.from_numpy(low), torch.from_numpy(high)

    def _accepts(self, number: int, rows: Whole) -> Acceptance:
        model = self.known.full(self.table.points[number])
        return model.accepts(self.new[torch.from_numpy(rows)])

    def _screened(self, start: Pieces, rank: int) -> tuple[Pieces, NDArray[np.bool_]]:
        """The y that are not extreme at the start, and training rows that may be for one of them.

        The latter have shape (new rows, n).
        """
        extreme = np.zeros((len(self.new), len(self.known.y)), dtype=bool)
        low, high = start.low.copy(), start.high.copy()
        for number, those in groups_of(start.point):
            rows, which = np.unique(start.row[those], return_inverse=True)
            accepts = self._accepts(number, rows)
            least, most = (end[:, 0].cpu().numpy()[which] for end in accepts.ends([rank]))
            low[those] = np.maximum(low[those], least)
            high[those] = np.minimum(high[those], most)
            kept = low[those] <= high[those]  # most pieces are far from all rows
            some = accepts.some(torch.from_numpy(which[kept]).to(self.new.device))
            first, last = (torch.from_numpy(e[those][kept]).to(some.middle) for e in (low, high))
            found = some.outranked(first, last, rank).cpu().numpy()
            np.logical_or.at(extreme, start.row[those][kept], found)
        kept = low <= high
        return Pieces(start.row, low, high, start.point).some(kept), extreme


@dataclass(frozen=True, kw_only=True)
class ChosenFull(FullModels):
    """Full conformal prediction at the place that the rows and each new one choose together.

    Points are predicted at the place that the training rows choose alone.
    """

    step: FullStep
    X: Tensor
    y: Tensor
    frame: FeatureScale
    point_at: GridPoint

    @property
    def rows_at_once(self) -> int:
        return NEW_ROWS

    def frames(self, new: Tensor) -> FeatureScales:
        """Scales of the training rows together with each new one."""
        if not self.step.scaled:
            return unscaled(len(new), self.X.shape[1], self.step.nominal)
        joined = (torch.cat([self.X, row]) for row in new.cpu().split(1))
        return own_scales(joined, is_narrow(self.X), self.step.nominal)

    def shares(self, new: Tensor) -> Tensor:
        """The share of the rows that search, by the coins of the training rows and each new one."""
        own, n = coins(self.X, self.step.seed), len(self.y)
        found = [
            chosen_share(torch.cat([own, coin]), n) for coin in coins(new, self.step.seed).split(1)
        ]
        return torch.tensor(found, dtype=torch.float64)

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Ends of each row in its own frame; the whole line where rounding decided which it is.

        Where no y is accepted both are the point prediction.
        """
        point, frames = self.point(X), self.frames(X)
        shares = self.shares(X.cpu())
        lower = torch.full((len(X), len(ranks)), -torch.inf, dtype=torch.float64)
        upper = -lower
        for k in range(len(frames)):
            rows = torch.nonzero((frames.of == k) & ~frames.doubtful)[:, 0]
            for share in shares[rows].unique().tolist():
                mine = rows[shares[rows] == share]
                known = FramedRows(self.step, self.X, self.y, frames[k], share)
                lower[mine], upper[mine] = known.accepted(X[mine].cpu(), ranks)
        lower, upper = lower.to(point.device), upper.to(point.device)
        empty, own = lower > upper, point[:, None].expand_as(lower)
        return point, torch.where(empty, own, lower), torch.where(empty, own, upper)


def full_at(
    step: FullStep, X: Tensor, y: Tensor, frame: FeatureScale, point: GridPoint
) -> ChosenFull:
    """Models of all rows, with points at a place."""
    model = FramedRows(step, X, y, frame).full(point)
    return ChosenFull(**vars(model), step=step, X=X, y=y, frame=frame, point_at=point)
