"""σ of every leave-one-out model, ready for new rows; widths.py has the definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .ridge import OpenRidge


class Scales(Protocol):
    """σ of every leave-one-out model."""

    @property
    def own(self) -> Tensor:
        """σ_{−j}(X_j), shape (n,)."""

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """σ_{−j}(x), shape (m, n), from coordinates (m, q) and k(x, x), shape (m,).

        Also bounds, shape (m,), on the relative errors of a row's σ by rounding.
        """

    @property
    def own_error(self) -> Tensor:
        """Bounds on the relative errors of ``own`` by rounding, a single one or shape (n,)."""


@dataclass(frozen=True)
class LeverageScales:
    """σ from the distance to the data.

    Attributes
    ----------
    factors
        One for each λ that occurs.
    members
        The models that have each λ.

    """

    factors: tuple[OpenRidge, ...]
    members: tuple[Tensor, ...]
    own: Tensor
    gamma: float

    @classmethod
    def of(
        cls, factors: Sequence[OpenRidge], gamma: float, ridges: Tensor | None = None
    ) -> LeverageScales:
        """Assign to each model the factor of its λ, (n,); None if there is only one factor.

        ``gamma`` is the relative error of kernels.
        """
        if ridges is None:
            ridges = torch.full_like(factors[0].diagonal, factors[0].ridge)
        members = tuple(torch.nonzero(ridges == factor.ridge)[:, 0] for factor in factors)
        own = factors[0].diagonal.new_empty(len(ridges))
        for factor, models in zip(factors, members, strict=True):
            own[models] = factor.diagonal[models].rsqrt()
        return cls(tuple(factors), members, own, gamma)

    @property
    def own_error(self) -> Tensor:
        """γ·strain/2, with the largest strain."""
        return self.own.new_tensor(self.gamma * max(f.strain for f in self.factors) / 2)

    def at(self, rows: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """One factor after another."""
        sigma, error = rows.new_empty(len(rows), len(self.own)), torch.zeros_like(norms)
        for factor, models in zip(self.factors, self.members, strict=True):
            weights, left_open, loose = factor.at(rows, norms)
            moved = weights[:, models].square_().div_(factor.diagonal[models])
            sigma[:, models] = moved.add_(left_open[:, None])
            both = (math.sqrt(factor.strain) + loose.sqrt()).square()
            error = torch.maximum(error, self.gamma / 2 * both)
        return sigma.sqrt_(), error
