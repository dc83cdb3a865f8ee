"""The constructions: ends of intervals from a set of models, and their bounds on a miss.

A construction is an entry of ``CONSTRUCTIONS``: a function for the ends, one for the bound on the
probability of a miss, and what it supports. Sets of models offer predictions, scores R and σ
(``records.LeaveOneOut``), however they were made; order.py has the order statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choosing.rows import FEWEST_PARTED, MANY, Leaving
from ..data.checks import check_choice, listed
from ..losses import Loss
from ..networks import is_known
from ..records import Conformal, Ends, LeaveOneOut, Predictions, errors_on, rounded_up
from ..ridge.leave_one_out import leave_folds, leave_rows
from ..ridge.problem import Problem
from ..ridge.readout import LinearModels
from ..ridge.system import RidgeModels
from ..ridge.widths import Widths
from .full_conformal import FullModels, fit_full
from .full_shared import accepted
from .models import fit_models
from .order import kappa, kth_largest, kth_smallest
from .streamed import StreamedModels
from .window import Windowed, extremes, windowed_plus

# Relative error of the sums behind an end: four rounded operations.
SUMS = 4 * torch.finfo(torch.float64).eps
# Units of rounding by which two evaluations of the same model may differ.
ROUNDED = 32.0


class Bound(NamedTuple):
    """A bound on the probability of a miss, what it assumes, and over what it is an average."""

    miss: float | None  # None where there is no bound
    new_rows: int = 1  # how many must be exchangeable with the training rows
    any_seed: bool = True  # else it holds on average over the coins that tell which rows choose


Miss = Callable[[int, int, int], float]  # of κ, n and the number of folds


@dataclass(frozen=True, repr=False)
class Construction:
    """A way to turn a set of models into intervals.

    ``ends`` leads from models, new rows (m, ...) and ranks κ to point predictions, (m,), and lower
    and upper ends for each rank, (m, ranks). ``miss`` bounds the probability of a miss if the base
    is a symmetric function of all n + 1 rows; without it there is no certificate.
    """

    summary: str  # what it is, for lists of choices
    ends: Callable[[Any, Tensor, Sequence[int]], Ends]
    miss: Miss | None = None
    # Where coins tell which rows make choices: a bound whatever the coins are. None: ``miss`` holds
    # on average over the coins.
    miss_of_any_seed: Miss | None = None
    # Another bound, for a base that does not depend on the data at all.
    miss_without_data: Callable[[int, int, int], Bound] | None = None
    # How the models are solved. None: candidates for y are added to all rows.
    solve: Callable[[Problem], RidgeModels] | None = leave_rows
    # Of κ, n, the number of folds and a share: a bound on the probability of a miss of a given
    # training set, for this share of all sets of independent rows that the base has not seen.
    miss_of_most_sets: Callable[[int, int, int, float], float] | None = None
    uses_folds: bool = False  # whether folds are left out instead of rows
    splits: bool = False  # whether models learn from the part of the rows that chooses alone
    tolerates_undetermined: bool = False  # whether the bound allows κ − 1 undetermined models
    widths: tuple[str, ...] | None = ("constant",)  # those supported, default first; None: all
    readouts: tuple[str, ...] | None = None  # those supported; None: all
    any_loss: bool = True  # whether it supports every loss; otherwise only the squared one
    any_models: bool = True  # whether models may be of any origin, such as networks trained n times
    expects: str = "about"  # how its coverage compares with 1 − alpha
    takes_extremes: bool = False  # of models: one on another scale of y could make them huge

    def __repr__(self) -> str:
        return f"Construction({self.summary!r})"

    @property
    def symmetric(self) -> bool:
        """Whether choices are made by all rows and the new one together, not by each model."""
        return self.solve is None

    @property
    def leaves_rows(self) -> bool:
        """Whether each model leaves one row out, and chooses on its own rows."""
        return not (self.uses_folds or self.symmetric)

    def leaving(self, n: int) -> Leaving:
        """What models of n rows do that choose: on their own rows, or on a part."""
        if self.symmetric and n <= MANY:
            return Leaving(n)
        return Leaving.choosing(n, self.uses_folds, self.splits)

    def fit(self, problem: Problem, readout: str) -> LinearModels | FullModels:
        """Solve a problem."""
        return fit_full(problem) if self.solve is None else fit_models(problem, self.solve, readout)

    def matrices(self, widths: Widths, loss: Loss) -> int:
        """Matrices of the kernel's size that a fit needs at its peak."""
        if self.symmetric:
            return 3
        if self.uses_folds:
            return 2
        return 1 + widths.matrices if loss.closed_form else 6

    def bound(
        self,
        alpha: float,
        n: int,
        folds: int,
        independent: bool,
        new_rows: int | None = None,
        coins: bool = False,
    ) -> Bound:
        """Return the best bound that applies to n rows, left out one by one or in folds.

        A base that is not ``independent`` of the data is a symmetric function of all rows.
        ``new_rows`` is the number of new rows where it is known; ``coins``: whether coins tell
        which rows make choices, which matters where rows are left out.
        """
        if self.miss is None:
            return Bound(None)
        given = kappa(alpha, n), n, folds
        if coins and self.leaves_rows:
            if self.miss_of_any_seed is None:
                return Bound(self.miss(*given), any_seed=False)
            return Bound(self.miss_of_any_seed(*given))
        found = self.miss(*given)
        if independent and self.miss_without_data is not None:
            other = self.miss_without_data(*given)
            enough = new_rows is None or new_rows >= other.new_rows
            if enough and other.miss is not None and other.miss < found:
                return other
        return Bound(found)


