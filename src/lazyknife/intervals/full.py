"""Exact full conformal prediction of the linearised network.

A candidate y = f(x; θ0) + u + s·w, u = bᵀr, added to the n rows as (x, y), changes the dual
coefficients to c_i − b_i w and w, and the inverse's diagonal to d_i + b_i²/s and 1/s: a refit in
closed form, linear in w. (u is computed as the full model's prediction, more accurate than bᵀr.)
Scores are studentised, |dual coefficient|/√diagonal. Row i accepts w, its score being at least the
new row's, between the roots c_i/(b_i ± E_i), where E_i = √(s d_i + b_i²) > |b_i|: always a
bounded interval around w = 0. The set where at least κ rows accept is an interval too: its ends are
the κ-th largest upper root and the κ-th smallest lower one.

λ may be chosen on the data without a leak if the candidate takes part: for every y, λ̂(y) has the
smallest leave-one-out error of all n + 1 rows,

    Σ_i ((c_i − b_i w)/(d_i + b_i²/s))² + (s w)²,

a quadratic in y for each λ of the grid. The rule treats the n + 1 rows alike, so ranks of scores at
λ̂(y) are as exchangeable as at a fixed λ, and the choice costs no coverage. The set is the union
over λ of the interval at λ, restricted to where λ̂(y) = λ. What is returned is its hull, whose ends
are ends of such intervals or crossings of two quadratics. Several networks are chosen from in the
same way, each with its own λ. Candidates are the λ that are large
enough relative to the trace of the kernel of all n + 1 rows, again a rule that treats them alike.

Rounding (solve/rounding.py): ends of an interval are off by at most γ(√strain + √loose)² of their
size and γ·weight·√s(√strain + √loose) in addition, and are widened by that. A λ is included where
rounding may hide that its error is the smallest: where it is at most 1 + ζ times any other error
plus a constant, both from the same bounds. This can only enlarge the hull.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..records import Ends
from ..solve.choose import LEAST_SHARE
from ..solve.guard import Kept, largest
from ..solve.problem import Problem
from ..solve.ridge import OpenRidge, RidgeModels, left_out
from ..solve.rounding import GAMMA, Sensitivity
from ..tangent import Basis
from .fit import LazyModels
from .hull import Piece, hull, piece_at


@dataclass(frozen=True)
class Family:
    """One network at each λ of a grid.

    Attributes
    ----------
    basis
        The tangent's coordinates.
    factors
        One for each λ.
    trace
        Trace of the kernel.
    gamma
        Relative error of the kernel.
    size
        The largest number that predictions are sums of, besides kernels.
    shaken
        Bound on the error of the network's own outputs.

    """

    basis: Basis
    factors: tuple[OpenRidge, ...]
    trace: float = 0.0
    gamma: float = 0.0
    size: float = 0.0
    shaken: float = 0.0

    def pieces(self, X: Tensor, ranks: Sequence[int]) -> list[Piece]:
        """Accepted candidates at each λ, none at rows where λ is too small to be one."""
        outputs, rows, norms = self.basis.at(X)
        least = LEAST_SHARE * (self.trace + norms)
        least = least.clamp(max=max(f.ridge for f in self.factors))
        found = []
        for factor in self.factors:
            piece = piece_at(factor, rows, norms, ranks, self.gamma)
            piece = replace(piece, middle=outputs + piece.middle)
            found.append(piece.among(factor.ridge >= least) if len(self.factors) > 1 else piece)
        return found


@dataclass(frozen=True)
class FullModels:
    """The full-data model of each network and λ, ready for candidates.

    Attributes
    ----------
    families
        The networks.
    place
        Indices of the network and of λ for point predictions.

    """

    families: tuple[Family, ...]
    place: tuple[int, int]

    @classmethod
    def of(cls, families: Sequence[Family]) -> FullModels:
        """Point predictions have the smallest leave-one-out error of the n rows."""
        errors = {
            (i, k): float(left_out(factor).square().sum())
            for i, family in enumerate(families)
            for k, factor in enumerate(family.factors)
        }
        return cls(tuple(families), min(errors, key=lambda place: errors[place]))

    @property
    def family(self) -> Family:
        """The network for point predictions."""
        return self.families[self.place[0]]

    @property
    def chosen(self) -> OpenRidge:
        """The factor for point predictions."""
        return self.family.factors[self.place[1]]

    @property
    def residuals(self) -> Tensor:
        return left_out(self.chosen)

    @property
    def training_residuals(self) -> Tensor:
        return self.chosen.ridge * self.chosen.dual

    def typical_error(self) -> tuple[float, float]:
        chosen, family = self.chosen, self.family
        each = chosen.weight * (chosen.strain / chosen.diagonal.abs()).sqrt()
        slack = family.gamma * (float(each.median()) + family.size) + family.shaken
        both = math.sqrt(chosen.strain) + math.sqrt(chosen.loose)
        return slack, family.gamma * both**2

    @property
    def conceded(self) -> int:
        return 0

    @property
    def rows_at_once(self) -> int:
        """Rows for which weights, roots and crossings fit."""
        basis, n = self.family.basis, len(self.chosen.dual)
        machine, pieces = basis.tangent.machine, sum(len(f.factors) for f in self.families)
        return machine.rows_at_once(n, basis.row_bytes + machine.item * (9 * n + 6 * pieces**3))

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full-data model."""
        outputs, rows = self.family.basis.at(X)[:2]
        return outputs + rows @ self.chosen.coefficients + self.chosen.intercept

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, and the hulls of the accepted candidates for each rank κ."""
        made = [family.pieces(X, ranks) for family in self.families]
        point = made[self.place[0]][self.place[1]].middle
        around = [piece.around(point) for pieces in made for piece in pieces]
        lower, upper = hull(around) if len(around) > 1 else (around[0].lower, around[0].upper)
        slack = torch.zeros_like(point)
        for family in self.families:
            own = family.gamma * (point.abs() + family.size) + 2 * family.shaken
            slack = torch.maximum(slack, own)
        return (
            point,
            point[:, None] + lower - slack[:, None],
            point[:, None] + upper + slack[:, None],
        )


def family_of(problem: Problem) -> Family:
    """Factor the ridge at every λ that may be a candidate."""
    system, ridges = problem.system, problem.ridges
    trace = float(system.norms.sum())
    least = min(LEAST_SHARE * trace, max(ridges))  # with a new row it is more
    factors = tuple(system.factor(ridge) for ridge in ridges if ridge >= least)
    measured, shaken = Kept.of(problem).errors(problem)
    gamma, size = max(GAMMA, measured), largest(problem.y, system.targets)
    return Family(problem.basis, factors, trace, gamma, size, shaken)


def fit_full(problem: Problem) -> LazyModels:
    """Full conformal prediction with one network."""
    loo = FullModels.of([family_of(problem)])
    chosen = loo.chosen
    solved = RidgeModels(
        columns=chosen.coefficients[:, None],  # no model but the full one
        full=chosen.coefficients,
        intercepts=chosen.intercept.expand(2),
        ridges=torch.tensor([chosen.ridge], dtype=torch.float64),
        residuals=loo.residuals,
        training_residuals=loo.training_residuals,
        sensitivity=Sensitivity.unknown(len(problem.y), problem.y),
    )
    return LazyModels(loo, solved)
