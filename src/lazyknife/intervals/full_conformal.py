"""Exact full conformal prediction of the linearised network.

A candidate y = f(x; θ0) + u + t, u = bᵀr, added to the n rows as (x, y), changes the dual
coefficients to c_i − b_i w and w, w = t/s, and the inverse's diagonal to d_i + b_i²/s and 1/s: a
refit in closed form, linear in w. (u is computed as the full model's prediction, more accurate than
bᵀr.) Scores are studentised, |dual coefficient|/√diagonal. Row i accepts y, its score being at
least the new row's, between the roots c_i/(b_i ± E_i) of w, where E_i = √(s d_i + b_i²) > |b_i|:
always a bounded interval around 0. The set where at least κ rows accept is an interval too: its
ends are the κ-th largest upper root and the κ-th smallest lower one.

Where the n + 1 rows choose the place, that is the network, its scaling, weights and λ, the set is
the union of such intervals, each restricted to the y for which its place is chosen
(choosing/every_y.py): the rule treats the n + 1 rows alike, so ranks of their scores are
exchangeable. What is returned is the hull.

Of many rows a part may choose λ and train every model, but never be left out: then the scores of
the other rows alone are compared with that of the new one.

Rounding (ridge/rounding.py): ends of an interval are off by at most γ(√strain + √loose)² of their
size and γ·weight·√s(√strain + √loose) in addition, and are widened by that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..records import Ends
from ..ridge.problem import Problem
from ..ridge.rounding import FIRST_ORDER, SavedRows, largest
from ..ridge.system import Ridge
from ..tangent import Basis
from .order import kth_largest, kth_smallest

ARRAYS = 12  # of new rows × training rows at a time


class Acceptance(NamedTuple):
    """Which candidates y = middle + t of new rows each training row accepts, at one place."""

    middle: Tensor  # f(x; θ0) + u, shape (m,)
    lower: Tensor  # ends of the accepted t, (m, n), at most 0
    upper: Tensor  # at least 0
    score: Tensor  # of row i at t it is |score_i − slope_i·t|, both (m, n)
    slope: Tensor
    relative: Tensor  # relative error of ends and scores by rounding, (m,)
    noise: Tensor  # and of scores in addition, (m,)
    scale: Tensor  # √s, from a score to an end, (m,)
    slack: Tensor  # error of the middle by rounding, (m,)

    def ends(self, ranks: Sequence[int], always: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Ends of the y that κ rows accept, (m, ranks), widened by what rounding may have changed.

        Some rows may accept ``always``, (m, n).
        """
        lower, upper = self.lower, self.upper
        if always is not None:
            lower = lower.masked_fill(always, -torch.inf)
            upper = upper.masked_fill(always, torch.inf)
        wide = torch.where(self.relative <= FIRST_ORDER, self.noise * self.scale, torch.inf)
        more, wide = (1 + self.relative)[:, None], (wide + self.slack)[:, None]
        middle = self.middle[:, None]
        low = middle + kth_smallest(lower, ranks) * more - wide
        return low, middle + kth_largest(upper, ranks) * more + wide

    def some(self, rows: Tensor) -> Acceptance:
        """Of some of the new rows."""
        return Acceptance(*(part[rows] for part in self))

    def outranked(self, low: Tensor, high: Tensor, rank: int) -> Tensor:
        """Whether the score of a row may be among the ``rank`` largest for a y in [low, high].

        Shape (m, n), for ends (m,); a row is not if so many others are above it for every y.
        """
        ends = [self.score - self.slope * (y - self.middle)[:, None] for y in (low, high)]
        sizes = torch.stack(ends).abs()
        least = torch.where(ends[0] * ends[1] > 0, sizes.amin(dim=0), 0.0)
        limit = kth_largest(least, [rank])
        doubt = 2 * (self.relative[:, None] * limit + self.noise[:, None])
        return ~(sizes.amax(dim=0) < limit - 2 * doubt)


@dataclass(frozen=True)
class FullModels:
    """Full conformal prediction at one place, which was not chosen from the rows."""

    basis: Basis
    chosen: Ridge  # the factor of the full-data model
    gamma: float = 0.0  # relative error of the kernel
    size: float = 0.0  # the largest number that predictions are sums of, besides kernels
    feature_error: float = 0.0  # bound on the error of the network's own outputs
    compared: int | None = None  # with the new row: the first so many rows; None: all

    def accepts(self, X: Tensor) -> Acceptance:
        """What every training row accepts that is compared."""
        outputs, rows, norms = self.basis.at(X)
        factor = self.chosen
        b, s, loose = factor.at(rows, norms)
        b, open_ = b[:, : self.compared], s[:, None]
        c, d = factor.dual[: self.compared], factor.diagonal[: self.compared]
        reach = torch.addcmul(b.square(), open_, d).sqrt_()  # E; E²/s is the new diagonal
        sums = reach + b.abs()
        # Roots times s, without cancellation: s/(|b| + E), and (|b| + E)/d as E² − b² = s d.
        near, far = c * (open_ / sums), -c * (sums / d)
        ahead = b >= 0  # then c/(b + E) is the near one; the two have opposite signs
        first, second = torch.where(ahead, near, -near), torch.where(ahead, far, -far)
        both = math.sqrt(factor.strain) + loose.sqrt()
        middle = outputs + rows @ factor.coefficients + factor.intercept
        roots = s.sqrt()
        return Acceptance(
            middle,
            torch.minimum(first, second),
            torch.maximum(first, second),
            c * roots[:, None] / reach,
            b / (roots[:, None] * reach),
            self.gamma * both.square(),
            self.gamma * factor.weight * both,
            roots,
            self.gamma * (middle.abs() + self.size) + 2 * self.feature_error,
        )

    @property
    def ridges(self) -> Tensor:
        """λ for point predictions, shape (1,)."""
        return torch.tensor([self.chosen.ridge], dtype=torch.float64)

    @property
    def residuals(self) -> Tensor:
        return self.chosen.left_out[: self.compared]

    @property
    def training_residuals(self) -> Tensor:
        return (self.chosen.ridge * self.chosen.dual)[: self.compared]

    def typical_error(self) -> tuple[float, float]:
        chosen = self.chosen
        each = chosen.weight * (chosen.strain / chosen.diagonal.abs()).sqrt()
        slack = self.gamma * (float(each.median()) + self.size) + self.feature_error
        both = math.sqrt(chosen.strain) + math.sqrt(chosen.loose)
        return slack, self.gamma * both**2

    @property
    def undetermined(self) -> int:
        return 0

    @property
    def rows_at_once(self) -> int:
        """Rows for which weights and roots fit."""
        basis, n = self.basis, len(self.chosen.dual)
        machine = basis.tangent.machine
        return machine.rows_at_once(n, basis.row_bytes + machine.item * ARRAYS * n)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full-data model."""
        outputs, rows = self.basis.at(X)[:2]
        return outputs + rows @ self.chosen.coefficients + self.chosen.intercept

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, and the hulls of the accepted candidates for each rank κ."""
        found = self.accepts(X)
        return found.middle, *found.ends(ranks)


def fit_full(problem: Problem) -> FullModels:
    """Full conformal prediction with one network and λ."""
    system, (ridge,) = problem.system, problem.ridges
    factor = system.solve(ridge, True).factor()
    gamma, feature_error = SavedRows.of(problem).errors(problem)
    size = largest(problem.y, system.targets)
    return FullModels(problem.basis, factor, gamma, size, feature_error, problem.left_out)
