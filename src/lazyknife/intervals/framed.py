"""Full conformal prediction with features scaled by the training rows and the new row together.

The scaling treats the n + 1 rows alike, so ranks of scores stay exchangeable. Being rounded, it is
the same for nearly all new rows; each distinct one has models of its own, made when first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ..data.own_scaling import FeatureScale, FeatureScales
from ..records import Ends
from .full import FullModels

Key = tuple[tuple[float, ...], tuple[float, ...]]  # centre and scale of each feature


class Source(Protocol):
    """The training rows, and how models of them are made."""

    def start(self) -> FeatureScale:
        """Scale of the training rows alone."""

    def frames(self, new: Tensor) -> FeatureScales:
        """Scales of the new rows, each together with the training rows."""

    def make(self, frame: FeatureScale) -> FullModels:
        """Models of the training rows in a frame."""


@dataclass(frozen=True)
class FramedFull:
    """Full conformal models in several frames.

    Attributes
    ----------
    source
        How models of the training rows are made.
    main
        Models in the frame of the training rows alone, for point predictions.
    made
        Models that were made so far.

    """

    source: Source
    main: FullModels
    made: dict[Key, FullModels] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> FramedFull:
        """Make the models in the frame of the training rows, which most new rows share."""
        frame = source.start()
        main = source.make(frame)
        return cls(source, main, {_key(frame): main})

    @property
    def residuals(self) -> Tensor:
        return self.main.residuals

    @property
    def training_residuals(self) -> Tensor:
        return self.main.training_residuals

    @property
    def rows_at_once(self) -> int:
        return self.main.rows_at_once

    @property
    def conceded(self) -> int:
        return 0

    def typical_error(self) -> tuple[float, float]:
        return self.main.typical_error()

    def point(self, X: Tensor) -> Tensor:
        return self.main.point(X)

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Ends of each row in its own frame; the whole line where rounding decided which it is."""
        point, frames = self.point(X), self.source.frames(X)
        lower = point.new_full((len(X), len(ranks)), -torch.inf)
        upper = -lower
        for k in range(len(frames)):
            rows = torch.nonzero((frames.of == k) & ~frames.doubtful)[:, 0]
            if len(rows):
                models = self._at(frames[k])
                _, low, high = models.accepted(X[rows], ranks)
                lower[rows.to(point.device)], upper[rows.to(point.device)] = low, high
        return point, lower, upper

    def _at(self, frame: FeatureScale) -> FullModels:
        key = _key(frame)
        if key not in self.made:
            self.made[key] = self.source.make(frame)
        return self.made[key]


def _key(frame: FeatureScale) -> Key:
    return tuple(frame.center.tolist()), tuple(frame.scale.tolist())
