"""Widths of intervals: σ_{−j}(x), by which errors are divided and intervals multiplied.

Each is a function of the rows without j and of x, so jackknife+ and minmax keep their guarantee.
Leverage: σ²_{−j}(x) = s(x) + b_j(x)²/d_j, how far x is from the rows without j, in the kernel's
eyes; it never looks at y. Noise: a second ridge, fitted to the errors of rows left out (noise.py).

A kind of widths is an entry of ``WIDTHS``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from .noise import noise_scales
from .ridge import RidgeModels, System
from .scales import LeverageScales, Scales


class Widths(ABC):
    """A kind of widths.

    Attributes
    ----------
    needs_system
        Whether it looks at the equations once more.
    needs_kernel
        Whether only the dual form has what it takes.
    needs_grid
        Whether it chooses a λ of its own.
    any_loss
        Whether it goes with every loss; otherwise with the squared one alone.
    fewest_rows
        Rows that it needs.
    most_rows
        Rows up to which a construction chooses it unasked.
    matrices
        Matrices of the kernel's size that it takes beside the models, with one λ and with many.

    """

    needs_system: ClassVar[bool] = True
    needs_kernel: ClassVar[bool] = False
    needs_grid: ClassVar[bool] = False
    any_loss: ClassVar[bool] = False
    fewest_rows: ClassVar[int] = 2
    most_rows: ClassVar[float] = float("inf")
    matrices: ClassVar[tuple[int, int]]

    @abstractmethod
    def scales(
        self,
        system: System,
        models: RidgeModels,
        grid: Sequence[float],
        gamma: float,
        progress: bool = False,
    ) -> Scales | None:
        """Return σ of all models; None where it is 1.

        Parameters
        ----------
        system
            The equations; their memory may be used.
        models
            The leave-one-out models.
        grid
            λ for a second ridge to choose from.
        gamma
            The relative error of kernels.
        progress
            Whether to show a progress bar.

        """


class Constant(Widths):
    """σ = 1: errors as they are."""

    needs_system = False
    any_loss = True
    matrices = (0, 0)

    def scales(self, *_: object, **__: object) -> None:
        return None


class Leverage(Widths):
    """σ from the distance to the data."""

    matrices = (3, 4)  # the models share few λ, each with a factor of its own

    def scales(
        self,
        system: System,
        models: RidgeModels,
        grid: Sequence[float],
        gamma: float,
        progress: bool = False,
    ) -> LeverageScales:
        each = models.ridges[:-1]
        factors = [system.factor(ridge) for ridge in each.unique().tolist()]
        return LeverageScales.of(factors, gamma, each)


class Noise(Widths):
    """σ from a second ridge on the sizes of left-out errors."""

    needs_kernel = True
    needs_grid = True
    fewest_rows = 4  # with two rows left out two are left to learn from
    most_rows = 5000  # it takes half as long again as all else
    matrices = (3, 2)
    step: ClassVar[int] = 2  # σ is smooth, and each λ costs a product: every second one is tried

    def scales(
        self,
        system: System,
        models: RidgeModels,
        grid: Sequence[float],
        gamma: float,
        progress: bool = False,
    ) -> Scales:
        return noise_scales(system, models.ridges[:-1], grid[:: self.step], gamma, progress)


WIDTHS: dict[str, Widths] = {"constant": Constant(), "leverage": Leverage(), "noise": Noise()}
