"""Sets of classes by full conformal prediction, from the ridges of all classes.

With a new row x of label y the n + 1 rows have ridges whose left-out values are known in closed
form: at x those of the n rows, u, whatever y is; at row i, with t the target of x, 1 for y, else 0,

    f_i = Y_i − a_i + b_i (t − u),    a_i = c_i/o_i,  b_i = w_i/(s o_i),  o_i = d_i + w_i²/s,

w the weights of the rows at x and s what they leave open (ridge/system.py). The score of a row is
how far its own class is behind the best other one (classes.py). It treats the n + 1 rows alike, so
y belongs to the set if at least κ of the n rows have no smaller score: κ/(n + 1) bounds a miss.

Given a part of the rows that is never left out, the same holds for the others. There a ridge from
features gives e_i(1 − h_i) for c_i, 1 − h_i for d_i and g_i/√(1 + h) for w_i/√s (full_shared.py).

Rounding: scores of rows are raised, that of x is lowered, by the bounds of full_conformal.py and
full_shared.py; where they are not small every class is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..ridge.dual import DualRidge, DualSystem
from ..ridge.problem import Problem
from ..ridge.rounding import FIRST_ORDER, SavedRows
from ..ridge.streamed import EPSILON
from ..tangent import Dual, Linear
from .constructions import SUMS
from .full_shared import finite
from .streamed import StreamedModels

ARRAYS = 6  # of new rows × training rows × classes at a time


def best_others(values: Tensor) -> Tensor:
    """For each class the largest value of the others, or 0 if that is larger; (..., classes)."""
    top, places = values.topk(2, dim=-1)
    own = torch.arange(values.shape[-1], device=values.device) == places[..., :1]
    return torch.where(own, top[..., 1:], top[..., :1]).clamp(min=0.0)


class LabelScores(NamedTuple):
    """What decides which labels of m new rows are kept, among n rows; K classes."""

    point: Tensor  # u, (m, K)
    slack: Tensor  # its error by rounding, (m,); infinite where nothing is known
    left: Tensor  # Y − a, (m, n, K)
    slope: Tensor  # b, (m, n)
    error: Tensor  # of left-out values by rounding, (m, n)

    def kept(self, codes: Tensor, ranks: Sequence[int]) -> Tensor:
        """Whether each label is kept, (m, K, ranks)."""
        classes, own = self.point.shape[1], codes[None, :, None]
        limits = best_others(self.point) - self.point
        limits = limits - 2 * self.slack[:, None] - SUMS * (limits.abs() + self.point.abs())
        counts = []
        for label in range(classes):
            target = torch.zeros_like(self.point)
            target[:, label] = 1.0
            values = self.left + self.slope[:, :, None] * (target - self.point)[:, None]
            mine = own.expand(len(values), -1, 1)
            behind = (best_others(values) - values).gather(2, mine)[:, :, 0]
            behind = behind + 2 * self.error + SUMS * (behind.abs() + 2)
            counts.append((~(behind < limits[:, label, None])).sum(dim=1))
        needed = torch.tensor(ranks, device=codes.device)
        return torch.stack(counts, dim=1)[..., None] >= needed


@dataclass(frozen=True)
class DualClasses:
    """The ridges of all classes on one kernel, ready for new rows."""

    basis: Dual
    factor: DualRidge  # of the first class
    dual: Tensor  # c of all classes, (n, K)
    intercepts: Tensor  # (K,)
    gamma: float  # relative error of the kernel
    compared: int  # with the new row: the first so many rows

    @classmethod
    def of(
        cls,
        tangent: Linear,
        X: Tensor,
        Y: Tensor,
        ridge: float,
        intercept: bool,
        compared: int | None = None,
    ) -> DualClasses:
        """Solve for targets Y, (n, K)."""
        basis = Dual(tangent, tangent.features(X))
        system = DualSystem(tangent.gram(basis.features), Y[:, 0], intercept, tangent.machine)
        problem = Problem(basis, X, Y[:, 0], system, (ridge,))
        gamma, _ = SavedRows.of(problem).errors(problem)
        solved = system.solve(ridge, True)
        each = [solved, *(system.again(solved, y) for y in Y.T[1:].contiguous())]
        dual = torch.stack([one.dual for one in each], dim=1)
        intercepts = torch.stack([one.intercept for one in each])
        count = len(Y) if compared is None else compared
        return cls(basis, solved.factor(), dual, intercepts, gamma, count)

    @property
    def left_out(self) -> Tensor:
        """E of all classes, (n, K), of the rows that are compared."""
        return (self.dual / self.factor.diagonal[:, None])[: self.compared]

    @property
    def training_residuals(self) -> Tensor:
        return (self.factor.ridge * self.dual)[: self.compared]

    @property
    def rows_at_once(self) -> int:
        n, machine = len(self.dual), self.basis.tangent.machine
        return machine.rows_at_once(
            n, self.basis.row_bytes + machine.item * ARRAYS * n * (1 + self.dual.shape[1])
        )

    def point(self, X: Tensor) -> Tensor:
        """Values of the full-data model, (m, K)."""
        return self.basis.at(X).coordinates @ self.dual + self.intercepts

    def scores(self, X: Tensor, Y: Tensor) -> LabelScores:
        """For new rows X, and the targets Y of the rows that are compared."""
        _, rows, norms = self.basis.at(X)
        b, s, loose = self.factor.at(rows, norms)
        b, opened = b[:, : self.compared], s[:, None]
        shares = self.factor.diagonal[: self.compared] + b.square() / opened
        point = rows @ self.dual + self.intercepts
        left, slope = self.dual[: self.compared] / shares[..., None], b / (opened * shares)
        both = math.sqrt(self.factor.strain) + loose.sqrt()
        weight = max(float(self.dual[:, k].abs() @ self.factor.roots) for k in range(len(Y.T)))
        relative, noise = self.gamma * both.square(), self.gamma * weight * both
        sizes = point.abs().amax(dim=1) + 1
        slack = self.gamma * (weight * norms.sqrt() + sizes)
        reach = left.abs().amax(dim=2) + slope.abs() * sizes[:, None]
        error = 2 * relative[:, None] * reach + noise[:, None] / shares.sqrt()
        error = error + slope.abs() * slack[:, None]
        slack = torch.where(relative <= FIRST_ORDER, slack, torch.inf)
        return LabelScores(point, slack, Y - left, slope, error)

    def typical_error(self) -> tuple[float, float]:
        factor = self.factor
        weight = float(self.dual.abs().amax(dim=1) @ factor.roots)
        each = weight * (factor.strain / factor.diagonal.abs()).sqrt()
        return 2 * self.gamma * (float(each.median()) + 1), self.gamma * 4 * factor.strain


def streamed_scores(columns: Sequence[StreamedModels], X: Tensor, codes: Tensor) -> LabelScores:
    """The same given a part of the rows, from the models of each class, which share features."""
    Y = torch.nn.functional.one_hot(codes, len(columns)).double()
    first, features = columns[0], columns[0].passes.features(X)
    full = [each.full_at(X, features) for each in columns]
    rows, near = first.compared, full[0]
    point = torch.stack([one.found.point for one in full], dim=1)
    roots = near.roots[:, None]
    length = torch.hypot(roots, torch.ones_like(roots))
    moved = (near.factors @ first.all_halves) / length
    opened = rows.open_part + moved.square()
    steps = torch.stack([each.steps for each in columns], dim=1)  # e
    left, slope = steps * (rows.open_part / opened)[..., None], moved / length / opened
    slack = torch.stack([finite(one.found.slack).expand(len(X)) for one in full]).amax(dim=0)
    own = torch.stack([each.own for each in columns]).amax(dim=0)
    reach, sizes = (roots + rows.least) / length, point.abs().amax(dim=1, keepdim=True) + 1
    change = rows.unsure * reach * rows.roots / length / rows.open_part
    error = change * (sizes + steps.abs().amax(dim=1) * (reach * length) * rows.roots)
    error = error + own + EPSILON * steps.abs().amax(dim=1) + 2 * slope.abs() * slack[:, None]
    lost = torch.stack([one.found.slack.expand(len(X)) for one in full]).isinf().any(dim=0)
    return LabelScores(point, slack.masked_fill(lost, torch.inf), Y - left, slope, error)
