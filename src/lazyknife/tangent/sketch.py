"""A random projection of Jacobian rows to few dimensions, computed from their parts.

Each dimension is uᵀ M v for every parameter matrix M, with random signs u and v of its own, summed
over the parameters and divided by √dimension. Inner products keep their expectation: the mean of
(uᵀ M v)(uᵀ M' v) is ⟨M, M'⟩. The signs come from a seed and do not depend on data, so the projected
features are fixed functions of a row, like the exact ones, and every guarantee holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import Machine, total_memory
from ..data.checks import check_positive_int
from .features import FeatureMap, Linear, Primal
from .parts import Part
from .tangent import Tangent

MOST = 4096  # dimensions of a sketch whose number is not given
SHARE = 4  # rows for each dimension, and the part of the memory that matrices may take
BYTES = 2 * 8  # for each row and dimension: features and models


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
        Choosing it looks at the number of rows and never at their values, so nothing leaks.

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
        return Sketch(power_of_two(min(MOST, n // SHARE, room)))

    def size(self, parameters: int) -> int:
        assert self.dimension is not None, "chosen by for_rows"
        return self.dimension

    def basis(self, tangent: Linear, X: Tensor, seed: int, kernel: bool = False) -> Primal:
        assert isinstance(tangent, Tangent), "checked with the settings"
        assert not kernel, "a sketch has no kernel of all rows"
        parts, dimension = tangent.make(X[:1])[1], self.size(tangent.size)
        return Primal(tangent, dimension, draw_signs(dimension, parts, seed, tangent.machine))


def power_of_two(most: int) -> int:
    """Return the largest power of 2 up to a number, and 1 if there is none."""
    return 1 << max(most.bit_length() - 1, 0) if most > 0 else 1


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


def draw_signs(dimension: int, parts: Sequence[Part], seed: int, machine: Machine) -> Signs:
    """Draw the signs of each part, the first ones divided by √dimension."""
    generator = torch.Generator().manual_seed(seed)

    def signs(size: int) -> Tensor:
        bits = torch.randint(0, 2, (size, dimension), generator=generator, dtype=torch.int8)
        return machine.put((2 * bits - 1).double())

    scale = 1 / math.sqrt(dimension)
    shapes = {part.names: part.matrix_shape for part in parts}
    pairs = {names: (scale * signs(a), signs(b)) for names, (a, b) in shapes.items()}
    return Signs(pairs, max(part.places for part in parts))
