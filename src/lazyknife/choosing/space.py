"""The space of settings: a network, a weight for each feature, and λ, and the kernels in it.

Everything is on a fixed grid: weights are powers of 2 times a unit, or 0, and λ is a power of 2
times the network's own unit. None of it depends on data.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..networks import KINDS, wide

SCALES = (-2, -1, 0, 1)  # exponents of all weights, to start from
RIDGES = (-10, -7, -4, -2, 0, 2)  # of λ
STEP = 2  # octaves of a move of one weight, or of λ
KEPT_BYTES, MOST_KEPT = 2**28, 512  # sums over features that are kept

Exponents = tuple[int | None, ...]  # None: a weight of 0
Given = Callable[[int], tuple[Tensor, Tensor]]  # from a frame to a kernel (n, n) and outputs (n,)
Sum = Tensor | tuple[Tensor, Tensor]  # over features, or what a network without weights gives
Work = Callable[[], tuple[Tensor, Tensor, Tensor]]  # K, λ and f(X; θ0) of several points


class GridPoint(NamedTuple):
    """A network, exponents of its weights (none where it has no weights), and an exponent of λ."""

    network: int
    weights: Exponents
    ridge: int


def weight_unit(features: int) -> float:
    """Weight of exponent 0."""
    return 1 / math.sqrt(max(features, 1))


def weights_of(network: wide, exponents: Exponents, features: int) -> list[float]:
    """Weights of the features."""
    unit = weight_unit(features) * (network.scale or 1.0)
    return [0.0 if exponent is None else unit * 2.0**exponent for exponent in exponents]


class Grid(NamedTuple):
    """Which parts of a grid point are free, and the moves that change them."""

    weighted: Sequence[bool]  # for each network whether it has weights
    fixed: Sequence[bool]  # for each network whether its scale is given
    features: int
    any_ridge: bool = True  # whether λ is searched

    def starts(self) -> list[GridPoint]:
        """Where every search starts."""
        points = []
        for k, (weighted, given) in enumerate(zip(self.weighted, self.fixed, strict=True)):
            scales = (0,) if given else SCALES
            each = [(scale,) * self.features for scale in scales] if weighted else [()]
            ridges = RIDGES if self.any_ridge else (0,)
            points += [GridPoint(k, weights, ridge) for weights in each for ridge in ridges]
        return points

    def feature_moves(self, point: GridPoint, feature: int) -> Iterator[GridPoint]:
        """Change one weight: to 0, by a factor of 4 either way, or from 0 to one unit."""
        if not point.weights:
            return
        own = point.weights[feature]
        for exponent in (0,) if own is None else (None, own - STEP, own + STEP):
            weights = (*point.weights[:feature], exponent, *point.weights[feature + 1 :])
            if any(other is not None for other in weights):
                yield point._replace(weights=weights)

    def common_moves(self, point: GridPoint) -> Iterator[GridPoint]:
        """Change λ, all weights together, or the network, where they are free to change."""
        if self.any_ridge:
            yield point._replace(ridge=point.ridge - STEP)
            yield point._replace(ridge=point.ridge + STEP)
        if point.weights:
            for change in () if self.fixed[point.network] else (-1, 1):
                moved = tuple(None if own is None else own + change for own in point.weights)
                yield point._replace(weights=moved)
            for k, weighted in enumerate(self.weighted):
                if weighted and k != point.network:
                    yield point._replace(network=k)


@dataclass
class CandidateKernels:
    """Kernel matrices of the search rows, of several networks, in any frame.

    Networks are infinitely wide, with weights, or functions from a frame to a kernel and outputs.
    """

    networks: Sequence[wide | Given]
    units: Sequence[float]  # λ of exponent 0 of each network
    rows: Sequence[Tensor]  # the search rows in each frame
    nominal: Sequence[bool]  # which features are nominal
    sums: OrderedDict[tuple[int, int, Exponents], Tensor] = field(default_factory=OrderedDict)
    lacked: set[int] = field(default_factory=set)  # features that some kept sum lacks
    # Kernels of single features, which do not depend on weights, by frame and network.
    singles: OrderedDict[tuple[int, int], dict[int, Tensor]] = field(default_factory=OrderedDict)
    given: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def grid(self, any_ridge: bool = True) -> Grid:
        """Return the grid of these networks."""
        weighted = [isinstance(network, wide) for network in self.networks]
        fixed = [getattr(network, "scale", None) is not None for network in self.networks]
        return Grid(weighted, fixed, self.rows[0].shape[1], any_ridge)

    def ridge(self, point: GridPoint) -> float:
        """λ of a point."""
        return self.units[point.network] * 2.0**point.ridge

    def at(self, frame: int, points: Sequence[GridPoint]) -> Work:
        """From nothing to K, (points, n, n), λ, (points,), and f(X; θ0), (points, n).

        Sums over features are made now, one from another; kernels by what is returned, which may
        run in any thread.
        """
        firsts = {point[:2]: point for point in reversed(points)}
        sums = {key: self._sum(frame, firsts[key]) for key in dict.fromkeys(p[:2] for p in points)}
        return partial(self._linked, frame, points, sums)

    def _linked(
        self, frame: int, points: Sequence[GridPoint], sums: dict[tuple[int, Exponents], Sum]
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = {key: self._kernel(frame, *key, total) for key, total in sums.items()}
        kernels, outputs = zip(*(made[point[:2]] for point in points), strict=True)
        stacked = torch.stack(kernels)
        ridges = stacked.new_tensor([self.ridge(point) for point in points])
        return stacked, ridges, torch.stack(outputs)

    def _kernel(
        self, frame: int, which: int, exponents: Exponents, total: Sum
    ) -> tuple[Tensor, Tensor]:
        """K, shape (n, n), and f(X; θ0), shape (n,)."""
        if isinstance(total, tuple):
            return total
        network = self.networks[which]
        assert isinstance(network, wide)
        kind, X = KINDS[str(network.kind)], network.prepared(self.rows[frame])
        weights = X.new_tensor(weights_of(network, exponents, X.shape[1]))
        own = kind.own(weights, X, self.nominal)
        return kind.link(total, own[:, None], own[None]), X.new_zeros(len(X))

    def _sum(self, frame: int, point: GridPoint) -> Sum:
        """The sum over features, from a kept one that lacks a single feature if there is one.

        Terms are only ever added: subtracting a large one would leave its rounding behind. Of a
        network without weights it is its kernel and outputs.
        """
        which, exponents, _ = point
        network, key = self.networks[which], (frame, which, exponents)
        if not isinstance(network, wide):
            if (frame, which) not in self.given:
                self.given[frame, which] = network(frame)
            return self.given[frame, which]
        if key not in self.sums:
            X, kind = network.prepared(self.rows[frame]), KINDS[str(network.kind)]
            weights = weights_of(network, exponents, X.shape[1])
            for f in (f for f in sorted(self.lacked) if exponents[f] is not None):
                lacking = self.sums.get((frame, which, (*exponents[:f], None, *exponents[f + 1 :])))
                if lacking is not None:
                    term = kind.term(weights[f], X[:, f, None], X[None, :, f], self.nominal[f])
                    self.sums[key] = term.add_(lacking)
                    break
            else:
                kept = self._singles(frame, which)
                self.sums[key] = kind.whole(X.new_tensor(weights), X, X, self.nominal, kept)
            self.lacked |= {f for f, exponent in enumerate(exponents) if exponent is None}
            if len(self.sums) > min(MOST_KEPT, 1 + KEPT_BYTES // self.sums[key].nbytes):
                self.sums.popitem(last=False)
        self.sums.move_to_end(key)
        return self.sums[key]

    def _singles(self, frame: int, which: int) -> dict[int, Tensor] | None:
        """Kernels of single features that are kept, if they fit."""
        n, features = self.rows[frame].shape
        most = KEPT_BYTES // (features * n**2 * self.rows[frame].element_size())
        if most == 0:
            return None
        kept = self.singles.setdefault((frame, which), {})
        self.singles.move_to_end((frame, which))
        if len(self.singles) > most:
            self.singles.popitem(last=False)
        return kept
