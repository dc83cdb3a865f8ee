"""Widths of intervals: σ_{−j}(x), by which errors are divided and intervals multiplied.

Each is a function of the rows without j and of x, so jackknife+ and minmax keep their guarantee.
Leverage: σ²_{−j}(x) = s(x) + b_j(x)²/d_j, the distance of x from the rows without j, as the kernel
measures it; y is not used.

A kind of widths is an entry of ``WIDTHS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..tangent import Linear
from .dual import DualRidge, DualSystem
from .system import Ridge, RidgeModels


class Scales(Protocol):
    """σ of every leave-one-out model.

    ``own`` are σ_{−j}(X_j), shape (n,), and ``own_error`` bounds on their relative errors by
    rounding, a single one or shape (n,). ``at`` gives σ_{−j}(x), shape (m, n), from coordinates
    (m, q) and k(x, x), shape (m,), and bounds, shape (m,), on the relative errors of a row's σ.
    """

    @property
    def own(self) -> Tensor: ...
    @property
    def own_error(self) -> Tensor: ...
    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, eq=False)
class LeverageScales:
    """σ from the distance to the data."""

    factors: tuple[Ridge, ...]  # one for each λ that occurs
    ridges: Tensor  # λ of each model, shape (n,)
    gamma: float  # the relative error of kernels

    @property
    def own(self) -> Tensor:
        own = torch.empty_like(self.ridges)
        for factor in self.factors:
            models = self.ridges == factor.ridge
            own[models] = factor.diagonal[: len(own)][models].rsqrt()
        return own

    @property
    def own_error(self) -> Tensor:
        """γ·strain/2, with the largest strain."""
        return self.ridges.new_tensor(self.gamma * max(f.strain for f in self.factors) / 2)

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        sigma, error = rows.new_empty(len(rows), len(self.ridges)), torch.zeros_like(norms)
        for factor in self.factors:
            models = torch.nonzero(self.ridges == factor.ridge)[:, 0]
            weights, left_open, loose = factor.at(rows, norms)
            moved = weights[:, models].square_().div_(factor.diagonal[models])
            sigma[:, models] = moved.add_(left_open[:, None])
            both = (math.sqrt(factor.strain) + loose.sqrt()).square()
            error = torch.maximum(error, self.gamma / 2 * both)
        return sigma.sqrt_(), error


@dataclass(frozen=True, eq=False)
class LeverageAgain(LeverageScales):
    """The same in little memory: kernels of X are factored again for each block of new rows."""

    tangent: Linear
    X: Tensor

    @classmethod
    def of(cls, scales: LeverageScales, tangent: Linear, X: Tensor) -> LeverageAgain:
        dual = (factor for factor in scales.factors if isinstance(factor, DualRidge))
        factors = tuple(replace(factor, lower=factor.lower.new_empty(0)) for factor in dual)
        return cls(factors, scales.ridges, scales.gamma, tangent, X)

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        kernel = self.tangent.gram(self.tangent.features(self.X))
        system = DualSystem(kernel, self.ridges, False, self.tangent.machine)
        factors = tuple(system.factored(f) for f in self.factors if isinstance(f, DualRidge))
        return LeverageScales(factors, self.ridges, self.gamma).at(rows, norms)


@dataclass(frozen=True)
class Widths:
    """A kind of widths.

    ``scales`` returns σ of all leave-one-out models, from them and the relative error of kernels,
    by the solved equations of a squared loss; None: σ = 1.
    """

    scales: Callable[[RidgeModels, float], Scales] | None = None
    needs_candidates: bool = False  # whether models must choose among candidates
    fewest_rows: int = 2

    @property
    def needs_factors(self) -> bool:
        """Whether it needs the solved equations at new rows."""
        return self.scales is not None

    @property
    def matrices(self) -> int:
        """Matrices of the kernel's size that it needs besides the models."""
        return 3 if self.needs_factors else 0


def leverage(models: RidgeModels, gamma: float) -> LeverageScales:
    """σ from the distance to the data; choosing/shape.py multiplies it by what models choose."""
    return LeverageScales(models.factors, models.ridges[:-1], gamma)


WIDTHS = {
    "constant": Widths(),
    "leverage": Widths(leverage),
    "auto": Widths(leverage, needs_candidates=True, fewest_rows=4),
}
