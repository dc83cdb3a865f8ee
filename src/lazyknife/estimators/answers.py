"""From models and a question to the ends of intervals, or to the values of a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..intervals import kappa
from ..intervals.asked import WEIGHTED, Masses, joined_ends, one_sided, some_models
from ..intervals.constructions import outwards
from ..records import Array, Ends
from .questions import Asked, answering

if TYPE_CHECKING:
    from .base import IntervalRegressor


def answer(model: IntervalRegressor, loo: Any, rows: Tensor, asked: Asked) -> Ends:
    """Point predictions and ends of scaled rows, on the scale of the models."""
    n, levels = len(loo.residuals), asked.levels
    if asked.plain:
        return _ends(model, loo, rows, levels)
    answers = list[Ends]()
    for parts in asked.parts(n, len(rows)):
        point = torch.empty(len(rows), dtype=torch.float64)
        lower, upper = (point.new_empty(len(rows), len(levels)) for _ in range(2))
        for members, places in parts:
            if not len(members):
                point[places], *_ = model._by_blocks(lambda X: (loo.point(X),), rows[places])
                lower[places], upper[places] = -torch.inf, torch.inf
                continue
            some, masses = some_models(loo, members), None
            if asked.weights is not None:
                masses = asked.masses(members, places)
            found = _ends(model, some, rows[places], levels, masses)
            point[places], lower[places], upper[places] = (part.cpu() for part in found)
        answers.append((point, lower, upper))
    return joined_ends(answers)


def _ends(
    model: IntervalRegressor,
    loo: Any,
    rows: Tensor,
    levels: Sequence[float],
    masses: tuple[Tensor, Tensor] | None = None,
) -> Ends:
    """Point predictions and ends by some of the models, whose rows may be weighted."""
    if masses is None:
        ranks = [kappa(level, len(loo.residuals)) for level in levels]
        point, lower, upper = model._by_blocks(lambda X: model._ends(loo, X, ranks), rows)
        return point, lower, upper
    weighted, own = WEIGHTED[answering(model, WEIGHTED)], masses[0].to(loo.residuals.device)

    def ends(X: Tensor, new: Tensor) -> Ends:
        return weighted.ends(loo, X, Masses(own, new.to(own), levels))

    point, lower, upper = model._by_blocks(ends, rows, masses[1])
    return point, lower, upper


def sorted_values(
    model: IntervalRegressor, rows: Tensor, asked: Asked
) -> tuple[Array, Array, Array, Array, Array]:
    """Points (m,), values of kept models, rounded down and up, their masses (m, k), that beyond.

    Models of which nothing is known have the values −∞ and ∞.
    """
    loos, kept = [one_sided(model.loo_, side) for side in ("lower", "upper")], asked.kept
    if kept is not None and len(kept) < len(loos[0].residuals):
        loos = [some_models(loo, torch.from_numpy(kept)) for loo in loos]

    def values(X: Tensor) -> Ends:
        found = loos[0].scaled(X)
        lower, upper = (found.ends(loo.scores)[end] for end, loo in enumerate(loos))
        return outwards(found, lower, upper)

    point, low, high = (part.cpu() for part in model._by_blocks(values, rows))
    own, new = np.ones(high.shape), np.ones(len(high))
    if asked.weights is not None:
        own, new = np.broadcast_to(asked.weights[0], high.shape), asked.weights[1]
    if asked.groups is not None:
        known, codes = asked.groups
        if codes.shape[1] > 1:
            raise ValueError("groups: give one column, distributions in several have no union")
        own = own * (known.codes[kept, 0] == codes)
    refuse_nan(point, low, high)
    ends = [part.numpy() for part in model.target_.ends(low, high)]
    order = np.argsort(ends[1], axis=1, kind="stable")
    below, above, masses = (np.take_along_axis(part, order, axis=1) for part in (*ends, own))
    return model.target_.point(point).numpy(), below, above, masses, new


def refuse_nan(point: Tensor, *ends: Tensor) -> None:
    """Refuse to return points that are not finite, or ends that are not numbers."""
    lost = ~point.isfinite().reshape(len(point), -1).all(dim=1)
    for end in ends:
        lost |= end.isnan().any(dim=1)
    if lost.any():
        raise ValueError(
            f"the predictions are not finite numbers for {int(lost.sum())} of {len(lost)} rows of "
            f"X, first for row {int(lost.nonzero()[0])}: remove such rows, scale the features "
            "(scaling='symlog'), use readout='tangent' or a larger ridge"
        )
