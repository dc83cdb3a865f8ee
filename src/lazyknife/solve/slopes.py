"""How a function of a kernel matrix changes with the weights of the features.

With K = link(Σ_f term(w_f)), a function of K with the symmetric derivative M = ∂/∂K has the slopes

    ∂/∂log w_f = Σ_ij S_ij ∂term_ij/∂log w_f,   S = M ∘ ∂link/∂total.

For terms factor·w²(x − x')² all slopes come from one product: Σ_ij S_ij(x_i − x_j)² is
2Σ_i s_i x_i² − 2xᵀSx with row sums s. Other terms are summed feature by feature, in tiles on and
below the diagonal that stay in a processor's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import steps
from ..networks import Anova, Kind

ENTRIES, GPU_ENTRIES = 2**18, 2**24  # of a tile
KEPT_BYTES = 2**28  # of kernels of single features, which do not depend on weights
Tile = tuple[slice, slice]  # rows, and the columns up to the last of them


class Kernel(NamedTuple):
    """Sums over the features and their kernel, each (m, m)."""

    total: Tensor
    values: Tensor


@dataclass(frozen=True)
class Pairs:
    """All pairs of some rows.

    Attributes
    ----------
    kind
        Of kernels.
    X
        Rows as the kernel takes them, shape (m, features).
    nominal
        Which features are nominal.
    kept
        Kernels of single features, of each feature and tile.

    """

    kind: Kind
    X: Tensor
    nominal: Sequence[bool]
    kept: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def kernel(self, weights: Tensor, used: Sequence[int]) -> Kernel:
        """Kernel of all pairs for some features and their weights, exactly symmetric."""
        m = len(self.X)
        X, codes = self.X[:, used], [self.nominal[f] for f in used]
        total = X.new_zeros(m, m)
        for tile in self._tiles():
            total[tile] = self._whole(weights, X, codes, used, tile)
        total.tril_(-1)
        total = total + total.T
        own = self.kind.own(weights, X, codes)
        return Kernel(total, self.kind.link(total, own[:, None], own[None]))

    def slopes(
        self, weights: Tensor, used: Sequence[int], kernel: Kernel, derivative: Tensor
    ) -> Tensor:
        """Slopes by log w of some features, shape (used,).

        Parameters
        ----------
        weights, used, kernel
            The features, their weights and their kernel.
        derivative
            M, symmetric, shape (m, m); it is overwritten.

        """
        kind, pulls = self.kind, derivative.mul_(self.kind.steepness(*kernel))
        quick = [k for k, f in enumerate(used) if kind.is_power and not self.nominal[f]]
        rest = [k for k in range(len(used)) if k not in set(quick)]
        found = weights.new_zeros(len(used))
        if quick:
            gaps = _square_gaps if kind.power == 2 else self._absolute_gaps
            unweighted = _with_missing(gaps, pulls, self.X[:, [used[k] for k in quick]])
            own = weights[quick] ** kind.power
            found[quick] = kind.power * kind.factor * own * unweighted
        if rest:
            others = [used[k] for k in rest]
            found[rest] = self._summed(weights[rest].tolist(), others, pulls)
        return found

    def _tiles(self) -> Iterator[Tile]:
        m, entries = len(self.X), ENTRIES if self.X.device.type == "cpu" else GPU_ENTRIES
        for rows in steps(m, max(1, entries // max(m, 1))):
            yield rows, slice(0, rows.stop)

    def _whole(
        self, weights: Tensor, X: Tensor, codes: list[bool], used: Sequence[int], tile: Tile
    ) -> Tensor:
        rows, columns = tile
        if not isinstance(self.kind, Anova):
            return self.kind.whole(weights, X[rows], X[columns], codes)
        singles = (self._single(self.kind, f, tile) for f in used)
        ones = X.new_ones(rows.stop - rows.start, columns.stop)
        return self.kind.joined(weights, singles, ones)

    def _single(self, kind: Anova, f: int, tile: Tile) -> Tensor:
        """Return the kernel of one feature in a tile, kept if all of them fit."""
        key = f, tile[0].start
        if key in self.kept:
            return self.kept[key]
        left, right = (self.X[part, f] for part in tile)
        found = kind.single_kernel(left[:, None], right[None], self.nominal[f])
        if self.X.shape[1] * len(self.X) ** 2 * self.X.element_size() // 2 <= KEPT_BYTES:
            self.kept[key] = found
        return found

    def _slope(self, weight: float, f: int, tile: Tile) -> Tensor:
        if isinstance(self.kind, Anova):
            return self.kind.slope_of(weight, self._single(self.kind, f, tile))
        left, right = (self.X[part, f] for part in tile)
        return self.kind.slope(weight, left[:, None], right[None], self.nominal[f])

    def _summed(self, weights: Sequence[float], used: Sequence[int], pulls: Tensor) -> Tensor:
        """Σ_ij S_ij slope_ij: twice the part below the diagonal, where slopes are 0."""
        found = pulls.new_zeros(len(used))
        for tile in self._tiles():
            own = _below(pulls, tile)
            for k, (f, weight) in enumerate(zip(used, weights, strict=True)):
                found[k] += 2 * torch.dot(self._slope(weight, f, tile).view(-1), own)
        return found

    def _absolute_gaps(self, pulls: Tensor, X: Tensor) -> Tensor:
        """Σ_ij S_ij|x_i − x_j|, likewise."""
        total, features = X.new_zeros(X.shape[1]), X.T.contiguous()
        for tile in self._tiles():
            own, (rows, columns) = _below(pulls, tile), tile
            gaps = X.new_empty(rows.stop - rows.start, columns.stop)
            for f, values in enumerate(features):
                torch.sub(values[rows, None], values[columns], out=gaps).abs_()
                total[f] += 2 * torch.dot(gaps.view(-1), own)
        return total


def _below(pulls: Tensor, tile: Tile) -> Tensor:
    """Entries of a tile, with zeros on and above the diagonal."""
    return pulls[tile].tril(tile[0].start - 1).flatten()


def _square_gaps(pulls: Tensor, X: Tensor) -> Tensor:
    return 2 * (pulls.sum(dim=1) @ X.square() - (X * (pulls @ X)).sum(dim=0))


def _with_missing(gaps: Callable[[Tensor, Tensor], Tensor], pulls: Tensor, X: Tensor) -> Tensor:
    """Σ_ij S_ij|d_ij|^power of each feature, shape (features,); a gap is 1 away from numbers."""
    total, missing = gaps(pulls, X.nan_to_num()), X.isnan()
    gappy = missing.any(dim=0)
    if bool(gappy.any()):
        total[gappy] += gaps(pulls, missing[:, gappy].to(X))
    return total
