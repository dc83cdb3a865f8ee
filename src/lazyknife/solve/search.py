"""Every model searches its network, the weights of its features and λ on its own rows.

All models start from the same grid of places and move by coordinate descent: one feature after
another, then λ, the common scale and the network. A move must improve the model's own evidence
(evidence.py) by a fixed toll, log(rows)/rows, as in the Bayesian information criterion, so that few
rows do not overfit. One factorisation gives the evidence of a place for all models, and models that
stand at the same place share the evaluation of its moves: a memo changes no result.

With many rows the search uses a part of them, into which each row is drawn by a coin of its own
(a part of fixed size would tell a model about the row that it leaves out). Models of rows outside
the part make the same search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..compute import Machine, steps, track
from ..threads import available
from .evidence import evidence
from .kernels import Work
from .places import Place, common_moves, feature_moves, starts

Numbers = NDArray[np.float64]
CYCLES = 3
# Kernels that a processor's thread evaluates at a time, at most, and their bytes, which should stay
# in its caches; n³ that pays for another thread.
MOST_ON_CPU, CACHED, LEAST_WORK = 16, 2**22, 5e7
TIE = 1e-6  # an evidence wins only if it is larger by this: exact ties go to the earlier place


class Walker(NamedTuple):
    """A model that searches: its frame, and the place of its rows among those left out."""

    frame: int
    left_out: int


class Kernels(Protocol):
    """Kernel matrices of the search rows, in the frames of the models."""

    @property
    def weighted(self) -> Sequence[bool]:
        """Which networks have weights for the features."""

    @property
    def fixed(self) -> Sequence[bool]:
        """Which networks have a given scale."""

    @property
    def features(self) -> int:
        """Number of features."""

    def at(self, frame: int, places: Sequence[Place]) -> Work:
        """From nothing to K, (places, n, n), λ, (places,), and f(X; θ0), (places, n).

        What is returned may run in any thread.
        """


@dataclass
class Search:
    """The evidence of all places that were asked for.

    Attributes
    ----------
    kernels
        From places to kernel matrices.
    y
        Targets of the search rows, shape (n,).
    intercept
        Whether there is an intercept.
    folds
        The sets of rows that are left out; None: each row in turn.
    machine
        Where to compute.

    """

    kernels: Kernels
    y: Tensor
    intercept: bool
    machine: Machine
    folds: Sequence[Tensor] | None = None
    memo: dict[tuple[int, Place], tuple[Numbers, Numbers]] = field(default_factory=dict)

    def look(self, wanted: Iterable[tuple[int, Place]]) -> None:
        """Evaluate places, each in a frame, that were not evaluated before."""
        new = [each for each in dict.fromkeys(wanted) if each not in self.memo]
        frames, n = Groups[int](frame for frame, _ in new), len(self.y)
        size = max(1, self.machine.block // (6 * self.machine.item * n**2))
        if self.machine.on_cpu:
            each = max(-(-len(new) // available()), math.ceil(LEAST_WORK / n**3))
            size = min(size, each, MOST_ON_CPU, 1 + CACHED // (self.machine.item * n**2))
        parts = [
            (frame, [new[k][1] for k in numbers[block]])
            for frame, numbers in frames.items()
            for block in steps(len(numbers), size)
        ]
        for block in steps(len(parts), available()):
            works = [self.kernels.at(*part) for part in parts[block]]
            found = self.machine.map(self._evidence, works, 6 * size * n**2)
            for (frame, places), both in zip(parts[block], found, strict=True):
                pairs = zip(*both, strict=True)
                self.memo |= {(frame, p): pair for p, pair in zip(places, pairs, strict=True)}

    def _evidence(self, kernels: Work) -> tuple[Numbers, Numbers]:
        K, ridges, outputs = kernels()
        found = evidence(K, ridges, self.y - outputs, self.intercept, self.folds)
        values, noise = (each.cpu().numpy() for each in found)
        return values, noise


class Found(NamedTuple):
    """Where each walker stands, and how it got there.

    Attributes
    ----------
    places
        Of each walker.
    values
        Their evidence, shape (walkers,).
    doubtful
        Whether rounding may have decided a move, shape (walkers,).
    starting
        The best evidence of each network at the start, shape (walkers, networks).
    evaluated
        Number of factorisations.

    """

    places: list[Place]
    values: Numbers
    doubtful: NDArray[np.bool_]
    starting: Numbers
    evaluated: int

    def of(self, walkers: Sequence[int]) -> Found:
        """The same for these walkers, which may repeat."""
        which = np.array(walkers)
        parts = (self.values[which], self.doubtful[which], self.starting[which])
        return Found([self.places[k] for k in walkers], *parts, self.evaluated)


class _Walk:
    """The walkers on their way."""

    def __init__(self, search: Search, walkers: Sequence[Walker], tolls: Numbers) -> None:
        self.search, self.walkers, self.tolls = search, walkers, tolls
        count = len(walkers)
        self.places: list[Place] = [Place(0, (), 0)] * count
        self.values = np.full(count, np.inf)
        self.noise = np.zeros(count)
        self.doubtful = np.zeros(count, dtype=bool)
        self.columns = np.array([walker.left_out for walker in walkers])

    def begin(self, places: Sequence[Place]) -> Numbers:
        """Stand at the best of the starting places; return the best evidence by network."""
        count = 1 + max(place.network for place in places)
        best = np.full((len(self.walkers), count), np.inf)
        frames = Groups[int](walker.frame for walker in self.walkers)
        self.search.look((frame, place) for frame in frames for place in places)
        for frame, members in frames.items():
            self._offer(frame, members, places, np.zeros(len(members)))
            for place in places:
                own = self.search.memo[frame, place][0][self.columns[members]]
                best[members, place.network] = np.minimum(best[members, place.network], own)
        return best

    def step(self, moves: Callable[[Place], Iterable[Place]]) -> bool:
        """Let every walker take its best move, if one is worth the toll; whether any did."""
        frames = [walker.frame for walker in self.walkers]
        groups = Groups[tuple[int, Place]](zip(frames, self.places, strict=True))
        offers = {key: list(moves(key[1])) for key in groups}
        self.search.look((key[0], place) for key, places in offers.items() for place in places)
        moved = False
        for key, members in groups.items():
            moved |= self._offer(key[0], members, offers[key], self.tolls[members])
        return moved

    def _offer(
        self, frame: int, members: list[int], places: Sequence[Place], tolls: Numbers
    ) -> bool:
        """Compare places one after another with the best so far, less the toll."""
        columns = self.columns[members]
        best, noise = self.values[members] - tolls, self.noise[members]
        chosen = np.full(len(members), -1)
        for k, place in enumerate(places):
            values, error = (part[columns] for part in self.search.memo[frame, place])
            with np.errstate(invalid="ignore"):  # both infinite: neither is better, or nobody knows
                margin = values - (best - TIE)
            self.doubtful[members] |= ~(np.abs(margin) > error + noise)
            better = margin < 0
            best, noise = np.where(better, values, best), np.where(better, error, noise)
            chosen[better] = k
        for member, k, value, error in zip(members, chosen, best, noise, strict=True):
            if k >= 0:
                self.places[member], self.values[member] = places[k], value
                self.noise[member] = error
        return bool((chosen >= 0).any())


Key = TypeVar("Key")


class Groups(dict[Key, list[int]]):
    """Numbers of the items that are equal."""

    def __init__(self, items: Iterable[Key]) -> None:
        super().__init__()
        for k, item in enumerate(items):
            self.setdefault(item, []).append(k)


def walk(
    search: Search,
    walkers: Sequence[Walker],
    tolls: Numbers,
    relevance: bool = True,
    any_ridge: bool = True,
    progress: bool = False,
) -> Found:
    """Search for every walker.

    Parameters
    ----------
    search
        From places to their evidence.
    walkers
        The models.
    tolls
        Least gain of evidence that a move must bring, shape (walkers,).
    relevance
        Whether the weights of single features are searched.
    any_ridge
        Whether λ is searched; otherwise it is the unit of each network.
    progress
        Whether to show a progress bar.

    """
    kernels, way = search.kernels, _Walk(search, walkers, tolls)
    starting = way.begin(starts(kernels.weighted, kernels.fixed, kernels.features, any_ridge))
    if not np.isfinite(way.values).all():
        raise ValueError(
            "no candidate gives every leave-one-out model a finite likelihood: the kernels are not "
            "positive definite, or features or y are too large; give other networks, or rescale y"
        )
    features = range(kernels.features if relevance and any(kernels.weighted) else 0)
    for _ in range(CYCLES):
        moved = False
        for f in track(
            features, "weighing features", len(features), progress and len(features) > 0
        ):
            moved |= way.step(lambda place, f=f: feature_moves(place, f) if place.weights else ())  # type: ignore[misc]
        for _ in range(2):
            moved |= way.step(
                lambda place: common_moves(place, kernels.weighted, kernels.fixed, any_ridge)
            )
        if not moved:
            break
    return Found(way.places, way.values, way.doubtful, starting, len(search.memo))
