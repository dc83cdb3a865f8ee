"""Bounds on what rounding may have changed, so that a guarantee holds in floating point.

A kernel k(x, x') is known only up to γ√(k(x, x) k(x', x')): its evaluation, Cholesky's elimination
and the products of predictions all have errors of this form. Let G = K + λI, A its inverse (of the
bordered system where there is an intercept), c = A r, d = diag A, e = c/d, and with √g = √diag G

    u = |A|√g,   v = |c|ᵀ√g.

A change δG of that form moves d_j by at most γu_j², e_j by at most γ(u_j/d_j)(v + u_j|e_j|), and
the prediction of model j at a new row by at most γ(|b(x)|ᵀ√g + √k(x, x))(v + u_j|e_j|), where
b(x) = A k(x) are the weights of the training rows. For row j, left out, the first of these factors
is u_j/d_j, so reach_j = u_j/(d_j √g_j) measures it for rows like the training rows, and four times
the largest is used for a new row. All of this takes one pass over A.

With an intercept A is a difference, G⁻¹ − (G⁻¹1)(G⁻¹1)ᵀ/t: where it cancels, sums of sizes take its
place in the term u_j|e_j| and beside u_j². c is refined after that, in the equation Σc = 0 too.

In the primal form G⁻¹ = (ΦᵀΦ + λI)⁻¹ and √diag G take the places of A and √g; see primal.py for
the symbols. Left out, row j has the weights G⁻¹φ_j/(1 − h_j), and u_j = |G⁻¹φ_j|ᵀ√diag G. Where
rounding of G has hidden directions that it hardly sees, u may be as large as |φ_j|ᵀ|G⁻¹|√diag G. G,
unlike a kernel, is a sum over all rows, with errors of its own, and 1 − h_j is a difference from 1.

With the rows S of a fold left out, (A_SS)⁻¹A_S· are their weights, which take the place of A/d.

γ is four units of rounding, or an error that is measured at some rows (``SavedRows``) if that is
larger: errors of sums are far smaller than their worst case.
``tests/ridge/test_rounding.py`` compares the bounds with refits in 60 digits.

Those of models of many rows are derived in streamed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..compute import blocks
from ..tangent import Dual, Rows

if TYPE_CHECKING:
    from .problem import Problem
    from .system import RidgeModels

# γ where no larger error was measured.
GAMMA = 4 * torch.finfo(torch.float64).eps
# Factor for new rows, which may reach farther than the training rows.
BEYOND = 4.0
# Relative errors up to which first-order bounds are trusted.
FIRST_ORDER = 0.05
# Rows whose coordinates are computed again, and rows at which the models are checked: so many, or
# one for every 20 coordinates if that is more.
FEW_ROWS, CHECKED_ROWS, CHECKED_SHARE = 16, 64, 20
# Factors for errors that were measured at some rows: of outputs, and of equations.
UNSEEN, MEASURED = 4.0, 2.0
TINY = 1e-300


class RoundingTerms(NamedTuple):
    """Factors of γ in the bounds, for each of the n rows left out; each field has shape (n,)."""

    reach: Tensor  # u_j/(d_j √g_j)
    roots: Tensor  # √g_j
    load: Tensor  # v + u_j|e_j|, of the model without row j
    own: Tensor  # (u_j/d_j)·load_j: γ times it bounds the error of e_j
    strain: Tensor  # u_j²/d_j: γ times it bounds the relative error of d_j

    def some(self, rows: slice | Tensor) -> RoundingTerms:
        return RoundingTerms(*(field[rows] for field in self))


def fold_terms(
    spans: Tensor, farthest: Tensor, roots: Tensor, load: Tensor, share: Tensor
) -> RoundingTerms:
    """From |weights|√g of the rows left out, what it may be at new rows, √g, the load, and d."""
    strain = spans.square() * share + 2 * spans
    return RoundingTerms(farthest / roots, roots, load.expand(len(roots)), spans * load, strain)


def product_errors(spans: Tensor) -> Tensor:
    """Errors of 1 − h: spans are the products' own errors too."""
    return spans.square() + 2 * spans


@dataclass(frozen=True)
class RoundingBounds:
    """Bounds on the effect of rounding, by which intervals are widened.

    Predictions at x are off by at most slope·√k(x, x) + constant.
    """

    slope: float
    constant: float
    own: Tensor  # of errors of left-out residuals, shape (n,); infinite where nothing is known
    epsilon: float  # relative rounding of sums of predictions and residuals

    def slack(self, norms: Tensor, point: Tensor) -> Tensor:
        """Bounds on the errors of predictions at rows with these k(x, x), shape (m,)."""
        return self.slope * norms.sqrt() + (self.constant + self.epsilon * point.abs())

    @property
    def undetermined(self) -> Tensor:
        """Rows of whose models nothing is known, shape (n,)."""
        return torch.isinf(self.own)

    def times(self, factor: float) -> RoundingBounds:
        slope, constant = factor * self.slope, factor * self.constant
        return replace(self, slope=slope, constant=constant, own=factor * self.own)


NOTHING = RoundingBounds(0.0, 0.0, torch.zeros(()), 0.0)


