"""Models of rows that are elsewhere: what the intervals of some levels need of them is here.

The windows of a rank are nested: one for a larger η contains those for smaller ones, and the models
above it are above those too. So the models of the window of the largest η, with their number of
models above, give the ends of all rows of smaller η, as all n models would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .streamed import FullModel
from .window import SAFE, Near, etas

BLOCK = 2**28  # bytes of predictions of rows by models


@dataclass(frozen=True, eq=False)
class KeptLevel:
    """The k models among which the order statistic of a rank is, for rows of at most some η.

    Attributes
    ----------
    eta
        That η.
    above
        How many of the other models are above all of them.
    size
        The order statistic of |e|.
    top
        The order statistic of R + ηρ.
    farthest
        The largest ρ of all n models.
    scores, reach
        R and ρ, each (k,).
    shifts
        −L⁻¹φ_j e_j, shape (q, k).

    """

    eta: float
    above: int
    size: float
    top: float
    farthest: float
    scores: Tensor
    reach: Tensor
    shifts: Tensor

    @property
    def block(self) -> int:
        return BLOCK

    def columns(self, members: Tensor) -> Tensor:
        return self.shifts[:, members]

    def beyond(self, near: Near, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Ends that no order statistic exceeds, for rows of larger η."""
        found, more = near.found, (etas(near)[rows] - self.eta).clamp(min=0.0)
        farthest = (self.top + more * self.farthest) * (1 + SAFE)
        margins = farthest * found.scales[rows] * (1 + found.stretch)
        return found.point[rows] - margins, found.point[rows] + margins


@dataclass(frozen=True, eq=False)
class CompactModels(FullModel):
    """The full model, and those of n others that levels need.

    Attributes
    ----------
    count
        n.
    conceded
        How many of them are conceded to rounding.
    error
        The typical error of predictions and residuals by rounding.
    levels
        What is known, by rank; it grows.
    ask
        From a rank and an η to its level, or None where the other models are gone. It does not
        travel with a copy.

    """

    count: int
    conceded: int
    error: float
    levels: dict[int, KeptLevel] = field(default_factory=dict)
    ask: Callable[[int, float], KeptLevel | None] | None = None
    sharing = None  # one thread asks

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"ask": None}

    @property
    def residuals(self) -> Tensor:
        """NaN, n times, in the memory of one: the residuals are elsewhere."""
        return torch.full((1,), torch.nan, dtype=torch.float64).expand(self.count)

    training_residuals = residuals

    def typical_error(self) -> tuple[float, float]:
        return self.error, self.stretch if math.isfinite(self.error) else math.inf

    def size_at(self, rank: int) -> float:
        """The ``rank``-th largest |e|."""
        return self.among(rank, 0.0).size

    def among(self, rank: int, eta: float) -> KeptLevel:
        """The models of a rank; the best known ones where nothing can be asked."""
        known = self.levels.get(rank)
        if known is not None and known.eta >= eta:
            return known
        widest = max([eta, *(level.eta for level in self.levels.values())])
        found = (None if self.ask is None else self.ask(rank, widest)) or known
        if found is None:
            raise ValueError(
                f"alpha: this model has rank {rank} of {self.count:,} no more, only the ranks "
                f"{sorted(self.levels)} of the levels that were used while its rows were on the "
                "cluster. Predict with this alpha once before the model is saved or copied or the "
                "cluster is closed, or fit with it"
            )
        self.levels[rank] = found
        return found
