"""Leverage widths whose factors are computed again for each block of new rows.

Models at D places have D factors of n×n numbers. Where they do not fit they are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..tangent import Dual, Linear
from .problem import make_system
from .scales import LeverageScales


@dataclass(frozen=True)
class LeverageAgain:
    """σ of all models at one place, with λ of each, shape (n,); see ``LeverageScales``."""

    tangent: Linear
    X: Tensor
    y: Tensor
    intercept: bool
    ridges: Tensor
    gamma: float
    own: Tensor
    own_error: Tensor

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Factor the kernel once more, at every λ."""
        basis = Dual(self.tangent, self.tangent.features(self.X))
        system = make_system(basis, self.X, self.y, self.intercept)
        factors = [system.factor(ridge) for ridge in self.ridges.unique().tolist()]
        return LeverageScales.of(factors, self.gamma, self.ridges).at(rows, norms)