def rounding_of(
    models: RidgeModels, gamma: float, size: float, off: float = 0.0, feature_error: float = 0.0
) -> RoundingBounds:
    """Return bounds on the effect of rounding with this γ on the models.

    ``size`` is the largest number that predictions and residuals are sums of, besides k(x)ᵀC.
    ``off`` is the remaining error of the models' equations, in units of √k(x, x): it adds to
    γ·load. ``feature_error`` bounds the error of the network's own outputs.
    """
    terms, unsolved = models.terms, models.unsolved
    known = (gamma * terms.strain.abs() <= FIRST_ORDER) & (models.doubtful == 0)
    if not known.any():
        nothing = torch.full_like(terms.load, torch.inf)
        return RoundingBounds(torch.inf, torch.inf, nothing, gamma)
    each = BEYOND * terms.reach[known].max() * (gamma * terms.load[known] + off)
    own = gamma * (terms.own + size) + feature_error
    own = own + (off * terms.reach + unsolved) * terms.roots
    constant = float((each * models.row_ridges[known].sqrt()).max())
    return RoundingBounds(
        slope=float(each.max()) + unsolved,
        constant=constant + gamma * size + feature_error,
        own=torch.where(known, own, torch.inf),
        epsilon=gamma,
    )


# What rounding does to solved models, measured at some rows.


@dataclass(frozen=True)
class SavedRows:
    """The rows to check, and the first few of them as they were when the equations were set up."""

    rows: Tensor  # to check
    outputs: Tensor  # f(x; θ0), shape (few,)
    coordinates: Tensor  # shape (few, q)

    @classmethod
    def of(cls, problem: Problem) -> SavedRows:
        """Copy them before the equations are solved in place."""
        count, device = problem.models, problem.X.device
        if not (problem.dual and (problem.own is not None or problem.widths.needs_factors)):
            count = min(count, max(CHECKED_ROWS, problem.basis.size // CHECKED_SHARE))
        # Evenly spread, or all of them.
        places = torch.linspace(0, problem.models - 1, count, device=device, dtype=torch.float64)
        rows = places.long()
        few = rows[:FEW_ROWS]
        return cls(rows, problem.outputs[few], problem.system.coordinates(few))

    def errors(self, problem: Problem) -> tuple[float, float]:
        """Return γ and a bound on errors of outputs, measured by computing the few rows again."""
        few = self.rows[: len(self.outputs)]
        found = [self._errors(problem, *part) for part in _evaluated(problem, few, 0)]
        gammas, errors = zip(*found, strict=True)
        return max(GAMMA, *gammas), UNSEEN * max(errors)

    def bounds(self, problem: Problem, solved: RidgeModels) -> RoundingBounds:
        """Bounds on what rounding may have changed in the models; their epsilon is γ."""
        every = problem.dual and problem.loss.closed_form
        columns = solved.columns.shape[1] if every else len(solved.columns)
        gamma, feature_error, off = GAMMA, 0.0, 0.0
        for part, found in _evaluated(problem, self.rows, 24 * columns):
            if part.start < len(self.outputs):
                more, error = self._errors(problem, part, found)
                gamma, feature_error = max(gamma, more), max(feature_error, UNSEEN * error)
            off = max(off, equation_error(problem, solved, self.rows[part], found))
        size = largest(problem.y, problem.system.targets, solved.intercepts)
        return rounding_of(solved, gamma, size, MEASURED * off, feature_error)

    def _errors(self, problem: Problem, part: slice, found: Rows) -> tuple[float, float]:
        """Relative error of coordinates, and error of outputs, of those rows that were copied."""
        mine = slice(part.start, min(part.stop, len(self.outputs)))
        outputs, coordinates, norms = (field[: mine.stop - mine.start] for field in found)
        sizes, basis = norms.sqrt()[:, None], problem.basis
        if isinstance(basis, Dual):
            sizes = sizes * basis.tangent.norms(basis.features).sqrt()
        errors = (coordinates - self.coordinates[mine]).abs() / sizes.clamp(min=TINY)
        # y less the targets is the outputs but for a rounding of y.
        off = (outputs - self.outputs[mine]).abs() - GAMMA * largest(problem.y)
        return float(errors.nan_to_num(torch.inf).max()), max(0.0, float(off.max()))


def _evaluated(problem: Problem, rows: Tensor, row_bytes: int) -> Iterator[tuple[slice, Rows]]:
    """Evaluate some rows as new rows are, in blocks: the first row alone, and the others together.

    Through rounding, the output for a row may depend on the size of its batch.
    """
    basis = problem.basis
    rest = blocks(len(rows) - 1, basis.row_bytes + row_bytes, problem.machine.block)
    for part in [slice(0, 1), *(slice(some.start + 1, some.stop + 1) for some in rest)]:
        yield part, basis.at(problem.X[rows[part]])


def equation_error(problem: Problem, solved: RidgeModels, rows: Tensor, found: Rows) -> float:
    """Return the largest error of the models' equations at some rows, in units of √k(x, x).

    In the dual form model j is off at row i ≠ j by λ_j C_ij, and at its own row by the residual in
    closed form; in the primal form, and for other losses, only its own row is checked.
    """
    loss, y, (outputs, coordinates, _) = problem.loss, problem.y[rows], found
    roots, residuals = solved.terms.roots[rows], solved.residuals[rows]
    models = rows if solved.model_of is None else solved.model_of[rows]
    if problem.dual and loss.closed_form:
        values = coordinates @ solved.columns
        values += solved.intercepts[:-1] + outputs[:, None]
        off = y[:, None] - values - solved.ridges[:-1] * solved.columns[rows]
        off[torch.arange(len(rows), device=rows.device), models] -= residuals
        roots = roots[:, None]
    else:
        values = (coordinates * solved.columns[:, models].T).sum(dim=1)
        values += solved.intercepts[:-1][models] + outputs
        mean = loss.mean(values)
        off = (y - mean - residuals) / loss.variance(mean)
    # Beyond the errors of numbers of this size.
    errors = (off.abs() - GAMMA * largest(y, values)).clamp(min=0.0) / roots
    return float(errors.nan_to_num(torch.inf).max())


def largest(*numbers: Tensor) -> float:
    """Return the largest absolute value."""
    return max(float(part.abs().max()) for part in numbers)
