"""The candidates that full conformal prediction accepts; full.py has the notation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..solve.ridge import OpenRidge
from ..solve.rounding import FIRST_ORDER
from .order import kth_largest, kth_smallest

# At a crossing two quadratics are equal up to rounding.
CROSSING = 1e-9
LEAST_SPLIT = 1e-12


@dataclass(frozen=True)
class Piece:
    """Accepted candidates y = f(x; θ0) + middle + t, and errors, at one λ.

    Attributes
    ----------
    middle
        u, shape (m,).
    lower, upper
        Ends of the accepted t, shape (m, ranks).
    error
        Leave-one-out error of all n + 1 rows, coefficients of t⁰, t¹ and t², each (m,).
    relative, noise
        What rounding may have changed in the errors: relative to them, and as a norm, each (m,).

    """

    middle: Tensor
    lower: Tensor
    upper: Tensor
    error: tuple[Tensor, Tensor, Tensor]
    relative: Tensor
    noise: Tensor

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
    factor: OpenRidge,
    rows: Tensor,
    norms: Tensor,
    ranks: Sequence[int],
    gamma: float,
) -> Piece:
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
