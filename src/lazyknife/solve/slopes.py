"""How a function of a kernel matrix changes with the weights of the features.

With K = link(Σ_f term(w_f)), a function of K with the symmetric derivative M = ∂/∂K has the slopes

    ∂/∂log w_f = Σ_ij S_ij ∂term_ij/∂log w_f,   S = M ∘ ∂link/∂total.

For terms factor·w²(x − x')² all slopes come from one product: Σ_ij S_ij(x_i − x_j)² is
2Σ_i s_i x_i² − 2xᵀSx with row sums s. Other terms are summed feature by feature, in tiles on and below
the diagonal that stay in a processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import steps
from ..networks import Kind

ENTRIES, GPU_ENTRIES = 2**16, 2**24  # of a tile


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
    entries = ENTRIES if X.device.type == "cpu" else GPU_ENTRIES
    for rows in steps(len(X), max(1, entries // max(len(X), 1))):
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
    quick = torch.tensor([kind.is_power and not codes for codes in nominal], dtype=torch.bool)
    rest = torch.nonzero(~quick).flatten().tolist()
    found, quick = X.new_zeros(X.shape[1]), quick.to(X.device)
    gaps = _square_gaps if kind.power == 2 else _absolute_gaps
    unweighted = _with_missing(gaps, pulls, X[:, quick])
    found[quick] = kind.power * kind.factor * weights[quick] ** kind.power * unweighted
    if rest:
        found[~quick] = _summed(kind, weights, X, nominal, pulls, rest)
    return found


def _with_missing(gaps: Callable[[Tensor, Tensor], Tensor], pulls: Tensor, X: Tensor) -> Tensor:
    """Σ_ij S_ij|d_ij|^power of each feature, shape (features,); a gap is 1 away from numbers."""
    total, missing = gaps(pulls, X.nan_to_num()), X.isnan()
    gappy = missing.any(dim=0)
    if bool(gappy.any()):
        total[gappy] += gaps(pulls, missing[:, gappy].to(X))
    return total


def _square_gaps(pulls: Tensor, X: Tensor) -> Tensor:
    return 2 * (pulls.sum(dim=1) @ X.square() - (X * (pulls @ X)).sum(dim=0))


def _absolute_gaps(pulls: Tensor, X: Tensor) -> Tensor:
    """Twice the part below the diagonal, where gaps are 0."""
    total, columns_of = X.new_zeros(X.shape[1]), X.T.contiguous()
    for rows, columns in _lower(X):
        tile = pulls[rows, columns].tril(rows.start - 1).flatten()
        gaps = X.new_empty(rows.stop - rows.start, columns.stop)
        for f, values in enumerate(columns_of):
            torch.sub(values[rows, None], values[columns], out=gaps).abs_()
            total[f] += 2 * torch.dot(gaps.view(-1), tile)
    return total


def _summed(
    kind: Kind,
    weights: Tensor,
    X: Tensor,
    nominal: Sequence[bool],
    pulls: Tensor,
    features: Sequence[int],
) -> Tensor:
    """Σ_ij S_ij slope_ij of some features: twice the part below the diagonal, where it is 0."""
    own, columns_of = weights.tolist(), X.T.contiguous()
    found = X.new_zeros(len(features))
    for rows, columns in _lower(X):
        tile = pulls[rows, columns].tril(rows.start - 1).flatten()
        for k, f in enumerate(features):
            left, right = columns_of[f, rows, None], columns_of[f, None, columns]
            slope = kind.slope(own[f], left, right, nominal[f])
            found[k] += 2 * torch.dot(slope.view(-1), tile)
    return found
