"""Kernel matrices of the search rows at any place, in any frame."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

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
    sums: OrderedDict[Key | None, Tensor] = field(default_factory=OrderedDict)
    given: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)  # of both, which threads share

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
            with self.lock:
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
        with self.lock:
            total, rest, f = self.sums.get(key), None, -1
            if total is None:
                lacking = ((f, self._lacking(key, f)) for f in range(len(place.weights)))
                f, less = next((pair for pair in lacking if pair[1] in self.sums), (-1, None))
                rest = self.sums.get(less)
        if total is None:
            kind, weights = KINDS[str(network.kind)], weights_of(network, place, X.shape[1])
            if rest is None:
                total = summed(kind, weights, X, X, self.nominal)
            else:
                term = kind.term(weights[f], X[:, f, None], X[None, :, f], self.nominal[f])
                total = term.add_(rest)
        with self.lock:
            self.sums[key] = total
            self.sums.move_to_end(key)
            if len(self.sums) > min(MOST_KEPT, 1 + KEPT_BYTES // total.nbytes):
                self.sums.popitem(last=False)
        return total

    def _lacking(self, key: Key, feature: int) -> Key | None:
        """The same place without a feature; None if it lacks it anyway."""
        frame, network, weights = key
        if weights[feature] == OFF:
            return None
        return frame, network, (*weights[:feature], OFF, *weights[feature + 1 :])


def weights_of(network: wide, place: Place, features: int) -> list[float]:
    """Weights of the features at a place."""
    unit = weight_unit(features) * (network.scale or 1.0)
    return [0.0 if exponent == OFF else unit * 2.0**exponent for exponent in place.weights]
