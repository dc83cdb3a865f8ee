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
same way, each with its own λ. Candidates are the λ that are large enough relative to the trace of
the kernel of all n + 1 rows, again a rule that treats them alike.

Of many rows a part may choose λ and train every model, but never be left out: then the scores of
the other rows alone are compared with that of the new one.

Rounding (ridge/rounding.py): ends of an interval are off by at most γ(√strain + √loose)² of their
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
from ..ridge.problem import Problem
from ..ridge.rounding import FIRST_ORDER, SavedRows, largest
from ..ridge.system import Ridge
from ..tangent import Basis
from .order import kth_largest, kth_smallest

# At a crossing two quadratics are equal up to rounding.
CROSSING = 1e-9
LEAST_SPLIT = 1e-12
# A λ is large enough for a kernel if it is at least this share of its trace.
LEAST_SHARE = 1e-10


@dataclass(frozen=True)
class Piece:
    """Accepted candidates y = f(x; θ0) + middle + t, and errors, at one λ."""

    middle: Tensor  # u, shape (m,)
    lower: Tensor  # end of the accepted t, shape (m, ranks)
    upper: Tensor
    error: tuple[Tensor, Tensor, Tensor]  # of all n + 1 rows: coefficients of t⁰, t¹, t², each (m,)
    relative: Tensor  # what rounding may have changed in the errors, relative to them, shape (m,)
    noise: Tensor  # and as a norm, shape (m,)

    def around(self, middle: Tensor) -> Piece:
        """The same with t counted from another middle."""
        shift = self.middle - middle
        constant, slope, square = self.error
        error = (
            constant - shift * (slope - shift * square),
            slope - 2 * shift * square,
            square,
        )
        lower, upper = self.lower + shift[:, None], self.upper + shift[:, None]
        return replace(self, middle=middle, lower=lower, upper=upper, error=error)

    def among(self, admitted: Tensor) -> Piece:
        """Restrict this λ to the rows, (m,), where it is a candidate; elsewhere it never wins."""
        lower = self.lower.masked_fill(~admitted[:, None], torch.inf)
        upper = self.upper.masked_fill(~admitted[:, None], -torch.inf)
        constant, slope, square = self.error
        error = (constant.masked_fill(~admitted, torch.inf), slope, square)
        zeros = torch.zeros_like(self.noise)
        relative, noise = (torch.where(admitted, w, zeros) for w in (self.relative, self.noise))
        return replace(self, lower=lower, upper=upper, error=error, relative=relative, noise=noise)


def piece_at(
    factor: Ridge,
    rows: Tensor,
    norms: Tensor,
    ranks: Sequence[int],
    gamma: float,
    compared: int | None = None,
) -> Piece:
    """Accepted candidates and their errors at one λ, of the first rows that are ``compared``."""
    b, s, loose = factor.at(rows, norms)
    c, d = factor.dual, factor.diagonal
    reach = torch.addcmul(b.square(), s[:, None], d)  # E² = s d + b², so E²/s is the new diagonal
    ratios = b * (s[:, None] / reach)  # b over the new diagonal
    left_out = c * (s[:, None] / reach)
    error = (
        left_out.square().sum(dim=1),
        -2 * (left_out * ratios).sum(dim=1) / s,
        ratios.square().sum(dim=1) / s.square() + 1,
    )
    # Roots times s, without cancellation: s/(|b| + E), and (|b| + E)/d as (E − |b|)(E + |b|) = s d.
    reach.sqrt_().add_(b.abs())
    near, far = c * (s[:, None] / reach), -c * (reach / d)
    ahead = b >= 0  # then c/(b + E) is the near one; the two have opposite signs
    first, second = torch.where(ahead, near, -near), torch.where(ahead, far, -far)
    lower = kth_smallest(torch.minimum(first, second)[:, :compared], ranks)
    upper = kth_largest(torch.maximum(first, second)[:, :compared], ranks)
    both = math.sqrt(factor.strain) + loose.sqrt()
    relative, slack = gamma * both.square(), gamma * factor.weight * s.sqrt() * both
    wide = torch.where(relative <= FIRST_ORDER, slack, torch.inf)[:, None]
    own = math.sqrt(factor.strain) * d.rsqrt().norm()  # of the rows' left-out residuals
    noise = gamma * factor.weight * (own + (s * loose).sqrt())
    return Piece(
        rows @ factor.coefficients + factor.intercept,  # bᵀr, free of the size of r
        lower * (1 + relative)[:, None] - wide,  # at most 0
        upper * (1 + relative)[:, None] + wide,  # at least 0
        error,
        relative,
        noise,
    )


