"""Residuals and leverages of feature rows at all λ of a grid, from one eigendecomposition.

With an unpenalised intercept features and targets are centred. With ΦᵀΦ = V diag(s) Vᵀ and ψ = Vᵀφ
everything is diagonal: w = V(s + λ)⁻¹VᵀΦᵀr, and φ'ᵀG⁻¹φ = ψ'ᵀ(s + λ)⁻¹ψ (+ 1/n with an intercept),
so a pass over the rows costs one rotation and, for each λ, a few products with vectors.

An eigendecomposition is accurate relative to ‖ΦᵀΦ‖ only, and not to each feature's own scale: these
numbers only tell which λ can be the best (screen.py); models are solved by Cholesky.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

# Backward error of sums over rows, of the rotation and of the eigendecomposition, in units of
# rounding of the trace of ΦᵀΦ.
UNITS = 16.0


class Seen(NamedTuple):
    """Some rows at all λ.

    Attributes
    ----------
    rotated
        ψ and, last, the root of the intercept's share of leverages, shape (rows, q + 1).
    errors, leverages, lengths
        r − φᵀw, φᵀG⁻¹φ with the intercept's share, and ‖G⁻¹φ‖² without it, shape (rows, L) each.

    """

    rotated: Tensor
    errors: Tensor
    leverages: Tensor
    lengths: Tensor

    def only(self, k: int, rows: Tensor | None = None) -> Seen:
        """The same at one λ of the grid, of all or some of the rows."""
        some = slice(None) if rows is None else rows
        rotated, errors, leverages, lengths = (part[some] for part in self)
        return Seen(rotated, *(part[:, k : k + 1] for part in (errors, leverages, lengths)))


@dataclass(frozen=True)
class Spectrum:
    """ΦᵀΦ of some rows, diagonalised.

    Attributes
    ----------
    ridges
        λ, shape (L,).
    centre, vectors, inverse
        Means of the features, shape (q,); V, shape (q, q); 1/(s + λ) and 1, shape (q + 1, L).
    weights
        Vᵀw, shape (q, L).
    mean, share
        Mean of the targets, and 1/n; both 0 without an intercept.
    size
        ‖r‖ after centring.
    trace
        That of ΦᵀΦ, before centring.

    """

    ridges: Tensor
    centre: Tensor
    vectors: Tensor
    inverse: Tensor
    weights: Tensor
    mean: Tensor
    share: float
    size: Tensor
    trace: Tensor

    @classmethod
    def of(
        cls, gram: Tensor, moments: Tensor, square: Tensor, ridges: Tensor, intercept: bool
    ) -> Self:
        """From ΦᵀΦ, shape (q, q), Φᵀr, shape (q,), and ‖r‖², with a last column 1 of Φ."""
        q = len(gram) - intercept
        trace = gram.diagonal()[:q].sum()
        centre, mean, share = gram.new_zeros(q), gram.new_zeros(()), 0.0
        products, moments, means = gram[:q, :q], moments[:q], moments[q:]
        if intercept:
            share = 1 / float(gram[q, q])
            centre, mean = share * gram[q, :q], share * means[0]
            products = products - torch.outer(centre, gram[q, :q])
            moments, square = moments - means * centre, square - mean * means[0]
        values, vectors = torch.linalg.eigh(products)
        inverse = 1 / (values.clamp(min=0.0)[:, None] + ridges)
        weights = inverse * (vectors.T @ moments)[:, None]
        inverse = torch.cat([inverse, torch.ones_like(inverse[:1])])
        size = square.clamp(min=0.0).sqrt()
        return cls(ridges, centre, vectors, inverse, weights, mean, share, size, trace)

    def only(self, k: int) -> Self:
        """The same at one λ of the grid."""
        one = slice(k, k + 1)
        ridges, inverse = self.ridges[one], self.inverse[:, one]
        return replace(self, ridges=ridges, inverse=inverse, weights=self.weights[:, one])

    @property
    def unit(self) -> float:
        """Backward error of everything here, relative to the trace."""
        return UNITS * torch.finfo(self.vectors.dtype).eps

    @property
    def load(self) -> Tensor:
        """√trace·‖w‖ + ‖r‖: errors of r − φᵀw are of this size, shape (L,)."""
        lengths: Tensor = torch.linalg.vector_norm(self.weights, dim=0)
        return self.trace.sqrt() * lengths + self.size

    def at(self, rows: Tensor, targets: Tensor) -> Seen:
        """See some rows, shape (rows, q or q + 1), with their targets."""
        shape, features = (len(rows), len(self.inverse)), rows[:, : len(self.centre)]
        rotated = self.inverse.new_full(shape, math.sqrt(self.share))
        torch.mm(features - self.centre, self.vectors, out=rotated[:, :-1])
        errors = (targets - self.mean)[:, None] - rotated[:, :-1] @ self.weights
        squares = rotated.square()
        lengths = squares[:, :-1] @ self.inverse[:-1].square()
        return Seen(rotated, errors, squares @ self.inverse, lengths)
