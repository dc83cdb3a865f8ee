"""The lazy step: from a linearised network and its rows to all leave-one-out models."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .loo import RidgeModels, leave_one_out, leave_one_out_auto
from .machine import Machine, blocks
from .primal import leave_one_out_primal, leave_one_out_primal_auto
from .readout import Readout, TangentReadout, read_out
from .records import LeaveOneOut
from .tangent import Basis, Dual, Primal, Sketch, Tangent, choose_basis

GRID_POINTS = 20
GRID_DECADES = (-4, 6)
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
    sketch
        A random projection of the tangent features; None takes them as they are.
    seed
        Of the sketch, and of the synthetic rows that scale the grid of λ.
    progress
        Whether to show progress bars.

    """

    ridge: float | str
    intercept: bool = True
    readout: str = "tangent"
    sketch: Sketch | None = None
    seed: int = 0
    progress: bool = False

    def check_fits(self, n: int, size: int, machine: Machine) -> None:
        """Refuse, before anything is computed, rows and parameters that do not fit in memory."""
        auto = self.ridge == "auto"
        dimension = size if self.sketch is None else self.sketch.dimension
        copies = 1 + auto + (machine.predicting is not None)
        if self.sketch is None and n <= size:
            needed, what = copies * n * n, f"the kernel of {n:,} rows"
            remedy = "use features=Sketch(4096), parameters='last', precision='float32'"
        else:
            needed = copies * n * (dimension + 1) + 3 * dimension**2
            what = f"{dimension:,} features of {n:,} rows"
            remedy = "use features=Sketch with fewer dimensions, precision='float32'"
        if auto:
            remedy += ", a number for ridge (half as much)"
        machine.check_fits(machine.item * needed, what, remedy + ", or fewer rows")

    def models(self, tangent: Tangent, X: Tensor, y: Tensor) -> LazyModels:
        """Return all leave-one-out models around a linearised network."""
        machine = tangent.machine
        X, y = machine.put(X), machine.put(y)
        with machine.exact.products():  # TF32 is for predictions alone
            basis = choose_basis(tangent, X, self.sketch, self.seed)
            solved = self._solve(basis, X, y)
            loo = read_out(self.readout, basis, X, y, solved)
        if machine.predicting is not None:
            return _with_other_predictions(basis, loo, solved, X, y, machine.predicting)
        error = None
        if machine.dtype != torch.float64:
            error = rounding_error(basis, loo, solved, X, y)
            _warn_of_rounding(error, machine)
        return LazyModels(loo, solved, error)

    def _solve(self, basis: Basis, X: Tensor, y: Tensor) -> RidgeModels:
        machine, ridge = basis.tangent.machine, self._ridge(basis.tangent, X)
        if isinstance(basis, Dual):
            features = basis.features
            matrix, targets = basis.tangent.gram(features), y - features.outputs
            dual = leave_one_out if isinstance(ridge, float) else leave_one_out_auto
            return dual(matrix, targets, ridge, self.intercept, machine, self.progress)
        matrix, outputs = _feature_rows(basis, X, self.intercept)
        primal = leave_one_out_primal if isinstance(ridge, float) else leave_one_out_primal_auto
        return primal(matrix, y - outputs, ridge, self.intercept, machine, self.progress)

    def _ridge(self, tangent: Tangent, X: Tensor) -> Any:
        """λ, or the grid to choose it from."""
        if self.ridge != "auto":
            return float(self.ridge)
        if len(X) < 3:
            raise ValueError(
                f"ridge='auto' needs at least 3 rows after the base has taken its part, not "
                f"{len(X)}: give more rows or a number for ridge"
            )
        return ridge_grid(tangent, X, self.seed)


@dataclass(frozen=True)
class LazyModels:
    """Leave-one-out models behind a readout, the ridge models themselves, and their rounding.

    Attributes
    ----------
    rounding
        The error of ``rounding_error``; None in float64.

    """

    loo: LeaveOneOut
    solved: RidgeModels
    rounding: float | None


def _with_other_predictions(
    basis: Basis, loo: Readout, solved: RidgeModels, X: Tensor, y: Tensor, dtype: torch.dtype
) -> LazyModels:
    """Return the models predicting in another type, or as they are where that is too coarse."""
    other = loo.of_type(dtype)
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


def rounding_error(
    basis: Basis, loo: LeaveOneOut, solved: RidgeModels, X: Tensor, y: Tensor
) -> float:
    """Largest error of the left-out residuals of a few rows, in units of the typical residual.

    Model j is evaluated at row j in float64 and compared with the residual in closed form and,
    through the tangent, with the prediction that users get.
    """
    sample = torch.linspace(0, len(X) - 1, min(len(X), CHECKED_ROWS), device=X.device).long()
    exact, rows = basis.of_type(torch.float64), X[sample]
    outputs, coordinates = exact.rows(rows)
    own = (coordinates * solved.columns[:, sample].T).sum(dim=1)
    predicted = outputs + own + solved.intercepts[sample]
    errors = [y[sample] - predicted - solved.residuals[sample]]
    if isinstance(loo, TangentReadout):
        each = loo.predict(rows)[1]
        errors.append(each[torch.arange(len(sample)), sample] - predicted)
    typical = solved.residuals.double().square().mean().sqrt()
    return float(torch.stack(errors).abs().max() / typical)


def _warn_of_rounding(error: float, machine: Machine) -> None:
    if not error <= CHECKED_ERROR:
        warnings.warn(
            f"precision={machine.precision!r} is too coarse for these rows: on a sample, left-out "
            f"residuals are off by up to {error:.2g} of their typical size. Use "
            "precision='float64' or a larger ridge, or scale the features (transform='symlog')",
            stacklevel=6,
        )
