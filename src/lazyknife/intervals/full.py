"""Exact full conformal prediction of the linearised network.

A candidate y = f(x; θ0) + u + s·w, u = bᵀr, added to the n rows as (x, y), changes the dual
coefficients to c_i − b_i w and w, and the inverse's diagonal to d_i + b_i²/s and 1/s: a refit in
closed form, linear in w. Scores are studentised, |dual coefficient|/√diagonal. Row i accepts w,
its score being at least the new row's, between the roots c_i/(b_i ± E_i), where
E_i = √(s d_i + b_i²) > |b_i|: always a bounded interval around w = 0. The set where at least κ rows
accept is an interval too: its ends are the κ-th largest upper root and the κ-th smallest lower one.

λ may be chosen by the data without a leak if the candidate has its say: for every y, λ̂(y) has the
least leave-one-out error of all n + 1 rows,

    Σ_i ((c_i − b_i w)/(d_i + b_i²/s))² + (s w)²,

a quadratic in y for each λ of the grid. The rule treats the n + 1 rows alike, so ranks of scores at
λ̂(y) are as exchangeable as at a fixed λ, and nothing is paid for the choice. The set is the union
over λ of the interval at λ, cut to where λ̂(y) = λ. What is returned is its hull, whose ends are
ends of such intervals or crossings of two quadratics. Candidates are the λ that are large enough
against the trace of the kernel of all n + 1 rows, again a rule that treats them alike.

Rounding (solve/rounding.py): ends of an interval are off by at most γ(√strain + √loose)² of their
size and γ·weight·√s(√strain + √loose) besides, and are widened by that. A λ counts as one of
the least where rounding may hide that it is: where its error is at most 1 + ζ times any other one's
and a constant, both from the same bounds. The hull can only grow by it.
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
from ..solve.rounding import FIRST_ORDER, Sensitivity, gamma_of
from ..tangent import Basis
from .fit import LazyModels
from .order import kth_largest, kth_smallest

# At a crossing two quadratics are equal but for rounding.
CROSSING = 1e-9
LEAST_SPLIT = 1e-12


@dataclass(frozen=True)
class FullModels:
    """The full-data model at each λ of a grid, ready for candidates.

    Attributes
    ----------
    basis
        The tangent's coordinates.
    targets
        r, shape (n,).
    factors
        One for each λ.
    place
        Which of them makes point predictions.
    trace
        Of the kernel.
    gamma
        Relative error of the kernel.
    size
        The largest number that predictions are sums of, besides kernels.
    shaken
        What the network's own outputs may be off by.

    """

    basis: Basis
    targets: Tensor
    factors: tuple[OpenRidge, ...]
    place: int
    trace: float
    gamma: float
    size: float
    shaken: float

    @classmethod
    def of(
        cls,
        basis: Basis,
        targets: Tensor,
        factors: Sequence[OpenRidge],
        trace: float = 0.0,
        gamma: float = 0.0,
        size: float = 0.0,
        shaken: float = 0.0,
    ) -> FullModels:
        """Points are predicted with the λ of the least leave-one-out error of the n rows."""
        errors = torch.stack([left_out(factor).square().sum() for factor in factors])
        place = int(errors.argmin())
        return cls(basis, targets, tuple(factors), place, trace, gamma, size, shaken)

    @property
    def chosen(self) -> OpenRidge:
        """The one that makes point predictions."""
        return self.factors[self.place]

    @property
    def residuals(self) -> Tensor:
        return left_out(self.chosen)

    @property
    def training_residuals(self) -> Tensor:
        return self.chosen.ridge * self.chosen.dual

    def typical_error(self) -> tuple[float, float]:
        each = self.chosen.weight * (self.chosen.strain / self.chosen.diagonal.abs()).sqrt()
        slack = self.gamma * (float(each.median()) + self.size) + self.shaken
        return slack, self.gamma * self.chosen.strain

    @property
    def conceded(self) -> int:
        return 0

    @property
    def rows_at_once(self) -> int:
        """Rows for which weights, roots and crossings fit."""
        machine, n = self.basis.tangent.machine, len(self.targets)
        numbers = 9 * n + 6 * len(self.factors) ** 3
        return machine.rows_at_once(n, self.basis.row_bytes + machine.item * numbers)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full-data model."""
        outputs, rows = self.basis.rows(X)
        return outputs + rows @ self.chosen.coefficients + self.chosen.intercept

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, and the hulls of the accepted candidates for each rank κ."""
        outputs, rows, norms = self.basis.rows_and_norms(X)
        pieces = [_piece(f, rows, norms, ranks, self.gamma) for f in self.factors]
        middle = pieces[self.place].middle
        point = outputs + middle
        if len(pieces) == 1:
            lower, upper = pieces[0].lower, pieces[0].upper
        else:
            least = LEAST_SHARE[norms.dtype] * (self.trace + norms)
            least = least.clamp(max=max(f.ridge for f in self.factors))
            candidates = [f.ridge >= least for f in self.factors]
            around = [p.around(middle).among(a) for p, a in zip(pieces, candidates, strict=True)]
            lower, upper = _hull(around)
        slack = self.gamma * (point.abs() + self.size)[:, None] + 2 * self.shaken
        return point, point[:, None] + lower - slack, point[:, None] + upper + slack


def fit_full(problem: Problem) -> LazyModels:
    """Factor the ridge at every λ that may be a candidate, and wait for new rows."""
    machine, system, ridges = problem.machine, problem.system, problem.ridges
    with machine.exact.products():
        trace = float(system.norms.sum())
        least = min(LEAST_SHARE[machine.dtype] * trace, max(ridges))  # with a new row it is more
        factors = [system.factor(ridge) for ridge in ridges if ridge >= least]
        measured, shaken = Kept.of(problem).errors(problem)
    gamma, size = gamma_of(machine.dtype, measured), largest(problem.y, system.targets)
    loo = FullModels.of(problem.basis, system.targets, factors, trace, gamma, size, shaken)
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


@dataclass(frozen=True)
class _Piece:
    """What holds at one λ, for candidates y = f(x; θ0) + middle + t.

    Attributes
    ----------
    middle
        u, shape (m,).
    lower, upper
        Ends of the accepted t, shape (m, ranks).
    error
        Leave-one-out error of all n + 1 rows, coefficients of t⁰, t¹ and t², each (m,).
    relative, noise
        What rounding may have changed of the errors: relative to them, and as a norm, each (m,).

    """

    middle: Tensor
    lower: Tensor
    upper: Tensor
    error: tuple[Tensor, Tensor, Tensor]
    relative: Tensor
    noise: Tensor

    def around(self, middle: Tensor) -> _Piece:
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

    def among(self, admitted: Tensor) -> _Piece:
        """The same for the rows, (m,), that this λ is a candidate of; elsewhere never the least."""
        lower = self.lower.masked_fill(~admitted[:, None], torch.inf)
        upper = self.upper.masked_fill(~admitted[:, None], -torch.inf)
        constant, slope, square = self.error
        error = (constant.masked_fill(~admitted, torch.inf), slope, square)
        zeros = torch.zeros_like(self.noise)
        relative, noise = (torch.where(admitted, w, zeros) for w in (self.relative, self.noise))
        return replace(self, lower=lower, upper=upper, error=error, relative=relative, noise=noise)


def _piece(
    factor: OpenRidge,
    rows: Tensor,
    norms: Tensor,
    ranks: Sequence[int],
    gamma: float,
) -> _Piece:
    """Accepted candidates and their errors at one λ."""
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
    lower = kth_smallest(torch.minimum(first, second), ranks)
    upper = kth_largest(torch.maximum(first, second), ranks)
    both = math.sqrt(factor.strain) + loose.sqrt()
    relative, slack = gamma * both.square(), gamma * factor.weight * s.sqrt() * both
    wide = torch.where(relative <= FIRST_ORDER, slack, torch.inf)[:, None]
    own = math.sqrt(factor.strain) * d.rsqrt().norm()  # of the rows' left-out residuals
    noise = gamma * factor.weight * (own + (s * loose).sqrt())
    return _Piece(
        rows @ factor.coefficients + factor.intercept,  # bᵀr, free of the size of r
        lower * (1 + relative)[:, None] - wide,  # at most 0
        upper * (1 + relative)[:, None] + wide,  # at least 0
        error,
        relative,
        noise,
    )


def _hull(pieces: Sequence[_Piece]) -> tuple[Tensor, Tensor]:
    """Least and largest accepted t, each (m, ranks): λ̂(t) = λ, and t is accepted at λ."""
    lower = torch.stack([piece.lower for piece in pieces])  # (grid, m, ranks)
    upper = torch.stack([piece.upper for piece in pieces])
    errors = torch.stack([torch.stack(piece.error) for piece in pieces])  # (grid, 3, m)
    # An error is the least if it is at most (1 + more) times any other one, plus ground.
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
    """The largest t in [low, high] of a λ with the least error there, shape (m, ranks).

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
        # κ = 0, or rounding that leaves nothing known: every candidate is accepted.
        found.append(torch.where((highest == torch.inf).any(dim=0), torch.inf, largest))
    return torch.stack(found, dim=1)


def _is_accepted(
    t: Tensor, low: Tensor, high: Tensor, errors: Tensor, more: Tensor, ground: Tensor
) -> Tensor:
    """Whether t, shape (m,), lies in the interval of a λ with the least error at t."""
    values = errors[:, 0] + t * (errors[:, 1] + t * errors[:, 2])
    limit = ((1 + more) * values.amin(dim=0) + ground) * (1 + CROSSING)
    return ((values <= limit) & (low <= t) & (t <= high)).any(dim=0)


def _crossings(errors: Tensor, more: Tensor, ground: Tensor) -> Tensor:
    """Where an error ceases to be the least, for every ordered pair: (2·pairs, m).

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
