"""The coordinates z(x) in which the lazy step is solved, such that a model is z(x)ᵀw.

A feature map chooses them. Dual: the kernel row of x with the n training rows. Primal: the tangent
features of x themselves, or a projection of them.

Sketch: each dimension is uᵀ M v for every parameter matrix M of a Jacobian row, with random signs u
and v of its own, summed over the parameters and divided by √dimension. Inner products keep their
expectation: the mean of (uᵀ M v)(uᵀ M' v) is ⟨M, M'⟩. The signs come from a seed and do not depend
on data, so the projected features are fixed functions of a row, like the exact ones, and every
guarantee holds.

Landmarks: with Z the landmarks, k(Z, Z) = UΛUᵀ and φ(x) = Λ^(−1/2)Uᵀk(Z, x), the products
φ(x)ᵀφ(x') are the part of the kernel k that the landmarks see (Nyström). The landmarks must be rows
that no model leaves out, so that φ is a fixed function of a row. In these coordinates sums of φφᵀ
over rows are nearly diagonal, from large entries to small ones, which keeps the effect of rounding
small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from ..compute import Machine, blocks, total_memory
from ..data.checks import check_positive_int
from ..settings import Settings
from .parts import Moves, Signs, draw_signs
from .tangent import Features, Tangent
from .trees import Trees
from .wide import WideTangent

MOST = 4096  # dimensions of a sketch whose number is not given
SHARE = 4  # rows for each dimension, and the part of the memory that matrices may take
BYTES = 2 * 8  # for each row and dimension: features and models
# Smallest λ over the mean of k(z, z) that is kept: landmarks hardly differ in other directions,
# which would amplify rounding.
SMALLEST = 1e-8


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


@dataclass(frozen=True)
class Landmarks:
    """z(x) = φ(x): how a row resembles each of d landmarks."""

    tangent: WideTangent  # the kernel
    points: Features  # the landmarks
    whiten: Tensor  # UΛ^(−1/2), shape (d, q)
    trees: Trees | None = None  # the sum of which is one more feature, the last

    @classmethod
    def of(cls, tangent: WideTangent, Z: Tensor) -> Landmarks:
        points = tangent.features(Z)
        values, vectors = torch.linalg.eigh(tangent.gram(points))
        kept = values > SMALLEST * values.mean()
        whiten = (vectors[:, kept] * values[kept].rsqrt()).flip(1).contiguous()
        return cls(tangent, points, whiten)

    @property
    def size(self) -> int:
        return self.whiten.shape[1] + (self.trees is not None)

    @property
    def row_bytes(self) -> int:
        tangent = self.tangent
        numbers = len(self.whiten) + 2 * self.size
        return tangent.work_bytes + tangent.row_bytes + tangent.machine.item * numbers

    def at(self, X: Tensor, grown: Tensor | None = None) -> Rows:
        """Features of rows; ``grown``: what the last one is, where that is a number."""
        new = self.tangent.features(X)
        rows = self.tangent.kernel(new, self.points) @ self.whiten
        if self.trees is not None:
            last = self.trees(new.X)
            own = torch.full_like(last, torch.nan) if grown is None else grown.to(last)
            rows = torch.cat([rows, torch.where(own.isnan(), last, own)[:, None]], dim=1)
        return Rows(new.outputs, rows, rows.square().sum(dim=1))


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


@dataclass(frozen=True)
class Sketch(FeatureMap):
    """Tangent features projected at random to fewer dimensions, for large numbers of rows.

    Parameters
    ----------
    dimension
        Number of features after the projection. A larger number costs more and is closer to the
        exact features. A sketch saves time and memory if there are many times as many rows. None
        takes the largest power of 2 that is at most 4,096 and a quarter of the number of rows, and
        with which the features and the models take at most a quarter of the machine's memory.

    """

    dimension: int | None = None

    has_kernel = has_moves = False

    def __post_init__(self) -> None:
        if self.dimension is not None:
            check_positive_int("dimension", self.dimension)

    def for_rows(self, n: int, machine: Machine) -> Sketch:
        if self.dimension is not None:
            return self
        room = total_memory(machine.device) // SHARE // (BYTES * n) - 1
        most = max(1, min(MOST, n // SHARE, room))
        return Sketch(1 << (most.bit_length() - 1))

    def size(self, parameters: int) -> int:
        assert self.dimension is not None, "chosen by for_rows"
        return self.dimension

    def basis(self, tangent: Linear, X: Tensor, seed: int, kernel: bool = False) -> Primal:
        assert isinstance(tangent, Tangent), "checked with the settings"
        assert not kernel, "a sketch has no kernel of all rows"
        parts, dimension = tangent.make(X[:1])[1], self.size(tangent.size)
        return Primal(tangent, dimension, draw_signs(dimension, parts, seed, tangent.machine))
