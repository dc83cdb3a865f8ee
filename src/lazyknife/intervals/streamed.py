"""Models of many rows: a ridge on few features, whose models are never all computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..choosing.shared import NoiseModel
from ..compute import Machine, blocks
from ..records import Predictions
from ..solve.drift import Drift
from ..solve.streamed import StreamedRidge
from ..tangent import Landmarks
from .window import Near


@dataclass(frozen=True, eq=False)
class FullModel:
    """The ridge of all rows.

    Attributes
    ----------
    basis, solved
        The features, and the ridge on them.
    center
        What was subtracted from y.
    intercept
        Whether the last feature is 1.
    amount
        σ of new rows; None: 1.
    drift
        What rounding may have changed.

    """

    basis: Landmarks
    solved: StreamedRidge
    center: float
    intercept: bool
    amount: NoiseModel | None
    drift: Drift

    @property
    def _machine(self) -> Machine:
        return self.basis.tangent.machine

    @property
    def rows_at_once(self) -> int:
        """Rows whose features, and whose windows of models, fit."""
        return self._machine.rows_at_once(self.basis.size, 8 * self.basis.row_bytes)

    @property
    def sharing(self) -> tuple[Machine, int] | None:
        """Where several threads can predict, and the bytes of a row; None: they cannot."""
        return self._machine, 8 * self.basis.row_bytes

    @property
    def block(self) -> int:
        return self._machine.block

    @property
    def stretch(self) -> float:
        """Relative error of σ by rounding."""
        return 0.0 if self.amount is None else self.amount.error

    def features(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """φ, shape (m, q), and ‖φ‖² without the intercept, shape (m,)."""
        _, rows, norms = self.basis.at(X)
        return with_intercept(rows, self.intercept), norms

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        return self.features(X)[0] @ self.solved.weights + self.center

    def near(self, X: Tensor) -> Near:
        """The full model at some rows, and L⁻¹φ of them."""
        rows, norms = self.features(X)
        half, point = self.solved.half(rows), rows @ self.solved.weights + self.center
        leverages, one = half.square().sum(dim=0), point.new_ones(())
        found = Predictions(
            point,
            point.new_empty(len(point), 0),
            one.expand(len(point)) if self.amount is None else self.amount(X),
            one * self.stretch,
            self.drift.slack(leverages, norms),
        )
        return Near(found, leverages.sqrt(), point, half.T)

    def columns_of(self, X: Tensor, residuals: Tensor) -> Tensor:
        """−L⁻¹φe of rows with these left-out residuals, shape (q, m)."""
        return self.solved.half(self.features(X)[0]) * -residuals


@dataclass(frozen=True, eq=False)
class StreamedModels(FullModel):
    """The full model, and what leaving each of n rows out changes.

    Attributes
    ----------
    rows
        The rows that are left out, as they were given, shape (n, features).
    residuals, training_residuals, leverages
        e, r − φᵀw and h, each (n,).
    own
        σ of the rows, shape (n,), or a single 1.
    norms
        ‖φ_j‖², shape (n,).

    """

    rows: Tensor
    residuals: Tensor
    training_residuals: Tensor
    leverages: Tensor
    own: Tensor
    norms: Tensor

    @cached_property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,); infinite where the model is conceded to rounding."""
        sizes: Tensor = (self.residuals.abs() + self.drift.own) / self.own * (1 + self.stretch)
        return torch.where(torch.isinf(self.drift.own) | sizes.isnan(), torch.inf, sizes)

    @cached_property
    def reach(self) -> Tensor:
        return self.leverages.sqrt() * self._steps.abs()

    @property
    def _steps(self) -> Tensor:
        """e, or 0 where there is none: a leverage was rounded to 1, and the score is infinite."""
        return self.residuals.nan_to_num(0.0, 0.0, 0.0)

    @property
    def conceded(self) -> int:
        return int(torch.isinf(self.scores).sum())

    @property
    def errors(self) -> Tensor:
        """What rounding may change in a prediction at each row, and in its residual, (n,)."""
        return self.drift.slack(self.leverages, self.norms) + self.drift.own

    def typical_error(self) -> tuple[float, float]:
        known = torch.isfinite(self.drift.own)
        if not known.any():
            return math.inf, math.inf
        return float(self.errors[known].median()), self.stretch

    def columns(self, members: Tensor) -> Tensor:
        """−L⁻¹φ_j e_j of some rows, shape (q, members)."""
        rows = self.rows[members.to(self.rows.device)]
        return self.columns_of(rows, self._steps[members])

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions of the full model, (m,), and of all others, (m, n)."""
        found = self.scaled(X)
        return found.point, found.each

    def scaled(self, X: Tensor) -> Predictions:
        """Everything that intervals are computed from, of all models."""
        near, every = self.near(X), torch.arange(len(self.residuals), device=self.residuals.device)
        parts = blocks(len(every), 4 * self.basis.row_bytes, self.block)
        moved = [near.factors @ self.columns(every[part]) for part in parts]
        found = near.found
        each = found.point[:, None] + torch.cat(moved, dim=1)
        stretch = found.stretch.expand(len(each))
        return found._replace(each=each, scales=found.scales[:, None], stretch=stretch)


def with_intercept(rows: Tensor, intercept: bool) -> Tensor:
    """Feature rows with a last entry of 1 where there is an intercept."""
    return torch.nn.functional.pad(rows, (0, 1), value=1.0) if intercept else rows