def plus(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+ and CV+: order statistics of f_{−j}(x) ± R_j σ_{−j}(x), R the scores."""
    if isinstance(loo, Windowed):
        return outwards(*windowed_plus(loo, X, ranks))
    found = loo.scaled(X)
    lower, upper = found.ends(loo.scores)
    return outwards(found, kth_smallest(lower, ranks), kth_largest(upper, ranks))


def minmax(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife-minmax: the extremes of f_{−j}(x) ± Q σ_{−j}(x), Q an order statistic of scores."""
    scores = kth_largest(loo.scores, ranks)
    if isinstance(loo, Windowed):  # never all in memory, and of the same σ(x)
        found, least, most = extremes(loo, X)
        margins = rounded_up(scores * found.scales[:, None], found.stretch)
        return outwards(found, least[:, None] - margins, most[:, None] + margins)
    found = loo.scaled(X)
    each = [found.ends(score) for score in scores[:, None]]
    lower = torch.stack([ends[0].amin(dim=1) for ends in each], dim=1)
    upper = torch.stack([ends[1].amax(dim=1) for ends in each], dim=1)
    return outwards(found, lower, upper)


def full(loo: Conformal | StreamedModels, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full conformal prediction: the hull of the candidates for y that are accepted."""
    if isinstance(loo, StreamedModels):
        return outwards(*accepted(loo, X, ranks))
    return loo.accepted(X, ranks)


def split(loo: StreamedModels, X: Tensor, ranks: Sequence[int]) -> Ends:
    """f(x) ± Q σ(x), where f has not learnt from the rows whose scores Q is among."""
    found, scores = loo.full_at(X).found, kth_largest(loo.scores, ranks)
    margins = rounded_up(scores * found.scales[:, None], found.stretch)
    middle = found.point[:, None]
    return outwards(found, middle - margins, middle + margins)


def jackknife(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full-data prediction ± an order statistic of the left-out errors."""
    return around_point(loo.point(X), errors_on(loo.residuals, loo.side), ranks)


def naive(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Full-data prediction ± an order statistic of the errors on the training rows."""
    return around_point(loo.point(X), errors_on(loo.training_residuals, loo.side), ranks)


def around_point(point: Tensor, errors: Tensor, ranks: Sequence[int]) -> Ends:
    """Point predictions ± an order statistic of errors."""
    margin = kth_largest(errors, ranks)
    return point, point[:, None] - margin, point[:, None] + margin


def outwards(found: Predictions, lower: Tensor, upper: Tensor) -> Ends:
    """Shift the ends, and widen them by the bounds on rounding, so that ties are covered."""
    slack, shift = found.slack.expand(len(lower))[:, None], found.shift.to(lower)[..., None]
    lower, upper = lower + shift, upper + shift
    return (
        found.point,
        lower - (slack + SUMS * lower.abs()),
        upper + (slack + SUMS * upper.abs()),
    )


def evaluation_slack(spread: Tensor, size: Tensor, unit: float) -> Tensor:
    """Bound what rounding changes from batch to batch in models whose insides are unknown.

    ``spread`` is the distance of predictions and errors from the centre of y, ``size`` that of
    predictions and ends from 0. A ``unit`` of rounding above that of float64 allows for sums of
    numbers that are larger than their result.
    """
    return ROUNDED * (unit * spread + torch.finfo(torch.float64).eps * size)


def plus_miss(rank: int, n: int, folds: int) -> float:
    """(2κ − 1)/(n + 1)."""
    return max(2 * rank - 1, 0) / (n + 1)


def plus_miss_of_any_seed(rank: int, n: int, folds: int) -> float:
    """2κ/(n + 2): rows are exchangeable with those of the same coin alone."""
    return 2 * rank / (n + 2)


def clusters_miss(alpha: float, clusters: int) -> float:
    """2α − 1/(K + 1) for a row of a new cluster, K clusters that are left out as a whole.

    A row of cluster k has the mass 1/((K + 1)N_k). A row that is missed loses to rows of other
    clusters of a mass of at most α − 1/(K + 1). Of two such rows in different clusters one loses to
    the other at least; so their mass P has (P² − ΣP_k²)/2 ≤ (α − 1/(K + 1))P, P_k ≤ 1/(K + 1).
    """
    if kappa(alpha, clusters) == 0:
        return 0.0
    return min(1.0, 2 * alpha - 1 / (clusters + 1))


def rank_miss(rank: int, n: int, folds: int) -> float:
    """κ/(n + 1)."""
    return rank / (n + 1)


def rank_miss_of_most_sets(rank: int, n: int, folds: int, share: float) -> float:
    """Independent scores: the coverage is at least a quantile of Beta(n + 1 − κ, κ)."""
    from scipy.special import betaincinv

    return 1 - float(betaincinv(n + 1 - rank, rank, 1 - share)) if rank else 0.0


def folds_miss_of_most_sets(rank: int, n: int, folds: int, share: float) -> float:
    """2(κ − 1)/n + √(2 log(K/δ)/m) with m rows in each fold and δ = 1 − share."""
    slack = math.sqrt(2 * math.log(folds / (1 - share)) / (n // folds))
    return min(1.0, 2 * (rank - 1) / n + slack) if rank else 0.0


def folds_miss(rank: int, n: int, folds: int) -> float:
    """(2κ − 2 + K)/(n + K) for K folds of any sizes.

    It compares the new row with the n others, so the base may depend on all n + 1. The model
    without a fold may be any function of the other rows and of the seed: coins do not matter.
    """
    return min(1.0, (2 * rank - 2 + folds) / (n + folds)) if rank else 0.0


def equal_folds_miss(rank: int, n: int, folds: int) -> Bound:
    """(2κ − 2 + m)/(n + m) for equal folds of m = n/K rows; smaller where K > m.

    It assumes a whole fold of m new rows, exchangeable with the training rows.
    """
    m = n // folds
    if n % folds or rank == 0:
        return Bound(None)
    return Bound(min(1.0, (2 * rank - 2 + m) / (n + m)), m)


CONSTRUCTIONS: dict[str, Construction] = {
    "plus": Construction(
        "jackknife+, certifies 1 − 2·alpha",
        plus,
        plus_miss,
        plus_miss_of_any_seed,
        tolerates_undetermined=True,
        widths=None,
    ),
    "minmax": Construction(
        "wider than plus, certifies 1 − alpha",
        minmax,
        rank_miss,
        widths=None,
        expects="at least",
        takes_extremes=True,
    ),
    "full": Construction(
        "exact full conformal of the linearised network, certifies 1 − alpha",
        full,
        rank_miss,
        solve=None,
        tolerates_undetermined=True,
        widths=("leverage",),  # built into its scores
        readouts=("tangent",),
        any_loss=False,
        any_models=False,
    ),
    "cv+": Construction(
        "leaves folds out instead of rows",
        plus,
        folds_miss,
        miss_without_data=equal_folds_miss,
        miss_of_most_sets=folds_miss_of_most_sets,
        solve=leave_folds,
        uses_folds=True,
        any_loss=False,
        any_models=False,
    ),
    "split": Construction(
        "learns from a part of the rows, certifies 1 − alpha, and most training sets",
        split,
        rank_miss,
        miss_of_most_sets=rank_miss_of_most_sets,
        splits=True,
        tolerates_undetermined=True,
        widths=("auto", "constant"),
        readouts=("tangent",),
        any_loss=False,
        any_models=False,
    ),
    "jackknife": Construction("the classical jackknife, certifies nothing", jackknife),
    "naive": Construction(
        "from errors on the training rows, certifies nothing", naive, expects="less than"
    ),
}


# The construction that depends on who chooses; see ``resolved``.
AUTO = "auto"


def resolved(construction: str | Construction, parted: bool) -> str | Construction:
    """What ``"auto"`` stands for; other constructions stand for themselves.

    Where rows are ``parted``, full conformal prediction costs about what jackknife+ does, and
    certifies more.
    """
    if construction != AUTO:
        return construction
    return "full" if parted else "plus"


def is_parted(
    n: float, networks: Iterable[object], construction: str | Construction, widths: str | None
) -> bool:
    """Whether a part of n rows chooses for all: wide networks of known kinds, and no folds."""
    construction = resolved(construction, True)
    kind = find_construction(construction)
    known = all(map(is_known, networks)) and not kind.uses_folds
    many = n > MANY or (kind.splits and n >= FEWEST_PARTED)
    return many and known and widths in (None, "auto", "constant")


def find_construction(construction: str | Construction) -> Construction:
    """Return the construction of this name, or the object itself."""
    return CONSTRUCTIONS[construction] if isinstance(construction, str) else construction


def check_construction(construction: Any, names: Iterable[str] = CONSTRUCTIONS) -> None:
    """Refuse what is neither one of these names nor an object that these models support."""
    if not isinstance(construction, Construction):
        check_choice("construction", construction, names)
    elif not construction.any_models and not {*names} >= {*CONSTRUCTIONS}:
        raise ValueError(
            f"construction={construction!r} requires the models of LazyJackknifeRegressor: use "
            f"that, or choose from {listed(names)}"
        )


def is_own(construction: str | Construction) -> bool:
    """Whether a construction is the caller's, so that nothing is known of it."""
    return not isinstance(construction, str) and construction not in CONSTRUCTIONS.values()
