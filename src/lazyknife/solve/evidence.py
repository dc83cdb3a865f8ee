"""How well a kernel explains the rows of each model: its restricted likelihood, in closed form.

With G = K + λI, A the inverse of the bordered system where there is an intercept, c = A r and
d = diag A, the rows without j have, over all constant multiples of the kernel,

    −2 log likelihood = ν·log(rᵀc − c_j²/d_j) + log det + log d_j,

up to a constant, with ν degrees of freedom: n − 1, or n − 2 with an intercept. ``det`` is det G, or
det G·1ᵀG⁻¹1 with an intercept. So one factorisation serves all n models, and each value is a
function of the rows without j alone. Without a set S of rows c_Sᵀ(A_SS)⁻¹c_S and log det A_SS take
the places of c_j²/d_j and log d_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .rounding import gamma_of


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
    solved = _Solved.of(kernels, ridges, targets, intercept)
    if folds is None:
        lost, logs = solved.dual.square() / solved.diagonal, solved.diagonal.log()
        counts = torch.ones_like(targets[0])
    else:
        lost, logs = solved.without_folds(folds)
        counts = targets.new_tensor([len(rows) for rows in folds])
    freedom = targets.shape[1] - int(intercept) - torch.cat([counts, counts.new_zeros(1)])
    lost, logs = (torch.nn.functional.pad(part, (0, 1)) for part in (lost, logs))  # the full model
    left = solved.quadratic[:, None] - lost
    tiny = torch.finfo(left.dtype).tiny
    values = (left.clamp(min=tiny) / freedom).log() + (solved.logs[:, None] + logs) / freedom
    noise = solved.noise(lost, left, freedom)
    bad = solved.failed[:, None] | ~torch.isfinite(values)
    return Evidence(*(torch.where(bad, torch.inf, part) for part in (values, noise)))


class _Solved(NamedTuple):
    """The ridge of several kernels, the intercept eliminated.

    ``half`` is L⁻¹, (kernels, n, n); ``dual``, ``diagonal``, ``sums`` (G⁻¹1), ``share`` (over its
    total) and ``roots`` (√diag G) have shape (kernels, n); ``quadratic`` is rᵀc, ``logs`` log det.
    """

    half: Tensor
    dual: Tensor
    diagonal: Tensor
    sums: Tensor
    share: Tensor
    roots: Tensor
    quadratic: Tensor
    logs: Tensor
    failed: Tensor

    @classmethod
    def of(cls, kernels: Tensor, ridges: Tensor, targets: Tensor, intercept: bool) -> _Solved:
        diagonal = kernels.diagonal(dim1=1, dim2=2)
        diagonal.add_(ridges[:, None])
        roots = diagonal.sqrt()
        lower, failed = torch.linalg.cholesky_ex(kernels)
        eye = torch.eye(lower.shape[1], dtype=lower.dtype, device=lower.device)
        half = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)
        centred = targets - targets.mean(dim=1, keepdim=True) if intercept else targets
        sides = half @ torch.stack([centred, torch.ones_like(centred)], dim=2)
        first, ones = sides.unbind(dim=2)
        dual, sums = (sides.mT @ half).unbind(dim=1)
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        quadratic, inverse = first.square().sum(dim=1), half.square().sum(dim=1)
        if not intercept:
            none = torch.zeros_like(sums)
            return cls(half, dual, inverse, none, none, roots, quadratic, logs, failed != 0)
        total = ones.square().sum(dim=1)
        slope = (first * ones).sum(dim=1) / total
        share = sums / total[:, None]
        return cls(
            half,
            dual - slope[:, None] * sums,
            inverse - sums * share,
            sums,
            share,
            roots,
            quadratic - slope.square() * total,
            logs + total.log(),
            failed != 0,
        )

    def without_folds(self, folds: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """c_Sᵀ(A_SS)⁻¹c_S and log det A_SS of each fold, each (kernels, folds)."""
        found = [self._without(rows) for rows in folds]
        lost, logs = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        return lost, logs

    def _without(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        columns = self.half[:, :, rows]
        inverse = columns.mT @ columns - self.sums[:, rows, None] * self.share[:, None, rows]
        lower, _ = torch.linalg.cholesky_ex(inverse)
        own = torch.linalg.solve_triangular(lower, self.dual[:, rows, None], upper=False)
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        return own.square().sum(dim=(1, 2)), logs

    def noise(self, lost: Tensor, left: Tensor, freedom: Tensor) -> Tensor:
        """Bound the errors by rounding, as in rounding.py, with |A_ij| ≤ √(d_i d_j).

        |c_{−j}| is then at most |c| plus √d times √(c_j²/d_j).
        """
        spread = (self.diagonal.clamp(min=0.0).sqrt() * self.roots).sum(dim=1, keepdim=True)
        load = (self.dual.abs() * self.roots).sum(dim=1, keepdim=True)
        load = load + spread * lost.clamp(min=0.0).sqrt()
        sizes = (load.square() + 2 * self.quadratic[:, None]) / left.clamp(min=0.0)
        sizes = torch.where(load > 0, sizes, 0.0)  # targets that are all 0
        return gamma_of(left.dtype) * (sizes + spread.square() / freedom + 4)
