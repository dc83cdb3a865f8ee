"""Scaling each model's features by its own rows.

A model may look at its own rows without a leak. Its scale of a feature is their standard deviation,
rounded to a power of 2 (or of a root of 2), and its centre their mean, rounded to a multiple of the
scale. Features with two values have their difference and the lower value instead, and constant ones
have 1: so an indicator that is 1 in few rows has the same scale without them. Being rounded, scales
are the same for nearly all models, which then share their kernels.

Missing values, NaN, count for nothing. Nominal features, codes of categories of which only equality
matters, are left as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# Boundaries between rounded values are shifted by an irrational part of a step, so that means and
# deviations of whole numbers do not lie on them.
SHIFT = math.sqrt(2) / 100
HALF = 0.5 + SHIFT
UNSURE, RELATIVE = 1e-9, 1e-12  # of a step: so close to a boundary rounding may have decided


class Frame(NamedTuple):
    """Centre and scale of each feature, (features,), and which features are nominal."""

    center: Tensor
    scale: Tensor
    nominal: tuple[bool, ...]

    def apply(self, X: Tensor) -> Tensor:
        """Rows in this frame."""
        return (X - self.center.to(X)) / self.scale.to(X)


@dataclass(frozen=True)
class Frames:
    """Centres and scales of models that were computed from their own rows.

    Attributes
    ----------
    centers, scales
        Of the distinct ones, each (frames, features).
    of
        Which one each model has, shape (models,).
    doubtful
        Whether rounding may have decided which, shape (models,).
    nominal
        Which features are nominal; None: none of them.

    """

    centers: Tensor
    scales: Tensor
    of: Tensor
    doubtful: Tensor
    nominal: tuple[bool, ...] | None = None

    def __len__(self) -> int:
        return len(self.scales)

    def __getitem__(self, k: int) -> Frame:
        nominal = self.nominal or (False,) * self.scales.shape[1]
        return Frame(self.centers[k], self.scales[k], nominal)


def unscaled(models: int, features: int, nominal: tuple[bool, ...] | None = None) -> Frames:
    """One frame that changes nothing, for all models."""
    nothing = torch.zeros(models, dtype=torch.bool)
    zeros = torch.zeros(1, features, dtype=torch.float64)
    return Frames(zeros, zeros + 1, nothing.long(), nothing, nominal)


def own_frames(
    X: Tensor,
    left_out: Sequence[Tensor],
    step: float,
    centered: bool = True,
    nominal: tuple[bool, ...] | None = None,
) -> Frames:
    """Frames of the models without each of some sets of rows.

    Parameters
    ----------
    X
        All rows, shape (n, features), float64.
    left_out
        For each model the rows that it does not have.
    step
        Scales are powers of 2^step.
    centered
        Whether features are centred; if not, fewer models differ.
    nominal
        Which features are nominal; None: none of them.

    """
    offset = _offset(X)
    moments = [_moments(_without(X - offset, rows)) for rows in left_out]
    return _frames(moments, offset, step, centered, nominal)


def joined_frames(
    X: Tensor,
    new: Tensor,
    step: float,
    centered: bool = True,
    nominal: tuple[bool, ...] | None = None,
) -> Frames:
    """Frames of all n rows together with each of m new ones, a model each; see ``own_frames``."""
    offset = _offset(X)
    old = X - offset
    moments = [_moments(torch.cat([old, row - offset])) for row in new.split(1)]
    return _frames(moments, offset, step, centered, nominal)


def _offset(X: Tensor) -> Tensor:
    """What to subtract, (features,): it saves digits, and frames are the same for all offsets."""
    return X.nanmedian(dim=0).values.nan_to_num()


def _frames(
    moments: Sequence[tuple[Tensor, Tensor]],
    offset: Tensor,
    step: float,
    centered: bool,
    nominal: tuple[bool, ...] | None,
) -> Frames:
    """Round means and standard deviations, each (features,) for every model."""
    means, deviations = (torch.stack(part) for part in zip(*moments, strict=True))
    means = torch.where(means.isnan(), 0.0, means + offset)  # the offset may be of other rows
    if nominal is not None:
        codes = torch.tensor(nominal)
        means[:, codes], deviations[:, codes] = 0.0, 0.0
    constant = deviations == 0
    powers, unsure = _rounded(torch.where(constant, 1.0, deviations).log2() / step)
    scales = torch.exp2(step * powers)
    places, astray = _rounded(means / scales if centered else torch.zeros_like(means))
    distinct, of = torch.cat([scales * places, scales], dim=1).unique(dim=0, return_inverse=True)
    centers, scales = distinct.split(means.shape[1], dim=1)
    doubtful = ((unsure | astray) & ~constant).any(dim=1)
    return Frames(centers, scales, of, doubtful, nominal)


def _without(X: Tensor, rows: Tensor) -> Tensor:
    kept = torch.ones(len(X), dtype=torch.bool)
    kept[rows] = False
    return X[kept]


def _moments(X: Tensor) -> tuple[Tensor, Tensor]:
    """Centres and sizes of the columns before rounding; a size is 0 where all values are equal.

    A column without values has no centre, NaN.
    """
    present = ~X.isnan()
    if not present.all():
        X = torch.where(present, X, _offset(X))  # a value of the column, or 0 if it has none
    count = present.sum(dim=0).clamp(min=1)
    means, least, most = (X * present).sum(dim=0) / count, X.amin(dim=0), X.amax(dim=0)
    span = torch.where(most > least, most - least, 1.0)
    squares = ((X - means) / span).square() * present  # no overflow
    deviations = (squares.sum(dim=0) / count).sqrt() * span
    two = ((least == X) | (most == X)).all(dim=0)
    centers = torch.where(present.any(dim=0), torch.where(two, least, means), torch.nan)
    return centers, torch.where(two, most - least, deviations)


def _rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and whether a value lies so close to a boundary that rounding decided."""
    moved = values + HALF
    nearest = moved.floor()
    gaps = torch.minimum(moved - nearest, nearest + 1 - moved)
    return nearest, gaps < UNSURE + RELATIVE * values.abs()
