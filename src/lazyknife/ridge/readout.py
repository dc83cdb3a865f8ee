"""From solved models to predictions: through the tangent, or through the moved network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from ..compute import blocks, steps
from ..losses import SQUARED, Loss
from ..networks import widest_layer
from ..records import Predictions
from ..tangent import Basis, Tangent, moved_outputs
from .rounding import FIRST_ORDER, NOTHING, RoundingBounds
from .system import RidgeModels
from .widths import Scales


@dataclass(frozen=True, eq=False)
class Read(ABC):
    """All models, ready to predict; a readout says how.

    Attributes
    ----------
    moves_network
        Whether the weights of the network are moved.
    basis, models
        The coordinates z, and W and β.
    residuals, training_residuals
        Of the left-out rows, and of the full model, on the scale of y, each (n,).
    scales
        σ, where errors are not taken as they are.
    loss
        Whose inverse link leads from f to predictions.
    rounding
        What rounding may have changed of the models.

    """

    moves_network: ClassVar[bool] = False
    basis: Basis
    models: RidgeModels
    residuals: Tensor
    training_residuals: Tensor
    scales: Scales | None = None
    loss: Loss = SQUARED
    rounding: RoundingBounds = NOTHING

    @classmethod
    def of(
        cls,
        basis: Basis,
        X: Tensor,
        y: Tensor,
        models: RidgeModels,
        scales: Scales | None = None,
        loss: Loss = SQUARED,
        rounding: RoundingBounds = NOTHING,
    ) -> Self:
        """Read out the models of the training rows X and y, which are on the machine."""
        own = (models.residuals, models.training_residuals)
        return cls(basis, models, *own, scales, loss, rounding)._evaluated(X, y)

    def _evaluated(self, X: Tensor, y: Tensor) -> Self:
        """The same with the residuals of this readout."""
        return self

    @property
    @abstractmethod
    def rows_at_once(self) -> int:
        """How many rows to predict at a time."""

    @abstractmethod
    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model, shape (m,)."""

    @abstractmethod
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions of the full model, (m,), and of the model without each row, (m, n)."""

    @abstractmethod
    def scaled(self, X: Tensor) -> Predictions:
        """Everything that intervals are made of."""

    def typical_error(self) -> tuple[float, float]:
        known = ~self.rounding.undetermined
        if not known.any():
            return math.inf, math.inf
        each = self.rounding.slope * self.models.terms.roots + self.rounding.own
        relative = 0.0
        if self.scales is not None:
            relative = float(self.scales.own_error.expand(len(self.residuals)).median())
        return float(each[known].median()) + self.rounding.constant, relative

    @property
    def conceded(self) -> int:
        return int(torch.isinf(self.scores).sum())

    @property
    def scores(self) -> Tensor:
        """Sizes of the left-out residuals over σ, rounded up, shape (n,).

        Infinite where the model is conceded to rounding.
        """
        sizes: Tensor = self.residuals.abs() + self.rounding.own
        if self.scales is None:
            return sizes
        error = self.scales.own_error
        return torch.where(error < FIRST_ORDER, sizes / self.scales.own * (1 + error), torch.inf)


def slack_of(
    rounding: RoundingBounds, norms: Tensor, point: Tensor, each: Tensor, loss: Loss
) -> Tensor:
    """Bounds on the errors of predictions, on the scale of y, shape (m,)."""
    slack = rounding.slack(norms, point)
    if loss.identity:
        return slack
    # On the scale of the link, a shift by t multiplies the mean of y by e^{±t} at most.
    return torch.expm1(slack) * torch.maximum(each.abs().amax(dim=1), point.abs())


def by_row(values: Tensor, models: RidgeModels) -> Tensor:
    """Predictions of M models, (m, M), as those of the model without each row, (m, n)."""
    return values if models.model_of is None else values[:, models.model_of]


MODELS_AT_ONCE = 100
# Moved networks may respond to an error of the moves more steeply than at θ0.
CURVED = 10.0


@dataclass(frozen=True, eq=False)
class TangentReadout(Read):
    """f̄_{−j}(x) = f(x; θ0) + z(x)ᵀW_j + β_j: predictions of the linearised network."""

    @property
    def rows_at_once(self) -> int:
        """Rows for which coordinates, predictions and their order statistics fit."""
        machine, n = self.basis.tangent.machine, len(self.residuals)
        arrays = 5 if self.scales is None else 9
        return machine.rows_at_once(n, self.basis.row_bytes + arrays * machine.item * n)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        outputs, rows = self.basis.at(X)[:2]
        return self._point(outputs, rows)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """One product for all models."""
        outputs, rows = self.basis.at(X)[:2]
        return self._point(outputs, rows), self._each(outputs, rows)

    def scaled(self, X: Tensor) -> Predictions:
        """Predictions and σ, from the same coordinates."""
        outputs, rows, norms = self.basis.at(X)
        point, each = self._point(outputs, rows), self._each(outputs, rows)
        one = each.new_ones(())
        sigma, stretch = (one, one - 1) if self.scales is None else self.scales.at(rows, norms)
        slack = slack_of(self.rounding, norms, point, each, self.loss)
        return Predictions(point, each, sigma, stretch, slack)

    def _each(self, outputs: Tensor, rows: Tensor) -> Tensor:
        values = rows @ self.models.columns
        values += self.models.intercepts[:-1]  # a bias in the product would halve a GPU's rate
        values += outputs[:, None]
        return by_row(self.loss.mean(values), self.models)

    def _point(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return self.loss.mean(outputs + rows @ self.models.full + self.models.intercepts[-1])


@dataclass(frozen=True, eq=False)
class NetworkReadout(Read):
    """f(x; θ0 + Δ_{−j}): the real network at the moved weights, the paper's choice."""

    moves_network = True

    @property
    def _tangent(self) -> Tangent:
        tangent = self.basis.tangent
        assert isinstance(tangent, Tangent), "checked with the settings"
        return tangent

    def _evaluated(self, X: Tensor, y: Tensor) -> NetworkReadout:
        """Evaluate model j at row j, and the full model at every row."""
        unread, models = replace(self, rounding=self.rounding.times(CURVED)), self.models
        if models.model_of is None:
            module = self._tangent.module
            own = [
                moved_outputs(module, self._moves(columns), X[columns], own_row=True)
                for columns in self._model_blocks()
            ]
            left_out = self.loss.mean(torch.cat(own) + models.intercepts[:-1])
        else:
            left_out = self.predict(X)[1].diagonal()
        rows = slice(len(left_out))  # the others are never left out
        training = (y - self.point(X))[rows]
        return replace(unread, residuals=y[rows] - left_out, training_residuals=training)

    @property
    def rows_at_once(self) -> int:
        """Rows for which predictions of all models and their order statistics fit."""
        machine = self.basis.tangent.machine
        arrays = 6 if self.scales is None else 10
        each = machine.item * (arrays * len(self.residuals) + MODELS_AT_ONCE)
        return max(1, machine.block // each)  # as many as possible: each block moves all networks

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        moves = self.basis.moves(self.models.full[:, None])
        rows = self.basis.tangent.machine.put(X)
        moved = moved_outputs(self._tangent.module, moves, rows)
        return self.loss.mean(moved[0] + self.models.intercepts[-1])

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """A block of moved networks at a time, each on all rows."""
        rows = self.basis.tangent.machine.put(X)
        values = self.models.intercepts[:-1].repeat(len(rows), 1)
        for columns in self._model_blocks():
            moved = moved_outputs(self._tangent.module, self._moves(columns), rows)
            values[:, columns] += moved.T
        return self.point(X), by_row(self.loss.mean(values), self.models)

    def scaled(self, X: Tensor) -> Predictions:
        """Predictions of the moved networks, and σ of the linearised one."""
        point, each = self.predict(X)
        one = each.new_ones(())
        sigma, stretch = one, one - 1
        if self.scales is None:
            tangent = self.basis.tangent
            norms = tangent.norms(tangent.features(X))
        else:
            _, rows, norms = self.basis.at(X)
            sigma, stretch = self.scales.at(rows, norms)
        slack = slack_of(self.rounding, norms, point, each, self.loss)
        return Predictions(point, each, sigma, stretch, slack)

    def _moves(self, columns: slice) -> dict[str, Tensor]:
        return self.basis.moves(self.models.columns[:, columns])

    def _model_blocks(self) -> Iterator[slice]:
        """Blocks of models: moving one takes n times the widest layer."""
        tangent, n = self._tangent, len(self.residuals)
        count = self.models.columns.shape[1]
        parameters = sum(p.numel() for p in tangent.moved.values())
        each = tangent.machine.item * max(parameters, n * self._width)
        for block in blocks(count, each, self._limit):
            for part in steps(block.stop - block.start, MODELS_AT_ONCE):
                yield slice(block.start + part.start, block.start + part.stop)

    @property
    def _limit(self) -> int:
        return self.basis.tangent.machine.block

    @property
    def _width(self) -> int:
        return widest_layer(self._tangent.module)


READOUTS: dict[str, type[Read]] = {"network": NetworkReadout, "tangent": TangentReadout}
