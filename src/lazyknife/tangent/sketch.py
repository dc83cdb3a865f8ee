"""A random projection of Jacobian rows to few dimensions, computed from their parts.

Each dimension is uᵀ M v for every parameter matrix M, with random signs u and v of its own, summed
over the parameters and divided by √dimension. Inner products keep their expectation: the mean of
(uᵀ M v)(uᵀ M' v) is ⟨M, M'⟩. The signs come from a seed and do not depend on data, so the projected
features are fixed functions of a row, like the exact ones, and every guarantee holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import Machine
from ..data.checks import check_positive_int
from .features import FeatureMap, Primal
from .parts import Part
from .tangent import Tangent


@dataclass(frozen=True)
class Sketch(FeatureMap):
    """Tangent features projected at random to fewer dimensions, for large numbers of rows.

    Parameters
    ----------
    dimension
        Number of features after the projection. A larger number costs more and is closer to the
        exact features. A sketch saves time and memory if there are many times as many rows.

    """

    dimension: int = 4096

    has_kernel = has_moves = False

    def __post_init__(self) -> None:
        check_positive_int("dimension", self.dimension)

    def size(self, parameters: int) -> int:
        return self.dimension

    def basis(self, tangent: Tangent, X: Tensor, seed: int, kernel: bool = False) -> Primal:
        assert not kernel, "a sketch has no kernel of all rows"
        parts = tangent.make(X[:1])[1]
        signs = draw_signs(self.dimension, parts, seed, tangent.machine)
        return Primal(tangent, self.dimension, signs)


@dataclass(frozen=True)
class Signs:
    """Random signs for the rows and for the columns of each part's matrix, by its names."""

    pairs: Mapping[tuple[str, ...], tuple[Tensor, Tensor]]
    places: int

    def project(self, parts: Sequence[Part]) -> Tensor:
        """Projected Jacobian rows, shape (n, dimension)."""
        first, *others = parts
        total = first.project(*self.pairs[first.names])
        for part in others:
            total += part.project(*self.pairs[part.names])
        return total

    def of_type(self, dtype: torch.dtype) -> Signs:
        pairs = {names: (u.to(dtype), v.to(dtype)) for names, (u, v) in self.pairs.items()}
        return replace(self, pairs=pairs)


def draw_signs(dimension: int, parts: Sequence[Part], seed: int, machine: Machine) -> Signs:
    """Draw the signs of each part, the first ones divided by √dimension."""
    generator = torch.Generator().manual_seed(seed)

    def signs(size: int) -> Tensor:
        bits = torch.randint(0, 2, (size, dimension), generator=generator, dtype=torch.int8)
        return machine.put((2 * bits - 1).to(machine.dtype))

    scale = 1 / math.sqrt(dimension)
    shapes = {part.names: part.matrix_shape for part in parts}
    pairs = {names: (scale * signs(a), signs(b)) for names, (a, b) in shapes.items()}
    return Signs(pairs, max(part.places for part in parts))
