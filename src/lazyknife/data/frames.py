"""Scaling each model's features by its own rows.

A model may look at its own rows without a leak. Its scale of a feature is their standard deviation,
rounded to a power of 2 (or of a root of 2), and its centre their mean, rounded to a multiple of the
scale. Features with two values have their difference and the lower value instead, and constant ones
have 1: so an indicator that is 1 in few rows has the same scale without them. Being rounded, scales
are the same for nearly all models, which then share their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Boundaries between rounded values are shifted by an irrational part of a step, so that means and
# deviations of whole numbers do not lie on them.
SHIFT = math.sqrt(2) / 100
HALF = 0.5 + SHIFT
UNSURE, RELATIVE = 1e-9, 1e-12  # of a step: so close to a boundary rounding may have decided


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

    """

    centers: Tensor
    scales: Tensor
    of: Tensor
    doubtful: Tensor

    def __len__(self) -> int:
        return len(self.scales)

    def apply(self, k: int, X: Tensor) -> Tensor:
        """Rows in frame k."""
        return (X - self.centers[k].to(X)) / self.scales[k].to(X)


def unscaled(models: int, features: int) -> Frames:
    """One frame that changes nothing, for all models."""
    nothing = torch.zeros(models, dtype=torch.bool)
    zeros = torch.zeros(1, features, dtype=torch.float64)
    return Frames(zeros, zeros + 1, nothing.long(), nothing)


def own_frames(X: Tensor, left_out: Sequence[Tensor], step: float, centered: bool = True) -> Frames:
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

    """
    offset = X.median(dim=0).values  # saves digits; what follows is the same for every offset
    moments = [_moments(_without(X - offset, rows)) for rows in left_out]
    means, deviations = (torch.stack(part) for part in zip(*moments, strict=True))
    return _frames(means + offset, deviations, step, centered)


def joined_frames(X: Tensor, new: Tensor, step: float, centered: bool = True) -> Frames:
    """Frames of all n rows together with each of m new ones, a model each; see ``own_frames``."""
    offset = X.median(dim=0).values
    old = X - offset
    moments = [_moments(torch.cat([old, row - offset])) for row in new.split(1)]
    means, deviations = (torch.stack(part) for part in zip(*moments, strict=True))
    return _frames(means + offset, deviations, step, centered)


def _frames(means: Tensor, deviations: Tensor, step: float, centered: bool) -> Frames:
    """Round means and standard deviations, each (models, features)."""
    constant = deviations == 0
    powers, unsure = _rounded(torch.where(constant, 1.0, deviations).log2() / step)
    scales = torch.exp2(step * powers)
    places, astray = _rounded(means / scales if centered else torch.zeros_like(means))
    distinct, of = torch.cat([scales * places, scales], dim=1).unique(dim=0, return_inverse=True)
    centers, scales = distinct.split(means.shape[1], dim=1)
    return Frames(centers, scales, of, ((unsure | astray) & ~constant).any(dim=1))


def _without(X: Tensor, rows: Tensor) -> Tensor:
    kept = torch.ones(len(X), dtype=torch.bool)
    kept[rows] = False
    return X[kept]


def _moments(X: Tensor) -> tuple[Tensor, Tensor]:
    """Centres and sizes of the columns before rounding; a size is 0 where all values are equal."""
    means, least, most = X.mean(dim=0), X.amin(dim=0), X.amax(dim=0)
    span = torch.where(most > least, most - least, 1.0)
    deviations = ((X - means) / span).square().mean(dim=0).sqrt() * span  # no overflow
    two = ((least == X) | (most == X)).all(dim=0)
    return torch.where(two, least, means), torch.where(two, most - least, deviations)


def _rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and whether a value lies so close to a boundary that rounding decided."""
    moved = values + HALF
    nearest = moved.floor()
    gaps = torch.minimum(moved - nearest, nearest + 1 - moved)
    return nearest, gaps < UNSURE + RELATIVE * values.abs()
