"""The ridge from feature rows at one λ (the primal form); primal.py has the notation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .normal import solved_rows
from .ridge import Open, left_out
from .rounding import Sensitivity


@dataclass(frozen=True)
class PrimalRidge:
    """The ridge at one λ.

    Attributes
    ----------
    rows, lower
        Φ, shape (n, q), and L, shape (q, q), both with the intercept if there is one.
    weights
        w, shape (q,).
    all_spans
        u of the training rows, |G⁻¹φ|ᵀ√diag G, shape (n,).
    wide
        |φ|ᵀ|G⁻¹|√diag G, shape (n,): what u may be where rounding of G has hidden directions that
        it hardly sees.
    spread
        (Σ_a √(G_aa (G⁻¹)_aa))²: |G⁻¹φ|ᵀ√diag G is at most the root of it times φᵀG⁻¹φ.
    lengths, terms
        √(‖φ‖² + λ), and |φ|ᵀ|w| + |r|, the sizes that r − φᵀw is a sum of, each (n,).

    """

    ridge: float
    rows: Tensor
    lower: Tensor
    weights: Tensor
    mean: Tensor
    dual: Tensor
    diagonal: Tensor
    all_roots: Tensor
    all_spans: Tensor
    wide: Tensor
    lengths: Tensor
    terms: Tensor
    spread: float
    size: float  # ‖r‖
    width: int  # q without the intercept

    @property
    def unit(self) -> float:
        return self.ridge

    @property
    def coefficients(self) -> Tensor:
        return self.weights[: self.width]

    @property
    def intercept(self) -> Tensor:
        return self.mean + self.weights[self.width :].sum()

    @property
    def roots(self) -> Tensor:
        return self.all_roots[: self.width]

    @property
    def ground(self) -> float:
        return self.size + float(self.weights[self.width :].abs() @ self.all_roots[self.width :])

    @property
    def weight(self) -> float:
        """(|w|ᵀ√diag G + ‖r‖)/√λ, an error of λc being one of Φw and r."""
        return (float(self.weights.abs() @ self.all_roots) + self.size) / math.sqrt(self.ridge)

    @property
    def widening(self) -> Tensor:
        """New rows may lie off the span of the training rows, where errors of w are largest."""
        return (self.wide / self.all_spans).nan_to_num(1.0).clamp(min=1.0)

    @property
    def strain(self) -> float:
        leverages = (1 - self.ridge * self.diagonal).clamp(min=0.0)
        return float(self._strains((self.spread * leverages).sqrt()).max())

    @property
    def loose(self) -> float:
        return self.spread

    @cached_property
    def share(self) -> Tensor:
        last = torch.zeros_like(self.lower[:, self.width :])
        last[self.width :] = 1.0
        return (self.rows @ torch.cholesky_solve(last, self.lower)).sum(dim=1)

    def _strains(self, spans: Tensor) -> Tensor:
        """Here d is a difference from 1, and spans are the products' own errors too."""
        return (spans.square() + 2 * spans) / (self.ridge * self.diagonal).abs()

    def inverse_rows(self, rows: slice | Tensor) -> Tensor:
        hat = self._moves(rows).T.mul(-1 / self.ridge) @ self.rows.T
        place = torch.arange(len(self.rows), device=hat.device)[rows]
        hat[torch.arange(len(place), device=hat.device), place] += 1 / self.ridge
        return hat

    def steps(self, rows: slice | Tensor, inverse_rows: Tensor) -> Tensor:
        return self._moves(rows)[: self.width]

    def without(self, rows: slice, inverse_rows: Tensor) -> tuple[Tensor, Tensor]:
        own, moves = left_out(self)[rows], self.steps(rows, inverse_rows)
        return self.coefficients - (moves * own).T, self.intercept - self.share[rows] * own

    def spans(self, rows: slice, inverse_rows: Tensor) -> Tensor:
        return self.all_spans[rows]

    def sensitivity(self, spans: Tensor) -> Sensitivity:
        diagonal, errors = self.ridge * self.diagonal, left_out(self)
        total = self.weights.abs() @ self.all_roots + self.size
        found = Sensitivity.of(spans, total, errors, diagonal, self.lengths, self.ridge)
        # G, unlike a kernel, is a sum over all rows, with errors of its own.
        strain = self._strains(self.wide)
        own = 2 * found.own + self._strains(spans) * errors.abs() + self.terms / diagonal.abs()
        reach = found.reach * self.widening
        return replace(found, reach=reach, strain=strain, own=own)

    def at(self, coordinates: Tensor, norms: Tensor) -> Open:
        if coordinates.shape[1] < len(self.lower):
            coordinates = torch.cat([coordinates, torch.ones_like(coordinates[:, :1])], dim=1)
        leverages, moves = solved_rows(self.lower, coordinates)
        loose = torch.full_like(leverages, self.spread)
        return Open((self.rows @ moves).T, self.ridge * (1 + leverages), loose)

    def _moves(self, rows: slice | Tensor) -> Tensor:
        """G⁻¹φ of these rows, shape (q, rows)."""
        return solved_rows(self.lower, self.rows[rows])[1]
