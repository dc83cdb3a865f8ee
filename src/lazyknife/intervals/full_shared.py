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

With η₁ = qσ(x)/σ̄, η₂ = q|c(x)|/ē and η₃ = q√h, where σ̄ and ē are typical sizes of σ and e, both
roots lie, up to their sign, between (R_i − G_i)/(1 + B_i) and (R_i + G_i)/(1 − B_i),

    R_i = |e_i − c(X_i)|/σ(X_i),   G_i = ρ_i(η₂ē + η₃|e_i|√h_i)/σ(X_i),   B_i = η₁ρ_iσ̄/σ(X_i).

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
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..records import Predictions, errors_on, rounded_up
from ..ridge.streamed import EPSILON
from .window import SAFE, Among, Distances, FullPrediction, selected

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

    @cached_property
    def numbers(self) -> Tensor:
        """Of each row o, 1/σ, eo/σ, c/σ, and four factors of what rounding may change, (8, n)."""
        shape, size, own = self.loo.out.shape, self.loo.steps.abs(), self.loo.own
        reach = self.roots / self.open_part / shape.scale
        change = self.unsure * reach
        found = [
            self.open_part,
            1 / shape.scale,
            self.loo.steps * self.open_part / shape.scale,
            shape.shift.expand_as(size) / shape.scale,
            change,
            change * size * self.roots,
            (own + EPSILON * size) / shape.scale,
            2 * reach * (1 + self.unsure),
        ]
        numbers = torch.stack([each.expand_as(size) for each in found])
        unknown = torch.isinf(self.loo.scores) | ~torch.isfinite(numbers).all(dim=0)
        nothing = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, torch.inf, 0.0]).to(numbers)
        return torch.where(unknown, nothing[:, None], numbers)

    def near(self, X: Tensor) -> FullPrediction:
        """New rows, with g(x)/√(1 + h) of rows i as products of factors and columns."""
        found = self.loo.full_at(X)
        return found._replace(factors=found.factors / _lengths(found.roots)[:, None])

    def etas(self, near: FullPrediction) -> Tensor:
        """Of new rows qσ(x)/σ̄, q|c(x)|/ē and q√h, shape (m, 3)."""
        scale, error = self.middling
        found, roots = near.found, near.roots + self.least
        shift = found.shift.abs() + 2 * finite(found.slack)
        sizes = torch.stack([found.scales / scale, shift / error, roots], dim=1)
        return (roots / (1 + near.roots.square()))[:, None] * sizes


def accepted(
    loo: StreamedModels, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the ends of accepted candidates less c(x), (m, ranks)."""
    rows = loo.compared
    near = rows.near(X)
    return near.found, *selected(near, rows.etas(near), ranks, lambda *_: Among(rows), FULL)


def _lengths(roots: Tensor) -> Tensor:
    """√(1 + h), also where h would overflow."""
    return torch.hypot(roots, torch.ones_like(roots))


def _bounds(rows: ComparedRows, scale: float, shift: float, root: float) -> tuple[Tensor, Tensor]:
    """Between what roots lie, of candidates of at most these ``etas``."""
    middle, error = rows.middling
    widths, sizes = rows.loo.out.shape.scale, rows.loo.steps.abs()
    reach = rows.roots / rows.open_part * (1 + rows.unsure) / widths
    gaps = reach * (shift * error + root * sizes * rows.roots)
    gaps = gaps + SAFE * (rows.loo.scores.abs() + sizes / widths)
    spread = scale * middle * reach + SAFE
    low, high = rows.loo.scores - gaps, rows.loo.scores + gaps
    low = low / torch.where(low > 0, 1 + spread, 1 - spread)
    high = high / torch.where(high > 0, 1 - spread, 1 + spread)
    sure = spread < 1
    return low.where(sure, -torch.inf).nan_to_num(torch.inf), high.where(sure, torch.inf)


def _ends(
    rows: ComparedRows, near: FullPrediction, some: Tensor, members: Tensor, products: Tensor
) -> tuple[Tensor, Tensor]:
    """Roots of some rows for some candidates, below and above, times σ(x)."""
    loo, found = rows.loo, near.found
    scale, shift, slack, roots = (
        each[some, None]
        for each in (
            found.scales,
            found.shift.expand(len(near.roots)),
            finite(found.slack),
            near.roots,
        )
    )
    length = _lengths(roots)
    open_part, unit, opened_errors, own_shift, *changes = rows.numbers[:, members]
    inverse = torch.addcmul(open_part, products, products).reciprocal_()  # 1/o
    slopes = (products * inverse).mul_(unit)  # b·√(1 + h)/σ(X_i)
    signed = (inverse.mul_(opened_errors)).sub_(own_shift).addcmul_(slopes, -shift / length)  # A
    slopes *= scale / length  # β
    # What rounding may change in A, and 1 less what it may change in β.
    reach = (roots + rows.least) / length  # at most about 1
    step, ones = reach / length, torch.ones_like(reach)
    error = torch.cat([step * shift.abs(), step * reach * length, ones, step * slack], dim=1)
    error = error @ torch.stack(changes)
    sure = 1 - 4 * loo.stretch - step * scale * changes[0]
    if loo.side == "both":
        sizes, lean = signed.abs(), slopes * signed.sign()
        above, below = sure + lean, sure - lean
        if bool((unclear := sizes <= error).any()):
            most = slopes.abs()
            above = torch.where(unclear, sure - most, above)
            below = torch.where(unclear, sure - most, below)
        known = above.amin() > 0 and below.amin() > 0
        sizes = sizes.add_(error).mul_(scale * (1 + 2 * loo.stretch + EPSILON))
        if not known:
            good = torch.minimum(above, below) > 0
            sizes, above, below = (
                sizes.where(good, torch.inf),
                above.where(good, 1.0),
                below.where(good, 1.0),
            )
        return sizes / below, sizes / above
    sizes = (errors_on(signed, loo.side) + error) * scale
    root = sizes / (1 + slopes - sizes.sign() * (1 - sure))
    root = rounded_up(root, 2 * loo.stretch + EPSILON)
    root = root.where((slopes.abs() < sure) & torch.isfinite(error), torch.inf)
    return root, root


FULL = Distances(_bounds, _ends)


def finite(slack: Tensor) -> Tensor:
    """Bounds on rounding, or 0 where there is none: there the whole line is returned anyway."""
    return torch.where(torch.isfinite(slack), slack, 0.0)
