"""All leave-one-out ridge models at once, from one kernel matrix (the dual form).

Notation: K the kernel of the n training rows, r = Y − f(X; θ0) the targets, G = K + λI,
A = G⁻¹, c = A r, d = diag A. With an unpenalised intercept A is replaced by
A' = A − (A1)(A1)ᵀ/t, t = 1ᵀA1, and every formula keeps its shape.

Leave j out: the dual coefficients are column j of C = c·1ᵀ − A·diag(c/d), whose j-th entry is 0;
the residual at the left-out point is c_j/d_j; the intercept is β − v_j c_j/d_j, v = A1/t.

Memory: the kernel's own n×n array, in which the inverse and then C take its place; one more n×n
array where λ is chosen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .machine import PROCESSOR, Machine, blocks
from .progress import track
from .symmetric import (
    diagonal_tiles,
    invert_lower_,
    largest_row_sum,
    lower_rows,
    mirror_lower_,
    restore_lower_,
    tiles,
)

# Rounding errors of this size, relative to the targets, are reported.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-2}


@dataclass(frozen=True)
class RidgeModels:
    """Models f(x; θ0) + z(x)ᵀW_k + β_k; z(x) is a kernel row of x (dual) or a feature row (primal).

    There are M of them: one for each of the n rows, or for each fold.

    Attributes
    ----------
    columns
        W: column k is the model without row or fold k, shape (q, M).
    full
        The model of all rows, shape (q,).
    intercepts
        β of the M models, and last of the full one, shape (M + 1,).
    ridges
        λ of the M models, and last of the full one, shape (M + 1,).
    residuals
        r_j minus its prediction by the model without it, shape (n,).
    training_residuals
        r_i minus the full model's prediction, shape (n,).
    model_of
        For each row the model without it, shape (n,); None where model j is that of row j.

    """

    columns: Tensor
    full: Tensor
    intercepts: Tensor
    ridges: Tensor
    residuals: Tensor
    training_residuals: Tensor
    model_of: Tensor | None = None

    def of_type(self, dtype: torch.dtype) -> RidgeModels:
        """The same models, predicting in another floating type; residuals stay as they are."""
        columns, full, intercepts = (
            part.to(dtype) for part in (self.columns, self.full, self.intercepts)
        )
        return replace(self, columns=columns, full=full, intercepts=intercepts)


@dataclass(frozen=True)
class Solution:
    """The full-data ridge at one λ. A is in the lower tiles of the kernel's array."""

    dual: Tensor  # c, (n,)
    diagonal: Tensor  # d of A', (n,)
    intercept: Tensor  # β, ()
    row_sums: Tensor  # A1, (n,); zeros without an intercept
    share: Tensor  # v, (n,); zeros without an intercept

    @property
    def residuals(self) -> Tensor:
        """Left-out residuals c/d."""
        return self.dual / self.diagonal

    @property
    def intercepts(self) -> Tensor:
        """Of the n models and, last, of the full one."""
        each = self.intercept - self.share * self.residuals
        return torch.cat([each, self.intercept[None]])


