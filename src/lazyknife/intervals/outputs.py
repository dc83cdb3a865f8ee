"""Boxes for several outputs, from leave-one-out models that share a score.

With f_k and σ_k of output k by model j, and τ_k the typical size of its errors on the model's rows,

    s(x, y) = max over k of |y_k − f_k(x)|/(τ_k σ_k(x)),    R_j = s_{−j}(X_j, Y_j),

{y: s_{−j}(x, y) ≤ R_j} is a box. Ends are order statistics for each output, of f_k ∓ R_j τ_k σ_k: a
y outside of them in any output wins at least n + 1 − κ games of the tournament in docs/theory.md,
section 5, so all outputs together have the bound that one alone would have. Minmax likewise, with
the κ-th largest R_j in place of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..records import Ends, Predictions, Side
from .constructions import SUMS, find_construction
from .streamed import StreamedModels, scaled_together

ARRAYS = 4  # of rows × models × targets at a time


def rows_at_once(columns: Sequence[Any]) -> int:
    """Rows whose predictions by all models of all targets fit."""
    first, count = columns[0], len(columns)
    streamed = isinstance(first, StreamedModels)
    machine = first.passes.machine if streamed else first.full.basis.tangent.machine
    numbers = ARRAYS * count * len(first.residuals)
    fits: int = min(first.rows_at_once, machine.block // (machine.item * numbers))
    return max(1, fits)


def predictions_of(columns: Sequence[Any], X: Tensor) -> list[Predictions]:
    """What each target's models give for new rows."""
    if isinstance(columns[0], StreamedModels):
        return scaled_together(columns, X)
    rows = columns[0].rows_at(X)
    return [each.scaled(X, rows) for each in columns]


@dataclass(frozen=True)
class SharedScores:
    """The models of one output, with widths τσ(x) and the scores of all outputs."""

    found: Predictions
    units: Tensor  # τ of each model, shape (n,)
    scores: Tensor
    side: Side = "both"

    def scaled(self, X: Tensor) -> Predictions:
        return self.found._replace(scales=self.found.scales * self.units)


@dataclass(frozen=True)
class OutputModels:
    """The models of all outputs."""

    columns: tuple[Any, ...]  # for each output its models
    units: Tensor  # τ of each model, shape (n, outputs)
    unit_error: Tensor  # bounds on its relative error by rounding, shape (n,)

    @property
    def residuals(self) -> Tensor:
        """The largest left-out residual of each row in units of the outputs' τ, shape (n,)."""
        each = torch.stack([column.residuals for column in self.columns], dim=1)
        return (each.abs() / self.units.to(each)).amax(dim=1)

    training_residuals = residuals

    @property
    def rows_at_once(self) -> int:
        return rows_at_once(self.columns)

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.scores).sum())

    def typical_error(self) -> tuple[float, float]:
        """In the units of ``residuals``."""
        slacks, widths = zip(*(each.typical_error() for each in self.columns), strict=True)
        units = self.units.median(dim=0).values.tolist()
        return max(s / unit for s, unit in zip(slacks, units, strict=True)), max(widths)

    @property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,)."""
        each = torch.stack([column.scores for column in self.columns], dim=1)
        errors = self.unit_error.to(each) + SUMS
        return (each / self.units.to(each)).amax(dim=1) * (1 + errors)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model, shape (m, outputs)."""
        return torch.stack([each.point(X) for each in self.columns], dim=1)

    def boxes(self, X: Tensor, rank: int, construction: str) -> Ends:
        """Point predictions, and both ends of each output, (m, outputs)."""
        kind, scores = find_construction(construction), self.scores
        units = (self.units * (1 + self.unit_error[:, None] + SUMS)).T.to(scores)
        parts = zip(predictions_of(self.columns, X), units, strict=True)
        ends = [kind.ends(SharedScores(*part, scores), X, [rank]) for part in parts]
        points, lowers, uppers = zip(*ends, strict=True)
        return torch.stack(points, dim=1), torch.cat(lowers, dim=1), torch.cat(uppers, dim=1)
