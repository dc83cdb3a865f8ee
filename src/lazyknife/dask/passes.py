"""Both passes over the partitions, and the models that are left of them.

They are those of ``intervals/streamed``: what one machine does with blocks of rows, workers do with
partitions. Rows, and what leaving them out gave, stay with the workers; the models that the
intervals of a level need come here. Functions of a partition are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.rows import RowReader, Rows, check_target, to_tensor
from ..data.scaling import Scaling
from ..data.targets import Target
from ..intervals.streamed import CompactModels, KeptModels, LeftOut, Passes, StreamedModels
from ..intervals.window import RATIO, Among, bounds, largest_eta, within
from ..ridge.streamed import Extremes, StreamedRidge, Sums
from .partitions import Lazy, Partitions, Places, computed, is_there, kept, reduced, sent, tasks
from .selection import Inside, Outline, bracket, inside, outline, pick, places_for


@dataclass(frozen=True)
class Reading:
    """How rows are read; ``name`` is the estimator's, for messages."""

    reader: RowReader
    scaling: Scaling
    target: Target
    name: str


class Block(NamedTuple):
    """The rows of a partition as the models take them, and which of them are left out."""

    X: Tensor
    y: Tensor
    left: Tensor
    grown: Tensor  # values of trees for the other rows, which these were grown on; NaN for others


class Solved(NamedTuple):
    """What both passes know between them."""

    passes: Passes
    ridge: StreamedRidge
    feature_error: float


class Worst(NamedTuple):
    """What bounds on rounding need of all rows that are left out, and the largest |y|."""

    extremes: Extremes
    size: float


Key = tuple[str, float]  # of VALUES, and an η
VALUES: dict[str, Callable[[StreamedModels, float], Tensor]] = {
    "low": lambda models, eta: bounds(models.scores, models.reach, eta)[0],
    "high": lambda models, eta: bounds(models.scores, models.reach, eta)[1],
    "size": lambda models, eta: models.residuals.abs(),
    # By rounding; −∞ where nothing is known.
    "error": lambda models, eta: torch.where(
        torch.isfinite(models.scores), models.errors, -torch.inf
    ),
}


def block_of(X: Rows, y: Any, apart: Places, values: Tensor, reading: Reading) -> Block:
    """Read, check and scale a partition; its rows ``apart`` are not left out."""
    rows = reading.reader(X, reading.name)
    labels = check_target(y, rows, reading.name)
    reading.target.check(labels)
    left = np.delete(np.arange(len(labels)), apart)
    targets = to_tensor(reading.target.forward(labels))
    grown = torch.full_like(targets, torch.nan)
    grown[apart] = values
    return Block(to_tensor(reading.scaling(rows)), targets, torch.from_numpy(left), grown)


added = partial(reduce, add)  # sums of several blocks or partitions


def sums_of(block: Block, passes: Passes) -> Sums:
    """The first pass."""
    X, y, _, grown = block
    found: Sums = added(
        [passes.sums(X[part], y[part], grown[part])[0] for part in passes.blocks(len(y))]
    )
    return found


def left_of(block: Block, solved: Solved) -> LeftOut:
    """The second pass."""
    X, y, passes = block.X[block.left], block.y[block.left], solved.passes
    parts = passes.blocks(len(y))
    return LeftOut.joined([passes.left(solved.ridge, X[part], y[part]) for part in parts])


def worst_of(out: LeftOut, solved: Solved) -> Worst:
    """What bounds on rounding need of a partition."""
    return Worst(solved.ridge.extremes(out.left, solved.feature_error), out.size)


def models_of(out: LeftOut, solved: Solved, worst: Worst) -> StreamedModels:
    """The models of a partition, with the bounds on rounding of all partitions."""
    passes, ridge, error = solved
    rounding = ridge.bounds(out.left, error, worst.size, worst.extremes)
    return StreamedModels(passes, ridge, rounding, out)


def extent_of(out: LeftOut, solved: Solved, worst: Worst) -> tuple[int, float]:
    """How many models of a partition are known, and the largest ρ."""
    models = models_of(out, solved, worst)
    return len(models.scores) - models.undetermined, float(models.reach.max())


def outlines_of(
    out: LeftOut, solved: Solved, worst: Worst, keys: Sequence[Key], places: int
) -> list[Outline]:
    """The first round of a selection, of several kinds of numbers."""
    models = models_of(out, solved, worst)
    return [outline(VALUES[name](models, eta), places) for name, eta in keys]


