"""Full conformal prediction given a part of the rows that is never left out.

Given the part S the features φ, λ, the middle c(x) and the width σ(x) of intervals are fixed. For a
candidate y let the ridge learn from S, the other m rows and (x, y). The score of each of these
m + 1 rows is its left-out error in that ridge, |Y_i − f_{−i}(X_i) − c(X_i)|/σ(X_i): the same
function of a row and of the set of all others, so that scores of exchangeable rows are
exchangeable. The set where at least κ of the m rows have a score no smaller than that of (x, y)
misses with probability at most κ/(m + 1), whatever was learnt on S.

The score of (x, y) is |y − f(x) − c(x)|/σ(x), f the ridge without it. With e_i, h_i and g_i(x) of
``ridge/streamed`` for the ridge without (x, y), h = h(x) and u_i = g_i/√(1 + h), adding (x, y) is a
rank-one change of G, after which row i has the leverage h_i − u_i², the residual
e_i(1 − h_i) − u_i(y − f(x))/√(1 + h), and hence the left-out error a_i − b_i(y − f(x)),

    a_i = e_i(1 − h_i)/o_i,   b_i = u_i/(√(1 + h)·o_i),   o_i = 1 − h_i + u_i².

In units τ = (y − f(x) − c(x))/σ(x), row i accepts where |τ| ≤ |A_i − β_iτ|, with
A_i = (a_i − c(X_i) − b_i c(x))/σ(X_i), β_i = b_iσ(x)/σ(X_i). If |β_i| < 1 this is the interval from
−|A_i|/(1 − β_i s) to |A_i|/(1 + β_i s), s the sign of A_i, and contains 0; otherwise row i counts
as accepting everything, which only enlarges the set. So the set is an interval: its ends are the
κ-th smallest of the lower roots and the κ-th largest of the upper ones. For one side the signed
errors are compared, τ ≤ A_i − β_iτ, and the one root is A_i/(1 + β_i).

Windows. |u_i| ≤ √(h h_i/(1 + h)), so with ρ_i = √h_i/(1 − h_i) and q = √h/(1 + h)

    |b_i| ≤ qρ_i,   |a_i − e_i| ≤ |e_i|·q√h·ρ_i√h_i.

With η the largest of qσ(x)/σ̄, q|c(x)|/ē and q√h, where σ̄ and ē are typical sizes of σ and e, both
roots lie, up to their sign, between (R_i − ηG_i)/(1 + ηB_i) and (R_i + ηG_i)/(1 − ηB_i),

    R_i = |e_i − c(X_i)|/σ(X_i),   G_i = ρ_i(ē + |e_i|√h_i)/σ(X_i),   B_i = ρ_iσ̄/σ(X_i).

Rounding. Products with G⁻¹ are off by at most a part z of their largest possible size
(``StreamedRidge.changed``; for errors of a row's own features √h and √h_i count as 1/√n more). So
b_i is off by at most 16 z b̄_i/(1 − h_i), b̄_i its bound, and a_i in the same proportion beside the
error of e_i. Predictions are off by at most the slack of ``StreamedBounds``: that of the model
without row i and that of f reach a_i − b_i(y − f(x)) by |b_i|, and the end by what ``outwards``
adds. |A_i| is raised by the sum of these, and 1 ± β_i lowered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..records import Predictions, errors_on, rounded_up
from ..ridge.streamed import EPSILON
from .window import SAFE, Among, FullPrediction, Values, selected

if TYPE_CHECKING:
    from .streamed import StreamedModels

CHANGES = 16.0  # times z, relative to 1 − h: what rounding may change in b


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Of rows i what the candidates that they accept depend on."""

    loo: StreamedModels
    open_part: Tensor  # 1 − h_i
    roots: Tensor  # √h_i + ν
    unsure: Tensor  # what rounding may change in b_i, relative to its bound
    least: float  # ν
    middling: tuple[float, float]  # σ̄ and ē

    @classmethod
    def of(cls, loo: StreamedModels) -> ComparedRows:
        leverages, least = loo.out.left.leverages, 1 / math.sqrt(loo.solved.count)
        open_part = (1 - leverages).clamp(min=torch.finfo(torch.float64).tiny)
        unsure = CHANGES * loo.changed / open_part
        middling = float(loo.out.shape.scale.median()), float(loo.steps.abs().median())
        roots = leverages.clamp(min=0.0).sqrt() + least
        return cls(loo, open_part, roots, unsure, least, middling)

    @property
    def block(self) -> int:
        return self.loo.block

    def columns(self, members: Tensor) -> Tensor:
        """L⁻¹φ of some rows, shape (q, members)."""
        return self.loo.halves(members)

    def etas(self, near: FullPrediction) -> Tensor:
        """η of new rows, shape (m,)."""
        scale, error = self.middling
        found, roots = near.found, near.roots + self.least
        shift = found.shift.abs() + 2 * finite(found.slack)
        sizes = torch.stack([found.scales / scale, shift / error, roots])
        return (roots / (1 + near.roots.square())) * sizes.amax(dim=0)