def leave_one_out(
    kernel: Tensor,
    targets: Tensor,
    ridge: float,
    intercept: bool,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All n leave-one-out ridge models, and the full one, at a given λ.

    Parameters
    ----------
    kernel
        K, shape (n, n). Its memory is used for the result.
    targets
        r, shape (n,).
    ridge
        λ > 0.
    intercept
        Whether to fit an unpenalised intercept.
    machine
        Where the kernel lives.
    progress
        Whether to show progress bars.

    """
    warn_if_unsafe(check_size(kernel, machine), ridge, machine)
    solution = solve(kernel, diagonal_tiles(kernel), targets, ridge, intercept, machine, progress)
    residuals = solution.residuals
    mirror_lower_(kernel)
    kernel.mul_(-residuals)
    kernel.addmm_(
        torch.stack([solution.dual, solution.row_sums], dim=1),
        torch.stack([torch.ones_like(residuals), solution.share * residuals]),
    )
    kernel.fill_diagonal_(0.0)  # exactly, not to rounding
    return RidgeModels(
        columns=kernel,
        full=solution.dual,
        intercepts=solution.intercepts,
        ridges=targets.new_full((len(targets) + 1,), ridge, dtype=torch.float64),
        residuals=residuals,
        training_residuals=ridge * solution.dual,  # (K + λI)c + β = r
    )


def leave_one_out_auto(
    kernel: Tensor,
    targets: Tensor,
    grid: Tensor,
    intercept: bool,
    machine: Machine = PROCESSOR,
    progress: bool = False,
) -> RidgeModels:
    """All models with λ chosen for each of them on its own rows alone.

    λ_j minimises the sum over i ≠ j of the squared residual at i with both i and j left out,

        (d_j c_i − A_ij c_j) / (d_i d_j − A_ij²),

    a function of the rows without j, so jackknife+ and minmax keep their guarantee. The full
    model's λ minimises the plain leave-one-out error. Ties go to the earlier grid point.
    One pass over the grid; only the best columns so far are kept.
    """
    n = len(targets)
    diagonal = diagonal_tiles(kernel)
    size = check_size(kernel, machine)
    columns = torch.empty_like(kernel)
    choice = Choice.empty(columns, targets)
    for step, ridge in enumerate(track(grid.tolist(), "choosing ridges", len(grid), progress)):
        if step:
            restore_lower_(kernel, diagonal)
        solution = solve(kernel, diagonal, targets, ridge, intercept, machine)
        dual, residuals = solution.dual, solution.residuals
        errors = torch.zeros_like(targets)
        for rows in strips(n, machine):
            strip = inverse_rows(kernel, solution, rows)
            errors += left_out_errors(strip, rows, dual, solution.diagonal)
        better = choice.improve(ridge, errors, residuals, solution.intercepts, dual, ridge * dual)
        for rows in strips(n, machine) if better.any() else ():
            strip = inverse_rows(kernel, solution, rows).mul_(-residuals).add_(dual[rows, None])
            torch.where(better, strip, columns[rows], out=columns[rows])
    columns.fill_diagonal_(0.0)
    models = choice.models()
    warn_if_unsafe(size, float(models.ridges.min()), machine)
    return models


@dataclass
class Choice:
    """The best models so far, while λ runs through a grid; only the columns are filled outside."""

    best: RidgeModels
    errors: Tensor  # of the n models and, last, of the full one

    @classmethod
    def empty(cls, columns: Tensor, targets: Tensor) -> Choice:
        """Return a choice that any model improves; ``columns`` is memory for the best ones."""
        n = len(targets)
        nothing = RidgeModels(
            columns=columns,
            full=targets.new_zeros(len(columns)),
            intercepts=targets.new_zeros(n + 1),
            ridges=targets.new_zeros(n + 1, dtype=torch.float64),
            residuals=torch.zeros_like(targets),
            training_residuals=torch.zeros_like(targets),
        )
        return cls(nothing, targets.new_full((n + 1,), torch.inf))

    def improve(
        self,
        ridge: float,
        errors: Tensor,
        residuals: Tensor,
        intercepts: Tensor,
        full: Tensor,
        training_residuals: Tensor,
    ) -> Tensor:
        """Take over what is better at this λ; return for which of the n models that is so, (n,)."""
        every = torch.cat([errors, residuals.square().sum()[None]])
        better = every < self.errors
        self.errors[better] = every[better]
        best, left_out, last = self.best, better[:-1], better[-1]
        best.ridges[better] = ridge
        best.intercepts[better] = intercepts[better]
        best.residuals[left_out] = residuals[left_out]
        if last:
            best.full.copy_(full)
            best.training_residuals.copy_(training_residuals)
        return left_out

    def models(self) -> RidgeModels:
        """Return the chosen models."""
        if not torch.isfinite(self.errors).all():
            raise ValueError(
                "no λ of the grid gives finite errors for every left-out row: scale the features "
                "(transform='symlog', or 'standardize' with X_pool), or give a number for ridge"
            )
        return self.best


def left_out_errors(inverse_rows: Tensor, rows: slice, dual: Tensor, diagonal: Tensor) -> Tensor:
    """For every j, the squared residuals at these rows i ≠ j with i and j left out, summed over i.

    ``inverse_rows`` are rows i of A; its memory is used.
    """
    numerator = torch.addcmul(dual[rows, None], inverse_rows, dual / diagonal, value=-1)
    denominator = inverse_rows.square_()
    torch.addcmul(diagonal[rows, None], denominator, 1 / diagonal, value=-1, out=denominator)
    denominator[:, rows].fill_diagonal_(torch.inf)
    return numerator.div_(denominator).square_().sum(dim=0)


def strips(n: int, machine: Machine) -> Iterator[slice]:
    """Strips of rows whose temporaries stay within a tile."""
    return blocks(n, machine.item * n, machine.tile)


def inverse_rows(kernel: Tensor, solution: Solution, rows: slice) -> Tensor:
    """Rows of A'."""
    return lower_rows(kernel, rows).addr_(solution.row_sums[rows], solution.share, alpha=-1)


def solve(
    kernel: Tensor,
    diagonal: list[Tensor],
    targets: Tensor,
    ridge: float,
    intercept: bool,
    machine: Machine,
    progress: bool = False,
) -> Solution:
    """Invert K + λI in the kernel's lower tiles; the upper ones keep K."""
    # The intercept takes up any constant; taking the mean out first keeps the digits of the rest.
    mean = targets.mean() if intercept else targets.new_zeros(())
    wanted = torch.stack([targets - mean, torch.ones_like(targets)])
    dual, row_sums = found = wanted.clone()
    kernel.diagonal().add_(ridge)
    if not invert_lower_(kernel, found, progress):
        dual, row_sums = wanted @ _positive_part_inverse_(kernel, diagonal, ridge, machine)
    share = torch.zeros_like(targets)
    if intercept:
        total = row_sums.sum()
        share, slope = row_sums / total, dual.sum() / total
        dual, mean = dual - slope * row_sums, mean + slope
    else:
        row_sums = share
    return Solution(dual, kernel.diagonal() - row_sums * share, mean, row_sums, share)


def _positive_part_inverse_(
    kernel: Tensor, diagonal: list[Tensor], ridge: float, machine: Machine
) -> Tensor:
    """Where rounding made K + λI indefinite: its inverse with K's negative eigenvalues at 0.

    It is also left in the kernel's lower tiles, as by ``invert_lower_``.
    """
    if 4 * kernel.nbytes > machine.budget:
        raise ValueError(
            f"the kernel plus ridge={ridge:.3g} is not positive definite in {machine.precision}: "
            "rounding outweighs the ridge. Use a larger ridge, precision='float64', or scale the "
            "features (transform='symlog', or 'standardize' with X_pool)"
        )
    restore_lower_(kernel, diagonal)
    values, vectors = torch.linalg.eigh(kernel)
    inverse: Tensor = (vectors / (values.clamp(min=0.0) + ridge)) @ vectors.T
    for rows in tiles(kernel):
        kernel[rows, : rows.stop] = inverse[rows, : rows.stop]
    return inverse


def check_size(matrix: Tensor, machine: Machine) -> float:
    """Return the matrix's norm; refuse one that is not finite."""
    size = largest_row_sum(matrix)
    if not math.isfinite(size):
        raise ValueError(
            f"the network's tangent features are too large for {machine.precision} on these rows: "
            "scale the features (transform='symlog', or 'standardize' with X_pool)"
        )
    return size


def warn_if_unsafe(size: float, ridge: float, machine: Machine) -> None:
    """Warn when rounding, which grows like ε‖K‖/λ, may show."""
    tolerance = TOLERANCES[machine.dtype]
    if torch.finfo(machine.dtype).eps * size / ridge > tolerance:
        remedy = "" if machine.dtype == torch.float64 else ", or precision='float64'"
        warnings.warn(
            f"ridge {ridge:.3g} is tiny against the kernel (norm about {size:.3g}): rounding "
            f"errors may pass {tolerance:g}. Scale the features (transform='symlog', or "
            f"'standardize' with X_pool), or use a larger ridge{remedy}",
            stacklevel=4,
        )
