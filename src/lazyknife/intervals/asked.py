"""What else may be asked of leave-one-out models: one end, some of the rows, weighted rows.

Model j and the score of row j compare row j with a new one, whatever the question:

- *One side.* The error in place of its size: P(Y > upper) has the bound of the interval, and each
  side its own level.
- *Groups.* Order statistics over the rows of the new row's group, whose models have learnt from all
  rows: given the groups, its rows and the new one are exchangeable.
- *Weights.* Row j has the mass w_j/(Σw + w(x)), the new row the rest, at infinity (Tibshirani et
  al. 2019; Prinster, Liu and Saria 2022). An upper end is the smallest value above which no more
  mass than α lies, the new row's included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..records import Ends, LeaveOneOut, Predictions, Side
from .constructions import outwards
from .order import mass_largest, mass_smallest


def one_sided(loo: Any, side: Side) -> Any:
    """The models with scores for one end; the other end is then of no use."""
    return loo if side == "both" else replace(loo, side=side)


def some_models(loo: Any, members: Tensor) -> Any:
    """The models that leave out some of the rows."""
    only = getattr(loo, "only", None)
    return SomeModels(loo, members) if only is None else only(members)


@dataclass(frozen=True)
class SomeModels:
    """The models that leave out some of the rows, out of those of all rows."""

    loo: LeaveOneOut
    members: Tensor

    @property
    def side(self) -> Side:
        return self.loo.side

    @property
    def residuals(self) -> Tensor:
        return self.loo.residuals[self.members]

    @property
    def training_residuals(self) -> Tensor:
        return self.loo.training_residuals[self.members]

    @property
    def scores(self) -> Tensor:
        return self.loo.scores[self.members]

    @property
    def rows_at_once(self) -> int:
        return self.loo.rows_at_once

    def point(self, X: Tensor) -> Tensor:
        return self.loo.point(X)

    def scaled(self, X: Tensor) -> Predictions:
        found = self.loo.scaled(X)
        place = torch.full((len(self.loo.residuals),), -1, device=found.each.device)
        place[self.members] = torch.arange(len(self.members), device=place.device)
        kept = [(place[those][place[those] >= 0], way) for those, way in found.elsewhere]
        each, scales, lean = (
            part if part.dim() < 2 or part.shape[1] == 1 else part[:, self.members]
            for part in (found.each, found.scales, found.lean)
        )
        return found._replace(each=each, scales=scales, lean=lean, elsewhere=kept)


class Masses(NamedTuple):
    """Weights of rows, up to a common factor."""

    own: Tensor  # of the rows that are left out, shape (n,)
    new: Tensor  # of the new rows, shape (m,)
    levels: Sequence[float]

    def smallest(self, values: Tensor) -> Tensor:
        """For each level the lower end among values (m, n): shape (m, levels)."""
        return mass_smallest(values, self.own, self.new, self.levels)

    def largest(self, values: Tensor) -> Tensor:
        """For each level the upper end among values (m, n): shape (m, levels)."""
        return mass_largest(values, self.own, self.new, self.levels)


def weighted_plus(loo: LeaveOneOut, X: Tensor, masses: Masses) -> Ends:
    """Jackknife+ with weighted rows."""
    found = loo.scaled(X)
    lower, upper = found.ends(loo.scores)
    return outwards(found, masses.smallest(lower), masses.largest(upper))


def weighted_minmax(loo: LeaveOneOut, X: Tensor, masses: Masses) -> Ends:
    """Jackknife-minmax with weighted rows: the order statistic of scores depends on the row."""
    found = loo.scaled(X)
    scores = masses.largest(loo.scores.expand(len(X), -1))
    each = [found.ends(score[:, None]) for score in scores.T]
    lower = torch.stack([ends[0].amin(dim=1) for ends in each], dim=1)
    upper = torch.stack([ends[1].amax(dim=1) for ends in each], dim=1)
    return outwards(found, lower, upper)


class Weighted(NamedTuple):
    """A construction with weighted rows."""

    ends: Callable[[Any, Tensor, Masses], Ends]
    times: int  # α times this bounds the probability of a miss


WEIGHTED = {"plus": Weighted(weighted_plus, 2), "minmax": Weighted(weighted_minmax, 1)}


def joined_ends(parts: Sequence[Ends]) -> Ends:
    """The smallest intervals that contain those of several answers for the same rows."""
    points, lowers, uppers = zip(*parts, strict=True)
    lower, upper = torch.stack(lowers).amin(dim=0), torch.stack(uppers).amax(dim=0)
    return cast(Tensor, points[0]), lower, upper
