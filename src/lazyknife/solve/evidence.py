"""How well a kernel explains the rows of each model: its restricted likelihood, in closed form.

With G = K + λI, A the inverse of the bordered system where there is an intercept, c = A r and
d = diag A, the rows without j have, over all constant multiples of the kernel,

    −2 log likelihood = ν·log(rᵀc − c_j²/d_j) + log det + log d_j,

up to a constant, with ν degrees of freedom: n − 1, or n − 2 with an intercept. ``det`` is det G, or
det G·1ᵀG⁻¹1 with an intercept. So one factorisation serves all n models, and each value is a
function of the rows without j alone. Without a set S of rows c_Sᵀ(A_SS)⁻¹c_S and log det A_SS take
the places of c_j²/d_j and log d_j.

Since nothing depends on r_S, it may be any number. Where r_S makes up nearly all of rᵀc, the
difference would lose its digits: then the prediction by the other rows takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .rounding import gamma_of

HEAVY = (
    0.99  # share of rᵀc that the rows of a set explain by themselves, above which r_S is replaced
)


class Evidence(NamedTuple):
    """−2 log likelihood over its degrees of freedom, and a bound on its error by rounding.

    Both have shape (kernels, models); the last model has all rows. For a kernel that is not
    positive definite to rounding both are infinite: any row may have caused it.
    """

    values: Tensor
    noise: Tensor


def evidence(
    kernels: Tensor,
    ridges: Tensor,
    targets: Tensor,
    intercept: bool,
    folds: Sequence[Tensor] | None = None,
) -> Evidence:
    """Evidence of each kernel for each model.

    Parameters
    ----------
    kernels
        K for several candidates, shape (kernels, n, n); they are overwritten.
    ridges
        λ of each, shape (kernels,).
    targets
        r for each kernel, shape (kernels, n).
    intercept
        Whether there is an unpenalised intercept.
    folds
        Rows that each model leaves out; None: each row in turn.

    """
    factor = _Factor.of(kernels, ridges, intercept)
    dual, whole = factor.solve(targets)
    if folds is None:
        lost, logs = dual.square() / factor.diagonal, factor.diagonal.log()
        counts = torch.ones_like(targets[0])
    else:
        found = [factor.without(dual, rows) for rows in folds]
        lost, logs = (torch.stack(part, dim=1) for part in list(zip(*found, strict=True))[:2])
        counts = targets.new_tensor([len(rows) for rows in folds])
    freedom = targets.shape[1] - int(intercept) - torch.cat([counts, counts.new_zeros(1)])
    lost, logs = (torch.nn.functional.pad(part, (0, 1)) for part in (lost, logs))  # the full model
    sides = _Side(*(part[:, None].repeat(1, lost.shape[1]) for part in whole))
    for k in torch.nonzero((lost > HEAVY * sides.quadratic).any(dim=0))[:, 0].tolist():
        rows = torch.tensor([k], device=dual.device) if folds is None else folds[k]
        residuals = torch.ldexp(factor.without(dual, rows)[2], whole.exponent[:, None])
        own, side = factor.solve(replaced(targets, rows, targets[:, rows] - residuals))
        lost[:, k] = factor.without(own, rows)[0]
        for every, one in zip(sides, side, strict=True):
            every[:, k] = one
    left = sides.quadratic - lost
    tiny, shift = torch.finfo(left.dtype).tiny, 2 * math.log(2) * sides.exponent.to(left.dtype)
    values = (left.clamp(min=tiny) / freedom).log() + shift
    values = values + (factor.logs[:, None] + logs) / freedom
    noise = factor.noise(sides, lost, left, freedom) + gamma_of(left.dtype) * shift.abs()
    bad = factor.failed[:, None] | ~torch.isfinite(values)
    return Evidence(*(torch.where(bad, torch.inf, part) for part in (values, noise)))


def replaced(targets: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """Targets with other numbers in some rows, but within the range of those of the others."""
    others = torch.ones_like(targets[0], dtype=torch.bool)
    others[rows] = False
    least, most = (
        ends(targets[:, others], dim=1, keepdim=True) for ends in (torch.amin, torch.amax)
    )
    return targets.index_copy(1, rows, wanted.clamp(least, most))


class _Side(NamedTuple):
    """What is needed of a solution for targets times 2^−exponent, so that no square overflows.

    ``quadratic`` is rᵀc, ``whole`` the same before the intercept was eliminated, and ``load`` is
    |c|ᵀ√diag G; each has shape (kernels,), or (kernels, models).
    """

    quadratic: Tensor
    whole: Tensor
    load: Tensor
    exponent: Tensor


class _Factor(NamedTuple):
    """Several kernels, factored, the intercept eliminated.

    ``half`` is L⁻¹, (kernels, n, n); ``diagonal``, ``ones`` (L⁻¹1, or 0 without an intercept),
    ``sums`` (G⁻¹1), ``share`` (over its total) and ``roots`` (√diag G) have shape (kernels, n);
    ``logs`` is log det.
    """

    half: Tensor
    diagonal: Tensor
    ones: Tensor
    sums: Tensor
    share: Tensor
    roots: Tensor
    logs: Tensor
    failed: Tensor
    intercept: bool

    @classmethod
    def of(cls, kernels: Tensor, ridges: Tensor, intercept: bool) -> _Factor:
        diagonal = kernels.diagonal(dim1=1, dim2=2)
        diagonal.add_(ridges[:, None])
        roots = diagonal.sqrt()
        lower, failed = torch.linalg.cholesky_ex(kernels)
        eye = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device)
        half = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
        ones = half.sum(dim=2) * intercept
        total = ones.square().sum(dim=1) if intercept else torch.ones_like(ridges)
        sums = (ones[:, None] @ half)[:, 0]
        share = sums / total[:, None]
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1) + total.log()
        inverse = half.square().sum(dim=1) - sums * share
        return cls(half, inverse, ones, sums, share, roots, logs, failed != 0, intercept)

    def solve(self, targets: Tensor) -> tuple[Tensor, _Side]:
        """Return c times 2^−exponent, shape (kernels, n), for targets (kernels, n)."""
        if self.intercept:  # absorbs any constant: one of the targets, which saves digits
            targets = targets - targets.median(dim=1, keepdim=True).values
        exponent = torch.frexp(targets.abs().amax(dim=1)).exponent
        half = torch.ldexp(targets, -exponent[:, None])[:, None] @ self.half.mT
        dual, whole = (half @ self.half)[:, 0], half.square().sum(dim=(1, 2))
        quadratic = whole
        if self.intercept:
            total = self.ones.square().sum(dim=1)
            slope = (half[:, 0] * self.ones).sum(dim=1) / total
            dual, quadratic = dual - slope[:, None] * self.sums, whole - slope.square() * total
        load = (dual.abs() * self.roots).sum(dim=1)
        return dual, _Side(quadratic, whole, load, exponent)

    def without(self, dual: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """c_Sᵀ(A_SS)⁻¹c_S, log det A_SS, each (kernels,), and (A_SS)⁻¹c_S, (kernels, rows)."""
        columns = self.half[:, :, rows]
        inverse = columns.mT @ columns - self.sums[:, rows, None] * self.share[:, None, rows]
        lower, _ = torch.linalg.cholesky_ex(inverse)
        own = torch.linalg.solve_triangular(lower, dual[:, rows, None], upper=False)
        residuals = torch.linalg.solve_triangular(lower.mT, own, upper=True)[:, :, 0]
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        return own.square().sum(dim=(1, 2)), logs, residuals

    def noise(self, sides: _Side, lost: Tensor, left: Tensor, freedom: Tensor) -> Tensor:
        """Bound the errors by rounding, as in rounding.py, with |A_ij| ≤ √(d_i d_j).

        |c_{−j}| is then at most |c| plus √d times √(c_j²/d_j).
        """
        spread = (self.diagonal.clamp(min=0.0).sqrt() * self.roots).sum(dim=1, keepdim=True)
        load = sides.load + spread * lost.clamp(min=0.0).sqrt()
        sizes = (load.square() + 2 * sides.whole) / left.clamp(min=0.0)
        sizes = torch.where(load > 0, sizes, 0.0)  # targets that are all equal
        return gamma_of(left.dtype) * (sizes + spread.square() / freedom + 4)
