"""Weights of features and λ by gradient ascent of the restricted likelihood of some rows.

The rows must be set aside for this choice: nothing here leaves a row out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..compute import PROCESSOR, Machine, called, track
from ..networks import KINDS, Anova, Laplace, wide
from .hill import LEAST, Hill, Numbers
from .places import weight_unit
from .profile import RIDGES, best_of

RIDGE = 0.3  # where λ starts
LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 1e3  # bounds, relative to the first start
SATURATED = 20.0  # bound of Anova's weights: products hardly change beyond
SIZE = 10.0  # of the criterion for the minimiser: its first step is then long enough
TOLERANCE = 2e-4  # relative change of the criterion, and slope, at which an ascent ends
MEMORY = 20  # steps from which L-BFGS estimates curvatures
REVIVED = 0.5  # least weight at a later start, relative to the first
# Features whose mean term is below one of these become weights of 0 if that costs at most LOST of
# −2 log likelihood.
CANNOT_MATTER, LOST = (1e-2, 1e-3, 1e-4, 1e-5), 0.2
FIRST, LATER = 15, 20  # evaluations of a network on the first rows, and on more rows
FINALISTS = 2  # networks that are tried on more rows
SQUARES = 6  # matrices of a likelihood and its gradient
STAGES = (300, 1000)  # rows on which all networks climb, and the best of them


class Climb(NamedTuple):
    """Where an ascent ended.

    Attributes
    ----------
    weights
        w_f of each feature, as ``WideTangent`` takes them.
    ridge
        λ.
    value
        The criterion of hill.py; lower is better.
    evaluations
        Number of kernels that were factorised.

    """

    weights: tuple[float, ...]
    ridge: float
    value: float
    evaluations: int


def climb(
    network: wide,
    X: Tensor,
    y: Tensor,
    nominal: Sequence[bool],
    intercept: bool = True,
    relevance: bool = True,
    ridge: float | None = None,
    start: Climb | None = None,
    evaluations: int = 40,
) -> Climb:
    """Choose the weights of a network's features and λ for some rows.

    Parameters
    ----------
    network
        An infinitely wide network. With a given scale, or where its kernel has no slopes (ReLU and
        kernel functions), its features have equal weights.
    X
        Rows in a frame, shape (m, features); NaN where missing.
    y
        Targets on any scale, shape (m,).
    nominal
        Which features are nominal.
    intercept
        Whether there is an unpenalised intercept.
    relevance
        Whether every feature has a weight of its own; otherwise there is a common one.
    ridge
        λ; None: chosen too.
    start
        Where to start, such as the end on fewer rows.
    evaluations
        About how many kernels may be factorised.

    """
    X, y = X.double(), y.double()
    spread = float((y - y.mean() if intercept else y).square().mean().sqrt())
    size = spread or 1.0
    kind = KINDS[network.kind] if isinstance(network.kind, str) else None
    if kind is None or not kind.has_slopes or network.scale is not None:
        best = best_of(network, X, y / size, nominal, intercept, ridge)
        end = Climb((best.weight,) * X.shape[1], *best[1:])
    else:
        rows = network.prepared(X)
        hill = Hill(kind, rows, y / size, nominal, intercept, relevance, ridge)
        _ascend(hill, _start(hill, start), evaluations if spread > 0 else 0)
        end = _end(hill)
    return end._replace(value=end.value + 2 * math.log(size))


def _unit(hill: Hill) -> float:
    """Return the weight of every feature at the first start: Laplace's kernel sums distances."""
    count = len(hill.spreads)
    return 1 / max(count, 1) if isinstance(hill.kind, Laplace) else weight_unit(count)


def _bounds(hill: Hill) -> list[tuple[float, float]]:
    """Bounds of each part of a place."""
    most = SATURATED if isinstance(hill.kind, Anova) else _unit(hill) * MOST_WEIGHT
    own = math.log(_unit(hill) * LEAST_WEIGHT), math.log(most)
    weights = [own] * (len(hill.spreads) if hill.relevance else min(len(hill.spreads), 1))
    ridges = [(math.log(RIDGES[0]), math.log(RIDGES[1]))] * (hill.ridge is None)
    return weights + ridges


def _start(hill: Hill, start: Climb | None) -> Numbers:
    """Equal weights; or those of another ascent, with none too small to grow."""
    count, unit = len(hill.spreads), _unit(hill)
    if start is None:
        return hill.join(np.full(count, unit), RIDGE)
    return hill.join(np.maximum(start.weights, REVIVED * unit), start.ridge)


def _ascend(hill: Hill, start: Numbers, evaluations: int) -> None:
    """Let L-BFGS look for the best place."""
    from scipy.optimize import minimize

    def sized(place: Numbers) -> tuple[float, Numbers]:
        value, gradient = hill.look(place)
        return SIZE * value, SIZE * gradient

    options = {"maxfun": evaluations, "ftol": TOLERANCE, "gtol": SIZE * TOLERANCE, "maxcor": MEMORY}
    if evaluations > 1 and len(start):
        minimize(sized, start, jac=True, method="L-BFGS-B", bounds=_bounds(hill), options=options)
    else:
        hill.look(start)


def _end(hill: Hill) -> Climb:
    """Return the best place, with weights of 0 for features that cannot matter."""
    value, place = hill.best
    weights, ridge = hill.split(place)
    if hill.relevance:
        sizes = hill.sizes(weights)
        used = sizes > LEAST
        for least in CANNOT_MATTER:
            kept = sizes > least
            if kept.sum() == used.sum():
                break
            found = hill.at(weights, ridge, kept).value
            if found <= value + LOST / len(hill.y):
                used, value = kept, found
                break
        weights = np.where(used, weights, 0.0)
    return Climb(tuple(weights.tolist()), ridge, value, hill.evaluations)


def climb_all(
    networks: Sequence[wide],
    X: Tensor,
    y: Tensor,
    nominal: Sequence[bool],
    intercept: bool = True,
    relevance: bool = True,
    ridge: float | None = None,
    progress: bool = False,
    rows: Sequence[int] = STAGES,
    machine: Machine = PROCESSOR,
) -> tuple[int, list[Climb]]:
    """Choose a network, the weights of its features and λ for some rows.

    Every network ascends on the first ``rows[0]`` rows, and the best of them go on with the first
    ``rows[1]``, and so on. Returns the number of the best network, and how far each one came; the
    values of networks that were tried on different rows cannot be compared.

    Parameters
    ----------
    networks
        Infinitely wide networks.
    X, y, nominal, intercept, relevance, ridge
        As for ``climb``.
    progress
        Whether to show a progress bar.
    rows
        Increasing numbers of rows.
    machine
        Whose threads share the networks.

    """
    found: dict[int, Climb] = {}
    order, done = list(range(len(networks))), 0
    for stage, count in enumerate(rows):
        if stage and min(count, len(y)) == done:
            break
        done = min(count, len(y))
        terms = (X[:done], y[:done], nominal, intercept, relevance, ridge)
        more = LATER if stage else FIRST
        ascents = [partial(climb, networks[k], *terms, found.get(k), more) for k in order]
        ends = track(
            machine.map(called, ascents, SQUARES * done**2),
            "choosing a network",
            len(order),
            progress,
        )
        found |= dict(zip(order, ends, strict=True))
        order = sorted(order, key=lambda k: found[k].value)[:FINALISTS]
    return order[0], [found[k] for k in range(len(networks))]