def hull(pieces: Sequence[Piece]) -> tuple[Tensor, Tensor]:
    """Smallest and largest accepted t, each (m, ranks): λ̂(t) = λ, and t is accepted at λ."""
    lower = torch.stack([piece.lower for piece in pieces])  # (grid, m, ranks)
    upper = torch.stack([piece.upper for piece in pieces])
    errors = torch.stack([torch.stack(piece.error) for piece in pieces])  # (grid, 3, m)
    # An error counts as the smallest if it is at most (1 + more) times any other one, plus ground.
    relative = torch.stack([piece.relative for piece in pieces]).amax(dim=0)
    noise = torch.stack([piece.noise for piece in pieces]).amax(dim=0)
    # Rounding changes a sum of squares q by at most 2√q·N + N², and 2√q·N is at most ζq + N²/ζ.
    split = (noise / errors[:, 0].amin(dim=0).sqrt()).nan_to_num(1.0).clamp(LEAST_SPLIT, 1.0)
    more, ground = CROSSING + 2 * split + 4 * relative, 4 * noise.square() / split
    most = _largest_accepted(lower, upper, errors, more, ground)
    mirrored = errors * errors.new_tensor([1.0, -1.0, 1.0])[:, None]  # as functions of −t
    least = -_largest_accepted(-upper, -lower, mirrored, more, ground)
    nothing = most < least  # then the point prediction alone
    return least.masked_fill(nothing, 0.0), most.masked_fill(nothing, 0.0)


def _largest_accepted(
    low: Tensor, high: Tensor, errors: Tensor, more: Tensor, ground: Tensor
) -> Tensor:
    """The largest t in [low, high] of a λ with the smallest error there, shape (m, ranks).

    It is the upper end of some λ's interval, or a crossing beyond all such ends that qualify; there
    are few of these.
    """
    crossings = _crossings(errors, more, ground)
    found = []
    for k in range(low.shape[-1]):
        lowest, highest = low[..., k], high[..., k]
        largest = torch.full_like(highest[0], -torch.inf)
        for t in highest:
            accepted = _is_accepted(t, lowest, highest, errors, more, ground)
            largest = torch.maximum(largest, torch.where(accepted, t, -torch.inf))
        beyond = (crossings > largest) & (crossings <= highest.amax(dim=0))
        which, row = beyond.nonzero().unbind(1)
        t = crossings[which, row]
        accepted = _is_accepted(
            t, lowest[:, row], highest[:, row], errors[..., row], more[row], ground[row]
        )
        t = torch.where(accepted, t, -torch.inf)
        largest = largest.scatter_reduce(0, row, t, "amax")
        # κ = 0, or rounding is too large for a bound: every candidate is accepted.
        found.append(torch.where((highest == torch.inf).any(dim=0), torch.inf, largest))
    return torch.stack(found, dim=1)


def _is_accepted(
    t: Tensor, low: Tensor, high: Tensor, errors: Tensor, more: Tensor, ground: Tensor
) -> Tensor:
    """Whether t, shape (m,), lies in the interval of a λ with the smallest error at t."""
    values = errors[:, 0] + t * (errors[:, 1] + t * errors[:, 2])
    limit = ((1 + more) * values.amin(dim=0) + ground) * (1 + CROSSING)
    return ((values <= limit) & (low <= t) & (t <= high)).any(dim=0)


def _crossings(errors: Tensor, more: Tensor, ground: Tensor) -> Tensor:
    """Where an error stops being the smallest, for every ordered pair: (2·pairs, m).

    Where that never happens it is 0, a candidate like any other.
    """
    grid = torch.arange(len(errors), device=errors.device)
    first, second = torch.cartesian_prod(grid, grid).unbind(1)
    apart = first != second
    difference = errors[first[apart]] - (1 + more) * errors[second[apart]]
    constant, slope, square = difference.unbind(1)
    constant = constant - ground
    discriminant = slope.square() - 4 * square * constant
    # The larger root in size first, without cancellation; the other one follows from the product.
    far = -(slope + torch.copysign(discriminant.clamp(min=0.0).sqrt(), slope)) / 2
    roots = torch.cat([far / square, constant / far])
    real = torch.isfinite(roots) & (discriminant >= 0).repeat(2, 1)
    return torch.where(real, roots, 0.0)


