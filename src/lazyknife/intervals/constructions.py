"""The constructions: how each is fitted, its ends from leave-one-out models, its miss bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..data.checks import check_choice, listed
from ..losses import Loss
from ..records import Conformal, Ends, LeaveOneOut, Predictions, Predictor
from ..ridge.leave_one_out import leave_folds, leave_rows
from ..ridge.problem import Problem
from ..ridge.system import RidgeModels
from ..ridge.widths import Widths
from .fit import LazyModels, fit_left_out
from .full_conformal import fit_full
from .order import kappa, kth_largest, kth_smallest
from .window import Bounded, Elsewhere, extremes, windowed_plus

Models = TypeVar("Models", bound=Predictor)


class Bound(NamedTuple):
    """A bound on the probability of a miss, what it assumes, and over what it is an average.

    Attributes
    ----------
    miss
        The bound; None where there is none.
    new_rows
        How many new rows must be exchangeable with the training rows.
    any_seed
        Whether it holds for all coins that tell which rows make choices; else on average over them.

    """

    miss: float | None
    new_rows: int = 1
    any_seed: bool = True


class Construction(ABC, Generic[Models]):
    """A way to turn leave-one-out models into intervals.

    Attributes
    ----------
    summary
        What it is, for lists of choices.
    certifies
        Whether there is a bound on the probability of a miss.
    widths
        The kinds of widths that it supports, its default first; None for all of them.
    readouts
        The readouts that it supports; None for all of them.
    any_loss
        Whether it supports every loss; otherwise only the squared one.
    any_models
        Whether it accepts leave-one-out models of any origin, such as networks trained n times.
    uses_folds
        Whether it leaves folds out instead of rows.
    symmetric
        Whether choices are made by all rows and the new one together, and not by each model.

    """

    summary: ClassVar[str]
    certifies: ClassVar[bool] = True
    widths: ClassVar[tuple[str, ...] | None] = ("constant",)
    readouts: ClassVar[tuple[str, ...] | None] = None
    any_loss: ClassVar[bool] = True
    any_models: ClassVar[bool] = True
    uses_folds: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def fit(self, problem: Problem, readout: str) -> LazyModels:
        """Solve a problem."""

    @abstractmethod
    def ends(self, loo: Models, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Point predictions, (m,), and lower and upper ends for each rank κ, (m, ranks)."""

    def miss(self, rank: int, n: int, folds: int) -> float | None:
        """Bound the probability of a miss if the base is a symmetric function of all n + 1 rows.

        None where no bound applies.
        """
        return None

    @property
    def leaves_rows(self) -> bool:
        """Whether each model leaves one row out, and chooses on its own rows."""
        return not (self.uses_folds or self.symmetric)

    def miss_of_any_seed(self, rank: int, n: int) -> float | None:
        """Bound it also where coins tell which rows make choices, whatever the coins are.

        None where ``miss`` then holds on average over the coins alone.
        """
        return None

    def miss_without_data(self, rank: int, n: int, folds: int) -> Bound | None:
        """Another bound, for a base that does not depend on the data at all."""
        return None

    def tolerates(self, rank: int) -> int:
        """Return how many conceded models the bound allows."""
        return 0

    def matrices(self, widths: Widths, loss: Loss, ridges: int) -> int:
        """Matrices of the kernel's size that a fit with this many λ needs at its peak."""
        if not loss.closed_form:
            return 6
        auto = ridges > 1
        return 1 + auto + widths.matrices[auto]

    def bound(
        self,
        alpha: float,
        n: int,
        folds: int,
        independent: bool,
        new_rows: int | None = None,
        coins: bool = False,
    ) -> Bound:
        """Return the best bound that applies.

        Parameters
        ----------
        alpha, n, folds
            Level, number of rows and number of folds.
        independent
            Whether the base never saw the data; otherwise it is a symmetric function of all rows.
        new_rows
            How many new rows there are, where that is known.
        coins
            Whether coins tell which rows make choices; they matter where rows are left out.

        """
        if not self.certifies:
            return Bound(None)
        rank = kappa(alpha, n)
        if coins and self.leaves_rows:
            always = self.miss_of_any_seed(rank, n)
            return (
                Bound(self.miss(rank, n, folds), any_seed=False)
                if always is None
                else Bound(always)
            )
        found = Bound(self.miss(rank, n, folds))
        other = self.miss_without_data(rank, n, folds) if independent else None
        if found.miss is None or other is None or other.miss is None or other.miss >= found.miss:
            return found
        return found if new_rows is not None and new_rows < other.new_rows else other


