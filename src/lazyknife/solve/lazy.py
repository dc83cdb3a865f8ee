"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..compute import Machine, NotEnoughMemory
from ..losses import SQUARED, Loss
from ..tangent import Dual, Exact, Sketch, Tangent
from .folds import draw_folds, leave_folds_out
from .full import FullModels
from .guard import (
    SMALL_SHARE,
    Kept,
    checked_rows,
    conceded_models,
    largest,
    measured_errors,
    own_residuals,
    predicting_in,
    rounding_share,
    with_own_errors,
)
from .loo import RidgeModels, leave_one_out, leave_one_out_auto
from .newton import leave_one_out_newton, leave_one_out_newton_auto
from .noise import noise_scales
from .primal import leave_one_out_primal, leave_one_out_primal_auto
from .readout import read_out
from .rounding import LEAST_SHARE, MEASURED, Sensitivity, gamma_of, rounding_of
from .scales import LeverageScales, Scales
from .system import System, make_system

GRID_POINTS = 20
GRID_DECADES = (-4, 6)
# The noise is learnt with every second λ of the grid: it is smooth, and each one costs a product.
NOISE_STEP = 2
PROBES = 64


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
        ``"tangent"`` or ``"network"``.
    construction
        What the models are for: ``"full"`` adds candidates to the full model, ``"cv+"`` leaves
        folds out, every other one leaves rows out.
    widths
        ``"constant"``, ``"leverage"`` or ``"noise"``.
    folds
        Number of folds.
    loss
        What the models minimise.
    sketch
        A random projection of the tangent features; None takes them as they are.
    seed
        Of the sketch, the folds, and the synthetic rows that scale the grid of λ.
    alpha
        Level of the intervals, whose ends rounding is compared with.
    progress
        Whether to show progress bars.

    """

    ridge: float | str
    intercept: bool = True
    readout: str = "tangent"
    construction: str = "plus"
    widths: str = "constant"
    folds: int = 10
    loss: Loss = SQUARED
    sketch: Sketch | None = None
    seed: int = 0
    alpha: float = 0.1
    progress: bool = False

    @property
    def _needs_kernel(self) -> bool:
        """Whether only the dual form has what is asked for."""
        return self.widths == "noise" or self.loss != SQUARED

    def check_fits(self, n: int, size: int, machine: Machine) -> None:
        """Refuse, before anything is computed, rows and parameters that do not fit in memory."""
        auto = self.ridge == "auto"
        dimension = size if self.sketch is None else self.sketch.dimension
        matrices = self._matrices(auto) + (machine.predicting is not None)
        if self.sketch is None and (n <= size or self._needs_kernel):
            needed, what = matrices * n * n, f"the kernel of {n:,} rows"
            remedy = "use features=Sketch(4096), parameters='last', precision='float32'"
            if self._needs_kernel:
                remedy = "use widths='constant', the squared loss, precision='float32'"
        else:
            needed = matrices * n * (dimension + 1) + 3 * dimension**2
            what = f"{dimension:,} features of {n:,} rows"
            remedy = "use features=Sketch with fewer dimensions, precision='float32'"
        if auto:
            remedy += ", a number for ridge (half as much, or less)"
        machine.check_fits(machine.item * needed, what, remedy + ", or fewer rows")

    def _matrices(self, auto: bool) -> int:
        """How many matrices of the kernel's size a fit holds at its peak."""
        if self.construction == "full":
            return 2 + (GRID_POINTS if auto else 1)
        if self.construction == "cv+":
            return 3 + auto  # the factor of the last λ is still there
        if self.loss != SQUARED:
            return 6
        # With a chosen ridge the models share few λ, each with a factor of its own.
        return {"constant": 1 + auto, "leverage": 4 + 2 * auto, "noise": 4}[self.widths]

    def models(self, tangent: Tangent, X: Tensor, y: Tensor) -> LazyModels:
        """Return all leave-one-out models around a linearised network.

        Where the machine's precision is too coarse for these rows they are solved again in float64.
        """
        machine = tangent.machine
        try:
            found = self._models(tangent, X, y)
        except ValueError:
            if machine.dtype == torch.float64:
                raise
            return self._models(tangent.of_type(torch.float64), X, y)
        if machine.dtype == torch.float64 or self._is_fine(found, y):
            return found
        exact = machine.of_type(torch.float64)
        try:
            self.check_fits(len(y), sum(p.numel() for p in tangent.moved.values()), exact)
        except NotEnoughMemory:
            return found
        del found  # its matrices
        return self._models(tangent.of_type(torch.float64), X, y)

    def _is_fine(self, found: LazyModels, y: Tensor) -> bool:
        """Whether rounding does not matter."""
        share = rounding_share(found.loo, self.alpha, largest(y))
        return share <= SMALL_SHARE and not conceded_models(found.loo)

    def _models(self, tangent: Tangent, X: Tensor, y: Tensor) -> LazyModels:
        machine = tangent.machine
        X, y = machine.put(X), machine.put(y)
        with machine.exact.products():  # TF32 is for predictions alone
            features = self.sketch or Exact()
            basis = features.basis(tangent, X, self.seed, self._needs_kernel)
            system = make_system(basis, X, y, self.intercept)
            grid = self._grid(tangent, X)
            if self.construction == "full":
                return self._full_models(system, grid)
            kept = Kept.of(system)
            needs_matrix = self.widths != "constant"
            matrix = system.matrix.clone() if needs_matrix else system.matrix[:0, :0].clone()
            solved = self._solve(system, grid)  # takes the memory of the first
            system = system.with_matrix(matrix)
            measured, shaken = kept.errors(system)
            every = isinstance(basis, Dual) and (self.ridge == "auto" or needs_matrix)
            rows = checked_rows(X, basis.size, every)
            off = MEASURED * measured_errors(system, solved, self.loss, rows)
            coarse = machine.dtype != torch.float64
            gamma = gamma_of(machine.dtype, measured)
            scales = self._scales(system, solved, grid, gamma)
            if coarse and isinstance(basis, Dual) and self.loss == SQUARED:
                # All equations were looked at in float64, and so are all residuals.
                all_rows = torch.arange(len(X), device=X.device)
                residuals, _ = own_residuals(system, solved, self.loss, all_rows)
                solved = replace(solved, residuals=residuals)
                gamma = gamma_of(torch.float64)
            size = largest(y, system.targets, solved.intercepts)
            rounding = rounding_of(solved.sensitivity, gamma, size, off, solved.unsolved, shaken)
            loo = read_out(self.readout, basis, X, y, solved, scales, self.loss, rounding)
        if machine.predicting is not None:
            loo = predicting_in(machine.predicting, loo, X[rows], self.alpha, largest(y))
        elif coarse:
            loo = with_own_errors(loo, X[rows])
        return LazyModels(loo, solved)

    def _full_models(self, system: System, grid: Tensor) -> LazyModels:
        """Factor the ridge at every λ, and wait for candidates."""
        machine, trace = system.basis.tangent.machine, float(system.norms.sum())
        ridges = self._ridges(grid)
        least = min(LEAST_SHARE[machine.dtype] * trace, max(ridges))  # with a new row it is more
        factors = [system.factor(ridge) for ridge in ridges if ridge >= least]
        size = largest(system.y, system.targets)
        chosen = FullModels.of(system.basis, system.targets, factors, trace, 0.0, size)
        factor = factors[chosen.place]
        solved = RidgeModels(
            columns=factor.coefficients[:, None],  # no model but the full one
            full=factor.coefficients,
            intercepts=factor.intercept.expand(2),
            ridges=torch.tensor([factor.ridge], dtype=torch.float64),
            residuals=chosen.residuals,
            training_residuals=chosen.training_residuals,
            sensitivity=Sensitivity.unknown(len(system.y), system.y),
        )
        measured, shaken = Kept.of(system).errors(system)
        gamma = gamma_of(machine.dtype, measured)
        return LazyModels(replace(chosen, gamma=gamma, shaken=shaken), solved)

    def _solve(self, system: System, grid: Tensor) -> RidgeModels:
        """Solve all models."""
        ridges = self._ridges(grid)
        if self.construction != "cv+":
            return self._leave_one_out(system, ridges)
        folds = draw_folds(len(system.y), self.folds, self.seed)
        return leave_folds_out(system.factor, ridges, folds, system.norms, self.progress)

    def _scales(
        self, system: System, solved: RidgeModels, grid: Tensor, gamma: float
    ) -> Scales | None:
        """σ of all models."""
        each = solved.ridges[:-1]
        if self.widths == "constant":
            return None
        if self.widths == "leverage":
            factors = [system.factor(ridge) for ridge in each.unique().tolist()]
            return LeverageScales.of(factors, gamma, each)
        machine = system.basis.tangent.machine
        return noise_scales(
            system.matrix,
            system.targets,
            each,
            grid[::NOISE_STEP],
            self.intercept,
            gamma,
            machine,
            self.progress,
        )

    def _leave_one_out(self, system: System, ridges: list[float]) -> RidgeModels:
        """All models without one row, in the form of the basis."""
        matrix, targets, machine = system.matrix, system.targets, system.basis.tangent.machine
        grid = torch.tensor(ridges, dtype=torch.float64)
        fixed, rest = self.ridge != "auto", (self.intercept, machine, self.progress)
        if self.loss != SQUARED:
            newton: Callable[..., RidgeModels] = (
                leave_one_out_newton if fixed else leave_one_out_newton_auto
            )
            return newton(
                matrix,
                system.y,
                system.y - targets,
                ridges[0] if fixed else grid,
                self.intercept,
                self.loss,
                machine,
                self.progress,
            )
        dual = isinstance(system.basis, Dual)
        if fixed:
            solve = leave_one_out if dual else leave_one_out_primal
            return solve(matrix, targets, ridges[0], *rest)
        choose = leave_one_out_auto if dual else leave_one_out_primal_auto
        return choose(matrix, targets, grid, *rest)

    def _grid(self, tangent: Tangent, X: Tensor) -> Tensor:
        """Return the grid of λ, if one is chosen for anything."""
        if self.ridge != "auto":
            return ridge_grid(tangent, X, self.seed) if self.widths == "noise" else torch.empty(0)
        if len(X) < 3:
            raise ValueError(
                f"ridge='auto' needs at least 3 rows after the base has taken its part, not "
                f"{len(X)}: give more rows or a number for ridge"
            )
        return ridge_grid(tangent, X, self.seed)

    def _ridges(self, grid: Tensor) -> list[float]:
        """λ, or the grid to choose it from."""
        return grid.tolist() if self.ridge == "auto" else [float(self.ridge)]


@dataclass(frozen=True)
class LazyModels:
    """Models behind a readout, and the ridge models themselves.

    Attributes
    ----------
    loo
        What makes intervals.
    solved
        The models; for full conformal the full one alone.

    """

    loo: Any
    solved: RidgeModels


def ridge_grid(tangent: Tangent, X: Tensor, seed: int) -> Tensor:
    """Return a wide grid of λ that looks at no data, only at the shape of a row.

    It is scaled by the kernel at synthetic standard-normal inputs, a function of θ0 alone. The
    largest eigenvalue of n rows on that scale is about n times it, so the grid reaches from hardly
    any penalty to one that rules a hundred thousand rows, or fewer rows of larger features.
    """
    scale = 1.0
    if X.is_floating_point():
        generator = torch.Generator().manual_seed(seed)
        probes = torch.randn(PROBES, *X.shape[1:], dtype=torch.float64, generator=generator)
        scale = float(tangent.gram(tangent.features(probes)).diagonal().mean()) or 1.0
    return scale * torch.logspace(*GRID_DECADES, GRID_POINTS, dtype=torch.float64)
