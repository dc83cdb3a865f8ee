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
from .order import kth_largest

# Rows share windows if their η lie between the same powers of the first of these. The window is
# that of the largest one, rounded up to a power of the second, so that it may serve other rows.
RATIO, FINE = 1.5, 1.1
# Bounds are widened by this much relative to their size, far more than rounding can change in them.
SAFE = 1e-9
CACHE = 2**21  # bytes of an array of rows × models that order statistics are taken of
RANKS_KEPT, WINDOWS_KEPT = 4, 64  # ranks whose columns are kept, and windows


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

    models: Any  # ``Columns``, and what their ``Distances`` use
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


class Distances(NamedTuple):
    """How far below and above the point values of each model are, whose order is the ends'."""

    # Of models and limits of η: bounds on both distances, in units of σ(x), each (n,)
    bounds: Callable[..., tuple[Tensor, Tensor]]
    # Of models, new rows, the numbers of some rows and models, and factors times columns of these:
    # the distances below and above, each (rows, members)
    ends: Callable[[Any, FullPrediction, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class _Kept(NamedTuple):
    """Windows by their rank and limits of η, and the columns of their models, by rank."""

    windows: dict[tuple[float, ...], Window]
    columns: dict[int, tuple[Tensor, Tensor]]  # numbers of models in order, and theirs as rows


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
    return near.found, *selected(near, near.etas[:, None], ranks, loo.among, PLUS)


def selected(
    near: FullPrediction,
    etas: Tensor,
    ranks: Sequence[int],
    models: Callable[[int, float], Among],
    values: Distances,
) -> tuple[Tensor, Tensor]:
    """Both ends, each (m, ranks), for η of shape (m, 1), or several numbers in its place."""
    upper = near.roots.new_full((len(etas), len(ranks)), torch.inf)
    lower = -upper
    for column, rank in enumerate(ranks):
        for rows, limits in _classes(etas) if rank else ():
            among = models(rank, limits[0])
            if among.eta < limits[0]:
                lower[rows, column], upper[rows, column] = _beyond(among, near, rows)
                continue
            left = rank - among.above
            found = _window(among.models, limits, left, values)
            for part in blocks(len(rows), 2 * len(found.members) * 8, among.models.block):
                some = rows[part]
                below, above = _order_statistics(among.models, near, some, found, left, values)
                point = near.found.point[some]
                lower[some, column], upper[some, column] = point - below, point + above
    return lower, upper


def _plus_ends(
    models: ModelShifts, near: FullPrediction, rows: Tensor, members: Tensor, shifts: Tensor
) -> tuple[Tensor, Tensor]:
    """R_jσ(x) less and plus f_{−j}(x) − f(x)."""
    full = near.found
    margins = rounded_up(models.scores[members] * full.scales[rows, None], full.stretch)
    return margins - shifts, margins + shifts


PLUS = Distances(lambda models, eta: bounds(models.scores, models.reach, eta), _plus_ends)


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
    return max((limits[0] for _, limits in _classes(near.etas[:, None])), default=0.0)


def _classes(etas: Tensor) -> Iterator[tuple[Tensor, tuple[float, ...]]]:
    """Rows with about the same first η, and limits of each; the largest one first.

    The limits of the others are those of all rows with no larger η, so that windows are nested.
    """
    powers = etas.log()
    powers = torch.where(powers.isnan(), torch.inf, powers)  # features overflowed: all models
    first = powers[:, 0].div(math.log(RATIO)).ceil()
    for power in first.unique(sorted=True).flip(0):
        fine = powers[first <= power].amax(dim=0).div(math.log(FINE)).ceil()
        yield torch.nonzero(first == power)[:, 0], tuple((FINE**fine * (1 + SAFE)).tolist())


def _beyond(among: Among, near: FullPrediction, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Ends that no order statistic exceeds, for rows of any η, each (rows,)."""
    found, more = near.found, (near.etas[rows] - among.eta).clamp(min=0.0)
    farthest = (among.top + more * among.farthest) * (1 + SAFE)
    margins = farthest * found.scales[rows] * (1 + found.stretch)
    return found.point[rows] - margins, found.point[rows] + margins


def _window(models: Columns, limits: tuple[float, ...], rank: int, values: Distances) -> Window:
    """The window of rows of at most this η, kept for the next ones."""
    windows = _KEPT.setdefault(models, _Kept({}, {})).windows
    found = windows.get((rank, *limits))
    if found is None:
        if len(windows) == WINDOWS_KEPT:
            windows.clear()
        found = windows[rank, *limits] = window(*values.bounds(models, *limits), rank)
    return found


def _order_statistics(
    models: Columns,
    near: FullPrediction,
    rows: Tensor,
    found: Window,
    rank: int,
    values: Distances,
) -> tuple[Tensor, Tensor]:
    """How far both ends of some rows are from the point, each (rows,)."""
    factors, left = near.factors[rows], [rank - found.above]
    parts = _columns(models, found.members, rank, factors.shape[1])
    products = torch.cat([factors @ part.T for part in parts], dim=1)
    ends = near.roots.new_empty(2, len(rows))
    for part in blocks(len(rows), 8 * len(found.members), CACHE):
        each = values.ends(models, near, rows[part], found.members, products[part])
        for end, distances in zip(ends, each, strict=True):
            end[part] = kth_largest(distances, left)[:, 0]
    return ends[0], ends[1]


def _columns(models: Columns, members: Tensor, rank: int, q: int) -> Iterator[Tensor]:
    """Columns of the members, as rows and in parts; those that fit are kept and used again."""
    kept = _KEPT.setdefault(models, _Kept({}, {})).columns
    known, columns = kept.get(rank, (members[:0], members.new_empty(0, q, dtype=torch.float64)))
    missing = members[torch.isin(members, known, assume_unique=True, invert=True)]
    if len(missing):
        most = models.block // (4 * 8 * q)
        if len(known) + len(missing) > most:
            known, columns, missing = known[:0], columns[:0], members
        if len(missing) > most:
            for part in blocks(len(members), 4 * 8 * q, models.block):
                yield models.columns(members[part]).T
            return
        if rank not in kept and len(kept) == RANKS_KEPT:
            kept.clear()
        known, order = torch.cat([known, missing]).sort()
        columns = torch.cat([columns, models.columns(missing).T])[order]
        kept[rank] = known, columns
    yield columns if len(known) == len(members) else columns[torch.searchsorted(known, members)]


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
