"""Jackknife+ without looking at all n models.

An upper end is the κ-th largest of f(x) − g_j(x)e_j + R_jσ(x), where |g_j(x)e_j| ≤ √h(x)·ρ_j with
ρ_j = √h_j|e_j|. In units of σ(x), with η = √h(x)/σ(x), value j lies within ηρ_j of R_j above f(x).
So the κ-th largest value lies between the κ-th largest of R_j − ηρ_j and that of R_j + ηρ_j; only
models whose own bounds meet that window can be it, and they are few: about as many as there are
features, whatever n. The same models decide the lower end. The ends are those of all n models.

In primal form differences from the full model are bounded: with w the full model, W_j the others
and any factor L, |φ(x)ᵀ(W_j − w)| ≤ ‖L⁻¹φ(x)‖·‖Lᵀ(W_j − w)‖. The bound is tightest with LLᵀ = G of
the full model: then the first factor is √h(x), and the second one √h_j|e_j| if model j has the same
λ. Models of another λ have theirs computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..compute import blocks, steps
from ..records import LeaveOneOut, Predictions
from ..ridge.primal import PrimalSystem
from ..ridge.readout import Read, TangentReadout, slack_of
from ..ridge.system import RidgeModels, System
from .order import kth_largest, kth_smallest

# Rows share windows if their η lie between the same powers of this; a window is that of the larger.
RATIO = 2.0
# Bounds are widened by this much relative to their size, far more than rounding can change in them.
SAFE = 1e-9
ARRAYS = 6  # of rows × models at a time
RANKS_KEPT = 4  # whose columns are kept


class Near(NamedTuple):
    """The full model at m rows, and what the others can differ from it.

    Attributes
    ----------
    found
        The full predictions, their σ(x) and rounding; ``each`` is empty.
    roots
        √h(x), shape (m,).
    start, factors
        Model j predicts start + factors·column_j, shapes (m,) and (m, q), less the shift.

    """

    found: Predictions
    roots: Tensor
    start: Tensor
    factors: Tensor


class Moved(Protocol):
    """n models by what they differ from the full one."""

    @property
    def scores(self) -> Tensor:
        """R_j, shape (n,)."""

    @property
    def reach(self) -> Tensor:
        """ρ_j, shape (n,)."""

    @property
    def block(self) -> int:
        """Bytes for predictions of rows by models, and for columns of models."""

    def columns(self, members: Tensor) -> Tensor:
        """Columns of some models, shape (q, members)."""


@runtime_checkable
class Bounded(LeaveOneOut, Moved, Protocol):
    """Models whose differences from the full one are bounded, and whose σ(x) is the same."""

    def near(self, X: Tensor) -> Near:
        """The full model at m rows."""


class Level(Moved, Protocol):
    """Those of many models that can be an order statistic, for rows of at most some η."""

    eta: float
    above: int  # how many of the others are above all of them

    def beyond(self, near: Near, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on both order statistics for rows of any η, each (rows,)."""


@runtime_checkable
class Elsewhere(Protocol):
    """Models that are not all here."""

    def near(self, X: Tensor) -> Near:
        """The full model at m rows."""

    def among(self, rank: int, eta: float) -> Level:
        """The models that can be the ``rank``-th, if possible for rows of this η."""


class Window(NamedTuple):
    """The models that can be an order statistic, and how many others are above all of them."""

    members: Tensor
    above: int


class _Kept(NamedTuple):
    """Windows by their rank and η, and the columns of the last large one, by rank."""

    windows: dict[tuple[int, float], Window]
    columns: dict[int, tuple[Tensor, Tensor]]


_KEPT: WeakKeyDictionary[Moved, _Kept] = WeakKeyDictionary()


def window(scores: Tensor, reach: Tensor, eta: float, rank: int) -> Window:
    """Models that can be the ``rank``-th largest for rows of at most this η."""
    low, high = bounds(scores, reach, eta)
    bottom, top = (float(kth_largest(bound, [rank])) for bound in (low, high))
    return within(low, high, bottom, top)


