"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..choosing.per_model import choose_ridges
from ..choosing.rows import MANY, SEARCHED, SHARED, draw_part, places_in, rows_apart
from ..compute import Machine, few_threads
from ..intervals import Construction, find_construction
from ..intervals.full_conformal import FullModels
from ..losses import SQUARED, Loss
from ..ridge.convex import working_targets, working_weights
from ..ridge.leave_one_out import Folds, draw_folds, refits_folds
from ..ridge.problem import Problem, Visit, make_system, typical_size
from ..ridge.readout import LinearModels
from ..ridge.system import OwnRidges
from ..ridge.widths import WIDTHS, Widths
from ..tangent import EXACT, Dual, FeatureMap, Linear

SQUARES = 8  # matrices of features by features that folds in the primal form need
KERNELS = 8  # matrices of the rows that choose λ which their likelihood needs


@dataclass(frozen=True)
class LazyStep:
    """Settings of the lazy step around one network."""

    # λ, of each model where they have chosen it, or "auto": every model chooses, or, of many rows,
    # a part that is set aside. Full conformal prediction takes a number (fit_full.py chooses).
    ridge: float | OwnRidges | Literal["auto"]
    intercept: bool = True  # whether to fit an unpenalised intercept
    readout: str = "tangent"
    construction: str | Construction = "plus"
    widths: str | Widths = "constant"
    folds: Folds = 10
    loss: Loss = SQUARED
    features: FeatureMap = EXACT  # the exact tangent features, or a map of them
    seed: int = 0  # of the features, the folds, and the synthetic rows that scale the grid of λ
    progress: bool = False

    def models(
        self,
        tangent: Linear,
        X: Tensor,
        y: Tensor,
        left_out: int | None = None,
        visit: Visit | None = None,
    ) -> LinearModels | FullModels:
        """Return all leave-one-out models around a linearised network.

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
        if self.ridge == "auto" and len(X) > MANY:
            rest, apart = rows_apart(len(X), self.seed)
            order, left_out = torch.cat([rest, apart]), len(rest)
            X, y = X[order], y[order]
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
        ridges, own = self._ridges(tangent, features, X, y, left_out)
        settings = (self.loss, self._widths, self.folds, self.seed, self.progress)
        problem = Problem(basis, X, y, system, ridges, *settings, own, left_out, visit)
        return self._construction.fit(problem, self.readout)

    def check_fits(self, n: int, parameters: int, machine: Machine) -> None:
        """Raise an error, before anything is computed, if the matrices do not fit in memory."""
        auto = self.ridge == "auto"
        matrices = self._construction.matrices(self._widths, self.loss)
        chosen = 0  # numbers that choosing λ takes
        if auto:
            matrices += n <= MANY  # models of several λ have memory of their own
            chosen = KERNELS * (SHARED if n > MANY else min(n, SEARCHED)) ** 2
        size = self.features.for_rows(n, machine).size(parameters)
        if self.features.has_kernel and (n <= size or not self.loss.closed_form):
            needed, what = matrices * n * n, f"the kernel of {n:,} rows"
            remedy = "features=Sketch(4096)" if self.loss.closed_form else "the squared loss"
            remedy = f"use {remedy}, parameters='last'"
        else:
            squares = 3
            if self._construction.uses_folds:
                squares = SQUARES
                count = len(self.folds) if isinstance(self.folds, tuple) else self.folds
                matrices -= refits_folds(n, size, count)  # the models are few
            needed = matrices * n * (size + 1) + squares * size**2
            what = f"{size:,} features of {n:,} rows"
            remedy = "use features=Sketch with fewer dimensions"
        if auto:
            remedy += ", a number for ridge"
        machine.check_fits(machine.item * (needed + chosen), what, remedy + ", or fewer rows")

    @property
    def _construction(self) -> Construction:
        return find_construction(self.construction)

    @property
    def _widths(self) -> Widths:
        return WIDTHS[self.widths] if isinstance(self.widths, str) else self.widths

    def _ridges(
        self, tangent: Linear, features: FeatureMap, X: Tensor, y: Tensor, left_out: int | None
    ) -> tuple[tuple[float, ...], OwnRidges | None]:
        """λ of all models, or of each where they choose on their own rows."""
        if isinstance(self.ridge, OwnRidges):
            return (), self.ridge
        if self.ridge != "auto":
            return (float(self.ridge),), None
        folds: list[Tensor] | None = None
        if left_out is None:
            n, part = len(y), draw_part(len(y), self.seed, SEARCHED)
            uses_folds = self._construction.uses_folds
            sets = draw_folds(n, self.folds, self.seed) if uses_folds else None
            folds, columns = places_in(part, n, sets)
        else:
            part = torch.arange(left_out, len(y))[:SHARED]
            columns = [len(part)]
        rows, targets = X[part], y[part]
        basis = features.basis(tangent, rows, self.seed, features.has_kernel)
        if isinstance(basis, Dual):
            kernel, outputs = tangent.gram(basis.features), basis.features.outputs
        else:
            outputs, coordinates, _ = basis.at(rows)
            kernel = coordinates @ coordinates.T
        unit = typical_size(tangent, X, self.seed)
        residuals, weights = targets - outputs, torch.ones_like(kernel[0, :1])
        if not self.loss.closed_form:
            residuals = working_targets(self.loss, targets, outputs)
            weights = working_weights(self.loss, y if left_out is None else targets)
        terms = (self.intercept, unit, columns, folds, tangent.machine)
        with few_threads(len(rows)):
            found = choose_ridges(kernel, residuals, *terms)
        if left_out is not None:
            return (float(found.values[-1] * weights[-1]),), None
        return (), OwnRidges(found.values * weights, found.doubtful)
