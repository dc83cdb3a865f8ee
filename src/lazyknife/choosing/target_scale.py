"""The scale of y, which every model chooses on its own rows.

A model may be fitted to a monotone function g of y: its likelihood is then that of g(y) times the
product of g' over its rows. Offered are y itself, a root, a logarithm to models all of whose y have
one sign (many values at 0 would make it look likely), and asinh, for long tails around a centre,
the median of y. g has a unit, a fraction of the median distance of y from 0 or from the centre,
rounded to a power of 2; the centre is rounded to a multiple of it. So nearly all models have the
same. Where the distance is 0, the kind is not offered. All are functions of the model's own rows.
The scales share every kernel and its factorisation. The
model takes the best at the start of its search, where each must be ahead of y itself by a gain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.own_scaling import Compression, rounded
from ..records import Array

# For each kind: its unit over the median distance, and the gain over y itself, in −2 log likelihood
# for each row, of a model of so many rows; with fewer it must be as large in total.
KINDS = {"root": (2.0**-5, 0.1), "log": (2.0**-4, 0.15), "asinh": (1.0, 1.0)}
ROWS = 100
LARGEST = 900  # power of 2


class ScalesOfY(NamedTuple):
    """Scales of y, and what each costs the models."""

    scales: tuple[Compression | None, ...]  # None, the first: y itself
    # What is added to −2 log likelihood for each row, shape (models, scales); infinite where a
    # scale is not offered.
    offsets: Array
    doubtful: NDArray[np.bool_]  # whether rounding may have decided a unit, shape (models,)

    def targets(self, y: Tensor) -> Tensor:
        """Targets on every scale, shape (scales, n)."""
        return torch.stack([on_scale(y, scale) for scale in self.scales])


NO_SCALES = ScalesOfY((None,), np.zeros((1, 1)), np.zeros(1, dtype=bool))


def on_scale(y: Tensor, scale: Compression | None) -> Tensor:
    """Targets on a scale that models chose."""
    return y if scale is None else torch.from_numpy(scale.forward(y.numpy()))


def scales_of_y(y: Tensor, left_out: Iterable[NDArray[np.intp]]) -> ScalesOfY:
    """Return the scales that models without some sets of rows may choose from."""
    owns = [np.delete(y.numpy(), rows) for rows in left_out]
    one_sign = np.array([own.min() > 0 or own.max() < 0 for own in owns])
    fewer = np.array([max(1.0, ROWS / len(own)) for own in owns])
    scales: list[Compression | None] = [None]
    offsets, doubtful = [np.zeros(len(owns))], np.zeros_like(one_sign)
    for kind, (share, gain) in KINDS.items():
        centers = np.array([_median(own) if kind == "asinh" else 0.0 for own in owns])
        pairs = zip(owns, centers, strict=True)
        middles = np.array([_median(np.abs(own - center)) for own, center in pairs])
        logs = torch.from_numpy(np.where(middles > 0, middles, 1.0)).log2()
        powers, unsure = (part.numpy() for part in rounded(logs.clamp(-LARGEST, LARGEST)))
        units, doubtful = share * 2.0**powers, doubtful | unsure
        centers = rounded(torch.from_numpy(centers / units))[0].numpy() * units
        offered = (middles > 0) & (one_sign | (kind != "log"))
        for unit, center in np.unique(np.stack([units, centers])[:, offered], axis=1).T.tolist():
            scale, own_scale = (
                Compression(kind, unit, center),
                (units == unit) & (centers == center),
            )
            slopes = np.array([scale.log_slope(own).mean() for own in owns])
            scales.append(scale)
            offsets.append(np.where(own_scale & offered, gain * fewer - 2 * slopes, np.inf))
    return ScalesOfY(tuple(scales), np.stack(offsets, axis=1), doubtful)


def _median(values: Array) -> float:
    """The lower of two values in the middle."""
    return float(np.sort(values)[(len(values) - 1) // 2])
