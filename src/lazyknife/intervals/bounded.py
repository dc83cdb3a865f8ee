"""Models in primal form, whose differences from the full model are bounded.

With w the full model, W_j the others and any factor L, |φ(x)ᵀ(W_j − w)| ≤ ‖L⁻¹φ(x)‖·‖Lᵀ(W_j − w)‖.
The bound is tightest with LLᵀ = G of the full model: then the first factor is √h(x), and the second
one √h_j|e_j| if model j has the same λ. Models of another λ have theirs computed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ..compute import steps
from ..records import Predictions
from ..solve.primal import PrimalSystem
from ..solve.reading import Read, slack_of
from ..solve.readout import TangentReadout
from ..solve.ridge import RidgeModels, System
from .window import Near

# Windows save time from this many rows for each feature.
ROWS_FOR_EACH = 4
# Added to leverages, which rounding changes by far less.
SAFE = 1e-12
MODELS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedReadout(TangentReadout):
    """The linearised network's models in primal form.

    Attributes
    ----------
    lower
        L, shape (q, q), with the intercept if there is one.
    reach
        ‖Lᵀ(W_j − w)‖, shape (n,).

    """

    lower: Tensor
    reach: Tensor

    @property
    def block(self) -> int:
        return self.basis.tangent.machine.block

    @property
    def rows_at_once(self) -> int:
        """Rows whose coordinates fit; windows are few models."""
        machine = self.basis.tangent.machine
        return machine.rows_at_once(self.basis.size, 4 * self.basis.row_bytes)

    def near(self, X: Tensor) -> Near:
        """The full model at some rows, and √h of them."""
        outputs, rows, norms = self.basis.at(X)
        point = self._point(outputs, rows)
        one, none = point.new_ones(()), point.new_empty(len(point), 0)
        slack = slack_of(self.rounding, norms, point, none, self.loss)
        found = Predictions(point, none, one.expand(len(point)), one - 1, slack)
        factors = torch.nn.functional.pad(rows, (0, 1), value=1.0)
        half = torch.linalg.solve_triangular(
            self.lower, factors[:, : len(self.lower)].T, upper=False
        )
        return Near(found, half.square().sum(dim=0).sqrt(), outputs, factors)

    def columns(self, members: Tensor) -> Tensor:
        """W and β of some models, shape (q + 1, members)."""
        return _with_intercepts(self.models, members)


def bounded(read: Read, system: System) -> BoundedReadout | None:
    """The same models with bounds; None where there are none, or where they would save nothing."""
    if not (isinstance(system, PrimalSystem) and isinstance(read, TangentReadout)):
        return None
    if read.models.model_of is not None:
        return None
    if read.scales is not None:  # each model has its own σ(x)
        return None
    if len(read.residuals) < ROWS_FOR_EACH * len(system.gram):
        return None
    lower = _factor(system, float(read.models.ridges[-1]))
    given = {field.name: getattr(read, field.name) for field in fields(read)}
    return BoundedReadout(**given, lower=lower, reach=_reach(read.models, lower))


def _factor(system: PrimalSystem, ridge: float) -> Tensor:
    G = system.gram.clone()
    G.diagonal()[: system.width].add_(ridge)
    lower: Tensor = torch.linalg.cholesky(G)  # as before
    return lower


def _reach(models: RidgeModels, lower: Tensor) -> Tensor:
    """‖Lᵀ(W_j − w)‖; e_j(1 − h_j) is the training residual if model j has the full one's λ."""
    errors = models.residuals
    squares = errors * (errors - models.training_residuals)
    reach = (squares.clamp(min=0.0) + SAFE * errors.square()).sqrt()
    others = torch.nonzero(models.ridges[:-1] != models.ridges[-1])[:, 0]
    full = torch.cat([models.full, models.intercepts[-1:]])[: len(lower), None]
    for part in steps(len(others), MODELS_AT_ONCE):
        moves = _with_intercepts(models, others[part])[: len(lower)] - full
        reach[others[part]] = torch.linalg.vector_norm(lower.T @ moves, dim=0)
    return reach.nan_to_num(torch.inf)


def _with_intercepts(models: RidgeModels, members: Tensor) -> Tensor:
    """Columns of some models with their intercepts below, shape (q + 1, members)."""
    return torch.cat([models.columns.T[members].T, models.intercepts[members][None]])
