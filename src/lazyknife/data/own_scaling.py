"""Scaling each model's features by its own rows.

A model may look at its own rows without a leak. Its scale of a feature is their standard deviation,
rounded to a power of 2, and its centre their mean, rounded to a multiple of the scale. In both,
values far out count as less far: single rows do not decide them where tails are heavy. Features
with two values are scaled by the difference, and constant ones by 1; the centre of both is the
lower value: so an indicator that is 1 in few rows has the same scale without them. Being rounded,
scales are the same for nearly all models, which then share their kernels.

Missing values, NaN, count for nothing. Nominal features, codes of categories of which only equality
matters, are left as they are.

y too may have a scale that models choose (``Compression``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]

# Boundaries between rounded values are shifted by an irrational part of a step, so that means and
# deviations of whole numbers do not lie on them.
SHIFT = math.sqrt(2) / 100
HALF = 0.5 + SHIFT
UNSURE, RELATIVE = 1e-9, 1e-12  # of a step: so close to a boundary rounding may have decided
# Where values reach over so many standard deviations, those farther from the median than so many
# times the distance of the quartiles count as that far.
REACH, FARTHEST = 6.0, 8.0


class FeatureScale(NamedTuple):
    """Centre and scale of each feature, (features,), and which features are nominal."""

    center: Tensor
    scale: Tensor
    nominal: tuple[bool, ...]

    def apply(self, X: Tensor) -> Tensor:
        return (X - self.center.to(X)) / self.scale.to(X)


@dataclass(frozen=True)
class FeatureScales:
    """Centres and scales of models that were computed from their own rows."""

    centers: Tensor  # the distinct ones, (scales, features)
    scales: Tensor  # likewise
    of: Tensor  # which of them each model has, (models,)
    doubtful: Tensor  # whether rounding may have decided which, (models,)
    nominal: tuple[bool, ...] | None = None  # which features are nominal; None: none of them

    def __len__(self) -> int:
        return len(self.scales)

    def __getitem__(self, k: int) -> FeatureScale:
        nominal = self.nominal or (False,) * self.scales.shape[1]
        return FeatureScale(self.centers[k], self.scales[k], nominal)


def unscaled(models: int, features: int, nominal: tuple[bool, ...] | None = None) -> FeatureScales:
    """One scale that changes nothing, for all models."""
    nothing = torch.zeros(models, dtype=torch.bool)
    zeros = torch.zeros(1, features, dtype=torch.float64)
    return FeatureScales(zeros, zeros + 1, nothing.long(), nothing, nominal)


def without(X: Tensor, left_out: Iterable[Tensor]) -> Iterator[Tensor]:
    """Rows of the models that have all rows of X but for those that each leaves out."""
    for rows in left_out:
        kept = torch.ones(len(X), dtype=torch.bool)
        kept[rows] = False
        yield X[kept]


def own_scales(
    rows: Iterable[Tensor], centered: bool = True, nominal: tuple[bool, ...] | None = None
) -> FeatureScales:
    """Scales of models by their own rows, each (rows, features) in float64.

    Without ``centered``, features are not centred, and fewer models differ.
    """
    extents = zip(*map(_tamed_extent, rows), strict=True)
    least, mean, size, exact, unclear = map(torch.stack, extents)
    if nominal is not None:
        codes = torch.tensor(nominal)
        least[:, codes], size[:, codes], exact[:, codes] = 0.0, 0.0, True
    powers, unsure = rounded(torch.where(size > 0, size, 1.0).log2())
    scales = torch.ldexp(torch.ones_like(powers), powers.int())
    lowest = (least / scales).floor()  # exact, as is what remains: a power of 2 divides
    steps, astray = rounded(least / scales - lowest + mean / scales)
    centers = torch.where(exact, least, (lowest + steps) * scales)
    centers = centers if centered else torch.zeros_like(centers)
    doubtful = ((unsure | (astray & centered) | unclear) & ~exact).any(dim=1)
    distinct, of = torch.cat([centers, scales], dim=1).unique(dim=0, return_inverse=True)
    centers, scales = distinct.split(least.shape[1], dim=1)
    return FeatureScales(centers, scales, of, doubtful, nominal)


def _tamed_extent(X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What ``_extent`` says of columns whose far values are drawn in.

    And whether rounding may have decided that some are far, (features,).
    """
    found = least, _, size, exact = _extent(X)
    reach = torch.where(X.isnan(), least, X).amax(dim=0) - least - REACH * size
    unclear = reach.abs() <= RELATIVE * REACH * size
    wide = (reach > 0) & ~exact
    if not wide.any():
        return *found, unclear
    ordered, last = X[:, wide].sort(dim=0).values, (~X[:, wide].isnan()).sum(dim=0) - 1
    places = torch.stack([last // 4, last // 2, last - last // 4])  # missing values are the last
    low, median, high = ordered.gather(0, places)
    room = torch.where(high > low, FARTHEST * (high - low), torch.inf)
    drawn_in = _extent(torch.clamp(X[:, wide], median - room, median + room))
    for all_columns, columns in zip(found[:3], drawn_in, strict=False):
        all_columns[wide] = columns
    return *found, unclear


def _extent(X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each column, nothing of which is rounded on a grid yet, (features,).

    The least value; the mean, less the least; the standard deviation, or the difference of two
    values (0: all are equal); and whether there are at most two, so that nothing was summed. A
    column without values has those of a single 0.
    """
    present = ~X.isnan()
    some, count = present.any(dim=0), present.sum(dim=0).clamp(min=1)
    least = torch.where(some, torch.where(present, X, torch.inf).amin(dim=0), 0.0)
    most = torch.where(some, torch.where(present, X, -torch.inf).amax(dim=0), 0.0)
    exact = ((least == X) | (most == X) | ~present).all(dim=0)
    above = torch.where(present, X - least, 0.0)
    mean, span = above.sum(dim=0) / count, torch.where(most > least, most - least, 1.0)
    squares = ((above - mean) / span).square() * present  # no overflow
    deviation = (squares.sum(dim=0) / count).sqrt() * span
    return least, mean, torch.where(exact, most - least, deviation), exact


def rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and whether a value lies so close to a boundary that rounding decided."""
    moved = values + HALF
    nearest = moved.floor()
    gaps = torch.minimum(moved - nearest, nearest + 1 - moved)
    return nearest, gaps < UNSURE + RELATIVE * values.abs()


@dataclass(frozen=True)
class Compression:
    """A scale that rises ever more slowly: like the root, or the logarithm, of |y| above a unit.

    Below the unit it is nearly linear; it is odd, and every y has a value on it. "asinh" is that of
    the logarithm around a centre.
    """

    kind: str  # "root", "log" or "asinh"
    unit: float
    center: float = 0.0

    def forward(self, y: Values) -> Values:
        v = (y - self.center) / self.unit
        if self.kind != "root":
            return np.arcsinh(v)
        with np.errstate(invalid="ignore"):  # ends of models that rounding leaves open are infinite
            return np.where(np.isinf(v), v, v / (np.sqrt(np.abs(v) + 1) + 1))

    def inverse(self, z: Values) -> Values:
        v = z * (np.abs(z) + 2) if self.kind == "root" else np.sinh(z)
        return self.center + self.unit * v

    def log_slope(self, y: Values) -> Values:
        v = np.abs((y - self.center) / self.unit)
        above: Values = 2 * np.sqrt(v + 1) if self.kind == "root" else np.hypot(v, 1)
        return -np.log(above) - float(np.log(self.unit))

    def __str__(self) -> str:
        around = f" around {self.center:g}" * (self.kind == "asinh")
        return f"{self.kind} of y{around} above {self.unit:g}"
