"""From dual coefficients to predictions: through the tangent, or through the moved network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .blocks import blocks, cached_blocks
from .loo import RidgeModels
from .networks import widest_layer
from .records import LeaveOneOut
from .tangent import Tangent, moved_outputs

# Enough for one batched product to pay, few enough for many rows to stay in the caches with them.
MODELS_AT_ONCE = 32


@dataclass(frozen=True)
class TangentReadout:
    """f̄_{−j}(x) = f(x; θ0) + k(x)ᵀC_j: predictions of the linearised network."""

    tangent: Tangent
    features: Any
    models: RidgeModels

    @classmethod
    def of(cls, tangent: Tangent, X: Tensor, y: Tensor, features: Any, models: RidgeModels) -> Any:
        """Read out the models; everything at the training rows is in closed form."""
        return cls(tangent, features, models)

    @property
    def residuals(self) -> Tensor:
        """c_j/d_j."""
        return self.models.residuals

    @property
    def training_residuals(self) -> Tensor:
        """(K + λI)c + β = r gives r − Kc − β = λc."""
        return self.models.ridges[-1] * self.models.coefficients[:, -1]

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model, the last column."""
        return self._columns(X, slice(-1, None))[:, 0]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """One product for all models."""
        values = self._columns(X, slice(None))
        return values[:, -1], values[:, :-1]

    def _columns(self, X: Tensor, columns: slice) -> Tensor:
        rows = self.tangent.features(X)
        values = self.tangent.kernel(rows, self.features) @ self.models.coefficients[:, columns]
        values += rows.outputs[:, None]
        values += self.models.intercepts[columns]
        return values


@dataclass(frozen=True)
class NetworkReadout:
    """f(x; θ0 + Δ_{−j}): the real network at the moved weights, the paper's choice."""

    tangent: Tangent
    features: Any
    models: RidgeModels
    residuals: Tensor
    training_residuals: Tensor

    @classmethod
    def of(cls, tangent: Tangent, X: Tensor, y: Tensor, features: Any, models: RidgeModels) -> Any:
        """Evaluate model j at row j, and the full model at every row."""
        n = len(y)
        unread = cls(tangent, features, models, y, y)
        own = [
            moved_outputs(tangent.module, unread._moves(columns), X[columns], own_row=True)
            for columns in unread._model_blocks(n)
        ]
        left_out = torch.cat(own) + models.intercepts[:n]
        return cls(tangent, features, models, y - left_out, y - unread.point(X))

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model, the last column."""
        last = slice(len(self.residuals), None)
        moved = moved_outputs(self.tangent.module, self._moves(last), X)
        return moved[0] + self.models.intercepts[-1]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """A block of moved networks at a time, each on all rows."""
        values = self.models.intercepts.repeat(len(X), 1)
        for columns in self._model_blocks(values.shape[1]):
            moves = self._moves(columns)
            count = columns.stop - columns.start
            for rows in cached_blocks(len(X), 8 * count * self._width):
                values[rows, columns] += moved_outputs(self.tangent.module, moves, X[rows]).T
        return values[:, -1], values[:, :-1]

    def _moves(self, columns: slice) -> dict[str, Tensor]:
        return self.tangent.pull(self.features, self.models.coefficients[:, columns])

    def _model_blocks(self, count: int) -> Iterator[slice]:
        """Blocks of models: the pull needs n times the widest layer for each of them."""
        parameters = sum(p.numel() for p in self.tangent.module.parameters())
        each = 8 * max(parameters, len(self.residuals) * self._width)
        for block in blocks(count, each):
            for start in range(block.start, block.stop, MODELS_AT_ONCE):
                yield slice(start, min(start + MODELS_AT_ONCE, block.stop))

    @property
    def _width(self) -> int:
        return widest_layer(self.tangent.module)


READOUTS: dict[str, type[TangentReadout] | type[NetworkReadout]] = {
    "network": NetworkReadout,
    "tangent": TangentReadout,
}


def read_out(
    readout: str, tangent: Tangent, X: Tensor, y: Tensor, features: Any, models: RidgeModels
) -> LeaveOneOut:
    """Return the leave-one-out models behind one of the readouts."""
    result: LeaveOneOut = READOUTS[readout].of(tangent, X, y, features, models)
    return result
