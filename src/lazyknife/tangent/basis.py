"""The coordinates z(x) in which the lazy step is solved, such that a model is z(x)ᵀw.

A feature map chooses them. Dual: the kernel row of x with the n training rows. Primal: the tangent
features of x themselves, or a projection of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from ..compute import Machine, blocks
from ..settings import Settings
from .parts import Moves, Signs
from .tangent import Features, Tangent
from .wide import WideTangent


class Rows(NamedTuple):
    """Data rows in a basis."""

    outputs: Tensor  # f(x; θ0), shape (m,)
    coordinates: Tensor  # z(x), shape (m, size)
    norms: Tensor  # k(x, x), shape (m,)


Linear = Tangent | WideTangent  # a linearised network, finite or infinitely wide


class Basis(Protocol):
    """Coordinates of a linearised network for given training rows.

    ``size`` is their number, ``row_bytes`` the memory for computing those of one row, and ``moves``
    gives the moves of the parameters by each of the b models in ``columns`` (size, b).
    """

    @property
    def tangent(self) -> Linear: ...
    @property
    def size(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    def at(self, X: Tensor) -> Rows: ...
    def moves(self, columns: Tensor) -> Moves: ...


@dataclass(frozen=True)
class Dual:
    """z(x) = J(x) Jᵀ, with the features of the n training rows."""

    tangent: Linear
    features: Features

    @property
    def size(self) -> int:
        return len(self.features.X)

    @property
    def row_bytes(self) -> int:
        tangent = self.tangent
        return tangent.work_bytes + tangent.row_bytes + tangent.machine.item * self.size

    def at(self, X: Tensor) -> Rows:
        tangent, new = self.tangent, self.tangent.features(X)
        return Rows(new.outputs, tangent.kernel(new, self.features), tangent.norms(new))

    def moves(self, columns: Tensor) -> Moves:
        assert isinstance(self.tangent, Tangent), "wide networks have no weights to move"
        return self.tangent.pull(self.features, columns)


@dataclass(frozen=True)
class Primal:
    """z(x) = J(x), or a projection of it to ``size`` coordinates."""

    tangent: Tangent
    size: int
    projection: Signs | None = None

    @property
    def row_bytes(self) -> int:
        tangent, places = self.tangent, self.projection.places if self.projection else 1
        own = tangent.machine.item * (1 + 2 * places) * self.size
        return tangent.work_bytes + tangent.row_bytes + own

    def at(self, X: Tensor) -> Rows:
        made = [self._at(X[b]) for b in blocks(len(X), self.row_bytes, self.tangent.machine.block)]
        return Rows(*map(torch.cat, zip(*made, strict=True)))

    def _at(self, X: Tensor) -> Rows:
        outputs, parts = self.tangent.make(X)
        if self.projection is not None:
            rows = self.projection.project(parts)
        else:
            named = {own.names[0]: own.flat for part in parts for own in part.explicit()}
            rows = torch.cat([named[name] for name in self.tangent.moved], dim=1)
        return Rows(outputs, rows, rows.square().sum(dim=1))

    def moves(self, columns: Tensor) -> Moves:
        assert self.projection is None, "models in projected coordinates do not move the parameters"
        shapes = {name: p.shape for name, p in self.tangent.moved.items()}
        cuts = columns.T.split([shape.numel() for shape in shapes.values()], dim=1)
        pairs = zip(shapes.items(), cuts, strict=True)
        return {name: cut.reshape(-1, *shape) for (name, shape), cut in pairs}


class FeatureMap(Settings, ABC):
    """A choice of coordinates for the lazy step."""

    has_kernel: ClassVar[bool]  # whether the kernel of all training rows (the dual form) exists
    has_moves: ClassVar[bool]  # whether its models move the parameters (network readout)

    def for_rows(self, n: int, machine: Machine) -> FeatureMap:
        """The same map with all that depends on the number of rows, and on no data, chosen."""
        return self

    @abstractmethod
    def size(self, parameters: int) -> int:
        """Number of coordinates in the primal form, for a network that moves so many parameters."""

    @abstractmethod
    def basis(self, tangent: Linear, X: Tensor, seed: int, kernel: bool = False) -> Basis:
        """Coordinates for the training rows X; ``kernel`` asks for the dual form at any size."""


@dataclass(frozen=True)
class Exact(FeatureMap):
    """The tangent features themselves, in the form with fewer coordinates."""

    has_kernel = has_moves = True

    def size(self, parameters: int) -> int:
        return parameters

    def basis(self, tangent: Linear, X: Tensor, seed: int, kernel: bool = False) -> Basis:
        if isinstance(tangent, Tangent) and tangent.size < len(X) and not kernel:
            return Primal(tangent, tangent.size)
        return Dual(tangent, tangent.features(X))
