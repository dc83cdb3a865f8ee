"""How a function of a kernel matrix changes with the weights of the features.

With K = link(Σ_f term(w_f)), a function of K with the symmetric derivative M = ∂/∂K has the slopes

    ∂/∂log w_f = Σ_ij S_ij ∂term_ij/∂log w_f,   S = M ∘ ∂link/∂total.

For terms factor·w²(x − x')² all slopes come from one product: Σ_ij S_ij(x_i − x_j)² is
2Σ_i s_i x_i² − 2xᵀSx with row sums s. Others are summed feature by feature, in tiles on and below
the diagonal that stay in a processor's caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import steps
from ..networks import Kind

ROWS, GPU_ROWS = 64, 2048  # of a tile


class Kernel(NamedTuple):
    """Sums over the features and their kernel, each (m, m)."""

    total: Tensor
    values: Tensor


def kernel_of(kind: Kind, weights: Tensor, X: Tensor, nominal: Sequence[bool]) -> Kernel:
    """Kernel of all pairs of rows (m, features), exactly symmetric."""
    total = X.new_zeros(len(X), len(X))
    for rows, columns in _lower(X):
        total[rows, columns] = kind.whole(weights, X[rows], X[columns], nominal)
    total.tril_(-1)
    total = total + total.T
    own = kind.own(weights, X, nominal)
    return Kernel(total, kind.link(total, own[:, None], own[None]))


def _lower(X: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows of each tile, and the columns up to its last row."""
    for rows in steps(len(X), ROWS if X.device.type == "cpu" else GPU_ROWS):
        yield rows, slice(0, rows.stop)


def slopes(
    kind: Kind,
    weights: Tensor,
    X: Tensor,
    nominal: Sequence[bool],
    kernel: Kernel,
    derivative: Tensor,
) -> Tensor:
    """Slopes by log w_f, shape (features,).

    Parameters
    ----------
    kind, weights, X, nominal
        The kernel, as of ``kernel_of``.
    kernel
        Its values.
    derivative
        M, symmetric, shape (m, m); it is overwritten.

    """
    pulls = derivative.mul_(kind.steepness(*kernel))
    quick = [kind.power == 2 and not codes for codes in nominal]
    found = X.new_zeros(X.shape[1])
    which = torch.tensor(quick, dtype=torch.bool, device=X.device)
    if any(quick):
        own = 2 * kind.factor * weights[which].square()
        found[which] = own * _square_gaps(pulls, X[:, which])
    rest = [f for f, fast in enumerate(quick) if not fast]
    if rest:
        found[~which] = _summed(kind, weights, X, nominal, pulls, rest)
    return found


def _square_gaps(pulls: Tensor, X: Tensor) -> Tensor:
    """Σ_ij S_ij d²_ij of each feature, shape (features,); a gap is 1 away from numbers."""
    total = _square_differences(pulls, X.nan_to_num())
    missing = X.isnan()
    gappy = missing.any(dim=0)
    if bool(gappy.any()):
        total[gappy] += _square_differences(pulls, missing[:, gappy].to(X))
    return total


def _square_differences(pulls: Tensor, X: Tensor) -> Tensor:
    return 2 * (pulls.sum(dim=1) @ X.square() - (X * (pulls @ X)).sum(dim=0))


def _summed(
    kind: Kind,
    weights: Tensor,
    X: Tensor,
    nominal: Sequence[bool],
    pulls: Tensor,
    features: Sequence[int],
) -> Tensor:
    """Σ_ij S_ij slope_ij of some features: twice the part below the diagonal, where it is 0."""
    below = pulls.tril(-1)
    own, columns_of = weights.tolist(), X.T.contiguous()
    found = X.new_zeros(len(features))
    for rows, columns in _lower(X):
        tile = below[rows, columns]
        for k, f in enumerate(features):
            left, right = columns_of[f, rows, None], columns_of[f, None, columns]
            found[k] += (kind.slope(own[f], left, right, nominal[f]).mul_(tile)).sum()
    return found.mul_(2)