def insides_of(
    out: LeftOut,
    solved: Solved,
    worst: Worst,
    keys: Sequence[Key],
    brackets: Sequence[tuple[float, float]],
) -> list[Inside]:
    """The second round."""
    models, pairs = models_of(out, solved, worst), zip(keys, brackets, strict=True)
    return [inside(VALUES[name](models, eta), *ends) for (name, eta), ends in pairs]


def members_of(
    out: LeftOut, solved: Solved, worst: Worst, eta: float, ends: tuple[float, float]
) -> tuple[int, Tensor, Tensor, Tensor]:
    """Of the models in a window R, ρ and their columns, and how many others are above them."""
    models = models_of(out, solved, worst)
    members, above = within(*bounds(models.scores, models.reach, eta), *ends)
    return above, models.scores[members], models.reach[members], models.columns(members)


@dataclass(frozen=True)
class RemoteModels:
    """All models, in their partitions, of which ``outs`` and ``solved`` are with the workers."""

    outs: Sequence[Lazy]
    solved: Lazy
    worst: Worst
    count: int
    farthest: float

    def level(self, rank: int, eta: float) -> Among | None:
        """The models that can be the ``rank``-th largest for rows of at most this η, if any."""
        if not is_there([*self.outs, self.solved]):
            return None
        wanted = [(("low", eta), rank), (("high", eta), rank), (("size", 0.0), rank)]
        bottom, top, size = self.select(wanted)
        same = (self.solved, self.worst, eta, (bottom, top))
        above, *columns = zip(*computed(tasks(members_of, self.outs, same=same)), strict=True)
        models = (torch.cat(parts, dim=-1) for parts in columns)
        return Among(KeptModels(*models), eta, sum(above), top, self.farthest, size)

    def select(self, wanted: Sequence[tuple[Key, int]]) -> list[float]:
        """For each kind of numbers and rank the number of that rank, from the largest, exactly."""
        keys, ranks = zip(*wanted, strict=True)
        same = (self.solved, self.worst, keys)
        places = places_for(self.count, len(self.outs))
        first = zip(*computed(tasks(outlines_of, self.outs, same=(*same, places))), strict=True)
        ends = [bracket(parts, rank) for parts, rank in zip(first, ranks, strict=True)]
        second = zip(*computed(tasks(insides_of, self.outs, same=(*same, ends))), strict=True)
        found = zip(second, ends, ranks, strict=True)
        return [pick(parts, *between, rank) for parts, between, rank in found]


def fit_parts(
    passes: Passes,
    rows: Partitions,
    reading: Reading,
    apart: Places,
    part: Tensor,
    grown: Tensor,
    rank: int,
) -> tuple[CompactModels, float]:
    """Fit; return the models and the largest |y|.

    ``passes`` are what was chosen by the rows with the numbers ``apart``, which are not left out;
    ``part`` are those rows, as the models take them, and ``grown`` values of the trees, which were
    grown on them. The models of a level's ``rank``, if it is not 0, are kept.
    """
    local = rows.local(apart)
    values = grown.cpu()[torch.from_numpy(np.argsort(apart))].split([*map(len, local)])
    blocks = kept(tasks(block_of, rows.X, rows.y, local, values, same=[reading]))
    chosen = sent(passes)  # Dask forgets what no name refers to
    ridge = passes.solve(reduced(added, tasks(sums_of, blocks, same=[chosen])))
    solved = sent(Solved(passes, ridge, passes.feature_error))
    sizes = [length - len(places) for length, places in zip(rows.lengths, local, strict=True)]
    some = [block for block, size in zip(blocks, sizes, strict=True) if size]
    outs = kept(tasks(left_of, some, same=[solved]))
    extremes, largest = zip(*computed(tasks(worst_of, outs, same=[solved])), strict=True)
    worst = Worst(Extremes.joined(extremes), max(largest))
    known, farthest = zip(*computed(tasks(extent_of, outs, same=[solved, worst])), strict=True)
    models = RemoteModels(outs, solved, worst, sum(sizes), max(farthest))
    middle = sum(known) - (sum(known) - 1) // 2
    error = models.select([(("error", 0.0), middle)])[0] if sum(known) else float("inf")
    rounding = ridge.prediction_bounds(passes.feature_error, worst.size, worst.extremes)
    undetermined = models.count - sum(known)
    loo = CompactModels(
        passes, ridge, rounding, models.count, undetermined, error, {}, models.level
    )
    if rank:
        loo.among(rank, RATIO * farthest_eta(loo, part))
    return loo, worst.size


def farthest_eta(loo: CompactModels, rows: Tensor) -> float:
    """The largest η of some rows."""
    return max(largest_eta(loo.full_at(part)) for part in rows.split(loo.rows_at_once))
