"""The normal equations of feature rows at one λ, of all rows or of all but some.

G = ΦᵀΦ + λI, without λ at the intercept, is factored as LLᵀ; w = G⁻¹Φᵀr. Any row φ, inside or not,
then has a leverage φᵀG⁻¹φ, a move G⁻¹φ of w per unit of its target, and the sums that bounds on
rounding need (rounding.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .ridge import Indefinite


class Passed(NamedTuple):
    """What the equations say of some rows; each has shape (rows,).

    Attributes
    ----------
    errors, leverages
        r − φᵀw and φᵀG⁻¹φ.
    spans, wide
        |G⁻¹φ|ᵀ√diag G and |φ|ᵀ|G⁻¹|√diag G.
    norms, terms
        ‖φ‖², and |φ|ᵀ|w| + |r|.

    """

    errors: Tensor
    leverages: Tensor
    spans: Tensor
    wide: Tensor
    norms: Tensor
    terms: Tensor


class Left(NamedTuple):
    """What is left without some rows: ΦᵀΦ, shape (q, q), and 1 at the others, shape (n,)."""

    gram: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Normal:
    """The equations at one λ, solved.

    Attributes
    ----------
    lower, weights
        L, shape (q, q), and w, shape (q,), both with the intercept if there is one.
    roots
        √diag G; without some rows, of all rows, from which theirs were subtracted.
    sums
        |G⁻¹|√diag G and |w|, shape (q, 2).
    spread
        (Σ_a √(G_aa (G⁻¹)_aa))².
    size
        ‖r‖.

    """

    ridge: float
    lower: Tensor
    weights: Tensor
    roots: Tensor
    sums: Tensor
    spread: float
    size: float

    def over(self, rows: Tensor, targets: Tensor) -> tuple[Passed, Tensor]:
        """Pass over some rows; return their moves G⁻¹φ too, shape (q, rows)."""
        leverages, moves = solved_rows(self.lower, rows)
        wide, terms = (rows.abs() @ self.sums).unbind(1)
        norms, spans = rows.square().sum(dim=1), self.roots @ moves.abs()
        errors = targets - rows @ self.weights
        return Passed(errors, leverages, spans, wide, norms, terms + targets.abs()), moves


def solve_normal(
    rows: Tensor,
    targets: Tensor,
    gram: Tensor,
    penalty: Tensor,
    ridge: float,
    left: Left | None = None,
) -> Normal:
    """Solve at λ.

    Parameters
    ----------
    rows, targets
        Φ, shape (n, q), and r, shape (n,).
    gram, penalty
        ΦᵀΦ, shape (q, q), and what is added to its diagonal, shape (q,).
    ridge
        λ.
    left
        What is left if some rows are left out.

    """
    roots = (gram.diagonal() + penalty).sqrt()
    G, kept = (gram, torch.ones_like(targets)) if left is None else left
    G = G.clone()
    G.diagonal().add_(penalty)
    lower, failed = torch.linalg.cholesky_ex(G)
    if failed:
        raise Indefinite(ridge)
    weights = torch.zeros_like(penalty)
    for _ in range(2):  # the second time refines
        gradient = (kept * (targets - rows @ weights)) @ rows - penalty * weights
        weights += torch.cholesky_solve(gradient[:, None], lower)[:, 0]
    inverse = torch.cholesky_inverse(lower)
    spread = float((inverse.diagonal().sqrt() @ roots).square())
    sums = torch.stack([inverse.abs_() @ roots, weights.abs()], dim=1)
    return Normal(ridge, lower, weights, roots, sums, spread, float((kept * targets).norm()))


def solved_rows(lower: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """φᵀG⁻¹φ, shape (rows,), and G⁻¹φ, shape (q, rows)."""
    half = torch.linalg.solve_triangular(lower, rows.T, upper=False)
    return half.square().sum(dim=0), torch.linalg.solve_triangular(lower.T, half, upper=True)
