"""Clusters of many rows: some of them choose for all models, the others are left out in turn.

A random part of the clusters is set aside, by number. On its rows alone the network, λ and the
landmarks are chosen, as in fit_shared.py; given it the other clusters and a new one are
exchangeable. Nothing depends on the sizes of the others, which would tell of the cluster left out.

Which of two ways rows are fitted depends on their number, and so on the size of the new cluster.
Let F be the event that without any one of all K + 1 clusters more than 5,000 rows remain: F treats
the clusters alike. Rows are fitted here only where the K clusters show that F holds, and otherwise
only if they are at most 5,000, so that F does not hold; between the two they are refused. A miss is
therefore one of this way within F, or one of the other way outside, and the bound is that of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..choosing.candidates import MOST_ROWS
from ..choosing.record import ChosenSettings
from ..choosing.rows import drawn_part
from ..choosing.target_scale import on_scale
from ..compute import one_thread
from ..intervals.clusters import ClusterModels, cluster_models
from ..intervals.streamed import Passes
from .fit_shared import PartedStep


@dataclass(frozen=True)
class ClustersStep(PartedStep):
    """Settings: those of ``PartedStep``."""

    def _with_trees(self, passes: Passes, X: Tensor, y: Tensor) -> tuple[Passes, Tensor]:
        """No trees: they would learn the clusters of the part by heart."""
        return passes, torch.full_like(y, torch.nan)

    def leave_clusters(
        self, X: Tensor, y: Tensor, clusters: Sequence[Tensor]
    ) -> tuple[ClusterModels, ChosenSettings, Tensor]:
        """Choose, solve, and leave clusters out; also which rows these have, in order."""
        apart = set(drawn_part(len(clusters), self.seed).tolist())
        own = torch.cat([clusters[k] for k in sorted(apart)])
        own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(self.seed))]
        others = [rows for k, rows in enumerate(clusters) if k not in apart]
        left = torch.cat(others)
        with one_thread():
            passes, choice, _ = self.chosen(X[own], y[own], len(own))
            loo = cluster_models(passes, X, on_scale(y, choice.target_scale), others)
        return loo, replace(choice, rows=len(left), searched=len(own)), left


def has_many_rows(clusters: Sequence[Tensor]) -> bool:
    """Whether rows are too many for one factorisation; refuse numbers between two ways."""
    sizes = [len(own) for own in clusters]
    n, largest = sum(sizes), max(sizes)
    if n > MOST_ROWS >= n - largest:
        raise ValueError(
            f"X has {n:,} rows, {largest:,} of them in one cluster: clusters take at most "
            f"{MOST_ROWS:,} rows, or more than that beside the largest cluster"
        )
    return n > MOST_ROWS
