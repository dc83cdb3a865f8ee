"""From solved models to predictions: through the tangent, or through the moved network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from ..compute import blocks, steps
from ..errors import warn
from ..losses import SQUARED, Loss
from ..networks import widest_layer
from ..records import Predictions, Side, errors_on, rounded_up
from ..tangent import Basis, Rows, Tangent, moved_outputs
from .rounding import FIRST_ORDER, NOTHING, RoundingBounds
from .system import RidgeModels
from .widths import Scales

MODELS_AT_ONCE = 100
# Moved networks may respond to an error of the moves more steeply than at θ0.
CURVED = 10.0
# Where left-out predictions are farther from the linearised ones than those are from y.
TOO_FAR = (
    "the moved networks are far from the linearised ones that the ridge fitted (left-out "
    "predictions differ by {gap:.3g}, the linearised errors are {error:.3g}), so the intervals are "
    "valid but wide. Use readout='tangent', divide y by a fixed unit so that its spread is of "
    "order one, or use a larger ridge"
)


@dataclass(frozen=True, eq=False, repr=False)
class LinearModels:
    """f̄_{−j}(x) = f(x; θ0) + z(x)ᵀW_j + β_j: models of the linearised network."""

    moves_network: ClassVar[bool] = False  # whether the weights of the network are moved
    basis: Basis  # the coordinates z
    models: RidgeModels  # W and β
    scales: Scales | None = None  # σ, where errors are not taken as they are
    loss: Loss = SQUARED  # whose inverse link leads from f to predictions
    rounding: RoundingBounds = NOTHING  # what rounding may have changed of the models
    side: Side = "both"

    def __repr__(self) -> str:
        return f"<{len(self.residuals)} leave-one-out models>"

    def evaluated(self, X: Tensor, y: Tensor) -> Self:
        """The same with this readout's own residuals of the training rows."""
        return self

    @property
    def residuals(self) -> Tensor:
        return self.models.residuals

    @property
    def training_residuals(self) -> Tensor:
        return self.models.training_residuals

    @property
    def rows_at_once(self) -> int:
        """Rows for which coordinates, predictions and their order statistics fit."""
        machine, n = self.basis.tangent.machine, len(self.residuals)
        arrays = 5 if self.scales is None else 9
        return machine.rows_at_once(n, self.basis.row_bytes + arrays * machine.item * n)

    def point(self, X: Tensor, rows: Rows | None = None) -> Tensor:
        """Predictions of the full model, shape (m,); ``rows``: X in the basis."""
        return self._point(self.basis.at(X) if rows is None else rows)

    def scaled(self, X: Tensor, rows: Rows | None = None) -> Predictions:
        """Everything that intervals are made of; ``rows``: X in the basis."""
        found = self.basis.at(X) if rows is None else rows
        point, each = self._predict(X, found)
        if self.models.model_of is not None:
            each = each[:, self.models.model_of]
        one = each.new_ones(())
        sigma, stretch = one, one - 1
        if self.scales is not None:
            sigma, stretch = self.scales.at(found.coordinates, found.norms)
        return Predictions(point, each, sigma, stretch, self._slack(found, point, each))

    def _predict(self, X: Tensor, found: Rows) -> tuple[Tensor, Tensor]:
        """Predictions of the full model, (m,), and of M models, (m, M)."""
        values = found.coordinates @ self.models.columns
        values += self.models.intercepts[:-1]  # a bias in the product would halve a GPU's rate
        values += found.outputs[:, None]
        return self._point(found), self.loss.mean(values)

    def _point(self, found: Rows) -> Tensor:
        moved = found.coordinates @ self.models.full + self.models.intercepts[-1]
        return self.loss.mean(found.outputs + moved)

    def _slack(self, found: Rows, point: Tensor, each: Tensor) -> Tensor:
        """Bounds on the errors of predictions, on the scale of y, shape (m,)."""
        slack = self.rounding.slack(found.norms, point)
        if self.loss.identity:
            return slack
        # On the scale of the link, a shift by t multiplies the mean of y by e^{±t} at most.
        return torch.expm1(slack) * torch.maximum(each.abs().amax(dim=1), point.abs())

    @property
    def scores(self) -> Tensor:
        """Left-out residuals on the side, over σ, rounded up, shape (n,).

        Infinite where rounding leaves nothing known of the model.
        """
        sizes: Tensor = errors_on(self.residuals, self.side) + self.rounding.own
        if self.scales is None:
            return sizes
        error, found = self.scales.own_error, sizes / self.scales.own
        return torch.where(error < FIRST_ORDER, rounded_up(found, error), torch.inf)

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.scores).sum())

    def typical_error(self) -> tuple[float, float]:
        known = ~self.rounding.undetermined
        if not known.any():
            return math.inf, math.inf
        each = self.rounding.slope * self.models.terms.roots + self.rounding.own
        relative = 0.0
        if self.scales is not None:
            relative = float(self.scales.own_error.expand(len(self.residuals)).median())
        return float(each[known].median()) + self.rounding.constant, relative


