"""Jackknife+ without looking at all n models.

An upper end is the κ-th largest of f(x) − g_j(x)e_j + R_jσ(x), where |g_j(x)e_j| ≤ √h(x)·ρ_j with
ρ_j = √h_j|e_j|. In units of σ(x), with η = √h(x)/σ(x), value j lies within ηρ_j of R_j above f(x).
So the κ-th largest value lies between the κ-th largest of R_j − ηρ_j and that of R_j + ηρ_j; only
models whose own bounds meet that window can be it, and they are few: about as many as there are
features, whatever n. The same models decide the lower end. The ends are those of all n models.

The windows of a rank are nested: one for a larger η contains those for smaller ones, and the models
above it are above those, too. So the models of the window of the largest η, with their number of
models above, give the ends of all rows of smaller η.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..compute import blocks
from ..records import Predictions, rounded_up
from ..ridge.primal import PrimalSystem
from ..ridge.problem import Problem
from ..ridge.readout import LinearModels, MovedNetworks
from .order import kth_largest, kth_smallest

# Rows share windows if their η lie between the same powers of this; a window is that of the larger.
RATIO = 2.0
# Bounds are widened by this much relative to their size, far more than rounding can change in them.
SAFE = 1e-9
ARRAYS = 6  # of rows × models at a time
RANKS_KEPT = 4  # whose columns are kept


class FullPrediction(NamedTuple):
    """The full model at m rows, and what the others can differ from it."""

    found: Predictions  # of the full model, σ(x) of shape (m,), and rounding; ``each`` is empty
    roots: Tensor  # √h(x), shape (m,)
    factors: Tensor  # model j predicts point + factors·column_j, shape (m, q)

    @property
    def etas(self) -> Tensor:
        """η of each row, shape (m,)."""
        return self.roots / self.found.scales


class Columns(Protocol):
    """A column for each model, whose products with factors its values at new rows depend on."""

    @property
    def block(self) -> int:
        """Bytes for predictions of rows by models, and for columns of models."""

    def columns(self, members: Tensor) -> Tensor:
        """Columns of some models, shape (q, members)."""


class ModelShifts(Columns, Protocol):
    """Models by what they differ from the full one."""

    @property
    def scores(self) -> Tensor:
        """R_j, shape (models,)."""

    @property
    def reach(self) -> Tensor:
        """ρ_j, shape (models,)."""


class Among(NamedTuple):
    """Models among which an order statistic is, for rows of at most some η: all, or a window."""

    models: Any  # ``Columns``, and what their ``Values`` use
    eta: float = math.inf
    above: int = 0  # how many of the other models are above all of them
    top: float = math.inf  # the order statistic of R + ηρ
    farthest: float = math.inf  # the largest ρ of all n models
    size: float = math.nan  # the order statistic of |e|, where residuals are elsewhere


class Windowed(ABC):
    """Models near the full one, all with its σ(x)."""

    @abstractmethod
    def full_at(self, X: Tensor) -> FullPrediction:
        """The full model at m rows."""

    @abstractmethod
    def among(self, rank: int, eta: float) -> Among:
        """Models among which the ``rank``-th is, if possible for rows of this η."""


class Window(NamedTuple):
    """The models that can be an order statistic, and how many others are above all of them."""

    members: Tensor
    above: int


class Values(NamedTuple):
    """Two values of each model at each new row, whose order statistics are the ends."""

    # Of models and an η: bounds on both values, in units of σ(x) and away from the point, each (n,)
    bounds: Callable[[Any, float], tuple[Tensor, Tensor]]
    # Of models, new rows, the numbers of some rows and models, and factors times columns of these:
    # the lower and the upper values, each (rows, members)
    ends: Callable[[Any, FullPrediction, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class _Kept(NamedTuple):
    """Windows by their rank and η, and the columns of the last large one, by rank."""

    windows: dict[tuple[int, float], Window]
    columns: dict[int, tuple[Tensor, Tensor]]


_KEPT: WeakKeyDictionary[Columns, _Kept] = WeakKeyDictionary()


def window(low: Tensor, high: Tensor, rank: int) -> Window:
    """Models with these bounds that can be the ``rank``-th largest."""
    bottom, top = (float(kth_largest(bound, [rank])) for bound in (low, high))
    return within(low, high, bottom, top)


def bounds(scores: Tensor, reach: Tensor, eta: float) -> tuple[Tensor, Tensor]:
    """R_j ∓ ηρ_j, each (n,)."""
    gap = torch.where(reach > 0, eta * reach, 0.0) + SAFE * scores.abs()  # η may be infinite
    return (scores - gap).nan_to_num(torch.inf), scores + gap  # scores may be infinite


def within(low: Tensor, high: Tensor, bottom: float, top: float) -> Window:
    """Models whose bounds meet the window from ``bottom`` to ``top``."""
    return Window(torch.nonzero((high >= bottom) & (low <= top))[:, 0], int((low > top).sum()))


def windowed_plus(
    loo: Windowed, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the order statistics of both ends, (m, ranks)."""
    near = loo.full_at(X)
    return near.found, *selected(near, near.etas, ranks, loo.among, PLUS)


