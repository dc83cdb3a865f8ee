"""From solved models to predictions: through the tangent, or through the moved network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .loo import RidgeModels
from .machine import blocks, steps
from .networks import widest_layer
from .tangent import Basis, moved_outputs

MODELS_AT_ONCE = 100


@dataclass(frozen=True)
class TangentReadout:
    """f̄_{−j}(x) = f(x; θ0) + z(x)ᵀW_j + β_j: predictions of the linearised network."""

    basis: Basis
    models: RidgeModels

    @classmethod
    def of(cls, basis: Basis, X: Tensor, y: Tensor, models: RidgeModels) -> TangentReadout:
        """Read out the models; everything at the training rows is in closed form."""
        return cls(basis, models)

    def of_type(self, dtype: torch.dtype) -> TangentReadout:
        """The same models, predicting in another floating type."""
        return TangentReadout(self.basis.of_type(dtype), self.models.of_type(dtype))

    @property
    def residuals(self) -> Tensor:
        """c_j/d_j."""
        return self.models.residuals

    @property
    def training_residuals(self) -> Tensor:
        """λc."""
        return self.models.training_residuals

    @property
    def rows_at_once(self) -> int:
        """Rows for which coordinates, predictions and their order statistics fit."""
        machine, n = self.basis.tangent.machine, len(self.residuals)
        return machine.rows_at_once(n, self.basis.row_bytes + 5 * machine.item * n)

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        outputs, rows = self.basis.rows(X)
        return self._point(outputs, rows)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """One product for all models."""
        machine = self.basis.tangent.machine
        with machine.exact.products():  # whatever the caller's own setting
            outputs, rows = self.basis.rows(X)
        with machine.products():
            values = rows @ self.models.columns
        values += self.models.intercepts[:-1]  # a bias in the product would halve a GPU's rate
        values += outputs[:, None]
        return self._point(outputs, rows), values

    def _point(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return outputs + rows @ self.models.full + self.models.intercepts[-1]


@dataclass(frozen=True)
class NetworkReadout:
    """f(x; θ0 + Δ_{−j}): the real network at the moved weights, the paper's choice."""

    basis: Basis
    models: RidgeModels
    residuals: Tensor
    training_residuals: Tensor

    @classmethod
    def of(cls, basis: Basis, X: Tensor, y: Tensor, models: RidgeModels) -> NetworkReadout:
        """Evaluate model j at row j, and the full model at every row."""
        unread = cls(basis, models, y, y)
        own = [
            moved_outputs(basis.tangent.module, unread._moves(columns), X[columns], own_row=True)
            for columns in unread._model_blocks()
        ]
        left_out = torch.cat(own) + models.intercepts[:-1]
        return cls(basis, models, y - left_out, y - unread.point(X))

    def of_type(self, dtype: torch.dtype) -> NetworkReadout:
        """The same models, predicting in another floating type."""
        return replace(self, basis=self.basis.of_type(dtype), models=self.models.of_type(dtype))

    @property
    def rows_at_once(self) -> int:
        """Rows for which predictions of all models and their order statistics fit."""
        machine = self.basis.tangent.machine
        each = machine.item * (6 * len(self.residuals) + MODELS_AT_ONCE)
        return max(1, machine.block // each)  # as many as can be: each block moves all networks

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        moves = self.basis.moves(self.models.full[:, None])
        rows = self.basis.tangent.machine.put(X)
        moved = moved_outputs(self.basis.tangent.module, moves, rows)
        return moved[0] + self.models.intercepts[-1]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """A block of moved networks at a time, each on all rows."""
        rows = self.basis.tangent.machine.put(X)
        values = self.models.intercepts[:-1].repeat(len(rows), 1)
        for columns in self._model_blocks():
            moved = moved_outputs(self.basis.tangent.module, self._moves(columns), rows)
            values[:, columns] += moved.T
        return self.point(X), values

    def _moves(self, columns: slice) -> dict[str, Tensor]:
        return self.basis.moves(self.models.columns[:, columns])

    def _model_blocks(self) -> Iterator[slice]:
        """Blocks of models: the pull needs n times the widest layer for each of them."""
        tangent, n = self.basis.tangent, len(self.residuals)
        parameters = sum(p.numel() for p in tangent.moved.values())
        each = tangent.machine.item * max(parameters, n * self._width)
        for block in blocks(n, each, self._limit):
            for part in steps(block.stop - block.start, MODELS_AT_ONCE):
                yield slice(block.start + part.start, block.start + part.stop)

    @property
    def _limit(self) -> int:
        return self.basis.tangent.machine.block

    @property
    def _width(self) -> int:
        return widest_layer(self.basis.tangent.module)


Readout = TangentReadout | NetworkReadout
READOUTS: dict[str, type[TangentReadout] | type[NetworkReadout]] = {
    "network": NetworkReadout,
    "tangent": TangentReadout,
}


def read_out(readout: str, basis: Basis, X: Tensor, y: Tensor, models: RidgeModels) -> Readout:
    """Return the leave-one-out models behind one of the readouts; X and y are on the machine."""
    return READOUTS[readout].of(basis, X, y, models)
