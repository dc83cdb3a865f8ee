"""Boosted trees as arrays: grown by scikit-learn, evaluated by torch.

Leaves of a tree are numbered from left to right, and sets of them are the bits of a number. A split
that a row passes on the right rules out the leaves on its left, so the row's leaf is the first that
no split rules out. For each interval between neighbouring cuts of a feature a table has what all
splits by that feature leave of every tree; the sets of all features are intersected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, steps

MOST_LEAVES = 31  # of a tree: bits of a number
ENTRIES = 2**18  # of a table of rows by trees


@dataclass(frozen=True)
class Trees:
    """A sum of trees, in their order, so that a row has the same sum in every batch."""

    features: tuple[int, ...]  # those that are used
    cuts: tuple[Tensor, ...]  # of each: a row is right of the cuts that are below its value
    # Leaves that are left, of each: for every interval, and last where the value is missing.
    left: tuple[Tensor, ...]  # each of shape (cuts + 2, trees)
    values: Tensor  # of leaves, shape (trees, MOST_LEAVES)

    @classmethod
    def of(cls, model: Any, machine: Machine = PROCESSOR) -> Trees:
        """Those of a fitted ``HistGradientBoostingRegressor`` without categories."""
        trees = [tree.nodes for (tree,) in model._predictors]
        values, splits = np.zeros((len(trees), MOST_LEAVES)), list[tuple[Any, int, int]]()

        def walk(k: int, place: int, first: int) -> int:
            """Number the leaves below a node from ``first`` on; return the next number."""
            node = trees[k][place]
            if node["is_leaf"]:
                values[k, first] = node["value"]
                return first + 1
            middle = walk(k, int(node["left"]), first)
            splits.append((node, k, ~((1 << middle) - (1 << first))))
            return walk(k, int(node["right"]), middle)

        for k in range(len(trees)):
            walk(k, 0, 0)
        values[0] += model._baseline_prediction.item()
        used = sorted({int(node["feature_idx"]) for node, _, _ in splits})
        cuts, left = list[Tensor](), list[Tensor]()
        for feature in used:
            mine = [each for each in splits if each[0]["feature_idx"] == feature]
            own = np.unique([node["num_threshold"] for node, _, _ in mine])
            table = np.full((len(own) + 2, len(trees)), -1, dtype=np.int32)
            for node, k, kept in mine:
                table[np.searchsorted(own, node["num_threshold"]) + 1, k] &= kept
            table[:-1] = np.bitwise_and.accumulate(table[:-1])
            for node, k, kept in mine:
                table[-1, k] &= -1 if node["missing_go_to_left"] else kept
            cuts.append(machine.put(torch.from_numpy(own)))
            left.append(machine.put(torch.from_numpy(table)))
        return cls(tuple(used), tuple(cuts), tuple(left), machine.put(torch.from_numpy(values)))

    def __call__(self, X: Tensor) -> Tensor:
        parts = steps(len(X), max(1, ENTRIES // len(self.values)))
        return torch.cat([X.new_empty(0), *(self._at(X[part]) for part in parts)])

    def cuts_of(self, feature: int) -> Tensor:
        return dict(zip(self.features, self.cuts, strict=True)).get(feature, self.values[:0, 0])

    def _at(self, X: Tensor) -> Tensor:
        leaves = torch.full((len(X), len(self.values)), -1, dtype=torch.int32, device=X.device)
        for feature, cuts, left in zip(self.features, self.cuts, self.left, strict=True):
            column = X[:, feature].contiguous()
            place = torch.where(column.isnan(), len(left) - 1, torch.searchsorted(cuts, column))
            leaves &= left[place]
        first = torch.frexp((leaves & -leaves).float()).exponent - 1
        total = X.new_zeros(len(X))
        for each in self.values.gather(1, first.T.long()):
            total += each
        return total


def grow(X: Tensor, y: Tensor, seed: int, machine: Machine = PROCESSOR, **settings: Any) -> Trees:
    """Boost trees by the histograms of some rows, NaN where missing, on one thread."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingRegressor(
        learning_rate=0.05, early_stopping=False, random_state=seed % 2**32, **settings
    )
    rows = torch.where(X.isnan().all(dim=0), 0.0, X)  # it refuses columns without a value
    with threadpool_limits(1, user_api="openmp"):
        model.fit(rows.cpu().numpy(), y.cpu().numpy())
    return Trees.of(model, machine)
