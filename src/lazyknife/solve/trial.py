"""Which of several networks, and which λ, predicts rows that had no part in choosing its weights.

The likelihood of many weights may explain noise by features that do not matter; errors on other
rows show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import PROCESSOR, Machine, called
from ..data.own_scaling import FeatureScale
from ..networks import wide
from ..tangent import WideTangent
from .ascent import SQUARES, Climb

TIMES = tuple(4.0**k for k in range(7))  # λ, in units of the likelihood's


class Trial(NamedTuple):
    """The mean squared error on the other rows, and the λ that has it."""

    error: float
    ridge: float


def trial(
    network: wide,
    climb: Climb,
    X: Tensor,
    y: Tensor,
    nominal: Sequence[bool],
    count: int,
    fixed: bool = False,
) -> Trial:
    """Fit the first ``count`` rows and predict the others; ``fixed`` keeps the climb's λ."""
    one = torch.ones_like(X[0])
    frame = FeatureScale(torch.zeros_like(one), one, tuple(nominal))
    weights = X.new_tensor(climb.weights)
    tangent = WideTangent(network, weights, frame, Machine(X.device))
    old, new = tangent.features(X[:count]), tangent.features(X[count:])
    values, vectors = torch.linalg.eigh(tangent.gram(old))
    center = y[:count].mean()
    along = (y[:count] - center) @ vectors
    rotated = tangent.kernel(new, old) @ vectors
    ridges = climb.ridge * X.new_tensor(TIMES[:1] if fixed else TIMES)
    shares = along[:, None] / (values.clamp(min=0.0)[:, None] + ridges)
    errors = (y[count:, None] - center - rotated @ shares).square().mean(dim=0)
    best = int(errors.argmin())
    return Trial(float(errors[best]), float(ridges[best]))


def tried(
    networks: Sequence[wide],
    climbs: Sequence[Climb],
    X: Tensor,
    y: Tensor,
    nominal: Sequence[bool],
    count: int,
    fixed: bool = False,
    machine: Machine = PROCESSOR,
) -> tuple[int, list[Climb]]:
    """The best network on the other rows, and all climbs with the λ that is best there."""
    every = zip(networks, climbs, strict=True)
    terms = (X, y, nominal, count, fixed)
    trials = [partial(trial, network, climb, *terms) for network, climb in every]
    found = list(machine.map(called, trials, SQUARES * len(y) ** 2))
    best = min(range(len(found)), key=lambda k: found[k].error)
    pairs = zip(climbs, found, strict=True)
    return best, [climb._replace(ridge=each.ridge) for climb, each in pairs]
