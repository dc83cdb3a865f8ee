"""The space that models search: a network, a weight for each feature, and λ.

Everything is on a fixed grid: weights are powers of 2 times a unit, or 0, and λ is a power of 2
times the network's own unit. None of it depends on data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

OFF = -99  # exponent of a weight of 0
SCALES = (-2, -1, 0, 1)  # exponents of all weights, to start from
RIDGES = (-10, -7, -4, -2, 0, 2)  # of λ
STEP = 2  # octaves of a move of one weight, or of λ


class Place(NamedTuple):
    """A network, exponents of its weights (none where it has no weights), and an exponent of λ."""

    network: int
    weights: tuple[int, ...]
    ridge: int


def weight_unit(features: int) -> float:
    """Weight of exponent 0."""
    return 1 / math.sqrt(max(features, 1))


def starts(
    searched: Sequence[bool], fixed: Sequence[bool], features: int, any_ridge: bool = True
) -> list[Place]:
    """Where every search starts.

    Parameters
    ----------
    searched
        For each network whether it has weights.
    fixed
        For each network whether its scale is given.
    features
        Number of features.
    any_ridge
        Whether λ is searched.

    """
    places = []
    for k, (weighted, given) in enumerate(zip(searched, fixed, strict=True)):
        scales = (0,) if given else SCALES
        each = [(scale,) * features for scale in scales] if weighted else [()]
        places += [
            Place(k, weights, ridge)
            for weights in each
            for ridge in (RIDGES if any_ridge else (0,))
        ]
    return places


def feature_moves(place: Place, feature: int) -> Iterator[Place]:
    """Change one weight: to 0, by a factor of 4 either way, or from 0 to one unit."""
    own = place.weights[feature]
    for exponent in (0,) if own == OFF else (OFF, own - STEP, own + STEP):
        weights = (*place.weights[:feature], exponent, *place.weights[feature + 1 :])
        if any(other != OFF for other in weights):
            yield place._replace(weights=weights)


def common_moves(
    place: Place, searched: Sequence[bool], fixed: Sequence[bool], any_ridge: bool = True
) -> Iterator[Place]:
    """Change λ, all weights together, or the network, where they are free to change."""
    if any_ridge:
        yield place._replace(ridge=place.ridge - STEP)
        yield place._replace(ridge=place.ridge + STEP)
    if place.weights:
        for change in () if fixed[place.network] else (-1, 1):
            moved = tuple(own if own == OFF else own + change for own in place.weights)
            yield place._replace(weights=moved)
        for k, weighted in enumerate(searched):
            if weighted and k != place.network:
                yield place._replace(network=k)
