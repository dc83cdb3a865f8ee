"""Kernel matrices of the search rows at any place, in any frame."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..networks import KINDS, wide
from ..tangent.wide import summed
from .places import OFF, Place, weight_unit

Key = tuple[int, int, tuple[int, ...]]  # frame, network and weights
KEPT_BYTES, MOST_KEPT = 2**28, 512  # sums over features that are kept
Given = Callable[[int], tuple[Tensor, Tensor]]  # from a frame to a kernel (n, n) and outputs (n,)


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

    def at(self, frame: int, places: Sequence[Place]) -> tuple[Tensor, Tensor, Tensor]:
        made: dict[tuple[int, tuple[int, ...]], tuple[Tensor, Tensor]] = {}
        for place in places:
            if place[:2] not in made:
                made[place[:2]] = self._made(frame, place)
        kernels, outputs = zip(*(made[place[:2]] for place in places), strict=True)
        ridges = [self.units[place.network] * 2.0**place.ridge for place in places]
        stacked = torch.stack(kernels)
        return stacked, stacked.new_tensor(ridges), torch.stack(outputs)

    def _made(self, frame: int, place: Place) -> tuple[Tensor, Tensor]:
        """K, shape (n, n), and f(X; θ0), shape (n,)."""
        network = self.networks[place.network]
        if not isinstance(network, wide):
            key = frame, place.network
            if key not in self.given:
                self.given[key] = network(frame)
            return self.given[key]
        kind = KINDS[str(network.kind)]
        X = network.prepared(self.rows[frame])
        total = self._total(frame, place, network, X)
        own = kind.own(X.new_tensor(weights_of(network, place, X.shape[1])), X, self.nominal)
        return kind.link(total, own[:, None], own[None]), X.new_zeros(len(X))

    def _total(self, frame: int, place: Place, network: wide, X: Tensor) -> Tensor:
        """The sum over features, from a kept one that lacks a single feature if there is one.

        Terms are only ever added: subtracting a large one would leave its rounding behind.
        """
        key = (frame, place.network, place.weights)
        if key not in self.sums:
            kind, weights = KINDS[str(network.kind)], weights_of(network, place, X.shape[1])
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


def weights_of(network: wide, place: Place, features: int) -> list[float]:
    """Weights of the features at a place."""
    unit = weight_unit(features) * (network.scale or 1.0)
    return [0.0 if exponent == OFF else unit * 2.0**exponent for exponent in place.weights]