def selected(
    near: FullPrediction,
    etas: Tensor,
    ranks: Sequence[int],
    models: Callable[[int, float], Among],
    values: Values,
) -> tuple[Tensor, Tensor]:
    """Order statistics of the lower and of the upper values, each (m, ranks)."""
    upper = near.roots.new_full((len(etas), len(ranks)), torch.inf)
    lower = -upper
    for column, rank in enumerate(ranks):
        for rows, eta in _classes(etas) if rank else ():
            among = models(rank, eta)
            if among.eta < eta:
                lower[rows, column], upper[rows, column] = _beyond(among, near, rows)
                continue
            left = rank - among.above
            found = _window(among.models, eta, left, values)
            for part in blocks(len(rows), ARRAYS * len(found.members) * 8, among.models.block):
                some = rows[part]
                ends = _order_statistics(among.models, near, some, found, left, values)
                lower[some, column], upper[some, column] = ends
    return lower, upper


def _plus_ends(
    models: ModelShifts, near: FullPrediction, rows: Tensor, members: Tensor, shifts: Tensor
) -> tuple[Tensor, Tensor]:
    """f_{−j}(x) ∓ R_jσ(x)."""
    full = near.found
    each = shifts.add_(full.point[rows, None])
    margins = rounded_up(models.scores[members] * full.scales[rows, None], full.stretch)
    return each - margins, each + margins


PLUS = Values(lambda models, eta: bounds(models.scores, models.reach, eta), _plus_ends)


def extremes(loo: Windowed, X: Tensor) -> tuple[Predictions, Tensor, Tensor]:
    """Predictions of the full model, and the least and the largest of all others, each (m,)."""
    near, models = loo.full_at(X), loo.among(1, math.inf).models
    least, most = (near.roots.new_full((len(X),), end) for end in (torch.inf, -torch.inf))
    every = torch.arange(len(models.scores), device=models.scores.device)
    each = 8 * max(4 * near.factors.shape[1], 2 * len(X))
    for part in blocks(len(every), each, models.block):
        found = (near.factors @ models.columns(every[part])).add_(near.found.point[:, None])
        least, most = least.minimum(found.amin(dim=1)), most.maximum(found.amax(dim=1))
    return near.found, least, most


def largest_eta(near: FullPrediction) -> float:
    """An η that all rows have at most, with that of their window."""
    return max((eta for _, eta in _classes(near.etas)), default=0.0)


