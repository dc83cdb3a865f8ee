"""Full conformal prediction of classes: the rows and each new one, of each label, choose together.

The n + 1 rows search as in fit_full.py, but of a new row only a few labels are asked for: each is a
model of its own in the search. In the notation of every_y.py, with t the targets of a label, the
n + 1 rows have Σ rᵀc + Σ(t − ŷ)²/s over classes for rᵀc. Points of the grid are factored for the n
rows alone, and serve all labels of all new rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from ..choosing.candidates import is_narrow
from ..choosing.likelihood import Factor, of_one_scale
from ..choosing.per_model import (
    ModelSearch,
    Numbers,
    PointValues,
    SearchResult,
    coordinate_search,
    grouped,
)
from ..choosing.record import ChosenSettings
from ..choosing.space import GridPoint
from ..compute import few_threads
from ..data.own_scaling import FeatureScales, own_scales, unscaled
from ..intervals.classes import own_class
from ..intervals.full_classes import DualClasses
from ..ridge.rounding import GAMMA
from .fit_full import NEW_ROWS, FramedRows, FullStep, _NewKernels, chosen_share, coins


@dataclass
class LabelValues(PointValues):
    """The likelihood of the search rows with each of m new ones, of each label; (1, m·K)."""

    known: FramedRows = field(kw_only=True)
    new: Tensor = field(kw_only=True)
    joins: Tensor = field(kw_only=True)  # whether a new row is one of those that search, (m,)

    def __post_init__(self) -> None:
        self.crosses = _NewKernels(self.known, self.new)

    def minimum_gain(self, model: ModelSearch) -> float:
        rows = len(self.y) + int(self.joins[model.left_out // self.y.shape[1]])
        return math.log(rows) / rows

    def evaluate(self, asked: Iterable[tuple[int, Sequence[GridPoint], Iterable[int]]]) -> None:
        for frame, points, _ in asked:
            for point in points:
                if (frame, point) not in self.memo:
                    self.memo[frame, point], self.evaluated = self._both(point), self.evaluated + 1

    def _both(self, point: GridPoint) -> Numbers:
        K, ridges, outputs = self.kernels.at(0, [point])()
        factor = Factor.of(K, ridges, self.intercept, K.new_empty(0, dtype=torch.long))
        ridge, n = float(ridges), len(self.y)
        half = partial(torch.linalg.solve_triangular, factor.lower[0], upper=False)
        ones, total = factor.ones[0], factor.ones.square().sum()
        own = half(self.y - outputs[0][:, None])
        whole = own.square().sum()
        slope = own.T @ ones / total if self.intercept else own.new_zeros(own.shape[1])
        quadratic = whole - slope.square().sum() * total
        cross, norms, base = self.crosses(point, np.arange(len(self.new)))
        reached = half(cross.T).T
        opened = (norms + ridge - reached.square().sum(dim=1)).clamp(min=ridge)
        middle = reached @ own + base[:, None]
        if self.intercept:
            missing = 1 - reached @ ones
            opened = opened + missing.square() / total
            middle = middle + missing[:, None] * slope
        gaps = middle.square().sum(dim=1, keepdim=True) - 2 * middle + 1
        joined = self.joins.to(middle.device)[:, None]
        freedom = torch.where(joined, n + 1, n) - int(self.intercept)
        sums = quadratic + torch.where(joined, gaps / opened[:, None], 0.0)
        logs = factor.logs[0] + torch.where(joined, opened[:, None].log(), 0.0)
        values = (sums / freedom).log() + logs / freedom
        sizes = (factor.roots.square().sum() + norms + ridge) / ridge + whole / quadratic
        noise = (GAMMA * (2 * sizes[:, None] + 4)).expand_as(values)
        bad = ~values.isfinite() | factor.failed[0]
        both = torch.stack([values, noise]).masked_fill(bad, torch.inf)
        found: Numbers = both.reshape(2, 1, -1).cpu().numpy()
        return found


@dataclass(frozen=True)
class ClassRows(FramedRows):
    """The training rows on one scale of their features; y has their targets, (n, K)."""

    @cached_property
    def values(self) -> PointValues:
        terms = self.kernels, self.targets.T, self.step.intercept, self.step.machine
        return PointValues(*terms, together=of_one_scale)

    def classes(self, point: GridPoint) -> DualClasses:
        """The ridges of all training rows at a point."""
        step, ridge = self.step, self.kernels.ridge(point)
        X, Y = step.machine.put(self.X), step.machine.put(self.y)
        return DualClasses.of(self.tangent(point), X, Y, ridge, step.intercept)

    def with_each(self, new: Tensor) -> SearchResult:
        """What these rows choose with each new one, of each label; one after the other."""
        joins = coins(new, self.step.seed) < self.share
        terms = self.kernels, self.targets, self.step.intercept, self.step.machine
        rows = self.step.machine.put(new)
        values = LabelValues(*terms, known=self, new=rows, joins=joins)
        models = [ModelSearch(0, k) for k in range(len(new) * self.y.shape[1])]
        with few_threads(len(self.part)):
            return coordinate_search(values, models, *self.free)


@dataclass(frozen=True)
class FullClasses:
    """Sets of classes at the place that the rows and each new one choose together.

    Points are predicted at the place that the training rows choose alone.
    """

    step: FullStep
    X: Tensor
    Y: Tensor
    own: DualClasses  # at that place

    @property
    def codes(self) -> Tensor:
        return self.Y.argmax(dim=1)

    @property
    def rows_at_once(self) -> int:
        return min(NEW_ROWS, self.own.rows_at_once)

    @property
    def residuals(self) -> Tensor:
        """1 − f_y without each row, shape (n,)."""
        return own_class(self.own.left_out.unbind(1), self.codes)

    @property
    def training_residuals(self) -> Tensor:
        return own_class(self.own.training_residuals.unbind(1), self.codes)

    @property
    def undetermined(self) -> int:
        return 0

    def typical_error(self) -> tuple[float, float]:
        return self.own.typical_error()

    def point(self, X: Tensor) -> Tensor:
        """f_c of the full model, shape (m, classes)."""
        return self.own.point(X)

    def sets(self, X: Tensor, construction: str, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Values of the full model, (m, K), and whether each class is kept, (m, K, ranks)."""
        point, rows = self.point(X), X.cpu()
        kept = torch.ones(*point.shape, len(ranks), dtype=torch.bool)
        frames, tosses = self._frames(rows), coins(self.X, self.step.seed)
        each = coins(rows, self.step.seed).split(1)
        count = len(self.X)
        shares = torch.tensor([chosen_share(torch.cat([tosses, one]), count) for one in each])
        for k in range(len(frames)):
            mine = (frames.of == k) & ~frames.doubtful
            for share in shares[mine].unique().tolist():
                which = torch.nonzero(mine & (shares == share))[:, 0]
                known = ClassRows(self.step, self.X, self.Y, frames[k], share)
                kept[which] = self._kept(known, rows[which], ranks)
        return point, kept.to(point.device)

    def _kept(self, known: ClassRows, new: Tensor, ranks: Sequence[int]) -> Tensor:
        """The same for rows of one frame; classes about which rounding decided are kept."""
        found, classes = known.with_each(new), self.Y.shape[1]
        doubtful = torch.from_numpy(found.doubtful).reshape(-1, classes, 1)
        kept = doubtful.repeat(1, 1, len(ranks))
        rows, machine = self.step.machine.put(new), self.step.machine
        for point, pairs in grouped(found.points).items():
            at, labels = torch.tensor(pairs) // classes, torch.tensor(pairs) % classes
            some, place = at.unique(return_inverse=True)
            scores = known.classes(point).scores(rows[some.to(rows.device)], machine.put(self.Y))
            inside = scores.kept(machine.put(self.codes), ranks).cpu()
            kept[at, labels] |= inside[place, labels]
        return kept

    def _frames(self, new: Tensor) -> FeatureScales:
        """Scales of the training rows together with each new one."""
        if not self.step.scaled:
            return unscaled(len(new), self.X.shape[1], self.step.nominal)
        joined = (torch.cat([self.X, row]) for row in new.split(1))
        return own_scales(joined, is_narrow(self.X), self.step.nominal)


def full_classes(step: FullStep, X: Tensor, Y: Tensor) -> tuple[FullClasses, ChosenSettings]:
    """Models of all rows, ready for new ones, and what they chose without them."""
    frame = step.frames(X, [torch.arange(0)], is_narrow(X))[0]
    share = chosen_share(coins(X, step.seed), len(X))
    rows = ClassRows(step, X, Y, frame, share)
    found = rows.search
    choice = step.choice(found, ("constant",), len(X), len(rows.part), X.shape[1])
    return FullClasses(step, X, Y, rows.classes(found.points[-1])), choice