@dataclass(frozen=True, eq=False, repr=False)
class MovedNetworks(LinearModels):
    """f(x; θ0 + Δ_{−j}): the real network at the moved weights, the paper's choice."""

    moves_network = True

    def evaluated(self, X: Tensor, y: Tensor) -> MovedNetworks:
        """Evaluate model j at row j, and the full model at every row."""
        models, n = self.models, len(self.residuals)  # the other rows are never left out
        if models.model_of is None:
            own = [
                moved_outputs(self._tangent.module, self._moves(part), X[part], own_row=True)
                for part in self._model_blocks()
            ]
            left_out = self.loss.mean(torch.cat(own) + models.intercepts[:-1])
        else:
            left_out = self.scaled(X).each.diagonal()
        residuals, training = y[:n] - left_out, (y - self.point(X))[:n]
        gap = float((residuals - self.residuals).square().mean().sqrt())
        error = float(self.residuals.square().mean().sqrt())
        if not gap <= error:
            warn(TOO_FAR.format(gap=gap, error=error))
        models = replace(models, residuals=residuals, training_residuals=training)
        return replace(self, models=models, rounding=self.rounding.times(CURVED))

    @property
    def rows_at_once(self) -> int:
        """As many rows as possible: each block moves all networks."""
        machine = self.basis.tangent.machine
        arrays = 6 if self.scales is None else 10
        each = machine.item * (arrays * len(self.residuals) + MODELS_AT_ONCE)
        return max(1, machine.block // (each + self.basis.row_bytes))

    def point(self, X: Tensor, rows: Rows | None = None) -> Tensor:
        moves = self.basis.moves(self.models.full[:, None])
        moved = moved_outputs(self._tangent.module, moves, self.basis.tangent.machine.put(X))
        return self.loss.mean(moved[0] + self.models.intercepts[-1])

    def _predict(self, X: Tensor, found: Rows) -> tuple[Tensor, Tensor]:
        """A block of moved networks at a time, each on all rows."""
        rows = self.basis.tangent.machine.put(X)
        values = self.models.intercepts[:-1].repeat(len(rows), 1)
        for part in self._model_blocks():
            values[:, part] += moved_outputs(self._tangent.module, self._moves(part), rows).T
        return self.point(X), self.loss.mean(values)

    @property
    def _tangent(self) -> Tangent:
        tangent = self.basis.tangent
        assert isinstance(tangent, Tangent), "checked with the settings"
        return tangent

    def _moves(self, part: slice) -> dict[str, Tensor]:
        return self.basis.moves(self.models.columns[:, part])

    def _model_blocks(self) -> Iterator[slice]:
        """Blocks of models: moving one takes n times the widest layer."""
        tangent, n = self._tangent, len(self.residuals)
        parameters = sum(p.numel() for p in tangent.moved.values())
        each = tangent.machine.item * max(parameters, n * widest_layer(tangent.module))
        for block in blocks(self.models.columns.shape[1], each, tangent.machine.block):
            for part in steps(block.stop - block.start, MODELS_AT_ONCE):
                yield slice(block.start + part.start, block.start + part.stop)


READOUTS: dict[str, type[LinearModels]] = {"network": MovedNetworks, "tangent": LinearModels}
