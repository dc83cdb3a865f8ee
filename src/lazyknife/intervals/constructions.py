"""The constructions, one object each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from torch import Tensor

from ..data.checks import check_choice, listed
from ..losses import Loss
from ..records import Conformal, Ends, LeaveOneOut, Predictor
from ..solve.leave import leave_folds, leave_rows
from ..solve.problem import Problem
from ..solve.ridge import RidgeModels
from ..solve.widths import Widths
from . import ends
from .construction import Bound, Construction, Models
from .fit import LazyModels, fit_left_out
from .full import fit_full


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
        return ends.plus(loo, X, ranks)

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
        return ends.minmax(loo, X, ranks)

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
        return ends.plus(loo, X, ranks)

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
        return ends.around_point(loo.point(X), loo.residuals, ranks)


class Naive(_RowsOut[Predictor]):
    """Full-data prediction ± an order statistic of the errors on the training rows."""

    summary = "from errors on the training rows, certifies nothing"
    certifies = False

    def ends(self, loo: Predictor, X: Tensor, ranks: Sequence[int]) -> Ends:
        return ends.around_point(loo.point(X), loo.training_residuals, ranks)


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
