"""Widths of intervals: σ_{−j}(x), by which errors are divided and intervals multiplied.

Each is a function of the rows without j and of x, so jackknife+ and minmax keep their guarantee.
Leverage: σ²_{−j}(x) = s(x) + b_j(x)²/d_j, the distance of x from the rows without j, as the kernel
measures it; y is not used.

A kind of widths is an entry of ``WIDTHS``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from .system import OpenRidge, RidgeModels, System


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


class Widths(ABC):
    """A kind of widths.

    Attributes
    ----------
    needs_system
        Whether it uses the equations after the models are solved.
    needs_candidates
        Whether it is for models that choose among candidates.
    any_loss
        Whether it supports every loss; otherwise only the squared one.
    fewest_rows
        Smallest number of rows.
    matrices
        Matrices of the kernel's size that it needs besides the models, with one λ and with many.

    """

    needs_system: ClassVar[bool] = True
    needs_candidates: ClassVar[bool] = False
    any_loss: ClassVar[bool] = False
    fewest_rows: ClassVar[int] = 2
    matrices: ClassVar[tuple[int, int]]

    @abstractmethod
    def scales(self, system: System, models: RidgeModels, gamma: float) -> Scales | None:
        """Return σ of all models; None where it is 1.

        Parameters
        ----------
        system
            The equations; they may be overwritten.
        models
            The leave-one-out models.
        gamma
            The relative error of kernels.

        """


class Constant(Widths):
    """σ = 1."""

    needs_system = False
    any_loss = True
    matrices = (0, 0)

    def scales(self, system: System, models: RidgeModels, gamma: float) -> None:
        return None


class Leverage(Widths):
    """σ from the distance to the data."""

    matrices = (3, 4)  # the models share few λ, each with a factor of its own

    def scales(self, system: System, models: RidgeModels, gamma: float) -> LeverageScales:
        each = models.ridges[:-1]
        factors = [system.factor(ridge) for ridge in each.unique().tolist()]
        return LeverageScales.of(factors, gamma, each)


class Auto(Leverage):
    """σ from the distance to the data, times a factor that models choose (choosing/shape.py)."""

    needs_candidates = True
    fewest_rows = 4


WIDTHS: dict[str, Widths] = {
    "constant": Constant(),
    "leverage": Leverage(),
    "auto": Auto(),
}
