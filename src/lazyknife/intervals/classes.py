"""Sets of classes, from leave-one-out models with one ridge for each class.

The target of class c is 1 at its rows, else 0. A model gives f_c(x) for every class, and label y
of row x the score

    s(x, y) = max(0, max of f_c(x) over c ≠ y) − f_y(x),

how far y is behind the best other class. R_j is the score that model j gives row j; y *loses* to
row j if s_{−j}(x, y) ≤ R_j. Jackknife+ keeps the labels that lose at least κ times, and minmax
those whose least score over j is at most the κ-th largest R_j. In the tournament of docs/theory.md,
section 5, a true class that is not kept wins at least n + 1 − κ games: the bounds are those of
intervals. A class of which model j has no rows has f_c = 0 there and changes none of its scores, so
a model need not know the class of the row that it leaves out.

What rounding may have changed is added to R_j and subtracted from s_{−j}(x, y): sets only grow. The
class with the largest f_c of the full model is always in the set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .asked import one_sided
from .constructions import SUMS
from .full_classes import best_others, streamed_scores
from .order import kth_largest
from .outputs import predictions_of, rows_at_once


@dataclass(frozen=True)
class ClassModels:
    """The models of all classes; each has constant widths."""

    columns: tuple[Any, ...]  # for each class its models
    codes: Tensor  # class of each row that is left out, shape (n,)

    @property
    def residuals(self) -> Tensor:
        """1 − f_y of the model without each row, shape (n,)."""
        return own_class([each.residuals for each in self.columns], self.codes)

    @property
    def training_residuals(self) -> Tensor:
        return own_class([each.training_residuals for each in self.columns], self.codes)

    @property
    def rows_at_once(self) -> int:
        return rows_at_once(self.columns)

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.scores).sum())

    def typical_error(self) -> tuple[float, float]:
        """Of a difference of two values."""
        slacks, widths = zip(*(each.typical_error() for each in self.columns), strict=True)
        return 2 * max(slacks), max(widths)

    @property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,)."""
        short, over = (
            torch.stack([one_sided(each, side).scores for each in self.columns], dim=1)
            for side in ("upper", "lower")  # y − f and f − y
        )
        codes = self.codes.to(short.device)[:, None]
        behind = best_others(over).gather(1, codes) + short.gather(1, codes) - 1
        return (behind + SUMS * (behind.abs() + 2))[:, 0]

    def point(self, X: Tensor) -> Tensor:
        """f_c of the full model, shape (m, classes)."""
        return torch.stack([each.point(X) for each in self.columns], dim=1)

    def at(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and s_{−j}(x, c), rounded down, shape (m, n, classes)."""
        found = predictions_of(self.columns, X)
        each = torch.stack([one.each for one in found], dim=2)
        slack = torch.stack([one.slack.expand(len(each)) for one in found]).amax(dim=0)
        others = best_others(each)
        scores = others - each
        scores -= 2 * slack[:, None, None] + SUMS * (others + each.abs())
        return torch.stack([one.point for one in found], dim=1), scores

    def sets(self, X: Tensor, construction: str, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Values of the full model, (m, classes), and whether classes are kept, (.., ranks)."""
        if construction == "full":
            codes = self.codes.to(self.columns[0].residuals.device)
            found = streamed_scores(self.columns, X, codes)
            return found.point, found.kept(codes, ranks)
        point, scores = self.at(X)
        return point, SETS[construction](self, scores, ranks)


def own_class(values: Sequence[Tensor], codes: Tensor) -> Tensor:
    """Values (n,) of each class, at each row that of its own class."""
    return torch.stack(list(values), dim=1).gather(1, codes.to(values[0].device)[:, None])[:, 0]


def plus_set(models: ClassModels, scores: Tensor, ranks: Sequence[int]) -> Tensor:
    """Jackknife+: whether each class is kept, shape (m, classes, ranks)."""
    losses = (scores <= models.scores[:, None]).sum(dim=1)
    return losses[..., None] >= torch.tensor(ranks, device=losses.device)


def minmax_set(models: ClassModels, scores: Tensor, ranks: Sequence[int]) -> Tensor:
    """Jackknife-minmax: whether each class is kept, shape (m, classes, ranks)."""
    return scores.amin(dim=1)[..., None] <= kth_largest(models.scores, ranks)


SETS: dict[str, Callable[[ClassModels, Tensor, Sequence[int]], Tensor]] = {
    "plus": plus_set,
    "minmax": minmax_set,
}
