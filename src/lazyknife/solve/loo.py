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
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, track
from .rounding import Contest, Sensitivity, gamma_of, without_each
from .symmetric import (
    diagonal_tiles,
    invert_lower_,
    largest_row_sum,
    lower_product,
    lower_rows,
    mirror_lower_,
    restore_lower_,
    tiles,
    upper_product,
)


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
    sensitivity
        How rounding may have moved the models without each row.
    unsolved
        What is left of the equations where they are solved by iteration: predictions at x are off
        by at most so many √k(x, x).

    """

    columns: Tensor
    full: Tensor
    intercepts: Tensor
    ridges: Tensor
    residuals: Tensor
    training_residuals: Tensor
    sensitivity: Sensitivity
    model_of: Tensor | None = None
    unsolved: float = 0.0

    def of_type(self, dtype: torch.dtype) -> RidgeModels:
        """The same models with coordinates in another floating type; all else stays as it is."""
        return replace(self, columns=self.columns.to(dtype), full=self.full.to(dtype))


@dataclass(frozen=True)
class Solution:
    """The full-data ridge at one λ. A is in the lower tiles of the kernel's array."""

    dual: Tensor  # c, (n,)
    diagonal: Tensor  # d of A', (n,)
    intercept: Tensor  # β, ()
    row_sums: Tensor  # A1, (n,); zeros without an intercept
    share: Tensor  # v, (n,); zeros without an intercept
    ridge: float
    roots: Tensor  # √(K_ii + λ), (n,)

    def sensitivity(self, spans: Tensor) -> Sensitivity:
        """Return what rounding is multiplied with, from u = |A|√g, shape (n,)."""
        total = self.dual.abs() @ self.roots
        residuals, diagonal = self.residuals, self.diagonal
        found = Sensitivity.of(spans, total, residuals, diagonal, self.roots, self.ridge)
        sums, shares = self.row_sums.abs(), self.share.abs()
        return found.with_differences(
            diagonal,
            residuals,
            inverse=diagonal + 2 * sums * shares,
            spans=spans + 2 * shares * (sums @ self.roots),
        )

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
    check_size(kernel, machine)
    solution = solve(kernel, diagonal_tiles(kernel), targets, ridge, intercept, machine, progress)
    residuals = solution.residuals
    spans = [
        inverse_rows(kernel, solution, rows).abs_() @ solution.roots
        for rows in strips(len(targets), machine)
    ]
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
        sensitivity=solution.sensitivity(torch.cat(spans)),
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
    check_size(kernel, machine)
    choice = Choice(torch.empty_like(kernel), targets, kernel.diagonal(), float(grid.max()))
    columns = choice.best.columns
    used = False
    for ridge in track(grid.tolist(), "choosing ridges", len(grid), progress):
        admitted = choice.contest.admits(ridge)
        if not admitted.any():
            continue
        if used:
            restore_lower_(kernel, diagonal)
        used = True
        solution = solve(kernel, diagonal, targets, ridge, intercept, machine)
        dual, residuals = solution.dual, solution.residuals
        errors, spans = torch.zeros_like(targets), torch.empty_like(targets)
        for rows in strips(n, machine):
            strip = inverse_rows(kernel, solution, rows)
            spans[rows] = strip.abs() @ solution.roots
            errors += left_out_errors(strip, rows, dual, solution.diagonal)
        better = choice.improve(
            Candidate(
                ridge,
                errors,
                residuals,
                solution.intercepts,
                dual,
                ridge * dual,
                solution.sensitivity(spans),
            ),
            admitted,
        )
        for rows in strips(n, machine) if better.any() else ():
            strip = inverse_rows(kernel, solution, rows).mul_(-residuals).add_(dual[rows, None])
            torch.where(better, strip, columns[rows], out=columns[rows])
    columns.fill_diagonal_(0.0)
    return choice.models()


@dataclass(frozen=True)
class Candidate:
    """All models at one λ but for their columns.

    Attributes
    ----------
    ridge
        λ.
    errors
        For each of the n models its squared errors on its own rows, left out in turn, summed.
    residuals, intercepts, full, training_residuals, sensitivity
        As in ``RidgeModels``.

    """

    ridge: float
    errors: Tensor
    residuals: Tensor
    intercepts: Tensor
    full: Tensor
    training_residuals: Tensor
    sensitivity: Sensitivity


class Choice:
    """The best models so far, while λ runs through a grid; only the columns are filled outside.

    Parameters
    ----------
    columns
        Memory for the best ones.
    targets
        r, shape (n,).
    norms
        k(x, x) of the rows, shape (n,).
    largest
        The largest λ of the grid.

    """

    def __init__(self, columns: Tensor, targets: Tensor, norms: Tensor, largest: float) -> None:
        n = len(targets)
        # Of the n models and, last, of the full one.
        self.contest = Contest(without_each(norms), largest)
        self.best = RidgeModels(
            columns=columns,
            full=targets.new_zeros(len(columns)),
            intercepts=targets.new_zeros(n + 1),
            ridges=targets.new_zeros(n + 1, dtype=torch.float64),
            residuals=torch.zeros_like(targets),
            training_residuals=torch.zeros_like(targets),
            sensitivity=Sensitivity.unknown(n, targets),
        )

    def improve(self, new: Candidate, admitted: Tensor) -> Tensor:
        """Take over what is better at this λ; return for which of the n models that is so, (n,)."""
        every = torch.cat([new.errors, new.residuals.square().sum()[None]])
        change = new.sensitivity.noise(gamma_of(every.dtype))
        better = self.contest.enter(every, change, admitted)
        best, left_out, last = self.best, better[:-1], better[-1]
        best.ridges[better] = new.ridge
        best.intercepts[better] = new.intercepts[better]
        best.residuals[left_out] = new.residuals[left_out]
        best.sensitivity.take_(left_out, new.sensitivity)
        if last:
            best.full.copy_(new.full)
            best.training_residuals.copy_(new.training_residuals)
        return left_out

    def models(self) -> RidgeModels:
        """Return the chosen models."""
        if not torch.isfinite(self.contest.errors).all():
            raise ValueError(
                "no λ of the grid gives finite errors for every left-out row: scale the features "
                "(scaling='symlog', or 'standardize' with X_pool), or give a number for ridge"
            )
        self.best.sensitivity.doubtful.copy_(self.contest.doubtful[:-1])
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
    definite = invert_lower_(kernel, found, progress)
    if not definite:
        dual, row_sums = wanted @ _positive_part_inverse_(kernel, diagonal, ridge, machine)
    share = torch.zeros_like(targets)
    if intercept:
        total = row_sums.sum()
        share, slope = row_sums / total, dual.sum() / total
        dual, mean = dual - slope * row_sums, mean + slope
    else:
        row_sums = share
    if definite:  # once more with what is left of the equations: a difference may have cost digits
        left = targets - mean - upper_product(kernel, diagonal, dual) - ridge * dual
        dual = dual + lower_product(kernel, left) - row_sums * (share @ left)
        mean = mean + share @ left
    roots = (torch.cat([tile.diagonal() for tile in diagonal]) + ridge).sqrt()
    inverse_diagonal = kernel.diagonal() - row_sums * share
    return Solution(dual, inverse_diagonal, mean, row_sums, share, ridge, roots)


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
            "features (scaling='symlog', or 'standardize' with X_pool)"
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
            "scale the features (scaling='symlog', or 'standardize' with X_pool)"
        )
    return size
