"""What every way to obtain base weights must offer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..losses import SQUARED, Loss
from ..records import Base, PrivacyCurve
from ..settings import Settings

Rows = NDArray[np.intp]
EPSILON_ADVICE = "Smaller values certify no more than base=Public(), larger ones protect nothing"
# Steps of training that are refused, and the seconds that one takes at least.
TOO_MANY_STEPS, STEP_SECONDS = 10**7, 2e-4


def check_steps(epochs: int, batch_size: int, rows: int) -> int:
    """Return the number of steps; refuse what would take hours."""
    steps = epochs * math.ceil(rows / batch_size)
    if steps >= TOO_MANY_STEPS:
        raise ValueError(
            f"epochs={epochs:,} with batch_size={batch_size:,} and {rows:,} rows is {steps:,} "
            f"steps, at least {STEP_SECONDS * steps / 3600:,.1f} hours: give fewer epochs or a "
            "larger batch_size"
        )
    return steps


@dataclass(frozen=True)
class Task:
    """What a base learns from."""

    start: nn.Module  # the network at its public starting weights; it must not be changed
    X: Tensor
    y: Tensor  # shape (rows,)
    seed: int  # of all randomness
    # Rows that the mechanism is set up for: an audit runs the very same one on a row less.
    n: int
    # Whether a later intercept takes up the mean of y; only where the loss predicts y itself.
    center: bool = False
    progress: bool = False  # whether to show a progress bar
    # Rows without labels: the training rows together with the pool, or rows that are neither
    # training nor new rows.
    covariates: Tensor | None = None
    loss: Loss = SQUARED  # what is minimised, on the scale of its link


class BaseMethod(Settings, ABC):
    """A way to obtain base weights θ0, with a known dependence on the data.

    A base of your own subclasses this: ``learn`` trains, ``dependence`` says how the law of the
    result changes when one row is added (``PrivacyCurve.from_dp(epsilon, delta)`` for any DP
    training), ``assumptions`` lists what you assert and nobody can check, ``remarks`` what readers
    of the certificate should know (``lazyknife.sentences.PRIVATE_REMARKS`` for any DP training).
    """

    uses_covariates: ClassVar[bool] = False  # whether it learns from ``Task.covariates``
    trains: ClassVar[bool] = True  # whether θ0 differs from the network's own weights

    @abstractmethod
    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve | None:
        """Privacy curve of the base learnt on n rows; None where there is none."""

    @abstractmethod
    def learn(self, task: Task) -> Base:
        """Learn base weights."""

    def fit(
        self, start: nn.Module, X: Tensor, y: Tensor, *, n: int | None = None, **terms: Any
    ) -> Base:
        """Learn base weights from rows; the arguments are those of ``Task``."""
        return self.learn(Task(start, X, y, n=n or len(X), **terms))

    def rows(self, n: int, seed: int) -> tuple[Rows, Rows]:
        """Rows to learn the base on, and rows left for every later stage."""
        everything = np.arange(n)
        return everything, everything

    def rows_left(self, n: int) -> int:
        """How many of n rows are left for the later stages."""
        return n

    def spent(self, n: int) -> float | None:
        """ε that the base spends on n rows; None for one that has no such number."""
        return None

    def with_noise(self, level: float) -> BaseMethod:
        """Return the same base with another amount of noise: more certifies more."""
        raise ValueError(f"base={self} has no noise to choose: give a private base such as DPSGD()")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the certificate must assume about this base."""
        return ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the certificate should know about this base."""
        return ()


def check_training(training: Any) -> None:
    """Refuse what is no base."""
    if not isinstance(training, BaseMethod):
        raise TypeError(f"training={training!r}: give an instance such as Plain(epochs=10)")
