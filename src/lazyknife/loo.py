"""All leave-one-out ridge models at once, from one kernel matrix.

Notation: K the kernel of the n training rows, r = Y − f(X; θ0) the targets, G = K + λI,
A = G⁻¹, c = A r, d = diag A. With an unpenalised intercept A is replaced by
A' = A − (A1)(A1)ᵀ/t, t = 1ᵀA1, and every formula keeps its shape.

Leave j out: the dual coefficients are column j of C = c·1ᵀ − A·diag(c/d), whose j-th entry is 0;
the residual at the left-out point is c_j/d_j; the intercept is β − v_j c_j/d_j, v = A1/t.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

# Rounding errors grow like this machine epsilon times ‖K‖/λ (float64).
EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class RidgeModels:
    """Column j < n: the model without row j; column n: the model of all rows.

    Attributes
    ----------
    coefficients
        Dual coefficients, shape (n, n + 1).
    intercepts
        Shape (n + 1,).
    ridges
        λ of each model, shape (n + 1,).
    residuals
        r_j minus its leave-one-out prediction, shape (n,).

    """

    coefficients: Tensor
    intercepts: Tensor
    ridges: Tensor
    residuals: Tensor


@dataclass(frozen=True)
class _Solution:
    """The full-data ridge at one λ, and what every leave-out formula needs."""

    inverse: Tensor  # A', (n, n)
    dual: Tensor  # c, (n,)
    diagonal: Tensor  # d, (n,)
    intercept: Tensor  # β, ()
    share: Tensor  # v, (n,); zeros without an intercept

    @property
    def residuals(self) -> Tensor:
        return self.dual / self.diagonal

    def leave_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (n, b) and intercepts (b,) of the models without each of these rows."""
        step = self.residuals[rows]
        coefficients = self.dual[:, None] - self.inverse[:, rows] * step
        coefficients[rows, torch.arange(len(rows))] = 0.0  # exactly, not to rounding
        return coefficients, self.intercept - self.share[rows] * step


def leave_one_out(kernel: Tensor, targets: Tensor, ridge: float, intercept: bool) -> RidgeModels:
    """All n leave-one-out ridge models, and the full one, at a given λ.

    Parameters
    ----------
    kernel
        K, shape (n, n), float64.
    targets
        r, shape (n,).
    ridge
        λ > 0.
    intercept
        Whether to fit an unpenalised intercept.

    """
    solution = _solve(kernel, targets, ridge, intercept)
    coefficients, intercepts = solution.leave_out(torch.arange(len(targets)))
    _warn_if_unsafe(kernel, ridge)
    return RidgeModels(
        torch.cat([coefficients, solution.dual[:, None]], dim=1),
        torch.cat([intercepts, solution.intercept[None]]),
        targets.new_full((len(targets) + 1,), ridge),
        solution.residuals,
    )


def leave_one_out_auto(
    kernel: Tensor, targets: Tensor, grid: Tensor, intercept: bool
) -> RidgeModels:
    """All models with λ chosen for each of them on its own rows alone.

    λ_j minimises the sum over i ≠ j of the squared residual at i with both i and j left out,

        (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),

    a function of the rows without j, so jackknife+ and minmax keep their guarantee. The full
    model's λ minimises the plain leave-one-out error. Ties go to the earlier grid point.
    One pass over the grid; only the best columns so far are kept.
    """
    n = len(targets)
    best = targets.new_full((n + 1,), torch.inf)
    coefficients = targets.new_zeros(n, n + 1)
    intercepts, ridges = targets.new_zeros(n + 1), targets.new_zeros(n + 1)
    residuals = targets.new_zeros(n)
    for ridge in grid.tolist():
        solution = _solve(kernel, targets, ridge, intercept)
        errors = torch.cat(
            [_leave_two_out_errors(solution), solution.residuals.square().sum()[None]]
        )
        better = errors < best
        best[better], ridges[better] = errors[better], ridge
        rows = better[:n].nonzero().squeeze(1)
        coefficients[:, rows], intercepts[rows] = solution.leave_out(rows)
        residuals[rows] = solution.residuals[rows]
        if better[n]:
            coefficients[:, n], intercepts[n] = solution.dual, solution.intercept
    _warn_if_unsafe(kernel, float(ridges.min()))
    return RidgeModels(coefficients, intercepts, ridges, residuals)


def _leave_two_out_errors(solution: _Solution) -> Tensor:
    """Σ_{i≠j} of the squared residuals at i with i and j left out, for every j: shape (n,)."""
    c, d, inverse = solution.dual, solution.diagonal, solution.inverse
    numerator = d * c[:, None] - inverse * c  # rows i, columns j
    denominator = d[:, None] * d - inverse.square()
    denominator.fill_diagonal_(torch.inf)
    return (numerator / denominator).square().sum(dim=0)


def _solve(kernel: Tensor, targets: Tensor, ridge: float, intercept: bool) -> _Solution:
    """Factor K + λI once; the solutions come from triangular solves, not from the inverse."""
    # The intercept takes up any constant; taking the mean out first keeps the digits of the rest.
    mean = targets.mean() if intercept else targets.new_zeros(())
    wanted = torch.stack([targets - mean, torch.ones_like(targets)], dim=1)
    inverse, (dual, row_sums) = _factor(kernel, ridge, wanted)
    share = torch.zeros_like(targets)
    if intercept:
        share = row_sums / row_sums.sum()
        inverse.sub_(torch.outer(row_sums, share))
        slope = dual.sum() / row_sums.sum()
        dual, mean = dual - slope * row_sums, mean + slope
    return _Solution(inverse, dual, inverse.diagonal(), mean, share)


def _factor(kernel: Tensor, ridge: float, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(K + λI)⁻¹, and the rows of (K + λI)⁻¹·wanted.

    By Cholesky; by eigenvalues clipped at 0 where rounding made K indefinite.
    """
    regularised = kernel.clone()
    regularised.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(regularised)
    if not failed:
        return torch.cholesky_inverse(factor), torch.cholesky_solve(wanted, factor).T
    values, vectors = torch.linalg.eigh(kernel)
    inverse = (vectors / (values.clamp(min=0.0) + ridge)) @ vectors.T
    return inverse, (inverse @ wanted).T


def _warn_if_unsafe(kernel: Tensor, ridge: float) -> None:
    """Warn when rounding may show in the sixth digit."""
    size = float(torch.linalg.matrix_norm(kernel, ord=torch.inf))
    if EPSILON * size / ridge > 1e-6:
        warnings.warn(
            f"ridge {ridge:.3g} is tiny against the kernel (norm about {size:.3g}): rounding "
            "errors may pass 1e-6. Scale the features (transform='symlog', or 'standardize' with "
            "X_pool), or use a larger ridge",
            stacklevel=3,
        )
