"""What runs on the workers: pure functions of one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.rows import RowReader, Rows, check_target, take, to_tensor
from ..data.scaling import Scaling
from ..data.targets import Target
from ..intervals.streamed import FullModel, LeftOut, Passes, StreamedModels
from ..intervals.window import bounds, within
from ..ridge.streamed import Extremes, StreamedRidge, Sums
from .selection import Inside, Outline, inside, outline

Places = NDArray[np.intp]
Key = tuple[str, float]  # of VALUES, and an η


class Block(NamedTuple):
    """The rows of a partition as the models take them, and which of them are left out."""

    X: Tensor
    y: Tensor
    left: Tensor


class Scored(NamedTuple):
    """What the order statistics need of the rows that are left out, each field (rows,)."""

    scores: Tensor
    reach: Tensor
    residuals: Tensor
    errors: Tensor  # by rounding; −∞ where nothing is known


class Worst(NamedTuple):
    """What bounds on rounding need of a partition: of its models, and the largest |y|."""

    extremes: Extremes
    size: float


class Extent(NamedTuple):
    """How many models a partition has, how many are known, and the largest ρ."""

    models: int
    known: int
    farthest: float


class Members(NamedTuple):
    """The models of a partition that are in a window."""

    above: int
    scores: Tensor
    reach: Tensor
    shifts: Tensor


VALUES: dict[str, Callable[[Scored, float], Tensor]] = {
    "low": lambda scored, eta: bounds(scored.scores, scored.reach, eta)[0],
    "high": lambda scored, eta: bounds(scored.scores, scored.reach, eta)[1],
    "size": lambda scored, eta: scored.residuals.abs(),
    "error": lambda scored, eta: scored.errors,
}


@dataclass(frozen=True)
class Reading:
    """How rows are read; ``name`` is the estimator's, for messages."""

    reader: RowReader
    scaling: Scaling
    target: Target
    name: str


def block_of(X: Rows, y: Any, apart: Places, reading: Reading) -> Block:
    """Read, check and scale a partition; its rows ``apart`` are not left out."""
    rows = reading.reader(X, reading.name)
    labels = check_target(y, rows, reading.name)
    reading.target.check(labels)
    left = np.delete(np.arange(len(labels)), apart)
    targets = to_tensor(reading.target.forward(labels))
    return Block(to_tensor(reading.scaling(rows)), targets, torch.from_numpy(left))


def lengths_of(X: Rows, y: Any) -> tuple[int, int]:
    """Number of rows and of targets."""
    return len(X), len(y)


def some_rows(X: Rows, y: Any, places: Places) -> tuple[Rows, Any]:
    """Some rows with their targets."""
    return take(X, places), np.asarray(y)[places]


def sums_of(block: Block, passes: Passes) -> Sums:
    """The first pass."""
    parts = passes.blocks(len(block.y))
    return reduce(add, (passes.sums(block.X[part], block.y[part])[0] for part in parts))


def added(parts: Sequence[Sums]) -> Sums:
    """Sums of several partitions."""
    return reduce(add, parts)


def left_of(block: Block, passes: Passes, solved: StreamedRidge) -> LeftOut | None:
    """The second pass; None where no row is left out."""
    X, y = block.X[block.left], block.y[block.left]
    parts = [passes.left(solved, X[part], y[part]) for part in passes.blocks(len(y))]
    return LeftOut.joined(parts) if parts else None


def worst_of(left: LeftOut | None, solved: StreamedRidge, shaken: float) -> Worst | None:
    """What bounds on rounding need of a partition."""
    return None if left is None else Worst(solved.extremes(left.left, shaken), left.size)


def scored_of(
    left: LeftOut | None, passes: Passes, solved: StreamedRidge, shaken: float, worst: Worst
) -> Scored | None:
    """Scores, with the bounds on rounding of all partitions."""
    if left is None:
        return None
    drift = solved.bounds(left.left, shaken, worst.size, worst.extremes)
    models = StreamedModels(passes, solved, drift, left)
    errors = torch.where(torch.isfinite(drift.own), models.errors, -torch.inf)
    return Scored(models.scores, models.reach, models.residuals, errors)


def extent_of(scored: Scored | None) -> Extent:
    """How many models there are."""
    if scored is None:
        return Extent(0, 0, 0.0)
    known = int(torch.isfinite(scored.scores).sum())
    return Extent(len(scored.scores), known, float(scored.reach.max()))


def outlines_of(scored: Scored | None, keys: Sequence[Key], places: int) -> list[Outline] | None:
    """The first round of a selection, of several kinds of numbers."""
    if scored is None:
        return None
    return [outline(VALUES[name](scored, eta), places) for name, eta in keys]


def insides_of(
    scored: Scored | None, keys: Sequence[Key], brackets: Sequence[tuple[float, float]]
) -> list[Inside] | None:
    """The second round."""
    if scored is None:
        return None
    pairs = zip(keys, brackets, strict=True)
    return [inside(VALUES[name](scored, eta), *ends) for (name, eta), ends in pairs]


def members_of(
    block: Block,
    scored: Scored | None,
    full: FullModel,
    eta: float,
    ends: tuple[float, float],
) -> Members | None:
    """The models in a window, with their moves."""
    if scored is None:
        return None
    members, above = within(*bounds(scored.scores, scored.reach, eta), *ends)
    rows = block.X[block.left[members]]
    shifts = full.columns_of(rows, scored.residuals[members])
    return Members(above, scored.scores[members], scored.reach[members], shifts)
