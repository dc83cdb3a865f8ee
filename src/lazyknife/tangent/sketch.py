"""A random projection of Jacobian rows to few dimensions, computed from their parts.

Each dimension is uᵀ M v for every parameter matrix M, with random signs u and v of its own, summed
over the parameters and divided by √dimension. Inner products keep their expectation: the mean of
(uᵀ M v)(uᵀ M' v) is ⟨M, M'⟩. The signs come from a seed and do not depend on data, so the projected
features are fixed functions of a row, like the exact ones, and every guarantee holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..compute import Machine, total_memory
from ..data.checks import check_positive_int
from .basis import FeatureMap, Linear, Primal
from .parts import draw_signs
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
