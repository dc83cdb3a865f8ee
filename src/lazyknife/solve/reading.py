"""What all readouts share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from ..losses import SQUARED, Loss
from ..records import Predictions
from ..tangent import Basis
from .ridge import RidgeModels
from .rounding import FIRST_ORDER, NOTHING, Rounding
from .scales import Scales


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
    rounding: Rounding = NOTHING

    @classmethod
    def of(
        cls,
        basis: Basis,
        X: Tensor,
        y: Tensor,
        models: RidgeModels,
        scales: Scales | None = None,
        loss: Loss = SQUARED,
        rounding: Rounding = NOTHING,
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
        known = ~self.rounding.conceded
        if not known.any():
            return math.inf, math.inf
        each = self.rounding.slope * self.models.sensitivity.roots + self.rounding.own
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


def slack_of(rounding: Rounding, norms: Tensor, point: Tensor, each: Tensor, loss: Loss) -> Tensor:
    """Bounds on the errors of predictions, on the scale of y, shape (m,)."""
    slack = rounding.slack(norms, point)
    if loss.identity:
        return slack
    # On the scale of the link, a shift by t multiplies the mean of y by e^{±t} at most.
    return torch.expm1(slack) * torch.maximum(each.abs().amax(dim=1), point.abs())


def by_row(values: Tensor, models: RidgeModels) -> Tensor:
    """Predictions of M models, (m, M), as those of the model without each row, (m, n)."""
    return values if models.model_of is None else values[:, models.model_of]
