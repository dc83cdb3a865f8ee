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

    Both have shape (kernels, models); the last model has all rows. A kernel that is not positive
    definite to rounding has an infinite value.
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
    n = targets.shape[1]
    roots = (kernels.diagonal(dim1=1, dim2=2) + ridges[:, None]).sqrt()
    kernels.diagonal(dim1=1, dim2=2).add_(ridges[:, None])
    lower, failed = torch.linalg.cholesky_ex(kernels)
    eye = torch.eye(n, dtype=kernels.dtype, device=kernels.device).expand_as(lower)
    half = torch.linalg.solve_triangular(lower, eye, upper=False)  # L⁻¹
    centred = targets - targets.mean(dim=1, keepdim=True) if intercept else targets
    sides = torch.stack([centred, torch.ones_like(centred)], dim=2)
    solved = half @ sides
    fitted = solved.mT @ half
    logs = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    dual, sums = fitted[:, 0], fitted[:, 1]
    quadratic = solved[..., 0].square().sum(dim=1)
    diagonal = half.square().sum(dim=1)
    if intercept:
        total = solved[..., 1].square().sum(dim=1)
        slope = (solved[..., 0] * solved[..., 1]).sum(dim=1) / total
        dual = dual - slope[:, None] * sums
        quadratic = quadratic - slope.square() * total
        diagonal = diagonal - sums.square() / total[:, None]
        logs = logs + total.log()
    gone = ((dual.square() / diagonal), diagonal.log())
    counts = torch.ones(n, dtype=kernels.dtype, device=kernels.device)
    if folds is not None:
        gone = _blocks_gone(half, dual, sums / total[:, None] if intercept else None, sums, folds)
        counts = torch.tensor([len(rows) for rows in folds]).to(counts)
    zero = quadratic.new_zeros(len(quadratic), 1)
    freedom = n - int(intercept) - torch.cat([counts, counts.new_zeros(1)])
    left = quadratic[:, None] - torch.cat([gone[0], zero], dim=1)
    values = (left.clamp(min=torch.finfo(left.dtype).tiny) / freedom).log()
    values = values + (logs[:, None] + torch.cat([gone[1], zero], dim=1)) / freedom
    # |c_−j| is at most |c| + |A_·j||e_j| and |A_ij| at most √(d_i d_j): see rounding.py.
    spread = (diagonal.clamp(min=0.0).sqrt() * roots).sum(dim=1, keepdim=True)
    load = (dual.abs() * roots).sum(dim=1, keepdim=True)
    load = load + spread * torch.cat([gone[0].clamp(min=0.0).sqrt(), zero], dim=1)
    sizes = load.square() + 2 * quadratic[:, None]
    noise = gamma_of(left.dtype) * (sizes / left.clamp(min=0.0) + spread.square() / freedom + 4)
    bad = (failed != 0)[:, None] | ~torch.isfinite(values)
    return Evidence(torch.where(bad, torch.inf, values), torch.where(bad, 0.0, noise))


def _blocks_gone(
    half: Tensor, dual: Tensor, share: Tensor | None, sums: Tensor, folds: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """c_Sᵀ(A_SS)⁻¹c_S and log det A_SS of each fold, each (kernels, folds)."""
    quadratics, logs = [], []
    for rows in folds:
        columns = half[:, :, rows]
        inverse = columns.mT @ columns
        if share is not None:
            inverse = inverse - sums[:, rows, None] * share[:, None, rows]
        lower, _ = torch.linalg.cholesky_ex(inverse)
        own = torch.linalg.solve_triangular(lower, dual[:, rows, None], upper=False)
        quadratics.append(own.square().sum(dim=(1, 2)))
        logs.append(2 * lower.diagonal(dim1=1, dim2=2).log().sum(dim=1))
    return torch.stack(quadratics, dim=1), torch.stack(logs, dim=1)
