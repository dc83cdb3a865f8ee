"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .factors import DualFactor, Factor, PrimalFactor
from .folds import draw_folds, leave_folds_out
from .full import FullModels
from .loo import RidgeModels, check_size, leave_one_out, leave_one_out_auto, warn_if_unsafe
from .losses import SQUARED, Loss
from .machine import Machine, blocks
from .newton import leave_one_out_newton, leave_one_out_newton_auto
from .noise import noise_scales
from .primal import Indefinite, leave_one_out_primal, leave_one_out_primal_auto
from .readout import Readout, TangentReadout, read_out
from .scales import LeverageScales, Scales
from .tangent import Basis, Dual, Primal, Sketch, Tangent, choose_basis

GRID_POINTS = 20
GRID_DECADES = (-4, 6)
# The noise is learnt with every second λ of the grid: it is smooth, and each one costs a product.
NOISE_STEP = 2
PROBES = 64
# Rows on which low precision is checked, and the error, in typical residuals, that is reported.
CHECKED_ROWS = 64
CHECKED_ERROR = 1e-2


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
    score
        ``"absolute"``, ``"leverage"`` or ``"noise"``.
    folds
        Number of folds.
    loss
        What the models minimise.
    sketch
        A random projection of the tangent features; None takes them as they are.
    seed
        Of the sketch, the folds, and the synthetic rows that scale the grid of λ.
    progress
        Whether to show progress bars.

    """

    ridge: float | str
    intercept: bool = True
    readout: str = "tangent"
    construction: str = "plus"
    score: str = "absolute"
    folds: int = 10
    loss: Loss = SQUARED
    sketch: Sketch | None = None
    seed: int = 0
    progress: bool = False

    @property
    def _needs_kernel(self) -> bool:
        """Whether only the dual form has what is asked for."""
        return self.score == "noise" or self.loss != SQUARED

    def check_fits(self, n: int, size: int, machine: Machine) -> None:
        """Refuse, before anything is computed, rows and parameters that do not fit in memory."""
        auto = self.ridge == "auto"
        dimension = size if self.sketch is None else self.sketch.dimension
        matrices = self._matrices(auto) + (machine.predicting is not None)
        if self.sketch is None and (n <= size or self._needs_kernel):
            needed, what = matrices * n * n, f"the kernel of {n:,} rows"
            remedy = "use features=Sketch(4096), parameters='last', precision='float32'"
            if self._needs_kernel:
                remedy = "use score='absolute', the squared loss, precision='float32'"
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
        return {"absolute": 1 + auto, "leverage": 4 + 2 * auto, "noise": 4}[self.score]

    def models(self, tangent: Tangent, X: Tensor, y: Tensor) -> LazyModels:
        """Return all leave-one-out models around a linearised network."""
        machine = tangent.machine
        X, y = machine.put(X), machine.put(y)
        with machine.exact.products():  # TF32 is for predictions alone
            basis = choose_basis(tangent, X, self.sketch, self.seed, kernel=self._needs_kernel)
            if self.construction == "full":
                return self._full_models(_system(basis, X, y, self.intercept))
            solved, scales = self._solve(basis, X, y)
            loo = read_out(self.readout, basis, X, y, solved, scales, self.loss)
        if machine.predicting is not None:
            return _with_other_predictions(basis, loo, solved, X, y, machine.predicting)
        error = None
        if machine.dtype != torch.float64:
            error = rounding_error(basis, loo, solved, X, y)
            _warn_of_rounding(error, machine)
        return LazyModels(loo, solved, error)

    def _full_models(self, system: _System) -> LazyModels:
        """Factor the ridge at every λ, and wait for candidates."""
        machine = system.basis.tangent.machine
        factors = _factors(system, self._ridges(system.basis, system.X))
        loo = FullModels.of(system.basis, system.targets, factors)
        chosen = factors[loo.place]
        warn_if_unsafe(system.size(), chosen.ridge, machine)
        error = None
        if machine.dtype != torch.float64:
            error = float(_scale_error(LeverageScales.of([chosen]), system.basis, system.X))
            _warn_of_rounding(error, machine)
        solved = RidgeModels(
            columns=chosen.coefficients[:, None][:, :0],  # no model but the full one
            full=chosen.coefficients,
            intercepts=chosen.intercept[None],
            ridges=torch.tensor([chosen.ridge], dtype=torch.float64),
            residuals=loo.residuals,
            training_residuals=loo.training_residuals,
        )
        return LazyModels(loo, solved, error)

    def _solve(self, basis: Basis, X: Tensor, y: Tensor) -> tuple[RidgeModels, Scales | None]:
        """Solve all models, and their scales."""
        system = _system(basis, X, y, self.intercept)
        ridges = self._ridges(basis, X)
        if self.construction == "cv+":
            folds = draw_folds(len(y), self.folds, self.seed)
            models = leave_folds_out(system.factor, ridges, folds, self.progress)
            warn_if_unsafe(system.size(), float(models.ridges.min()), basis.tangent.machine)
            return models, None
        if self.score == "absolute":
            return self._leave_one_out(system, ridges), None
        matrix = system.matrix.clone()  # the models take the memory of the first
        solved = self._leave_one_out(system, ridges)
        system = system.with_matrix(matrix)
        each = solved.ridges[:-1]
        if self.score == "leverage":
            factors = [system.factor(ridge) for ridge in each.unique().tolist()]
            return solved, LeverageScales.of(factors, each)
        grid = ridge_grid(basis.tangent, X, self.seed)[::NOISE_STEP]
        machine = basis.tangent.machine
        return solved, noise_scales(
            matrix, system.targets, each, grid, self.intercept, machine, self.progress
        )

    def _leave_one_out(self, system: _System, ridges: list[float]) -> RidgeModels:
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

    def _ridges(self, basis: Basis, X: Tensor) -> list[float]:
        """λ, or the grid to choose it from."""
        if self.ridge != "auto":
            return [float(self.ridge)]
        if len(X) < 3:
            raise ValueError(
                f"ridge='auto' needs at least 3 rows after the base has taken its part, not "
                f"{len(X)}: give more rows or a number for ridge"
            )
        grid: list[float] = ridge_grid(basis.tangent, X, self.seed).tolist()
        return grid


@dataclass(frozen=True)
class LazyModels:
    """Models behind a readout, the ridge models themselves, and their rounding.

    Attributes
    ----------
    loo
        What makes intervals.
    solved
        The models; for full conformal the full one alone.
    rounding
        The error of ``rounding_error``; None in float64.

    """

    loo: Any
    solved: RidgeModels
    rounding: float | None


@dataclass(frozen=True)
class _System:
    """The equations of the lazy step: a kernel (dual) or feature rows (primal), and targets."""

    basis: Basis
    X: Tensor
    y: Tensor
    matrix: Tensor
    targets: Tensor
    intercept: bool

    def factor(self, ridge: float) -> Factor:
        """Factor the ridge at one λ."""
        kind = DualFactor if isinstance(self.basis, Dual) else PrimalFactor
        machine = self.basis.tangent.machine
        return kind.of(self.matrix, self.targets, ridge, self.intercept, machine)

    def size(self) -> float:
        """Norm of the kernel, or of ΦᵀΦ, which is no larger."""
        dual, machine = isinstance(self.basis, Dual), self.basis.tangent.machine
        return check_size(self.matrix if dual else self.matrix.T @ self.matrix, machine)

    def with_matrix(self, matrix: Tensor) -> _System:
        return replace(self, matrix=matrix)


def _factors(system: _System, ridges: list[float]) -> list[Factor]:
    """Factor the ridge at every λ; one that rounding outweighs is passed over."""
    factors: list[Factor] = []
    failure: Indefinite | None = None
    for ridge in ridges:
        try:
            factors.append(system.factor(ridge))
        except Indefinite as error:
            failure = error
    if failure is not None and not factors:
        raise failure
    return factors


def _system(basis: Basis, X: Tensor, y: Tensor, intercept: bool) -> _System:
    if isinstance(basis, Dual):
        features = basis.features
        matrix, outputs = basis.tangent.gram(features), features.outputs
    else:
        matrix, outputs = _feature_rows(basis, X, intercept)
    return _System(basis, X, y, matrix, y - outputs, intercept)


def _with_other_predictions(
    basis: Basis, loo: Readout, solved: RidgeModels, X: Tensor, y: Tensor, dtype: torch.dtype
) -> LazyModels:
    """Return the models predicting in another type, or as they are where that is too coarse."""
    other = loo.of_type(dtype)
    if other is not None:
        error = rounding_error(basis, other, solved, X, y)
        if error <= CHECKED_ERROR:
            return LazyModels(other, solved, error)
    return LazyModels(loo, solved, None)


def _feature_rows(basis: Primal, X: Tensor, intercept: bool) -> tuple[Tensor, Tensor]:
    """Feature rows (n, size), with a last column of 1 for an intercept, and outputs (n,)."""
    machine = basis.tangent.machine
    rows = torch.ones(len(X), basis.size + intercept, dtype=machine.dtype, device=machine.device)
    outputs = rows.new_empty(len(X))
    for part in blocks(len(X), basis.row_bytes, machine.block):
        outputs[part], rows[part, : basis.size] = basis.rows(X[part])
    return rows, outputs


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


def rounding_error(basis: Basis, loo: Readout, solved: RidgeModels, X: Tensor, y: Tensor) -> float:
    """Largest error of the left-out residuals of a few rows, in units of the typical residual.

    Model j is evaluated at row j in float64 and compared with the residual in closed form and,
    through the tangent, with the prediction that users get.
    """
    sample = _sample(X)
    exact, rows = basis.of_type(torch.float64), X[sample]
    outputs, coordinates = exact.rows(rows)
    models = sample if solved.model_of is None else solved.model_of[sample]
    own = (coordinates * solved.columns[:, models].T).sum(dim=1)
    predicted = loo.loss.mean(outputs + own + solved.intercepts[models])
    errors = [y[sample] - predicted - solved.residuals[sample]]
    if isinstance(loo, TangentReadout):
        each = loo.predict(rows)[1]
        errors.append(each[torch.arange(len(sample)), sample] - predicted)
    typical = solved.residuals.double().square().mean().sqrt()
    worst = torch.stack(errors).abs().max() / typical
    if loo.scales is not None:
        worst = torch.maximum(worst, _scale_error(loo.scales, loo.basis, X))
    return float(worst)


def _scale_error(scales: Scales, basis: Basis, X: Tensor) -> Tensor:
    """Largest relative error of σ_{−j}(X_j) of a few rows against their closed form."""
    sample = _sample(X)
    _, rows, norms = basis.rows_and_norms(X[sample])
    own = scales.at(rows, norms)[torch.arange(len(sample)), sample]
    return (own / scales.own[sample] - 1).abs().max()


def _sample(X: Tensor) -> Tensor:
    """A few rows, spread evenly."""
    return torch.linspace(0, len(X) - 1, min(len(X), CHECKED_ROWS), device=X.device).long()


def _warn_of_rounding(error: float, machine: Machine) -> None:
    if not error <= CHECKED_ERROR:
        warnings.warn(
            f"precision={machine.precision!r} is too coarse for these rows: on a sample, left-out "
            f"residuals are off by up to {error:.2g} of their typical size. Use "
            "precision='float64' or a larger ridge, or scale the features (transform='symlog')",
            stacklevel=6,
        )
