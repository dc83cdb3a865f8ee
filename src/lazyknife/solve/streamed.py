"""The ridge from feature rows in two passes over blocks of rows, which are never all in memory.

With the symbols of primal.py: a first pass sums G = Σφφᵀ and Φᵀr, a second one gives the leverage
h_j = ‖L⁻¹φ_j‖² and the left-out residual e_j = (r_j − φ_jᵀw)/(1 − h_j) of every row. Without row j
the prediction at x is f(x) − g_j(x)e_j, g_j(x) = (L⁻¹φ(x))ᵀ(L⁻¹φ_j), and |g_j(x)| ≤ √(h(x)h_j).

Rows may be part of all sums and yet never be left out: the second pass leaves out only some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .ridge import Indefinite
from .rounding import Sensitivity


@dataclass(frozen=True)
class Sums:
    """Sums over rows, which add up over blocks and machines."""

    gram: Tensor  # ΦᵀΦ, shape (q, q)
    moments: Tensor  # Φᵀr, shape (q,)
    square: Tensor  # Σr²
    count: int

    def __add__(self, other: Sums) -> Sums:
        mine, yours = vars(self).values(), vars(other).values()
        return Sums(*(one + more for one, more in zip(mine, yours, strict=True)))

    @classmethod
    def of(cls, rows: Tensor, targets: Tensor) -> Sums:
        """Sums of one block."""
        return cls(rows.T @ rows, targets @ rows, targets @ targets, len(rows))


class Left(NamedTuple):
    """What leaving each of some rows out gives; every field has shape (rows,) or a row for each."""

    residuals: Tensor  # e
    training_residuals: Tensor  # r − φᵀw
    leverages: Tensor  # h
    sensitivity: Sensitivity

    @classmethod
    def joined(cls, parts: Sequence[Left]) -> Left:
        """All rows."""
        return cls(
            torch.cat([part.residuals for part in parts]),
            torch.cat([part.training_residuals for part in parts]),
            torch.cat([part.leverages for part in parts]),
            Sensitivity.joined([part.sensitivity for part in parts]),
        )


@dataclass(frozen=True)
class StreamedRidge:
    """The ridge at one λ.

    Attributes
    ----------
    lower, weights
        L, shape (q, q), and w, shape (q,).
    roots, reaches
        √diag G and |G⁻¹|√diag G, each (q,).
    spread
        (Σ_a √(G_aa (G⁻¹)_aa))²: |G⁻¹φ|ᵀ√diag G is at most the root of it times h.
    size
        ‖r‖.

    """

    ridge: float
    lower: Tensor
    weights: Tensor
    roots: Tensor
    reaches: Tensor
    spread: float
    size: float
    count: int

    @classmethod
    def of(cls, sums: Sums, ridge: float, intercept: bool) -> StreamedRidge:
        """Solve; the last feature is not penalised if there is an intercept."""
        G = sums.gram.clone()
        G.diagonal()[: len(G) - intercept].add_(ridge)
        lower, failed = torch.linalg.cholesky_ex(G)
        if failed:
            raise Indefinite(ridge, str(G.dtype).removeprefix("torch."))
        weights = torch.cholesky_solve(sums.moments[:, None], lower)[:, 0]
        inverse, roots = torch.cholesky_inverse(lower), G.diagonal().sqrt()
        spread = float((inverse.diagonal().sqrt() @ roots).square())
        size = math.sqrt(float(sums.square))
        return cls(ridge, lower, weights, roots, inverse.abs_() @ roots, spread, size, sums.count)

    def half(self, rows: Tensor) -> Tensor:
        """L⁻¹φ of each row, shape (q, rows)."""
        half: Tensor = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        return half

    def leave_out(self, rows: Tensor, targets: Tensor) -> Left:
        """Leave each of these rows out, which are part of the sums."""
        leverages = self.half(rows).square().sum(dim=0)
        errors = targets - rows @ self.weights
        left = 1 - leverages
        sensitivity = self._sensitivity(rows, targets, leverages, errors / left)
        return Left(errors / left, errors, leverages, sensitivity)

    def _sensitivity(
        self, rows: Tensor, targets: Tensor, leverages: Tensor, errors: Tensor
    ) -> Sensitivity:
        """As in primal.py, with u bounded by the root of spread·h."""
        spans, left = (self.spread * leverages).sqrt(), 1 - leverages
        lengths = (rows.square().sum(dim=1) + self.ridge).sqrt()
        total = self.weights.abs() @ self.roots + self.size
        found = Sensitivity.of(spans, total, errors, left, lengths, self.ridge)
        far = rows.abs() @ torch.stack([self.reaches, self.weights.abs()], dim=1)
        wide, terms = far[:, 0], far[:, 1] + targets.abs()
        strains = (spans.square() + 2 * spans) / left
        return replace(
            found,
            reach=found.reach * (wide / spans).nan_to_num(1.0).clamp(min=1.0),
            strain=(wide.square() + 2 * wide) / left,
            own=2 * found.own + strains * errors.abs() + terms / left,
        )
