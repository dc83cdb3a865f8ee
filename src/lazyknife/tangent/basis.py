"""In which coordinates the lazy step is solved: z(x), such that a model is z(x)ᵀw.

Dual: the kernel row of x with the n training rows. Primal: the tangent features of x themselves,
or a sketch of them. The cheaper one has fewer coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import blocks
from .parts import Moves, explicit_rows
from .sketch import Signs, Sketch, draw_signs, project
from .tangent import Features, Tangent


@dataclass(frozen=True)
class Dual:
    """z(x) = J(x) Jᵀ, with the features of the training rows."""

    tangent: Tangent
    features: Features

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.features.X)

    @property
    def row_bytes(self) -> int:
        """Memory that one new row takes on its way to its coordinates."""
        tangent = self.tangent
        return tangent.work_bytes + tangent.row_bytes + tangent.machine.item * self.size

    def rows(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs f(X; θ0), shape (m,), and coordinates, shape (m, n)."""
        features = self.tangent.features(X)
        return features.outputs, self.tangent.kernel(features, self.features)

    def rows_and_norms(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs and coordinates, and k(x, x) of each row, shape (m,)."""
        features = self.tangent.features(X)
        kernel = self.tangent.kernel(features, self.features)
        return features.outputs, kernel, self.tangent.norms(features)

    def moves(self, columns: Tensor) -> Moves:
        """Moves of the parameters for each of the b models in ``columns`` (n, b)."""
        return self.tangent.pull(self.features, columns)

    def of_type(self, dtype: torch.dtype) -> Dual:
        """The same basis in another floating type."""
        tangent = self.tangent.of_type(dtype)
        return Dual(tangent, tangent.features(self.features.X))


@dataclass(frozen=True)
class Primal:
    """z(x) = J(x), or its projection where there are signs.

    Attributes
    ----------
    size
        Number of coordinates.
    signs
        Of the projection.
    places
        How many projections a row makes at a time, for judging memory.

    """

    tangent: Tangent
    size: int
    signs: Signs | None = None
    places: int = 1

    @property
    def row_bytes(self) -> int:
        """Memory that one new row takes on its way to its coordinates."""
        tangent = self.tangent
        own = tangent.machine.item * (1 + 2 * self.places) * self.size
        return tangent.work_bytes + tangent.row_bytes + own

    def rows(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs f(X; θ0), shape (m,), and coordinates, shape (m, size)."""
        limit = self.tangent.machine.block
        made = [self._rows(X[block]) for block in blocks(len(X), self.row_bytes, limit)]
        outputs, rows = zip(*made, strict=True)
        return torch.cat(outputs), torch.cat(rows)

    def rows_and_norms(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs and coordinates, and k(x, x) of each row, shape (m,)."""
        outputs, rows = self.rows(X)
        return outputs, rows, rows.square().sum(dim=1)

    def _rows(self, X: Tensor) -> tuple[Tensor, Tensor]:
        outputs, parts = self.tangent.make(X)
        if self.signs is not None:
            return outputs, project(parts, self.signs)
        named = explicit_rows(parts)
        return outputs, torch.cat([named[name] for name in self.tangent.moved], dim=1)

    def moves(self, columns: Tensor) -> Moves:
        """Moves of the parameters for each of the b models in ``columns`` (size, b)."""
        assert self.signs is None, "a sketch's models are no moves of the parameters"
        shapes = {name: p.shape for name, p in self.tangent.moved.items()}
        cuts = columns.T.split([shape.numel() for shape in shapes.values()], dim=1)
        return {
            name: cut.reshape(-1, *shape)
            for (name, shape), cut in zip(shapes.items(), cuts, strict=True)
        }

    def of_type(self, dtype: torch.dtype) -> Primal:
        """The same basis in another floating type."""
        signs = self.signs and {
            name: (u.to(dtype), v.to(dtype)) for name, (u, v) in self.signs.items()
        }
        return replace(self, tangent=self.tangent.of_type(dtype), signs=signs)


Basis = Dual | Primal


def choose_basis(
    tangent: Tangent, X: Tensor, sketch: Sketch | None, seed: int, kernel: bool = False
) -> Basis:
    """Return the basis for these training rows: a sketch if asked for, else the smaller one.

    ``kernel`` asks for the dual form, whatever its size.
    """
    if sketch is not None:
        _, parts = tangent.make(X[:1])
        signs = draw_signs(sketch.dimension, parts, seed, tangent.machine)
        return Primal(tangent, sketch.dimension, signs, max(part.places for part in parts))
    size = sum(p.numel() for p in tangent.moved.values())
    if size < len(X) and not kernel:
        return Primal(tangent, size)
    return Dual(tangent, tangent.features(X))
