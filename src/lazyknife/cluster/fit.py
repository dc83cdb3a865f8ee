"""Both passes over the partitions, and the models that are left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..intervals.streamed import CompactModels, FullModel, KeptLevel, Passes
from ..intervals.window import RATIO, largest_eta
from ..ridge.streamed import Extremes
from .partitions import Lazy, Partitions, computed, is_there, kept, reduced, sent, tasks
from .selection import bracket, pick, places_for
from .tasks import (
    Extent,
    Key,
    Places,
    Reading,
    Worst,
    added,
    block_of,
    extent_of,
    insides_of,
    left_of,
    members_of,
    outlines_of,
    scored_of,
    sums_of,
    worst_of,
)


class FittedParts(NamedTuple):
    """The models, and the largest |y|."""

    loo: CompactModels
    size: float


@dataclass(frozen=True)
class Models:
    """All models, in their partitions; ``blocks`` and ``scored`` are kept by the cluster."""

    blocks: Sequence[Lazy]
    scored: Sequence[Lazy]
    extents: Sequence[Extent]
    full: FullModel

    @property
    def count(self) -> int:
        return sum(extent.models for extent in self.extents)

    @property
    def known(self) -> int:
        return sum(extent.known for extent in self.extents)

    def level(self, rank: int, eta: float) -> KeptLevel | None:
        """The models that can be the ``rank``-th largest for rows of at most this η, if any."""
        if not is_there([*self.blocks, *self.scored]):
            return None
        wanted = [(("low", eta), rank), (("high", eta), rank), (("size", 0.0), rank)]
        bottom, top, size = select(self.scored, wanted, self.count)
        same = (self.full, eta, (bottom, top))
        found = computed(tasks(members_of, self.blocks, self.scored, same=same))
        some = [part for part in found if part is not None]
        return KeptLevel(
            eta=eta,
            above=sum(part.above for part in some),
            size=size,
            top=top,
            farthest=max(extent.farthest for extent in self.extents),
            scores=torch.cat([part.scores for part in some]),
            reach=torch.cat([part.reach for part in some]),
            shifts=torch.cat([part.shifts for part in some], dim=1),
        )

    def typical_error(self) -> float:
        """The median of the errors that are known."""
        if not self.known:
            return float("inf")
        rank = self.known - (self.known - 1) // 2
        return select(self.scored, [(("error", 0.0), rank)], self.count)[0]


def select(scored: Sequence[Lazy], wanted: Sequence[tuple[Key, int]], count: int) -> list[float]:
    """For each kind of numbers and rank the number of that rank, from the largest, exactly."""
    keys = [key for key, _ in wanted]
    same = (keys, places_for(count, len(scored)))
    first = [part for part in computed(tasks(outlines_of, scored, same=same)) if part]
    ends = [bracket([part[k] for part in first], rank) for k, (_, rank) in enumerate(wanted)]
    second = [part for part in computed(tasks(insides_of, scored, same=(keys, ends))) if part]
    return [
        pick([part[k] for part in second], *ends[k], rank) for k, (_, rank) in enumerate(wanted)
    ]


def fit_parts(
    passes: Passes, rows: Partitions, reading: Reading, apart: Places, part: Tensor, rank: int
) -> FittedParts:
    """Fit.

    Parameters
    ----------
    passes
        What was chosen.
    rows, reading
        The training rows, and how they are read.
    apart
        Numbers of the rows that are not left out.
    part
        Those rows, as the models take them.
    rank
        Of the level whose models are kept, or 0.

    """
    shares = (rows.X, rows.y, rows.local(apart))
    blocks = kept(tasks(block_of, *shares, same=[reading]))
    chosen = sent(passes)
    sums = reduced(added, tasks(sums_of, blocks, same=[chosen]))
    solved = passes.solve(sums)
    both = (chosen, sent(solved))
    left = kept(tasks(left_of, blocks, same=both))
    worst = _joined(computed(tasks(worst_of, left, same=(both[1], passes.feature_error))))
    scored = kept(tasks(scored_of, left, same=(*both, passes.feature_error, worst)))
    extents = computed(tasks(extent_of, scored))
    drift = solved.prediction_bounds(passes.feature_error, worst.size, worst.extremes)
    models = Models(blocks, scored, extents, FullModel(passes, solved, drift))
    more = (models.count, models.count - models.known, models.typical_error())
    loo = CompactModels(passes, solved, drift, *more, {}, models.level)
    if rank:
        loo.level(rank, RATIO * _eta(loo, part))
    return FittedParts(loo, worst.size)


def _joined(parts: Sequence[Worst | None]) -> Worst:
    some = [part for part in parts if part is not None]
    extremes = Extremes.joined([part.extremes for part in some])
    return Worst(extremes, max(part.size for part in some))


def _eta(loo: CompactModels, rows: Tensor) -> float:
    """The largest η of some rows."""
    return max(largest_eta(loo.near(part)) for part in rows.split(loo.rows_at_once))
