"""Few features of a kernel: how a row resembles each of d landmarks.

With Z the landmarks, LLᵀ = k(Z, Z) + τI and φ(x) = L⁻¹k(Z, x), the products φ(x)ᵀφ(x') are the part
of the kernel k that the landmarks see (Nyström). The landmarks must be rows that no model leaves
out, so that φ is a fixed function of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .features import Rows
from .parts import Moves
from .tangent import Features
from .wide import WideTangent

# τ over the mean of k(z, z): directions in which landmarks hardly differ would amplify rounding.
SMALLEST = 1e-6


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
        L⁻ᵀ, shape (d, d).

    """

    tangent: WideTangent
    points: Features
    whiten: Tensor

    @classmethod
    def of(cls, tangent: WideTangent, Z: Tensor) -> Landmarks:
        """Features of a kernel at these landmarks, shape (d, features)."""
        points = tangent.features(Z)
        kernel = tangent.gram(points)
        kernel.diagonal().add_(SMALLEST * kernel.diagonal().mean())
        lower = torch.linalg.cholesky(kernel)
        identity = torch.eye(len(Z), dtype=kernel.dtype, device=kernel.device)
        return cls(tangent, points, torch.linalg.solve_triangular(lower, identity, upper=False).T)

    @property
    def size(self) -> int:
        return len(self.whiten)

    @property
    def row_bytes(self) -> int:
        tangent = self.tangent
        return tangent.work_bytes + tangent.row_bytes + 3 * tangent.machine.item * self.size

    def at(self, X: Tensor) -> Rows:
        new = self.tangent.features(X)
        rows = self.tangent.kernel(new, self.points) @ self.whiten
        return Rows(new.outputs, rows, rows.square().sum(dim=1))

    def moves(self, columns: Tensor) -> Moves:
        raise NotImplementedError("an infinitely wide network has no weights to move")

    def of_type(self, dtype: torch.dtype) -> Landmarks:
        tangent = self.tangent.of_type(dtype)
        points = tangent.features(self.points.X)
        return replace(self, tangent=tangent, points=points, whiten=self.whiten.to(dtype))