def accepted(
    loo: StreamedModels, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the ends of accepted candidates less c(x), (m, ranks)."""
    near, rows = loo.full_at(X), loo.compared
    return near.found, *selected(near, rows.etas(near), ranks, lambda *_: Among(rows), FULL)


def _bounds(rows: ComparedRows, eta: float) -> tuple[Tensor, Tensor]:
    """Between what roots lie."""
    scale, error = rows.middling
    shape, sizes = rows.loo.out.shape.scale, rows.loo.steps.abs()
    reach = rows.roots / rows.open_part * (1 + rows.unsure) / shape
    gaps = eta * reach * (error + sizes * rows.roots)
    gaps = gaps + SAFE * (rows.loo.scores.abs() + sizes / shape)
    spread = eta * reach * scale + SAFE
    low, high = rows.loo.scores - gaps, rows.loo.scores + gaps
    low = low / torch.where(low > 0, 1 + spread, 1 - spread)
    high = high / torch.where(high > 0, 1 - spread, 1 + spread)
    sure = spread < 1
    return low.where(sure, -torch.inf).nan_to_num(torch.inf), high.where(sure, torch.inf)


def _ends(
    rows: ComparedRows, near: FullPrediction, some: Tensor, members: Tensor, products: Tensor
) -> tuple[Tensor, Tensor]:
    """Roots of some rows for some candidates, times σ(x)."""
    loo, found = rows.loo, near.found
    scale, shift, slack = (
        each[some, None]
        for each in (found.scales, found.shift.expand(len(near.roots)), finite(found.slack))
    )
    roots = near.roots[some, None]
    length = torch.hypot(roots, torch.ones_like(roots))  # √(1 + h)
    shape, errors = (each[members] for each in (loo.out.shape.scale, loo.steps))
    open_part, own_roots = rows.open_part[members], rows.roots[members]
    moved = products / length
    opened = open_part + moved.square()
    slopes = moved / length / opened  # b
    left = errors * (open_part / opened) - loo.out.shape.shift[members] - slopes * shift
    # What rounding may change.
    reach = (roots + rows.least) / length  # at most about 1
    change = rows.unsure[members] * reach * own_roots / length / open_part  # of b
    error = change * (shift.abs() + errors.abs() * (reach * length) * own_roots)
    error += loo.own[members] + EPSILON * errors.abs() + 2 * slopes.abs() * slack
    ratio = scale / shape
    slopes, change = slopes * ratio, change * ratio + 4 * loo.stretch
    known = (slopes.abs() + change < 1) & torch.isfinite(loo.scores[members])

    if loo.side == "both":
        clear, lean = left.abs() > error, slopes * left.sign()
        sizes, most = (left.abs() + error) * ratio, slopes.abs()
        upper = sizes / (1 + torch.where(clear, lean, -most) - change)
        lower = sizes / (1 - torch.where(clear, lean, most) - change)
    else:
        sizes = (errors_on(left, loo.side) + error) * ratio
        upper = lower = sizes / (1 + slopes - sizes.sign() * change)
    lower, upper = (
        rounded_up(root, 2 * loo.stretch + EPSILON).where(known, torch.inf)
        for root in (lower, upper)
    )
    return found.point[some, None] - lower, found.point[some, None] + upper


FULL = Values(_bounds, _ends)


def finite(slack: Tensor) -> Tensor:
    """Bounds on rounding, or 0 where there is none: there the whole line is returned anyway."""
    return torch.where(torch.isfinite(slack), slack, 0.0)