@dataclass(frozen=True)
class Family:
    """One network at each λ of a grid."""

    basis: Basis
    factors: tuple[Ridge, ...]  # one for each λ
    trace: float = 0.0  # of the kernel
    gamma: float = 0.0  # relative error of the kernel
    size: float = 0.0  # the largest number that predictions are sums of, besides kernels
    feature_error: float = 0.0  # bound on the error of the network's own outputs
    compared: int | None = None  # with the new row: the first so many rows; None: all

    def pieces(self, X: Tensor, ranks: Sequence[int]) -> list[Piece]:
        """Accepted candidates at each λ, none at rows where λ is too small to be one."""
        outputs, rows, norms = self.basis.at(X)
        least = LEAST_SHARE * (self.trace + norms)
        least = least.clamp(max=max(f.ridge for f in self.factors))
        found = []
        for factor in self.factors:
            piece = piece_at(factor, rows, norms, ranks, self.gamma, self.compared)
            piece = replace(piece, middle=outputs + piece.middle)
            found.append(piece.among(factor.ridge >= least) if len(self.factors) > 1 else piece)
        return found


@dataclass(frozen=True)
class FullModels:
    """The full-data model of each network and λ, ready for candidates."""

    families: tuple[Family, ...]
    place: tuple[int, int]  # the network and λ for point predictions

    @classmethod
    def of(cls, families: Sequence[Family]) -> FullModels:
        """Point predictions have the smallest leave-one-out error of the n rows."""
        errors = {
            (i, k): float(factor.left_out.square().sum())
            for i, family in enumerate(families)
            for k, factor in enumerate(family.factors)
        }
        return cls(tuple(families), min(errors, key=lambda place: errors[place]))

    @property
    def family(self) -> Family:
        """The network for point predictions."""
        return self.families[self.place[0]]

    @property
    def chosen(self) -> Ridge:
        """The factor for point predictions."""
        return self.family.factors[self.place[1]]

    @property
    def ridges(self) -> Tensor:
        """λ for point predictions, shape (1,)."""
        return torch.tensor([self.chosen.ridge], dtype=torch.float64)

    @property
    def residuals(self) -> Tensor:
        return self.chosen.left_out[: self.family.compared]

    @property
    def training_residuals(self) -> Tensor:
        return (self.chosen.ridge * self.chosen.dual)[: self.family.compared]

    def typical_error(self) -> tuple[float, float]:
        chosen, family = self.chosen, self.family
        each = chosen.weight * (chosen.strain / chosen.diagonal.abs()).sqrt()
        slack = family.gamma * (float(each.median()) + family.size) + family.feature_error
        both = math.sqrt(chosen.strain) + math.sqrt(chosen.loose)
        return slack, family.gamma * both**2

    @property
    def undetermined(self) -> int:
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
        each = [f.gamma * (point.abs() + f.size) + 2 * f.feature_error for f in self.families]
        slack, middle = torch.stack(each).amax(dim=0)[:, None], point[:, None]
        return point, middle + lower - slack, middle + upper + slack


def family_of(problem: Problem) -> Family:
    """Factor the ridge at every λ that may be a candidate."""
    system, ridges = problem.system, problem.ridges
    trace = float(system.norms.sum())
    least = min(LEAST_SHARE * trace, max(ridges))  # with a new row it is more
    factors = tuple(system.solve(ridge, True).factor() for ridge in ridges if ridge >= least)
    gamma, feature_error = SavedRows.of(problem).errors(problem)
    size = largest(problem.y, system.targets)
    errors = gamma, size, feature_error
    return Family(problem.basis, factors, trace, *errors, problem.left_out)


def fit_full(problem: Problem) -> FullModels:
    """Full conformal prediction with one network."""
    return FullModels.of([family_of(problem)])
