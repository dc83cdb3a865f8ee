"""Models of many rows without each of some clusters, given a part of the clusters.

With the symbols of ridge/streamed.py and H = U S Vᵀ the matrix L⁻¹Φᵀ of a cluster's n_C rows, the
left-out errors are e = (I − HᵀH)⁻¹(r − Φw), and without the cluster the prediction at x is
f(x) − (L⁻¹φ(x))ᵀHe: a number for each row of the cluster, and a column for the cluster.

Rounding. The bounds of ridge/streamed.py for a row hold for a cluster if the largest entry of S²
takes the place of the leverage, ‖e‖ that of the residual, and Σ(1 + ‖φ‖²) that of 1 + ‖φ‖².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..records import Predictions, Side, errors_on
from ..ridge.streamed import Left, StreamedRidge, Sums
from ..ridge.system import joined
from .streamed import Passes, StreamedPredictor

ARRAYS = 4  # of new rows × left-out rows at a time


class Cluster(NamedTuple):
    """What leaving a cluster out gives."""

    residuals: Tensor  # e, (n_C,)
    training_residuals: Tensor  # r − Φw, (n_C,)
    column: Tensor  # He, (q,)
    bound: Left  # what bounds on rounding take, one number for each of the rows


@dataclass(frozen=True, eq=False, repr=False)
class ClusterModels(StreamedPredictor):
    """The full model, and those without each of K clusters; rows are those of these clusters."""

    residuals: Tensor  # (n,)
    training_residuals: Tensor  # (n,)
    columns: Tensor  # (q, K)
    cluster: Tensor  # of each row, (n,)
    side: Side = "both"

    def __repr__(self) -> str:
        return f"<{self.columns.shape[1]} models without a cluster each>"

    @property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,); infinite where the model is undetermined."""
        sizes = errors_on(self.residuals, self.side) + self.rounding.own
        return torch.where(torch.isinf(self.rounding.own), torch.inf, sizes)

    @property
    def rows_at_once(self) -> int:
        machine, fits = self.passes.machine, super().rows_at_once
        return max(1, min(fits, machine.block // (machine.item * ARRAYS * len(self.residuals))))

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.rounding.own).sum())

    def typical_error(self) -> tuple[float, float]:
        known = self.rounding.own[torch.isfinite(self.rounding.own)]
        return (2 * float(known.median()) if len(known) else math.inf), 0.0

    def scaled(self, X: Tensor) -> Predictions:
        """Everything that intervals are computed from, of the model without each row's cluster."""
        found, _, factors = self.full_at(X)
        each = found.point[:, None] - (factors @ self.columns)[:, self.cluster]
        return found._replace(
            each=each, scales=found.scales[:, None], stretch=found.stretch.expand(len(each))
        )

    def only(self, members: Tensor) -> ClusterModels:
        """The models of some of the rows."""
        return replace(
            self,
            residuals=self.residuals[members],
            training_residuals=self.training_residuals[members],
            cluster=self.cluster[members],
            rounding=self.rounding._replace(own=self.rounding.own[members]),
        )


def leave_cluster_out(solved: StreamedRidge, rows: Tensor, targets: Tensor) -> Cluster:
    """Leave these rows out together, whose targets are part of the sums."""
    left, sizes, right = torch.linalg.svd(solved.half(rows), full_matrices=False)
    shares, errors = sizes.square(), targets - rows @ solved.step
    open_parts, turned = (1 - shares).clamp(min=torch.finfo(rows.dtype).tiny), right @ errors
    residuals = errors + right.T @ (turned * (shares / open_parts))
    norms = (1 + rows.square().sum(dim=1)).sum() - 1
    each = (part.expand(len(rows)) for part in (residuals.norm(), errors.norm(), shares[0], norms))
    return Cluster(residuals, errors, left @ (turned * (sizes / open_parts)), Left(*each))


def cluster_models(
    passes: Passes, X: Tensor, y: Tensor, clusters: Sequence[Tensor]
) -> ClusterModels:
    """Both passes: the ridge of all rows, and the models without each of some clusters."""
    total: Sums | None = None
    for part in passes.blocks(len(y)):
        sums, _ = passes.sums(X[part], y[part])
        total = sums if total is None else total + sums
    assert total is not None
    solved, found = passes.solve(total), list[Cluster]()
    for own in clusters:
        rows = torch.cat([passes.features(X[own[part]])[0] for part in passes.blocks(len(own))])
        found.append(leave_cluster_out(solved, rows, passes.targets(rows, y[own])))
    residuals = torch.cat([one.residuals for one in found])
    errors = torch.cat([one.training_residuals for one in found])
    bound, size = joined([one.bound for one in found]), float(y.abs().max())
    numbers = torch.arange(len(clusters), device=residuals.device)
    counts = torch.tensor([len(own) for own in clusters], device=residuals.device)
    return ClusterModels(
        passes,
        solved,
        solved.bounds(bound, passes.feature_error, size),
        residuals,
        errors,
        torch.stack([one.column for one in found], dim=1),
        numbers.repeat_interleave(counts),
    )