def bounds(scores: Tensor, reach: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """R_j ∓ ηρ_j, each (n,)."""
    gap = torch.where(reach > 0, eta * reach, 0.0) + SAFE * scores  # η may be infinite
    return (scores - gap).nan_to_num(torch.inf), scores + gap  # scores may be infinite


def within(low: Tensor, high: Tensor, bottom: float, top: float) -> Window:
    """Models whose bounds meet the window from ``bottom`` to ``top``."""
    return Window(torch.nonzero((high >= bottom) & (low <= top))[:, 0], int((low > top).sum()))


def windowed_plus(
    loo: Bounded | Elsewhere, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the order statistics of both ends, (m, ranks)."""
    near = loo.near(X)
    infinite = near.start.new_full((len(X), len(ranks)), torch.inf)
    lower, upper = -infinite, infinite
    for column, rank in enumerate(ranks):
        for rows, eta in _classes(near) if rank else ():
            for part, ends in _ends(loo, near, rows, eta, rank):
                lower[part, column], upper[part, column] = ends
    return near.found, lower, upper


def extremes(loo: Bounded, X: Tensor) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the least and the largest of all others, each (m,)."""
    near = loo.near(X)
    least, most = (near.start.new_full((len(X),), end) for end in (torch.inf, -torch.inf))
    every = torch.arange(len(loo.residuals), device=loo.residuals.device)
    each = 8 * max(4 * near.factors.shape[1], 2 * len(X))
    for part in blocks(len(every), each, loo.block):
        found = (near.factors @ loo.columns(every[part])).add_(near.start[:, None])
        least, most = least.minimum(found.amin(dim=1)), most.maximum(found.amax(dim=1))
    return near.found, least, most


def _ends(
    loo: Bounded | Elsewhere, near: Near, rows: Tensor, eta: float, rank: int
) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Both order statistics for rows of at most this η, or bounds on them, by blocks of rows."""
    models: Moved
    if isinstance(loo, Bounded):
        models = loo
    else:
        models = level = loo.among(rank, eta)
        if level.eta < eta:
            yield rows, level.beyond(near, rows)
            return
        rank -= level.above
    found = _window(models, eta, rank)
    for part in blocks(len(rows), ARRAYS * len(found.members) * 8, models.block):
        yield rows[part], _order_statistics(models, near, rows[part], found, rank)


def _window(loo: Moved, eta: float, rank: int) -> Window:
    """The window of rows of at most this η, kept for the next ones."""
    windows = _KEPT.setdefault(loo, _Kept({}, {})).windows
    if (rank, eta) not in windows:
        windows[rank, eta] = window(loo.scores, loo.reach, eta, rank)
    return windows[rank, eta]


def _order_statistics(
    loo: Moved, near: Near, rows: Tensor, found: Window, rank: int
) -> tuple[Tensor, Tensor]:
    """Both order statistics for some rows, each (rows,)."""
    factors, full = near.factors[rows], near.found
    parts = _columns(loo, found.members, rank, factors.shape[1])
    each = torch.cat([factors @ part for part in parts], dim=1).add_(near.start[rows, None])
    margins = loo.scores[found.members] * full.scales[rows, None] * (1 + full.stretch)
    left = [rank - found.above]
    return kth_smallest(each - margins, left)[:, 0], kth_largest(each + margins, left)[:, 0]


def _columns(loo: Moved, members: Tensor, rank: int, q: int) -> Iterator[Tensor]:
    """Columns of the members, in parts; those of a window that contains theirs are used again."""
    kept = _KEPT.setdefault(loo, _Kept({}, {})).columns
    known, columns = kept.get(rank, (members[:0], None))
    place = torch.searchsorted(known, members).clamp(max=len(known) - 1)
    if columns is not None and bool((known[place] == members).all()):
        yield columns if len(known) == len(members) else columns[:, place]
        return
    parts = [members[part] for part in blocks(len(members), 4 * 8 * q, loo.block)]
    for part in parts:
        columns = loo.columns(part)
        if len(parts) == 1:
            if len(kept) == RANKS_KEPT:
                kept.clear()
            kept[rank] = members, columns
        yield columns


def _classes(near: Near) -> Iterator[tuple[Tensor, float]]:
    """Rows with about the same η, and the largest η that they may have; the largest one first."""
    powers = etas(near).log().div(math.log(RATIO)).ceil()
    powers = torch.where(powers.isnan(), torch.inf, powers)  # features overflowed: all models
    for power in powers.unique(sorted=True).flip(0):
        limit = float(RATIO**power) * (1 + SAFE)  # of tensors: infinite where Python would raise
        yield torch.nonzero(powers == power)[:, 0], limit


def etas(near: Near) -> Tensor:
    """η of each row, shape (m,)."""
    return near.roots / near.found.scales


def largest_eta(near: Near) -> float:
    """An η that all rows have at most, with that of their window."""
    return max((eta for _, eta in _classes(near)), default=0.0)


# Windows save time from this many rows for each feature.
ROWS_FOR_EACH = 4
# Added to leverages, which rounding changes by far less.
REACH_SAFE = 1e-12
MODELS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedReadout(TangentReadout):
    """The linearised network's models in primal form.

    Attributes
    ----------
    lower
        L, shape (q, q), with the intercept if there is one.
    reach
        ‖Lᵀ(W_j − w)‖, shape (n,).

    """

    lower: Tensor
    reach: Tensor

    @property
    def block(self) -> int:
        return self.basis.tangent.machine.block

    @property
    def rows_at_once(self) -> int:
        """Rows whose coordinates fit; windows are few models."""
        machine = self.basis.tangent.machine
        return machine.rows_at_once(self.basis.size, 4 * self.basis.row_bytes)

    def near(self, X: Tensor) -> Near:
        """The full model at some rows, and √h of them."""
        outputs, rows, norms = self.basis.at(X)
        point = self._point(outputs, rows)
        one, none = point.new_ones(()), point.new_empty(len(point), 0)
        slack = slack_of(self.rounding, norms, point, none, self.loss)
        found = Predictions(point, none, one.expand(len(point)), one - 1, slack)
        factors = torch.nn.functional.pad(rows, (0, 1), value=1.0)
        half = torch.linalg.solve_triangular(
            self.lower, factors[:, : len(self.lower)].T, upper=False
        )
        return Near(found, half.square().sum(dim=0).sqrt(), outputs, factors)

    def columns(self, members: Tensor) -> Tensor:
        """W and β of some models, shape (q + 1, members)."""
        return _with_intercepts(self.models, members)


def bounded(read: Read, system: System) -> BoundedReadout | None:
    """The same models with bounds; None where there are none, or where they would save nothing."""
    if not (isinstance(system, PrimalSystem) and isinstance(read, TangentReadout)):
        return None
    if read.models.model_of is not None:
        return None
    if read.scales is not None:  # each model has its own σ(x)
        return None
    if len(read.residuals) < ROWS_FOR_EACH * len(system.gram):
        return None
    lower = _factor(system, float(read.models.ridges[-1]))
    given = {field.name: getattr(read, field.name) for field in fields(read)}
    return BoundedReadout(**given, lower=lower, reach=_reach(read.models, lower))


def _factor(system: PrimalSystem, ridge: float) -> Tensor:
    G = system.gram.clone()
    G.diagonal()[: system.width].add_(ridge)
    lower: Tensor = torch.linalg.cholesky(G)  # as before
    return lower


def _reach(models: RidgeModels, lower: Tensor) -> Tensor:
    """‖Lᵀ(W_j − w)‖; e_j(1 − h_j) is the training residual if model j has the full one's λ."""
    errors = models.residuals
    squares = errors * (errors - models.training_residuals)
    reach = (squares.clamp(min=0.0) + REACH_SAFE * errors.square()).sqrt()
    others = torch.nonzero(models.ridges[:-1] != models.ridges[-1])[:, 0]
    full = torch.cat([models.full, models.intercepts[-1:]])[: len(lower), None]
    for part in steps(len(others), MODELS_AT_ONCE):
        moves = _with_intercepts(models, others[part])[: len(lower)] - full
        reach[others[part]] = torch.linalg.vector_norm(lower.T @ moves, dim=0)
    return reach.nan_to_num(torch.inf)


def _with_intercepts(models: RidgeModels, members: Tensor) -> Tensor:
    """Columns of some models with their intercepts below, shape (q + 1, members)."""
    return torch.cat([models.columns.T[members].T, models.intercepts[members][None]])
