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
ends of such intervals or crossings of two quadratics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .factors import Factor
from .intervals import kth_largest, kth_smallest
from .records import Ends
from .tangent import Basis

# Two quadratics are equal at a crossing but for rounding.
TIE = 1e-9


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

    """

    basis: Basis
    targets: Tensor
    factors: tuple[Factor, ...]
    place: int

    @classmethod
    def of(cls, basis: Basis, targets: Tensor, factors: Sequence[Factor]) -> FullModels:
        """Points are predicted with the λ of the least leave-one-out error of the n rows."""
        errors = torch.stack([(f.dual / f.diagonal).square().sum() for f in factors])
        return cls(basis, targets, tuple(factors), int(errors.argmin()))

    @property
    def residuals(self) -> Tensor:
        """c_j/d_j."""
        factor = self.factors[self.place]
        return factor.dual / factor.diagonal

    @property
    def training_residuals(self) -> Tensor:
        """λc."""
        factor = self.factors[self.place]
        return factor.ridge * factor.dual

    @property
    def rows_at_once(self) -> int:
        """Rows for which weights, roots and crossings fit."""
        machine, n = self.basis.tangent.machine, len(self.targets)
        numbers = 8 * n + 3 * len(self.factors) ** 3
        return machine.rows_at_once(n, self.basis.row_bytes + machine.item * numbers)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full-data model."""
        outputs, rows, norms = self.basis.rows_and_norms(X)
        return outputs + self.factors[self.place].at(rows, norms)[0] @ self.targets

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, and the hulls of the accepted candidates for each rank κ."""
        outputs, rows, norms = self.basis.rows_and_norms(X)
        pieces = [_piece(f, self.targets, rows, norms, ranks) for f in self.factors]
        middle = pieces[self.place].middle
        point = outputs + middle
        if len(pieces) == 1:
            lower, upper = pieces[0].lower, pieces[0].upper
        else:
            lower, upper = _hull([piece.around(middle) for piece in pieces])
        return point, point[:, None] + lower, point[:, None] + upper


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

    """

    middle: Tensor
    lower: Tensor
    upper: Tensor
    error: tuple[Tensor, Tensor, Tensor]

    def around(self, middle: Tensor) -> _Piece:
        """The same with t counted from another middle."""
        shift = self.middle - middle
        constant, slope, square = self.error
        error = (
            constant - shift * (slope - shift * square),
            slope - 2 * shift * square,
            square,
        )
        return _Piece(middle, self.lower + shift[:, None], self.upper + shift[:, None], error)


def _piece(
    factor: Factor, targets: Tensor, rows: Tensor, norms: Tensor, ranks: Sequence[int]
) -> _Piece:
    """Accepted candidates and their errors at one λ."""
    b, s = factor.at(rows, norms)
    c, d = factor.dual, factor.diagonal
    reach = torch.addcmul(b.square(), s[:, None], d)  # E² = s d + b², so E²/s is the new diagonal
    ratios = b * (s[:, None] / reach)  # b over the new diagonal
    left_out = c * (s[:, None] / reach)
    error = (
        left_out.square().sum(dim=1),
        -2 * (left_out * ratios).sum(dim=1) / s,
        ratios.square().sum(dim=1) / s.square() + 1,
    )
    reach.sqrt_()
    # Of the two roots one is at least 0 and one at most 0: c/(b + E) has the sign of c.
    first, second = c / (b + reach), c / (b - reach)
    lower = kth_smallest(torch.minimum(first, second), ranks) * s[:, None]
    upper = kth_largest(torch.maximum(first, second), ranks) * s[:, None]
    return _Piece(b @ targets, lower, upper, error)


def _hull(pieces: Sequence[_Piece]) -> tuple[Tensor, Tensor]:
    """Least and largest accepted t, each (m, ranks): λ̂(t) = λ, and t is accepted at λ."""
    lower = torch.stack([piece.lower for piece in pieces])  # (grid, m, ranks)
    upper = torch.stack([piece.upper for piece in pieces])
    errors = torch.stack([torch.stack(piece.error) for piece in pieces])  # (grid, 3, m)
    mirrored = errors * errors.new_tensor([1.0, -1.0, 1.0])[:, None]  # as functions of −t
    crossings = _crossings(errors)
    least, most = torch.empty_like(lower[0]), torch.empty_like(upper[0])
    for k in range(least.shape[1]):
        low, high = lower[..., k], upper[..., k]
        most[:, k] = _largest_accepted(low, high, errors, crossings)
        least[:, k] = -_largest_accepted(-high, -low, mirrored, -crossings)
    nothing = most < least  # then the point prediction alone
    return least.masked_fill(nothing, 0.0), most.masked_fill(nothing, 0.0)


def _largest_accepted(low: Tensor, high: Tensor, errors: Tensor, crossings: Tensor) -> Tensor:
    """The largest t in [low, high] of the λ with the least error there, shape (m,).

    It is the upper end of some λ's interval, or a crossing beyond all such ends that qualify; there
    are few of these.
    """
    if torch.isinf(high).any():  # κ = 0: every candidate is accepted
        return high.new_full(high.shape[1:], torch.inf)
    largest = torch.full_like(high[0], -torch.inf)
    for t in high:
        accepted = _is_accepted(t, low, high, errors)
        largest = torch.maximum(largest, torch.where(accepted, t, -torch.inf))
    which, row = ((crossings > largest) & (crossings <= high.amax(dim=0))).nonzero().unbind(1)
    beyond = crossings[which, row]
    accepted = _is_accepted(beyond, low[:, row], high[:, row], errors[..., row])
    beyond = torch.where(accepted, beyond, -torch.inf)
    return largest.scatter_reduce(0, row, beyond, "amax")


def _is_accepted(t: Tensor, low: Tensor, high: Tensor, errors: Tensor) -> Tensor:
    """Whether t, shape (m,), lies in the interval of a λ with the least error at t."""
    values = errors[:, 0] + t * (errors[:, 1] + t * errors[:, 2])
    least = values <= values.amin(dim=0) * (1 + TIE)
    return (least & (low <= t) & (t <= high)).any(dim=0)


def _crossings(errors: Tensor) -> Tensor:
    """Where two of the quadratics are equal, (2·pairs, m).

    Where they never are it is 0, a candidate like any other.
    """
    first, second = torch.triu_indices(len(errors), len(errors), 1, device=errors.device)
    constant, slope, square = (errors[first] - errors[second]).unbind(1)
    discriminant = slope.square() - 4 * square * constant
    # The larger root in size first, without cancellation; the other one follows from the product.
    far = -(slope + torch.copysign(discriminant.clamp(min=0.0).sqrt(), slope)) / 2
    roots = torch.cat([far / square, constant / far])
    real = torch.isfinite(roots) & (discriminant >= 0).repeat(2, 1)
    return torch.where(real, roots, 0.0)
