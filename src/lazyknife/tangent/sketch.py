"""A random projection of Jacobian rows to few dimensions, straight from their parts.

Each dimension is uᵀ M v for every parameter matrix M, with random signs u and v of its own, summed
over the parameters and divided by √dimension. Inner products keep their expectation: the mean of
(uᵀ M v)(uᵀ M' v) is ⟨M, M'⟩. The signs come from a seed and never look at data, so the projected
features are fixed functions of a row, like the exact ones, and every guarantee stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import Machine
from ..data.checks import check_positive_int
from .parts import Part

Signs = Mapping[tuple[str, ...], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sketch:
    """Tangent features projected at random to fewer dimensions, for very many rows.

    Parameters
    ----------
    dimension
        Features after the projection. More of them cost more and are closer to the exact ones.
        It pays when the rows are many times as many.

    """

    dimension: int = 4096

    def __post_init__(self) -> None:
        check_positive_int("dimension", self.dimension)


def draw_signs(dimension: int, parts: Iterable[Part], seed: int, machine: Machine) -> Signs:
    """Random signs for the rows and for the columns of each part's matrix, by its names."""
    generator = torch.Generator().manual_seed(seed)

    def signs(size: int) -> Tensor:
        bits = torch.randint(0, 2, (size, dimension), generator=generator, dtype=torch.int8)
        return machine.put((2 * bits - 1).to(machine.dtype))

    scale = 1 / math.sqrt(dimension)
    shapes = {part.names: part.matrix_shape for part in parts}
    return {names: (scale * signs(a), signs(b)) for names, (a, b) in shapes.items()}


def project(parts: Iterable[Part], signs: Signs) -> Tensor:
    """Projected Jacobian rows, shape (n, dimension)."""
    first, *others = [(part, *signs[part.names]) for part in parts]
    total = first[0].project(*first[1:])
    for part, rows, columns in others:
        total += part.project(rows, columns)
    return total
