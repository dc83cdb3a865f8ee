"""The ridge from feature rows in two passes over blocks of rows, which are never all in memory.

With the symbols of primal.py: a first pass sums G = Σφφᵀ and Φᵀr, a second one gives the leverage
h_j = ‖L⁻¹φ_j‖² and the left-out residual e_j = (r_j − φ_jᵀw)/(1 − h_j) of every row. Without row j
the prediction at x is f(x) − g_j(x)e_j, g_j(x) = (L⁻¹φ(x))ᵀ(L⁻¹φ_j), and |g_j(x)| ≤ √(h(x)h_j).

Rows may be part of all sums and yet never be left out: the second pass leaves out only some.

Sums are of r − Φw₀, where w₀ is a first guess, such as the ridge of some rows. It changes nothing
but rounding: w = w₀ + u, Gu = Φᵀ(r − Φw₀) − λw₀, and what the guess explains costs no digits.

Rounding. With E² = ‖r − Φw₀‖² + λ‖w₀‖², the errors of any of the models on its own rows have a norm
of at most E, since w₀ is one of the weights that it is better than. The computed G is off by ΔG,
|ΔG_ab| ≤ γ√(G_aa G_bb), so ‖ΔG‖ ≤ γ·tr G, and with ω = 2 tr G/λ all models are those of a penalty
that is off by at most a part γω of λ. Predictions at x are then off by at most √h(x)·γ√ω·(v + E), v
the smaller of √ωE and |u|ᵀ√diag G, which without row j is larger by at most √(ςh_j)|e_j|,
ς = (Σ_a √(G_aa (G⁻¹)_aa))². Errors Δ of the features, of norm ε in each row, change w by
(G + ΔG)⁻¹(Δᵀ(r − Φw) − (Φ + Δ)ᵀΔw), hence predictions by at most √h(x)·ε√n(‖w‖ + E/√λ), and by ε‖w‖
through the new row's own ones. Errors of the targets by rounding, of norm t, change them by at most
√h(x)·t. Without row j, h(x) is at most 1/(1 − h_j) times as large; at X_j it is h_j/(1 − h_j).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .rounding import FIRST_ORDER
from .system import Indefinite

# Rows that are summed at a time, at most; where memory is short, or partitions are small, fewer,
# but rarely less than the second number. Errors grow with the roots of both numbers.
BLOCK_ROWS, SMALL_BLOCK = 1024, 256
SAFETY = 4.0
EPSILON = SAFETY * torch.finfo(torch.float64).eps
RARE = 1 / 16  # 1 − h_j of rows with a large leverage


@dataclass(frozen=True)
class Sums:
    """Sums over rows, which add up over blocks and machines."""

    gram: Tensor  # ΦᵀΦ, shape (q, q)
    moments: Tensor  # of r − Φw₀ with Φ, shape (q,)
    square: Tensor  # ‖r − Φw₀‖²
    count: int  # of rows

    def __add__(self, other: Sums) -> Sums:
        mine, yours = vars(self).values(), vars(other).values()
        return Sums(*(one + more for one, more in zip(mine, yours, strict=True)))

    @classmethod
    def of(cls, rows: Tensor, targets: Tensor) -> Sums:
        return cls(rows.T @ rows, targets @ rows, targets @ targets, len(rows))


class StreamedBounds(NamedTuple):
    """What rounding may have changed.

    Predictions at x are off by at most slope·√h(x) + constant·√(1 + ‖φ(x)‖²).
    """

    slope: float  # where h(x) ≤ 1
    constant: float
    steep: float  # the slope where h(x) > 1
    own: Tensor  # of errors of left-out residuals, shape (n,); infinite where nothing is known

    def slack(self, leverages: Tensor, norms: Tensor) -> Tensor:
        """Bounds on the errors of predictions, shape (m,)."""
        slopes = leverages.new_tensor([self.slope, self.steep])[(leverages > 1).long()]
        return slopes * leverages.sqrt() + self.constant * (1 + norms).sqrt()


def product_error(weights: Tensor, feature_error: float) -> float:
    """Bound the error of φᵀw for given weights, over √(1 + ‖φ‖²)."""
    error = SAFETY * feature_error + EPSILON * math.sqrt(len(weights))
    return error * float(weights.norm())


class Extremes(NamedTuple):
    """What bounds on rounding need of all rows; those of several sets of rows can be joined."""

    load: float  # the largest of rows without a large leverage
    known: float  # that of rows of whose models something is known; −∞ if there are none
    least: float  # the smallest 1 − h of these; ∞ if there are none

    @classmethod
    def joined(cls, parts: Sequence[Extremes]) -> Extremes:
        loads, known, least = zip(*parts, strict=True)
        return cls(max(loads), max(known), min(least))


class Left(NamedTuple):
    """What leaving each of some rows out gives; every field has shape (rows,)."""

    residuals: Tensor  # e
    training_residuals: Tensor  # r − φᵀw
    leverages: Tensor  # h
    norms: Tensor  # ‖φ‖²


@dataclass(frozen=True)
class StreamedRidge:
    """The ridge at one λ."""

    ridge: float
    lower: Tensor  # L, shape (q, q)
    weights: Tensor  # w, shape (q,)
    step: Tensor  # u, shape (q,)
    trace: float  # tr G
    load: float  # |u|ᵀ√diag G
    spread: float  # ς
    size: float  # E
    count: int  # of rows

    @classmethod
    def of(cls, sums: Sums, ridge: float, intercept: bool, start: Tensor) -> StreamedRidge:
        """Solve, from w₀; the last feature is not penalised if there is an intercept."""
        G, penalised = sums.gram.clone(), slice(len(sums.gram) - intercept)
        G.diagonal()[penalised].add_(ridge)
        lower, failed = torch.linalg.cholesky_ex(G)
        if failed:
            raise Indefinite(ridge)
        wanted = sums.moments.clone()
        wanted[penalised].sub_(ridge * start[penalised])
        step = torch.cholesky_solve(wanted[:, None], lower)[:, 0]
        roots, shares = G.diagonal().sqrt(), torch.cholesky_inverse(lower).diagonal().sqrt()
        load, spread = float(step.abs() @ roots), float((shares @ roots).square())
        # Squares of tiny targets underflow.
        lost = sums.count * torch.finfo(G.dtype).tiny if bool(sums.moments.any()) else 0.0
        size = math.sqrt(float(sums.square + ridge * start[penalised].square().sum()) + lost)
        sizes = (float(roots.square().sum()), load, spread, size)
        return cls(ridge, lower, start + step, step, *sizes, sums.count)

    def half(self, rows: Tensor) -> Tensor:
        """L⁻¹φ of each row, shape (q, rows)."""
        half: Tensor = torch.linalg.solve_triangular(self.lower, rows.T, upper=False)
        return half

    def leave_out(self, rows: Tensor, targets: Tensor, outside: bool = False) -> Left:
        """Leave each of these rows out, whose targets are r − Φw₀ and part of the sums.

        ``outside``: they are no part of them, and have the leverages of a ridge with each.
        """
        leverages, norms = self.half(rows).square().sum(dim=0), rows.square().sum(dim=1)
        errors = targets - rows @ self.step
        if outside:
            return Left(errors, errors, leverages / (1 + leverages), norms)
        return Left(errors / (1 - leverages), errors, leverages, norms)

    def bounds(
        self, left: Left, feature_error: float, size: float, extremes: Extremes | None = None
    ) -> StreamedBounds:
        """Bound what rounding may have changed.

        ``feature_error`` is ε, the error of the features of a row, and ``size`` the largest |y|.
        ``extremes`` are those of all rows that are left out; None: these are all.
        """
        extremes = extremes or self.extremes(left, feature_error)
        found = self.prediction_bounds(feature_error, size, extremes)
        open_part, known = self._known(left, feature_error)
        mine = math.sqrt(RARE) * found.slope + self._strain * self._loads(left)
        own = mine * left.leverages.sqrt() / open_part.sqrt()
        own += found.constant * (1 + left.norms).sqrt() / open_part
        own += EPSILON * left.residuals.abs() / open_part
        # Models without a row of large leverage are a few: their larger errors go to their scores.
        own += torch.where(open_part < RARE, mine / open_part.sqrt(), 0.0)
        return found._replace(own=torch.where(known, own, torch.inf))

    def extremes(self, left: Left, feature_error: float) -> Extremes:
        """What bounds need of all rows, of some of them."""
        loads, (open_part, known) = self._loads(left), self._known(left, feature_error)
        usual = loads[open_part >= RARE]
        return Extremes(
            float(usual.max()) if len(usual) else 0.0,
            float(loads[known].max()) if known.any() else -math.inf,
            float(open_part[known].min()) if known.any() else math.inf,
        )

    def prediction_bounds(
        self, feature_error: float, size: float, extremes: Extremes
    ) -> StreamedBounds:
        """Bounds for predictions alone."""
        nothing = self.weights[:0]
        if math.isinf(extremes.least):
            return StreamedBounds(math.inf, math.inf, math.inf, nothing)
        length = float(self.weights.norm())
        slope, moved = self._strain * extremes.load, length + self.size / math.sqrt(self.ridge / 2)
        slope += SAFETY * feature_error * math.sqrt(self.count) * moved
        many, first = math.sqrt(len(self.lower)), float((self.weights - self.step).norm())
        lost = many * math.sqrt(self.trace) * first + math.sqrt(self.count) * size
        slope += EPSILON * lost  # of the targets
        constant = product_error(self.weights, feature_error) + EPSILON * size
        worst = math.sqrt(min(RARE, extremes.least))
        steep = max(slope, slope + self._strain * extremes.known) / worst
        return StreamedBounds(slope / math.sqrt(RARE), constant, steep, nothing)

    def _loads(self, left: Left) -> Tensor:
        load = self.load + (self.spread * left.leverages).sqrt() * left.residuals.abs()
        return load.clamp(max=math.sqrt(self._omega) * self.size) + self.size

    def _known(self, left: Left, feature_error: float) -> tuple[Tensor, Tensor]:
        """1 − h, and whether rounding leaves something known of each model."""
        open_part = (1 - left.leverages).clamp(min=0.0)
        return open_part, self.changed(feature_error) <= FIRST_ORDER * open_part

    def changed(self, feature_error: float) -> float:
        """What rounding may change in products with G⁻¹, relative to their largest size."""
        features = 2 * SAFETY * feature_error * math.sqrt(self.count / (self.ridge / 2))
        return self._gamma * self._omega + features

    @property
    def _gamma(self) -> float:
        """Roundings of sums over all rows, as often up as down, in the worst blocks.

        It does not depend on the blocks, so that it is the same however rows are partitioned.
        """
        sizes = (min(self.count, BLOCK_ROWS), min(self.count, SMALL_BLOCK))
        summing = max(math.sqrt(size) + math.sqrt(self.count / size) for size in sizes)
        return EPSILON * (summing + math.sqrt(len(self.lower)))

    @property
    def _omega(self) -> float:
        return 2 * self.trace / self.ridge

    @property
    def _strain(self) -> float:
        return self._gamma * math.sqrt(self._omega)
