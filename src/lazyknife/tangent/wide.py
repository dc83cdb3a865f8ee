"""Infinitely wide networks in the place of a linearised one: outputs 0, kernel blocks K(X, X')."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, blocks, steps
from ..data.own_scaling import FeatureScale
from ..networks import KINDS, Kind, wide
from .tangent import Features

ARRAYS = 4  # of the size of a tile, at a time
POWER_TILES = 8  # sums of powers are one function of torch, for which larger tiles are best


@dataclass(frozen=True)
class WideTangent:
    """An infinitely wide network with a weight for each feature."""

    network: wide
    weights: Tensor  # w_f, shape (features,); features of weight 0 are left out
    frame: FeatureScale  # centres and scales of the features
    machine: Machine = PROCESSOR

    @property
    def row_bytes(self) -> int:
        return self.machine.item * len(self.weights)

    @property
    def work_bytes(self) -> int:
        return 2 * self.row_bytes

    def features(self, X: Tensor) -> Features:
        X = self.machine.put(X)
        return Features(X, X.new_zeros(len(X)), None)

    def kernel(self, left: Features, right: Features) -> Tensor:
        """k(x, x') of all pairs, shape (m, n), tile by tile."""
        total = left.X.new_empty(len(left.X), len(right.X))
        above, below, kind = self._prepared(left.X), self._prepared(right.X), self._kind
        entries = self.machine.tile // (ARRAYS * self.machine.item)
        if kind is not None and kind.is_power:
            entries *= POWER_TILES
        for columns in steps(total.shape[1], 2 * max(1, math.isqrt(entries))):
            for rows in blocks(len(total), columns.stop - columns.start, entries):
                sides = above[rows], below[columns]
                if kind is None:
                    total[rows, columns] = self._given(*sides)
                else:
                    total[rows, columns] = kind.kernel(self.weights, *sides, self.frame.nominal)
        return total

    def gram(self, features: Features) -> Tensor:
        """k(x, x') of all pairs of the same rows, exactly symmetric, shape (n, n)."""
        total = self.kernel(features, features)
        return total.tril_().add_(total.tril(-1).T)

    def norms(self, features: Features) -> Tensor:
        """k(x, x), shape (n,)."""
        rows = self._prepared(features.X)
        if self._kind is not None:
            return self._kind.norms(self.weights, rows, self.frame.nominal)
        own = [self._given(row, row)[0] for row in rows.split(1)]
        return torch.cat(own) if own else features.outputs

    def on(self, machine: Machine) -> WideTangent:
        center, scale, nominal = self.frame
        frame = FeatureScale(machine.put(center), machine.put(scale), nominal)
        return WideTangent(self.network, machine.put(self.weights), frame, machine)

    @property
    def _kind(self) -> Kind | None:
        return KINDS[self.network.kind] if isinstance(self.network.kind, str) else None

    def _prepared(self, X: Tensor) -> Tensor:
        return self.network.prepared(self.frame.apply(X))

    def _given(self, left: Tensor, right: Tensor) -> Tensor:
        """A kernel of the user's: of tensors, or of arrays for scikit-learn's."""
        kernel = self.network.kind
        assert callable(kernel)
        if hasattr(kernel, "is_stationary"):  # of sklearn.gaussian_process
            found = kernel(left.cpu().numpy(), right.cpu().numpy())
        else:
            found = kernel(left, right)
        values = torch.as_tensor(found, dtype=left.dtype, device=left.device)
        if values.shape != (len(left), len(right)):
            raise ValueError(
                f"the kernel function returned shape {tuple(values.shape)} for {len(left)} and "
                f"{len(right)} rows: it must return shape ({len(left)}, {len(right)})"
            )
        return values
