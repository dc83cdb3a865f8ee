"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ..compute import Machine
from ..intervals import Construction, LazyModels, find_construction
from ..losses import SQUARED, Loss
from ..solve.part import COMPARED
from ..solve.primal_folds import factors_folds
from ..solve.problem import GRID_POINTS, Problem, make_system, ridge_grid
from ..solve.widths import WIDTHS, Widths
from ..tangent import EXACT, FeatureMap, Tangent

# Of the primal form with a chosen λ or folds: matrices of features by features, and copies of the
# rows whose errors choose λ.
SQUARES, COPIES = 8, 4


@dataclass(frozen=True)
class LazyStep:
    """Settings of the lazy step.

    Attributes
    ----------
    ridge
        λ, or ``"auto"``.
    intercept
        Whether to fit an unpenalised intercept.
    readout
        A key of ``READOUTS``.
    construction, widths
        Keys of ``CONSTRUCTIONS`` and ``WIDTHS``, or instances.
    folds
        Number of folds.
    loss
        Loss of the models.
    features
        The exact tangent features, or a map of them.
    seed
        Seed of the features, the folds, and the synthetic rows that scale the grid of λ.
    progress
        Whether to show progress bars.

    """

    ridge: float | Literal["auto"]
    intercept: bool = True
    readout: str = "tangent"
    construction: str | Construction[Any] = "plus"
    widths: str | Widths = "constant"
    folds: int = 10
    loss: Loss = SQUARED
    features: FeatureMap = EXACT
    seed: int = 0
    progress: bool = False

    def models(self, tangent: Tangent, X: Tensor, y: Tensor) -> LazyModels:
        """Return all leave-one-out models around a linearised network."""
        return self._construction.fit(self._problem(tangent, X, y), self.readout)

    def check_fits(self, n: int, parameters: int, machine: Machine) -> None:
        """Raise an error, before anything is computed, if the matrices do not fit in memory."""
        auto = self.ridge == "auto"
        ridges = GRID_POINTS if auto else 1
        matrices = self._construction.matrices(self._widths, self.loss, ridges)
        size = self.features.for_rows(n, machine).size(parameters)
        if self._is_dual(n, size):
            needed, what = matrices * n * n, f"the kernel of {n:,} rows"
            remedy = "features=Sketch(4096)" if self.loss.closed_form else "the squared loss"
            remedy = f"use {remedy}, parameters='last'"
        else:
            needed = self._primal_numbers(n, size, matrices)
            what = f"{size:,} features of {n:,} rows"
            remedy = "use features=Sketch with fewer dimensions"
        if auto:
            remedy += ", a number for ridge (half as much, or less)"
        machine.check_fits(machine.item * needed, what, remedy + ", or fewer rows")

    def draws(self, n: int, parameters: int, machine: Machine) -> bool:
        """Whether coins tell which of n rows choose λ, for a network of so many parameters."""
        size = self.features.for_rows(n, machine).size(parameters)
        return self.ridge == "auto" and n > COMPARED and not self._is_dual(n, size)

    def _is_dual(self, n: int, size: int) -> bool:
        return self.features.has_kernel and (n <= size or not self.loss.closed_form)

    def _primal_numbers(self, n: int, size: int, matrices: int) -> int:
        """Numbers that the primal form needs beside its blocks."""
        folds = self._construction.uses_folds
        if folds and factors_folds(n, size, self.folds):
            matrices -= 1  # the models are few
        if not folds and self.ridge != "auto":
            return matrices * n * (size + 1) + 3 * size**2
        return matrices * n * (size + 1) + SQUARES * size**2 + COPIES * min(n, COMPARED) * size

    @property
    def _construction(self) -> Construction[Any]:
        return find_construction(self.construction)

    @property
    def _widths(self) -> Widths:
        return WIDTHS[self.widths] if isinstance(self.widths, str) else self.widths

    def _problem(self, tangent: Tangent, X: Tensor, y: Tensor) -> Problem:
        """Set up the equations for these rows."""
        machine = tangent.machine
        if self.ridge == "auto" and len(X) < 3:
            raise ValueError(
                f"ridge='auto' needs at least 3 rows besides those that the base trains on, not "
                f"{len(X)}: give more rows or a number for ridge"
            )
        X, y = machine.put(X), machine.put(y)
        features = self.features.for_rows(len(X), machine)
        basis = features.basis(tangent, X, self.seed, kernel=not self.loss.closed_form)
        system = make_system(basis, X, y, self.intercept, self.progress)
        if self.ridge == "auto":
            ridges = tuple(ridge_grid(tangent, X, self.seed).tolist())
        else:
            ridges = (float(self.ridge),)
        rest = (self.loss, self._widths, self.folds, self.seed, self.progress)
        return Problem(basis, X, y, system, ridges, *rest)