def _classes(etas: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Rows with about the same η, and the largest η that they may have; the largest one first."""
    powers = etas.log().div(math.log(RATIO)).ceil()
    powers = torch.where(powers.isnan(), torch.inf, powers)  # features overflowed: all models
    for power in powers.unique(sorted=True).flip(0):
        limit = float(RATIO**power) * (1 + SAFE)  # of tensors: infinite where Python would raise
        yield torch.nonzero(powers == power)[:, 0], limit


def _beyond(among: Among, near: FullPrediction, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Ends that no order statistic exceeds, for rows of any η, each (rows,)."""
    found, more = near.found, (near.etas[rows] - among.eta).clamp(min=0.0)
    farthest = (among.top + more * among.farthest) * (1 + SAFE)
    margins = farthest * found.scales[rows] * (1 + found.stretch)
    return found.point[rows] - margins, found.point[rows] + margins


def _window(models: Columns, eta: float, rank: int, values: Values) -> Window:
    """The window of rows of at most this η, kept for the next ones."""
    windows = _KEPT.setdefault(models, _Kept({}, {})).windows
    if (rank, eta) not in windows:
        windows[rank, eta] = window(*values.bounds(models, eta), rank)
    return windows[rank, eta]


def _order_statistics(
    models: Columns,
    near: FullPrediction,
    rows: Tensor,
    found: Window,
    rank: int,
    values: Values,
) -> tuple[Tensor, Tensor]:
    """Both order statistics for some rows, each (rows,)."""
    factors = near.factors[rows]
    parts = _columns(models, found.members, rank, factors.shape[1])
    products = torch.cat([factors @ part for part in parts], dim=1)
    low, high = values.ends(models, near, rows, found.members, products)
    left = [rank - found.above]
    return kth_smallest(low, left)[:, 0], kth_largest(high, left)[:, 0]


def _columns(models: Columns, members: Tensor, rank: int, q: int) -> Iterator[Tensor]:
    """Columns of the members, in parts; those of a window that contains theirs are used again."""
    kept = _KEPT.setdefault(models, _Kept({}, {})).columns
    known, columns = kept.get(rank, (members[:0], None))
    place = torch.searchsorted(known, members).clamp(max=len(known) - 1)
    if columns is not None and bool((known[place] == members).all()):
        yield columns if len(known) == len(members) else columns[:, place]
        return
    parts = [members[part] for part in blocks(len(members), 4 * 8 * q, models.block)]
    for part in parts:
        columns = models.columns(part)
        if len(parts) == 1:
            if len(kept) == RANKS_KEPT:
                kept.clear()
            kept[rank] = members, columns
        yield columns


# Windows save time from this many rows for each feature.
ROWS_FOR_EACH = 4
# Added to leverages, which rounding changes by far less.
REACH_SAFE = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedReadout(LinearModels, Windowed):
    """The linearised network's models in primal form, all at the same λ."""

    lower: Tensor  # L with LLᵀ = G of the full model, shape (q, q), the intercept included
    reach: Tensor  # ρ, shape (n,)

    @property
    def block(self) -> int:
        return self.basis.tangent.machine.block

    @property
    def rows_at_once(self) -> int:
        """Rows whose coordinates fit; windows are few models."""
        machine = self.basis.tangent.machine
        return machine.rows_at_once(self.basis.size, 4 * self.basis.row_bytes)

    def full_at(self, X: Tensor) -> FullPrediction:
        found = self.basis.at(X)
        point = self._point(found)
        one, none = point.new_ones(()), point.new_empty(len(point), 0)
        slack = self._slack(found, point, none)
        factors = torch.nn.functional.pad(found.coordinates, (0, 1), value=1.0)
        half = torch.linalg.solve_triangular(
            self.lower, factors[:, : len(self.lower)].T, upper=False
        )
        full = Predictions(point, none, one.expand(len(point)), one - 1, slack)
        return FullPrediction(full, half.square().sum(dim=0).sqrt(), factors)

    def among(self, rank: int, eta: float) -> Among:
        return Among(self)

    def columns(self, members: Tensor) -> Tensor:
        """W_j − w and β_j − β of some models, shape (q + 1, members)."""
        models = self.models
        columns = models.columns.T[members].T - models.full[:, None]
        return torch.cat([columns, (models.intercepts[members] - models.intercepts[-1])[None]])


def bounded(read: LinearModels, problem: Problem) -> LinearModels:
    """The same models with windows, unless there are none or they would save nothing."""
    system = problem.system
    if not isinstance(system, PrimalSystem) or isinstance(read, MovedNetworks):
        return read
    one_ridge = problem.own is None and read.models.model_of is None
    if not one_ridge or read.scales is not None:  # each model has its own λ or σ(x)
        return read
    if len(read.residuals) < ROWS_FOR_EACH * len(system.gram):
        return read
    G = system.gram.clone()
    G.diagonal()[: system.width].add_(problem.ridges[0])
    errors = read.residuals
    squares = errors * (errors - read.training_residuals)  # h_j e_j²
    reach = (squares.clamp(min=0.0) + REACH_SAFE * errors.square()).sqrt()
    lower, reach = torch.linalg.cholesky(G), reach.nan_to_num(torch.inf)  # G was factored before
    return BoundedReadout(**vars(read), lower=lower, reach=reach)
