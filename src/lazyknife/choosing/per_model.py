"""Every model searches its network, the weights of its features and λ on its own rows.

All models start from the same points of the grid and move by coordinate descent: one feature after
another, then λ, the common scale and the network. A move must improve the model's own likelihood
(likelihood.py) by a minimum gain, log(rows)/rows, as in the Bayesian information criterion, so that
few rows do not overfit. One factorisation gives the values of a point for all models, and models
that stand at the same point share the evaluation of its moves: a memo changes no result. Where few
models ask for a point, it is evaluated for them alone.

With many rows the search uses a part of them, into which each row is drawn by a coin of its own
(a part of fixed size would tell a model about the row that it leaves out). Models of rows outside
the part make the same search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import call
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compute import Machine, available, steps, track
from ..ridge.system import OwnRidges
from .likelihood import Together, Values, leave_one_out_values
from .space import RIDGES, CandidateKernels, Grid, GridPoint, Work

Numbers = NDArray[np.float64]
Key = TypeVar("Key")
CYCLES = 3
# Kernels that a processor's thread evaluates at a time, at most, and their bytes, which should stay
# in its caches; n³ that pays for another thread.
MOST_ON_CPU, CACHED, LEAST_WORK = 16, 2**22, 5e7
FEW = 0.25  # of the rows: the most for which a point is evaluated for some models alone
NOTHING = np.zeros((1, 1))
TIE = 1e-6  # a value wins only if it is smaller by this: exact ties go to the earlier point


class ModelSearch(NamedTuple):
    """A model that searches: its frame, and the number of its rows among those left out."""

    frame: int
    left_out: int


def grouped(items: Iterable[Key]) -> dict[Key, list[int]]:
    """Numbers of the items that are equal."""
    groups = dict[Key, list[int]]()
    for k, item in enumerate(items):
        groups.setdefault(item, []).append(k)
    return groups


@dataclass
class PointValues:
    """The likelihood of all grid points that were asked for, for the models that asked."""

    kernels: CandidateKernels
    # Targets of the search rows, shape (n,), or on several scales or of several outputs, (.., n).
    y: Tensor
    intercept: bool
    machine: Machine
    folds: Sequence[Tensor] | None = None  # rows that are left out; None: each row in turn
    together: Together | None = None  # of several outputs: from their criteria to one
    # Values and bounds on their rounding, (2, scales, models), by frame and point; NaN: not known.
    memo: dict[tuple[int, GridPoint], Numbers] = field(default_factory=dict)
    evaluated: int = 0  # number of factorisations

    def evaluate(self, asked: Iterable[tuple[int, Sequence[GridPoint], Iterable[int]]]) -> None:
        """Evaluate points in a frame for models, by what they leave out, where it is not known."""
        wanted = defaultdict[tuple[int, GridPoint], set[int]](set)
        for frame, points, models in asked:
            for point in points:
                wanted[frame, point].update(models)
        new = {key: models for key, models in wanted.items() if self._lacks(key, models)}
        kinds = grouped((key[0], self._is_few(key[1], models)) for key, models in new.items())
        n, keys = self.y.shape[-1], list(new)
        size = max(1, self.machine.block // (6 * self.machine.item * n**2))
        if self.machine.on_cpu:
            each = max(-(-len(new) // available()), math.ceil(LEAST_WORK / n**3))
            size = min(size, each, MOST_ON_CPU, 1 + CACHED // (self.machine.item * n**2))
        parts = list[tuple[list[tuple[int, GridPoint]], list[int] | None]]()
        for (_, few), numbers in kinds.items():
            for block in steps(len(numbers), size):
                some = [keys[k] for k in numbers[block]]
                rows = set[int]().union(*(new[key] for key in some)) - {n}
                parts.append((some, sorted(rows) if few else None))
        for block in steps(len(parts), available()):
            works = [
                partial(self._values, self.kernels.at(some[0][0], [key[1] for key in some]), rows)
                for some, rows in parts[block]
            ]
            found = self.machine.map(call, works, 6 * size * n**2)
            for (some, _), values in zip(parts[block], found, strict=True):
                self.evaluated += len(some)
                for key, own in zip(some, values, strict=True):
                    known = self.memo.get(key, own)
                    self.memo[key] = np.where(np.isnan(known), own, known)

    def _lacks(self, key: tuple[int, GridPoint], models: set[int]) -> bool:
        """Whether a point was not evaluated for some of the models."""
        return key not in self.memo or bool(np.isnan(self.memo[key][0, 0, list(models)]).any())

    def _is_few(self, point: GridPoint, models: set[int]) -> bool:
        """Whether a point is evaluated for these models alone, which needs a kernel and λ > 0.

        With a smaller λ the bound on rounding for a few models would be loose.
        """
        few = self.folds is None and len(models) <= FEW * self.y.shape[-1]
        return few and bool(point.weights) and point.ridge >= RIDGES[0]

    def minimum_gain(self, model: ModelSearch) -> float:
        """What a move must bring."""
        rows = self.y.shape[-1]
        if self.folds is None:
            rows -= int(model.left_out < rows)
        elif model.left_out < len(self.folds):
            rows -= len(self.folds[model.left_out])
        return math.log(max(rows, 2)) / max(rows, 2)

    def _values(self, kernels: Work, rows: list[int] | None) -> Numbers:
        """Values without each of some rows, or by all models, (points, 2, scales, models)."""
        K, ridges, outputs = kernels()
        targets = torch.atleast_2d(self.y) - outputs[:, None]
        left_out = self.folds if rows is None else torch.tensor(rows, dtype=torch.long)
        found = leave_one_out_values(K, ridges, targets, self.intercept, left_out)
        if self.together is not None:  # first that of all outputs, then their own
            pairs = zip(self.together(found), found, strict=True)
            found = Values(*(torch.cat(pair, dim=1) for pair in pairs))
        both = torch.stack(list(found), dim=1).cpu().numpy()
        if rows is None:
            return both
        values = np.full((*both.shape[:3], 1 + targets.shape[-1]), np.nan)
        values[..., [*rows, -1]] = both
        return values


class SearchResult(NamedTuple):
    """Where the search of each model ended, and how it got there."""

    points: list[GridPoint]
    ridges: Numbers  # their λ, shape (models,)
    values: Numbers  # their −2 log likelihood over the degrees of freedom, shape (models,)
    doubtful: NDArray[np.bool_]  # whether rounding may have decided a move, shape (models,)
    starting: Numbers  # the best value of each network at the start, shape (models, networks)
    scales: NDArray[np.int_]  # of y, shape (models,)
    evaluated: int  # number of factorisations
    # Values of each output there, where there are several, and bounds on their rounding; each has
    # shape (models, outputs).
    outputs: tuple[Numbers, Numbers]


class _Descent:
    """The models on their way."""

    def __init__(
        self, values: PointValues, models: Sequence[ModelSearch], gains: Numbers, offsets: Numbers
    ) -> None:
        count = len(models)
        self.table, self.gains = values, gains
        self.frames = [model.frame for model in models]
        self.columns = np.array([model.left_out for model in models])
        self.offsets = offsets[self.columns] if len(offsets) > 1 else offsets.repeat(count, axis=0)
        self.scales = np.zeros(count, dtype=int)
        self.points: list[GridPoint] = [GridPoint(0, (), 0)] * count
        self.values, self.noise = np.full(count, np.inf), np.zeros(count)
        self.doubtful = np.zeros(count, dtype=bool)

    def begin(self, points: Sequence[GridPoint]) -> Numbers:
        """Stand at the best scale and starting point; return the best value there by network."""
        best = np.full((len(self.points), 1 + max(point.network for point in points)), np.inf)
        frames = grouped(self.frames)
        self._evaluate((frame, points, members) for frame, members in frames.items())
        for frame, members in frames.items():
            for scale in range(self.offsets.shape[1]):
                self._offer(frame, members, points, np.zeros(len(members)), scale)
            for point in points:
                own = self._values_at(frame, point, members, self.scales[members])[0]
                best[members, point.network] = np.minimum(best[members, point.network], own)
        return best

    def walk(self, grid: Grid, relevance: bool, progress: bool) -> None:
        """Move, one setting after another, until no model does."""
        count = grid.features if relevance and any(grid.weighted) else 0
        for _ in range(CYCLES):
            moved = False
            for f in track(range(count), "weighing features", count, progress and count > 0):
                moved |= self.step(partial(grid.feature_moves, feature=f))
            for _ in range(2):
                moved |= self.step(grid.common_moves)
            if not moved:
                break

    def settle(self, members: list[int], plain: _Descent) -> None:
        """Where members are no better than by a search on y itself, they end where it does."""
        margin = self.values[members] - (plain.values - TIE)
        self.doubtful[members] |= plain.doubtful
        self.doubtful[members] |= ~(np.abs(margin) > self.noise[members] + plain.noise)
        for k, member in enumerate(members):
            if margin[k] >= 0:
                self.points[member], self.values[member] = plain.points[k], plain.values[k]
                self.scales[member] = 0

    def step(self, moves: Callable[[GridPoint], Iterable[GridPoint]]) -> bool:
        """Let every model take its best move, if one gains enough; whether any did."""
        groups = grouped(zip(self.frames, self.points, strict=True))
        offers = {key: list(moves(key[1])) for key in groups}
        self._evaluate((key[0], offers[key], members) for key, members in groups.items())
        moved = False
        for key, members in groups.items():
            moved |= self._offer(key[0], members, offers[key], self.gains[members])
        return moved

    def _evaluate(self, asked: Iterable[tuple[int, Sequence[GridPoint], list[int]]]) -> None:
        """Evaluate points in a frame for some members."""
        columns = self.columns
        self.table.evaluate((frame, points, columns[own].tolist()) for frame, points, own in asked)

    def _values_at(
        self, frame: int, point: GridPoint, members: list[int], scales: NDArray[np.int_]
    ) -> tuple[Numbers, Numbers]:
        """Values of members on some scales of y, and bounds on their rounding."""
        columns = self.columns[members]
        values, noise = (part[scales, columns] for part in self.table.memo[frame, point])
        return values + self.offsets[members, scales], noise

    def _offer(
        self,
        frame: int,
        members: list[int],
        points: Sequence[GridPoint],
        gains: Numbers,
        scale: int | None = None,
    ) -> bool:
        """Compare points one after another with the best so far, less the minimum gain.

        On the members' own scales of y, or all on a given one, which comes with the point.
        """
        scales = self.scales[members] if scale is None else np.full(len(members), scale)
        best, noise = self.values[members] - gains, self.noise[members]
        chosen = np.full(len(members), -1)
        for k, point in enumerate(points):
            values, error = self._values_at(frame, point, members, scales)
            with np.errstate(invalid="ignore"):  # both infinite: neither is better, or nobody knows
                margin = values - (best - TIE)
            self.doubtful[members] |= ~(np.abs(margin) > error + noise)
            better = margin < 0
            best, noise = np.where(better, values, best), np.where(better, error, noise)
            chosen[better] = k
        for member, k, own, value, error in zip(members, chosen, scales, best, noise, strict=True):
            if k >= 0:
                self.points[member], self.values[member] = points[k], value
                self.noise[member], self.scales[member] = error, own
        return bool((chosen >= 0).any())


def coordinate_search(
    values: PointValues,
    models: Sequence[ModelSearch],
    relevance: bool = True,
    any_ridge: bool = True,
    progress: bool = False,
    gain: float | None = None,
    offsets: Numbers = NOTHING,
) -> SearchResult:
    """Search for every model; models that are alike share a search.

    Parameters
    ----------
    values
        From grid points to their likelihood.
    models
        The models.
    relevance
        Whether the weights of single features are searched.
    any_ridge
        Whether λ is searched; otherwise it is the unit of each network.
    progress
        Whether to show a progress bar.
    gain
        Least gain that a move must bring; None: log(rows)/rows of each model's own search rows.
    offsets
        What is added to the values on each scale of y, of models by what they leave out, shape
        (left out, scales); infinite where a scale is not offered. One row is for all models.

    """
    number = {model: k for k, model in enumerate(dict.fromkeys(models))}
    gains = [values.minimum_gain(model) if gain is None else gain for model in number]
    grid = values.kernels.grid(any_ridge)
    descent = _Descent(values, list(number), np.array(gains), offsets)
    starts = grid.starts()
    starting = descent.begin(starts)
    if not np.isfinite(descent.values).all():
        raise ValueError(
            "no candidate gives every leave-one-out model a finite likelihood: the kernels are not "
            "positive definite, or features or y are too large; give other networks, or rescale y"
        )
    descent.walk(grid, relevance, progress)
    if moved := np.flatnonzero(descent.scales).tolist():  # that start on another scale than y's
        fewer = [list(number)[k] for k in moved]
        plain = _Descent(values, fewer, descent.gains[moved], NOTHING)
        plain.begin(starts)
        plain.walk(grid, relevance, progress)
        descent.settle(moved, plain)
    each = np.array([number[model] for model in models])
    points = [descent.points[k] for k in each]
    ridges = np.array([values.kernels.ridge(point) for point in points])
    found = descent.values[each], descent.doubtful[each], starting[each]
    stands = [
        [part[1:, model.left_out] for part in values.memo[model.frame, point]]
        for model, point in zip(models, points, strict=True)
    ]
    own, noise = (np.stack(part) for part in zip(*stands, strict=True))
    scales = descent.scales[each]
    return SearchResult(points, ridges, *found, scales, values.evaluated, (own, noise))


def choose_ridges(
    kernel: Tensor,
    targets: Tensor,
    intercept: bool,
    unit: float,
    left_out: Sequence[int],
    folds: Sequence[Tensor] | None,
    machine: Machine,
) -> OwnRidges:
    """Let every model choose its λ, for one kernel: a search of the network alone.

    ``kernel`` and ``targets`` are K and y − f(X; θ0) of the rows that choose, (n, n) and (n,);
    ``unit`` is λ of exponent 0, a function of no data; ``left_out`` and ``folds`` are those of
    ``rows.places_in``.
    """

    def given(_: int) -> tuple[Tensor, Tensor]:
        return kernel, torch.zeros_like(targets)

    kernels = CandidateKernels([given], [unit], [kernel], ())
    values = PointValues(kernels, targets, intercept, machine, folds)
    found = coordinate_search(values, [ModelSearch(0, column) for column in left_out])
    doubtful = targets.new_tensor(found.doubtful[:-1].astype(float))
    return OwnRidges(targets.new_tensor(found.ridges), doubtful)
