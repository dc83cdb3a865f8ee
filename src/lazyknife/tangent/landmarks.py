"""Few features of a kernel: how a row resembles each of d landmarks.

With Z the landmarks, k(Z, Z) = UΛUᵀ and φ(x) = Λ^(−1/2)Uᵀk(Z, x), the products φ(x)ᵀφ(x') are the
part of the kernel k that the landmarks see (Nyström). The landmarks must be rows that no model
leaves out, so that φ is a fixed function of a row. In these coordinates sums of φφᵀ over rows are
nearly diagonal, from large entries to small ones, which keeps the effect of rounding small.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .basis import Rows
from .tangent import Features
from .trees import Trees
from .wide import WideTangent

# Smallest λ over the mean of k(z, z) that is kept: landmarks hardly differ in other directions,
# which would amplify rounding.
SMALLEST = 1e-8


@dataclass(frozen=True)
class Landmarks:
    """z(x) = φ(x).

    Attributes
    ----------
    tangent
        The kernel.
    points
        The landmarks.
    whiten
        UΛ^(−1/2), shape (d, q).
    trees
        The sum of which is one more feature, the last; None: there is none.

    """

    tangent: WideTangent
    points: Features
    whiten: Tensor
    trees: Trees | None = None

    @classmethod
    def of(cls, tangent: WideTangent, Z: Tensor) -> Landmarks:
        """Features of a kernel at these landmarks, shape (d, features)."""
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