# Relative error of the sums behind an end: four rounded operations.
SUMS = 4 * torch.finfo(torch.float64).eps
# Units of rounding by which two evaluations of the same model may differ.
ROUNDED = 32.0


def plus(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife+: order statistics of f_{−j}(x) ± R_j σ_{−j}(x), R the scores."""
    if isinstance(loo, Bounded | Elsewhere):
        return _outwards(*windowed_plus(loo, X, ranks))
    found = loo.scaled(X)
    margins = _stretched(loo.scores, found)
    lower = kth_smallest(found.each - margins, ranks)
    return _outwards(found, lower, kth_largest(found.each + margins, ranks))


def minmax(loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
    """Jackknife-minmax: the extremes of f_{−j}(x) ± Q σ_{−j}(x), Q an order statistic of scores."""
    if isinstance(loo, Bounded):
        return _outwards(*_extreme_ends(loo, X, ranks))
    found = loo.scaled(X)
    lowers, uppers = [], []
    for score in kth_largest(loo.scores, ranks):
        margins = _stretched(score, found)
        lowers.append((found.each - margins).amin(dim=1))
        uppers.append((found.each + margins).amax(dim=1))
    return _outwards(found, torch.stack(lowers, dim=1), torch.stack(uppers, dim=1))


def _extreme_ends(
    loo: Bounded, X: Tensor, ranks: Sequence[int]
) -> tuple[Predictions, Tensor, Tensor]:
    """Jackknife-minmax of models that are never all in memory, and whose σ(x) is the same."""
    found, least, most = extremes(loo, X)
    margins = kth_largest(loo.scores, ranks) * found.scales[:, None] * (1 + found.stretch)
    return found, least[:, None] - margins, most[:, None] + margins


def _stretched(scores: Tensor, found: Predictions) -> Tensor:
    """R σ, rounded up."""
    margins = scores * found.scales
    if found.stretch.dim():
        margins *= (1 + found.stretch)[:, None]
    return margins


def _outwards(found: Predictions, lower: Tensor, upper: Tensor) -> Ends:
    """Widen the ends by the bounds on rounding, so that ties are covered."""
    slack = found.slack.expand(len(lower))[:, None]
    return (
        found.point,
        lower - (slack + SUMS * lower.abs()),
        upper + (slack + SUMS * upper.abs()),
    )


def evaluation_slack(spread: Tensor, size: Tensor, unit: float) -> Tensor:
    """Bound what rounding changes from batch to batch in models whose insides are unknown.

    Parameters
    ----------
    spread
        Distance of predictions and errors from the centre of y.
    size
        Of predictions and ends themselves, which are rounded in float64.
    unit
        Rounding relative to the spread. Above that of float64 it allows for sums of numbers that
        are larger than their result.

    """
    return ROUNDED * (unit * spread + torch.finfo(torch.float64).eps * size)


def around_point(point: Tensor, residuals: Tensor, ranks: Sequence[int]) -> Ends:
    """Point predictions ± an order statistic of the sizes of residuals."""
    margin = kth_largest(residuals.abs(), ranks)
    return point, point[:, None] - margin, point[:, None] + margin


class _RowsOut(Construction[Models]):
    """Leaves rows out; ``windows``: whether an end needs few of the models."""

    windows: ClassVar[bool] = False

    def solve(self, problem: Problem) -> RidgeModels:
        """Solve all models."""
        return leave_rows(problem)

    def fit(self, problem: Problem, readout: str) -> LazyModels:
        return fit_left_out(problem, self.solve, readout, self.windows)


class Plus(_RowsOut[LeaveOneOut]):
    """Jackknife+."""

    summary = "jackknife+, certifies 1 − 2·alpha"
    widths = None
    windows = True

    def ends(self, loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
        return plus(loo, X, ranks)

    def miss(self, rank: int, n: int, folds: int) -> float:
        """(2κ − 1)/(n + 1)."""
        return max(2 * rank - 1, 0) / (n + 1)

    def miss_of_any_seed(self, rank: int, n: int) -> float:
        """2κ/(n + 2): rows are exchangeable with those of the same coin alone."""
        return 2 * rank / (n + 2)

    def tolerates(self, rank: int) -> int:
        return max(rank - 1, 0)


class MinMax(_RowsOut[LeaveOneOut]):
    """Jackknife-minmax."""

    summary = "wider than plus, certifies 1 − alpha"
    widths = None

    def ends(self, loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
        return minmax(loo, X, ranks)

    def miss(self, rank: int, n: int, folds: int) -> float:
        """κ/(n + 1)."""
        return rank / (n + 1)


class Full(Construction[Conformal]):
    """Exact full conformal prediction of the linearised network."""

    summary = "exact full conformal of the linearised network, certifies 1 − alpha"
    widths = ("leverage",)  # built into its scores
    readouts = ("tangent",)
    any_loss = False
    any_models = False
    symmetric = True

    def fit(self, problem: Problem, readout: str) -> LazyModels:
        return fit_full(problem)

    def ends(self, loo: Conformal, X: Tensor, ranks: Sequence[int]) -> Ends:
        return loo.accepted(X, ranks)

    def miss(self, rank: int, n: int, folds: int) -> float:
        """κ/(n + 1)."""
        return rank / (n + 1)

    def matrices(self, widths: Widths, loss: Loss, ridges: int) -> int:
        return 2 + ridges


class CVPlus(Construction[LeaveOneOut]):
    """CV+: folds left out instead of rows."""

    summary = "leaves folds out instead of rows"
    any_loss = False
    any_models = False
    uses_folds = True

    def solve(self, problem: Problem) -> RidgeModels:
        """Solve all models."""
        return leave_folds(problem)

    def fit(self, problem: Problem, readout: str) -> LazyModels:
        return fit_left_out(problem, self.solve, readout)

    def ends(self, loo: LeaveOneOut, X: Tensor, ranks: Sequence[int]) -> Ends:
        return plus(loo, X, ranks)

    def miss(self, rank: int, n: int, folds: int) -> float:
        """(2κ − 2 + K)/(n + K) for K folds of any sizes.

        It compares the new row with the n others, so the base may depend on all n + 1. The model
        without a fold may be any function of the other rows and of the seed: coins do not matter.
        """
        return min(1.0, (2 * rank - 2 + folds) / (n + folds)) if rank else 0.0

    def miss_without_data(self, rank: int, n: int, folds: int) -> Bound | None:
        """(2κ − 2 + m)/(n + m) for equal folds of m = n/K rows; smaller where K > m.

        It assumes a whole fold of m new rows, exchangeable with the training rows.
        """
        m = n // folds
        if n % folds or rank == 0:
            return None
        return Bound(min(1.0, (2 * rank - 2 + m) / (n + m)), m)

    def matrices(self, widths: Widths, loss: Loss, ridges: int) -> int:
        return 2


class Jackknife(_RowsOut[Predictor]):
    """Full-data prediction ± an order statistic of the left-out errors."""

    summary = "the classical jackknife, certifies nothing"
    certifies = False

    def ends(self, loo: Predictor, X: Tensor, ranks: Sequence[int]) -> Ends:
        return around_point(loo.point(X), loo.residuals, ranks)


class Naive(_RowsOut[Predictor]):
    """Full-data prediction ± an order statistic of the errors on the training rows."""

    summary = "from errors on the training rows, certifies nothing"
    certifies = False

    def ends(self, loo: Predictor, X: Tensor, ranks: Sequence[int]) -> Ends:
        return around_point(loo.point(X), loo.training_residuals, ranks)


CONSTRUCTIONS: dict[str, Construction[Any]] = {
    "plus": Plus(),
    "minmax": MinMax(),
    "full": Full(),
    "cv+": CVPlus(),
    "jackknife": Jackknife(),
    "naive": Naive(),
}


def find_construction(construction: str | Construction[Any]) -> Construction[Any]:
    """Return the construction of this name, or the object itself."""
    if isinstance(construction, Construction):
        return construction
    return CONSTRUCTIONS[construction]


def check_construction(construction: Any, names: Iterable[str] = CONSTRUCTIONS) -> None:
    """Refuse what is neither one of these names nor an object that these models support."""
    if not isinstance(construction, Construction):
        check_choice("construction", construction, names)
    elif not construction.any_models and {*names} != {*CONSTRUCTIONS}:
        raise ValueError(
            f"construction={construction!r} requires the models of LazyJackknifeRegressor: use "
            f"that, or choose from {listed(names)}"
        )


def is_own(construction: str | Construction[Any]) -> bool:
    """Whether a construction is the caller's, so that nothing is known of it."""
    return not isinstance(construction, str) and construction not in CONSTRUCTIONS.values()


def miss_bound(
    construction: str | Construction[Any],
    alpha: float,
    n: int,
    folds: int,
    independent: bool,
    new_rows: int | None = None,
) -> Bound:
    """Return the bound of a construction; see ``Construction.bound``."""
    return find_construction(construction).bound(alpha, n, folds, independent, new_rows)
