"""Widths that are not constant: σ_{−j}(x), by which errors are divided and intervals multiplied.

Each is a function of the rows without j and of x, so jackknife+ and minmax keep their guarantee.
Leverage: σ²_{−j}(x) = s(x) + b_j(x)²/d_j, how far x is from the rows without j, in the kernel's
eyes; it never looks at y. Noise: a second ridge, fitted to the errors of rows left out (noise.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from .factors import Factor


class Scales(Protocol):
    """σ of every leave-one-out model."""

    @property
    def own(self) -> Tensor:
        """σ_{−j}(X_j), shape (n,)."""

    def at(self, rows: Tensor, norms: Tensor) -> Tensor:
        """σ_{−j}(x), shape (m, n), from coordinates (m, q) and k(x, x), shape (m,)."""

    def of_type(self, dtype: torch.dtype) -> Self | None:
        """The same in another floating type; None where that would be too coarse."""


@dataclass(frozen=True)
class LeverageScales:
    """σ from the distance to the data.

    Attributes
    ----------
    factors
        One for each λ that some model has.
    members
        For each of them the models that have it.

    """

    factors: tuple[Factor, ...]
    members: tuple[Tensor, ...]
    own: Tensor

    @classmethod
    def of(cls, factors: Sequence[Factor], ridges: Tensor | None = None) -> LeverageScales:
        """Take for each model the factor of its λ, (n,); without one there is but one factor."""
        if ridges is None:
            ridges = torch.full_like(factors[0].diagonal, factors[0].ridge, dtype=torch.float64)
        members = tuple(torch.nonzero(ridges == factor.ridge)[:, 0] for factor in factors)
        own = torch.empty_like(factors[0].diagonal)
        for factor, models in zip(factors, members, strict=True):
            own[models] = factor.diagonal[models].rsqrt()
        return cls(tuple(factors), members, own)

    def at(self, rows: Tensor, norms: Tensor) -> Tensor:
        """One factor after another."""
        sigma = rows.new_empty(len(rows), len(self.own))
        for factor, models in zip(self.factors, self.members, strict=True):
            weights, left_open = factor.at(rows, norms)
            moved = weights[:, models].square_().div_(factor.diagonal[models])
            sigma[:, models] = moved.add_(left_open[:, None])
        return sigma.sqrt_()

    def of_type(self, dtype: torch.dtype) -> None:
        """None: s is a small difference of large numbers."""
        return None


@dataclass(frozen=True)
class NoiseScales:
    """σ learnt from left-out errors: max(z(x)ᵀN_j + β_j, floor_j).

    Attributes
    ----------
    columns, intercepts
        N, shape (q, n), and β, shape (n,).
    floors
        The least σ, shape (n,), all above 0.

    """

    columns: Tensor
    intercepts: Tensor
    floors: Tensor
    own: Tensor

    def at(self, rows: Tensor, norms: Tensor) -> Tensor:
        """One product for all models."""
        return torch.maximum((rows @ self.columns).add_(self.intercepts), self.floors)

    def of_type(self, dtype: torch.dtype) -> NoiseScales:
        """The same predictions in another type."""
        columns, intercepts, floors = (
            part.to(dtype) for part in (self.columns, self.intercepts, self.floors)
        )
        return replace(self, columns=columns, intercepts=intercepts, floors=floors)
