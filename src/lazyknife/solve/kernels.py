"""Kernel matrices of the search rows at any place, in any frame."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ..networks import KINDS, wide
from ..tangent.wide import summed
from .places import OFF, Place, weight_unit

Key = tuple[int, int, tuple[int, ...]]  # frame, network and weights
KEPT_BYTES, MOST_KEPT = 2**28, 512  # sums over features that are kept
Given = Callable[[int], tuple[Tensor, Tensor]]  # from a frame to a kernel (n, n) and outputs (n,)
Sum = Tensor | tuple[Tensor, Tensor]  # over features, or what a network without weights gives
Work = Callable[[], tuple[Tensor, Tensor, Tensor]]  # K, λ and f(X; θ0) of several places


@dataclass
class CandidateKernels:
    """Kernels of several networks.

    Attributes
    ----------
    networks
        Infinitely wide networks with weights, or functions from a frame to a kernel and outputs.
    units
        λ of exponent 0 of each network.
    rows
        The search rows in each frame.
    nominal
        Which features are nominal.

    """

    networks: Sequence[wide | Given]
    units: Sequence[float]
    rows: Sequence[Tensor]
    nominal: Sequence[bool]
    sums: OrderedDict[Key, Tensor] = field(default_factory=OrderedDict)
    lacked: set[int] = field(default_factory=set)  # features that some kept sum lacks
    given: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def weighted(self) -> list[bool]:
        return [isinstance(network, wide) for network in self.networks]

    @property
    def fixed(self) -> list[bool]:
        return [getattr(network, "scale", None) is not None for network in self.networks]

    @property
    def features(self) -> int:
        return self.rows[0].shape[1]

    def at(self, frame: int, places: Sequence[Place]) -> Work:
        """Sums over features are made now, one from another; kernels by what is returned."""
        firsts = {place[:2]: place for place in reversed(places)}
        sums = {key: self._sum(frame, firsts[key]) for key in dict.fromkeys(p[:2] for p in places)}
        return partial(self._linked, frame, places, sums)

    def _linked(
        self, frame: int, places: Sequence[Place], sums: dict[tuple[int, tuple[int, ...]], Sum]
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = {key: self._kernel(frame, key, total) for key, total in sums.items()}
        kernels, outputs = zip(*(made[place[:2]] for place in places), strict=True)
        ridges = [self.units[place.network] * 2.0**place.ridge for place in places]
        stacked = torch.stack(kernels)
        return stacked, stacked.new_tensor(ridges), torch.stack(outputs)

    def _kernel(
        self, frame: int, key: tuple[int, tuple[int, ...]], total: Sum
    ) -> tuple[Tensor, Tensor]:
        """K, shape (n, n), and f(X; θ0), shape (n,)."""
        if isinstance(total, tuple):
            return total
        network = self.networks[key[0]]
        assert isinstance(network, wide)
        kind, X = KINDS[str(network.kind)], network.prepared(self.rows[frame])
        own = kind.own(X.new_tensor(weights_of(network, key[1], X.shape[1])), X, self.nominal)
        return kind.link(total, own[:, None], own[None]), X.new_zeros(len(X))

    def _sum(self, frame: int, place: Place) -> Sum:
        """The sum over features, from a kept one that lacks a single feature if there is one.

        Terms are only ever added: subtracting a large one would leave its rounding behind. Of a
        network without weights it is its kernel and outputs.
        """
        network, key = self.networks[place.network], (frame, place.network, place.weights)
        if not isinstance(network, wide):
            if key[:2] not in self.given:
                self.given[key[:2]] = network(frame)
            return self.given[key[:2]]
        if key not in self.sums:
            X, kind = network.prepared(self.rows[frame]), KINDS[str(network.kind)]
            weights = weights_of(network, place.weights, X.shape[1])
            own = (f for f in sorted(self.lacked) if place.weights[f] != OFF)
            f = next((f for f in own if _lacking(key, f) in self.sums), None)
            if f is None:
                total = summed(kind, weights, X, X, self.nominal)
            else:
                term = kind.term(weights[f], X[:, f, None], X[None, :, f], self.nominal[f])
                total = term.add_(self.sums[_lacking(key, f)])
            self.sums[key] = total
            self.lacked |= {f for f, exponent in enumerate(place.weights) if exponent == OFF}
            if len(self.sums) > min(MOST_KEPT, 1 + KEPT_BYTES // total.nbytes):
                self.sums.popitem(last=False)
        self.sums.move_to_end(key)
        return self.sums[key]


def _lacking(key: Key, feature: int) -> Key:
    """The same place without a feature."""
    frame, network, weights = key
    return frame, network, (*weights[:feature], OFF, *weights[feature + 1 :])


def weights_of(network: wide, exponents: Sequence[int], features: int) -> list[float]:
    """Weights of the features."""
    unit = weight_unit(features) * (network.scale or 1.0)
    return [0.0 if exponent == OFF else unit * 2.0**exponent for exponent in exponents]
