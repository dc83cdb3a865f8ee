"""Widths of intervals: σ_{−j}(x), by which errors are divided and intervals multiplied.

Each is a function of the rows without j and of x, so jackknife+ and minmax keep their guarantee.
Leverage: σ²_{−j}(x) = s(x) + b_j(x)²/d_j, the distance of x from the rows without j, as the kernel
measures it; y is not used.

A kind of widths is an entry of ``WIDTHS``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from .ridge import RidgeModels, System
from .scales import LeverageScales, Scales


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
    """σ from the distance to the data, times a factor that every model chooses (factors.py)."""

    needs_candidates = True
    fewest_rows = 4


WIDTHS: dict[str, Widths] = {
    "constant": Constant(),
    "leverage": Leverage(),
    "auto": Auto(),
}
