"""What a construction must define: how it is fitted, its ends, its miss bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from ..losses import Loss
from ..records import Ends, Predictor
from ..solve.problem import Problem
from ..solve.widths import Widths
from .fit import LazyModels
from .order import kappa

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
