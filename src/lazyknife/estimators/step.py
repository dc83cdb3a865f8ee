"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..compute import Machine
from ..intervals import Construction, LazyModels, find_construction
from ..intervals.rounded import SMALL_SHARE, rounding_share
from ..losses import SQUARED, Loss
from ..memory import NotEnoughMemory
from ..solve.choose import Visit
from ..solve.folds import draw_folds
from ..solve.guard import largest
from ..solve.newton import working_targets, working_weights
from ..solve.own_ridges import OwnRidges, choose_ridges, kernel_of
from ..solve.part import MANY, SHARED, Leaving, draw_part, places_in, rows_apart
from ..solve.primal_folds import factors_folds
from ..solve.problem import GRID_POINTS, Problem, make_system, ridge_grid, typical_size
from ..solve.readout import READOUTS
from ..solve.widths import WIDTHS, Widths
from ..tangent import EXACT, FeatureMap, Linear, Tangent
from ..threads import few_threads

SQUARES = 8  # matrices of features by features that folds in the primal form need


@dataclass(frozen=True)
class LazyStep:
    """Settings of the lazy step.

    Attributes
    ----------
    ridge
        λ, of each model where they have chosen it, or ``"auto"``: every model chooses, or, of many
        rows, a part that is set aside.
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
    alpha
        Level of the intervals with which rounding is compared.
    progress
        Whether to show progress bars.

    """

    ridge: float | OwnRidges | Literal["auto"]
    intercept: bool = True
    readout: str = "tangent"
    construction: str | Construction[Any] = "plus"
    widths: str | Widths = "constant"
    folds: int = 10
    loss: Loss = SQUARED
    features: FeatureMap = EXACT
    seed: int = 0
    alpha: float = 0.1
    progress: bool = False

    def models(
        self,
        tangent: Linear,
        X: Tensor,
        y: Tensor,
        left_out: int | None = None,
        visit: Visit | None = None,
    ) -> LazyModels:
        """Return all leave-one-out models around a linearised network.

        Where the machine's precision is too coarse for these rows they are solved again in float64.

        Parameters
        ----------
        tangent
            The network.
        X, y
            Rows and targets.
        left_out
            The first so many rows are left out; the others train every model. None: all, unless
            some of them are set aside here.
        visit
            Called with solutions, as by ``leave_one_out``.

        """
        if self._is_shared(len(X)):
            rest, apart = rows_apart(len(X), self.seed)
            order, left_out = torch.cat([rest, apart]), len(rest)
            X, y = X[order], y[order]
        if isinstance(tangent, Tangent) and tangent.machine.passes is not None:
            moves = READOUTS[self.readout].moves_network
            tangent = tangent.exactly() if moves or not tangent.is_steady(X) else tangent

        def solve(tangent: Linear) -> LazyModels:
            problem = self._problem(tangent, X, y, left_out, visit)
            return self._construction.fit(problem, self.readout, self.alpha)

        if tangent.machine.dtype == torch.float64:
            return solve(tangent)
        try:
            found: LazyModels | None = solve(tangent)
        except ValueError:
            found = None
        if found is not None and (self._is_fine(found, y) or not self._fits_exactly(tangent, y)):
            return found
        del found  # its matrices
        return solve(tangent.of_type(torch.float64))

    def check_fits(self, n: int, parameters: int, machine: Machine) -> None:
        """Raise an error, before anything is computed, if the matrices do not fit in memory."""
        ridges = GRID_POINTS if self.ridge == "auto" and self._construction.symmetric else 1
        matrices = self._construction.matrices(self._widths, self.loss, ridges)
        matrices += machine.predicting is not None
        size = self.features.for_rows(n, machine).size(parameters)
        if self._is_dual(n, size):
            needed, what = matrices * n * n, f"the kernel of {n:,} rows"
            few = "features=Sketch(4096)"
            remedy = "widths='constant', the squared loss" if self._needs_kernel else few
            remedy = f"use {remedy}, parameters='last', precision='float32'"
        else:
            needed = self._primal_numbers(n, size, matrices)
            what = f"{size:,} features of {n:,} rows"
            remedy = "use features=Sketch with fewer dimensions, precision='float32'"
        machine.check_fits(machine.item * needed, what, remedy + ", or fewer rows")

    def leaving(self, n: int) -> Leaving:
        """Which of n rows are left out."""
        if self.ridge != "auto" or self._construction.symmetric:
            return Leaving(n)
        return Leaving.choosing(n, self._construction.uses_folds)

    def _is_dual(self, n: int, size: int) -> bool:
        return self.features.has_kernel and (n <= size or self._needs_kernel)

    def _primal_numbers(self, n: int, size: int, matrices: int) -> int:
        """Numbers that the primal form needs beside its blocks."""
        if self._construction.uses_folds:
            matrices -= factors_folds(n, size, self.folds)  # the models are few
            return matrices * n * (size + 1) + SQUARES * size**2
        return matrices * n * (size + 1) + 3 * size**2

    @property
    def _construction(self) -> Construction[Any]:
        return find_construction(self.construction)

    @property
    def _widths(self) -> Widths:
        return WIDTHS[self.widths] if isinstance(self.widths, str) else self.widths

    @property
    def _needs_kernel(self) -> bool:
        return self._widths.needs_kernel or not self.loss.closed_form

    def _problem(
        self,
        tangent: Linear,
        X: Tensor,
        y: Tensor,
        left_out: int | None,
        visit: Visit | None,
    ) -> Problem:
        """Set up the equations for these rows."""
        machine = tangent.machine
        if self.ridge == "auto" and len(X) < 3:
            raise ValueError(
                f"ridge='auto' needs at least 3 rows besides those that the base trains on, not "
                f"{len(X)}: give more rows or a number for ridge"
            )
        X, y = machine.put(X), machine.put(y)
        with machine.exact.products():
            features = self.features.for_rows(len(X), machine)
            basis = features.basis(tangent, X, self.seed, self._needs_kernel)
            system = make_system(basis, X, y, self.intercept, self.progress)
            ridges, own = self._ridges(tangent, features, X, y, left_out)
        settings = (self.loss, self._widths, self.folds, self.seed, self.progress)
        return Problem(basis, X, y, system, ridges, *settings, own, left_out, visit)

    def _is_shared(self, n: int) -> bool:
        """Whether rows that are set aside choose λ for all models."""
        return self.ridge == "auto" and n > MANY and not self._construction.symmetric

    def _ridges(
        self, tangent: Linear, features: FeatureMap, X: Tensor, y: Tensor, left_out: int | None
    ) -> tuple[tuple[float, ...], OwnRidges | None]:
        """λ of all models, or of each where they choose on their own rows."""
        if isinstance(self.ridge, OwnRidges):
            return (), self.ridge
        if self.ridge != "auto":
            return (float(self.ridge),), None
        if self._construction.symmetric:
            return tuple(ridge_grid(tangent, X, self.seed).tolist()), None
        folds: list[Tensor] | None = None
        if left_out is None:
            n, part = len(y), draw_part(len(y), self.seed)
            uses_folds = self._construction.uses_folds
            sets = draw_folds(n, self.folds, self.seed) if uses_folds else None
            folds, columns = places_in(part, n, sets)
            folds = folds and [fold.to(y.device) for fold in folds]
        else:
            part = torch.arange(left_out, len(y))[:SHARED]
            columns = [len(part)]
        rows, targets = X[part], y[part]
        basis = features.basis(tangent, rows, self.seed, features.has_kernel)
        kernel, outputs = kernel_of(basis, rows)
        unit = typical_size(tangent, X, self.seed)
        residuals, weights = targets - outputs, torch.ones_like(kernel[0, :1], dtype=torch.float64)
        if not self.loss.closed_form:
            residuals = working_targets(self.loss, targets, outputs)
            weights = working_weights(self.loss, y if left_out is None else targets)
        terms = (self.intercept, unit, columns, folds, tangent.machine)
        with few_threads(len(rows)):
            found = choose_ridges(kernel, residuals, *terms)
        if left_out is not None:
            return (float(found.values[-1] * weights[-1]),), None
        return (), OwnRidges(found.values * weights, found.doubtful)

    def _is_fine(self, found: LazyModels, y: Tensor) -> bool:
        """Whether rounding is negligible."""
        share = rounding_share(found.loo, self.alpha, largest(y))
        return share <= SMALL_SHARE and not found.loo.conceded

    def _fits_exactly(self, tangent: Linear, y: Tensor) -> bool:
        """Whether the models would fit in float64."""
        assert isinstance(tangent, Tangent)
        parameters = sum(p.numel() for p in tangent.moved.values())
        try:
            self.check_fits(len(y), parameters, tangent.machine.of_type(torch.float64))
        except NotEnoughMemory:
            return False
        return True
