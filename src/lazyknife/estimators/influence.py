"""What each training row does to the models without it: those without two rows say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.rows import backend_of, make_frame, row_labels
from ..intervals import kappa
from ..intervals.asked import some_models
from ..intervals.games import parts
from ..intervals.order import kth_largest
from ..records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .base import IntervalRegressor

Places = NDArray[np.intp]
NORMAL = 0.6745  # the median size of a standard normal number
SHOWN = 5  # rows that are printed


@dataclass(frozen=True, eq=False, repr=False)
class Influence:
    """What each training row does to the model without it; the most unusual rows come first.

    Attributes
    ----------
    row
        Numbers of the rows among those of ``fit``, shape (m,).
    residual
        y minus its prediction without the row.
    studentized
        The same over its width there, in standard deviations of the other rows: y of the rows with
        the largest sizes are likely to be wrong.
    moves
        Root mean square, over the other rows, of what the row changes in predictions, in units of
        y.
    widens
        By how much the row widens the intervals of the others, relative to their width.
    index, backend
        Row labels and library of the caller's frame.

    """

    row: Places
    residual: Array
    studentized: Array
    moves: Array
    widens: Array
    index: Any = None
    backend: str | None = None

    def to_frame(self) -> Any:
        """Return a frame of the caller's library, with the caller's row labels."""
        names = ("row", "residual", "studentized", "moves", "widens")
        return make_frame({n: getattr(self, n) for n in names}, self.backend, self.index)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how unusual each row is against how much it moves predictions."""
        from ..plots import plot_influence

        return plot_influence(self, ax)

    def __len__(self) -> int:
        return len(self.row)

    def __repr__(self) -> str:
        cells = [["row", "residual", "studentized", "moves", "widens"]]
        for k in range(min(len(self), SHOWN)):
            numbers = self.residual[k], self.studentized[k], self.moves[k]
            label = self.row[k] if self.index is None else self.index[k]
            cells.append([str(label), *(f"{x:.4g}" for x in numbers), f"{self.widens[k]:+.1%}"])
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.rjust(k) for c, k in zip(row, sizes, strict=True)) for row in cells]
        more = f"… and {len(self) - SHOWN:,} more rows"
        return "\n".join([*lines, *([more] if len(self) > SHOWN else [])])


def influence_of(model: IntervalRegressor, level: float) -> Influence:
    """The influence of the rows that models leave out, at most 2,000, on widths at a level."""
    loo, count = model.loo_, len(model.kept_)
    kept = torch.from_numpy(model.kept_).to(loo.residuals.device)
    own = torch.zeros(2, count, dtype=torch.float64)
    places = torch.full((len(loo.residuals),), -1)
    places[model.kept_] = torch.arange(count)
    for part in parts(loo, kept, kept):
        mine, (*_, scores, before, alone) = places[part.rows.cpu()], part.pairs
        before = before.where(part.rows[:, None] != kept, torch.nan)
        unit = before.nanmedian(dim=1).values / NORMAL
        every = torch.cat([before.nan_to_num(-torch.inf), alone.abs()[:, None]], dim=1)
        ranks = kappa(level, count), kappa(level, count - 1)
        size = kth_largest(every, [ranks[0]]) if ranks[0] else every[:, :1]
        less = kth_largest(scores.nan_to_num(-torch.inf), [ranks[1]]) if ranks[1] else size
        own[0, mine], own[1, mine] = (alone / unit).cpu(), (size / less - 1)[:, 0].cpu()
    own = own.nan_to_num(0.0, torch.inf, -torch.inf)  # where all errors are 0
    residual, moves = _moves(model, kept)
    order = np.argsort(-own[0].abs().numpy(), kind="stable")
    labels = None if model.kept_rows_ is None else row_labels(model.kept_rows_)
    unusual = np.copysign(own[0].numpy(), residual)  # a falling scale of y turns signs
    return Influence(
        model.kept_numbers_[order],
        residual[order],
        unusual[order],
        moves[order],
        own[1].numpy()[order],
        None if labels is None else labels[order],
        None if model.kept_rows_ is None else backend_of(model.kept_rows_),
    )


def _moves(model: IntervalRegressor, kept: torch.Tensor) -> tuple[Array, Array]:
    """Left-out residuals, and how far the models without each row are from the full one."""
    loo: Any = model.loo_
    rows = loo.out.rows if hasattr(loo, "out") else getattr(loo, "full", loo).basis.features.X
    count = len(kept)
    some = loo if count == len(loo.residuals) else some_models(loo, kept)
    with torch.no_grad():
        found = some.scaled(rows[kept.to(rows.device)])
    each = found.each.clone()
    for members, way in found.elsewhere:
        each[:, members] = way.there(each[:, members])
    each, point = each.cpu(), found.point.cpu()
    y = point + loo.training_residuals[kept].cpu()
    to_y = model.target_.point
    residual = to_y(y) - to_y(y - loo.residuals[kept].cpu())
    gaps = (to_y(each) - to_y(point)[:, None]).fill_diagonal_(0.0)
    return residual.numpy(), (gaps.square().sum(dim=0) / max(count - 1, 1)).sqrt().numpy()
