"""Methods to compare with, by real trainings, behind the same ``predict_interval``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..base import Plain
from ..base.method import Rows
from ..base.public_split import part_size, random_parts
from ..certificate import TrainedCertifier
from ..certificate.certify import start_assumptions
from ..data.checks import check_flag, check_folds, check_fraction
from ..data.encoder import TableEncoder
from ..intervals import Construction
from ..networks import Network, build, make
from .base import IntervalRegressor
from .fit_input import Fitted, Given, Seeds
from .refits import Ensemble, Refits, join, train_ensemble

WITHOUT_REFITS = ("naive",)  # constructions that use the errors on the training rows alone
CALLS_APART = 7919  # between the seeds of two calls; a prime


class Design(NamedTuple):
    """Which networks a method trains, and what its certificate is about."""

    learn: Tensor  # rows that the network of the point predictions is trained on
    scored: Tensor  # rows whose errors set the widths, shape (n,)
    left_out: Sequence[Tensor]  # sets of rows that other networks leave out, each (sets, size)
    model_of: Tensor  # for each scored row the number of the set that contains it, shape (n,)
    claim: dict[str, Any]  # subject, theorem, construction and folds of the certificate


@dataclass(eq=False, repr=False)
class TrainedRegressor(IntervalRegressor):
    """The settings and the fit that all baselines share."""

    network: Network | None = None
    _: KW_ONLY
    epochs: int = 10
    batch_size: int = 10
    lr: float = 1e-3
    intercept: bool = True
    scaling: Any = None
    encoding: TableEncoder | None = None
    target: Any = None
    bounds: Any = None
    alpha: float = 0.1
    random_state: Any = None
    progress: bool = False

    @abstractmethod
    def _design(self, n: int, seeds: Seeds) -> Design:
        """Return which networks to train on n rows."""

    def _check_settings(self) -> None:
        super()._check_settings()
        check_flag("intercept", self.intercept)
        self._training()

    def _training(self) -> Plain:
        return Plain(self.epochs, self.batch_size, self.lr)

    def _train(self, X: Tensor, y: Tensor, seeds: Seeds, call: int, subsets: Tensor) -> Ensemble:
        """Train on subsets of the rows; every call has random starts and orders of its own."""
        apart = CALLS_APART * call
        return train_ensemble(
            lambda number: make(self.network, X, seeds.start + apart + number).cpu(),
            X,
            y,
            subsets,
            self._training(),
            center=self.intercept,
            seed=seeds.base + apart,
            progress=self.progress,
        )

    def _fit(self, given: Given) -> Fitted:
        X, y, seeds = given.X, given.y, given.seeds
        learn, scored, left_out, model_of, claim = self._design(len(y), seeds)
        build(self.network, X, seeds.start)  # refuses a network that cannot be used
        train = partial(self._train, X, y, seeds)
        full, models = train(0, learn[None]), None
        errors = y - full.outputs(X)[0]
        residuals = errors.index_fill(0, learn, torch.nan)[scored]  # none where all rows were seen
        if left_out:
            models = join([train(1 + k, others(len(y), sets)) for k, sets in enumerate(left_out)])
            residuals = y[scored] - models.own_outputs(X[scored], model_of)
        assumed = (*start_assumptions(self.network), *full.assumptions, *given.assumptions)
        terms = {**given.stated, "assumptions": assumed, **claim}
        certify = TrainedCertifier(n=len(scored), available=tuple(self._constructions()), **terms)
        found = Refits(full, models, model_of, residuals, errors[learn], full.rounding(X))
        return Fitted(found, certify, {})


@dataclass(eq=False, repr=False)
class JackknifeRegressor(TrainedRegressor):
    """Jackknife+ and related methods by n real trainings, run as one batched computation.

    Parameters
    ----------
    network
        None (``mlp((64, 64), skip=True)``), a ``torch.nn.Module``, or a callable
        ``n_features -> module``, which gives every network its own random start.
    construction
        ``"plus"``, ``"minmax"``, ``"jackknife"`` or ``"naive"``.
    epochs, batch_size, lr
        Number of epochs, batch size and step size of Adam.
    intercept
        Whether each network is trained on the deviations from the mean of its own targets.
    scaling, target, bounds, alpha, random_state, progress
        As in ``LazyJackknifeRegressor``.

    """

    construction: str | Construction[Any] = "plus"

    def _design(self, n: int, seeds: Seeds) -> Design:
        rows = torch.arange(n)
        left_out = [] if self.construction in WITHOUT_REFITS else [rows[:, None]]
        claim = {
            "subject": f"construction {self.construction!r} of {n} refits, n = {n}",
            "theorem": "jackknife_plus",
            "construction": self.construction,
        }
        return Design(rows, rows, left_out, rows, claim)


@dataclass(eq=False, repr=False)
class CVPlusRegressor(TrainedRegressor):
    """CV+: jackknife+ with one network for each fold instead of one for each row.

    Parameters
    ----------
    network, epochs, batch_size, lr, intercept, scaling, target, bounds, alpha, random_state,
    progress
        As in ``JackknifeRegressor``.
    folds
        Number of folds; their sizes differ by at most one row.

    """

    folds: int = 10
    construction = "plus"

    def _check_settings(self) -> None:
        super()._check_settings()
        check_folds(self.folds)

    def _design(self, n: int, seeds: Seeds) -> Design:
        check_folds(self.folds, n)
        rows = torch.arange(n)
        shuffled = torch.from_numpy(np.random.default_rng(seeds.rows).permutation(n))
        fold_of = (rows % self.folds)[shuffled]
        members = [torch.nonzero(fold_of == k)[:, 0] for k in range(self.folds)]
        # Folds differ in size by one row at most: the larger ones come first.
        sizes = sorted({len(fold) for fold in members}, reverse=True)
        left_out = [torch.stack([f for f in members if len(f) == size]) for size in sizes]
        claim = {
            "subject": f"CV+ with {self.folds} folds, n = {n}",
            "theorem": "cv_plus",
            "construction": "cv+",
            "folds": self.folds,
        }
        return Design(rows, rows, left_out, fold_of, claim)


@dataclass(eq=False, repr=False)
class SplitConformalRegressor(TrainedRegressor):
    """Split conformal: train on one part of the rows, use the errors on the other part.

    Parameters
    ----------
    network, epochs, batch_size, lr, intercept, scaling, target, bounds, alpha, random_state,
    progress
        As in ``JackknifeRegressor``.
    calibration
        Share of the rows that is held out from training.

    """

    calibration: float = 0.5
    construction = "minmax"  # of one model: point ± order statistic of errors on other rows

    def _check_settings(self) -> None:
        super()._check_settings()
        check_fraction("calibration", self.calibration)

    def _parts(self, n: int, seeds: Seeds) -> tuple[Rows, Rows]:
        """Rows to train on, and rows to calibrate on."""
        return random_parts(n, self._rows_left(n), seeds.rows)

    def _rows_left(self, n: int) -> int:
        return part_size(n, self.calibration)

    def _rows_apart(self, n: int, seeds: Seeds) -> Rows:
        return self._parts(n, seeds)[0]

    def _design(self, n: int, seeds: Seeds) -> Design:
        learn, kept = map(torch.from_numpy, self._parts(n, seeds))
        claim = {
            "subject": f"split conformal, {len(kept)} calibration rows of {n}",
            "theorem": "split_conformal",
            "construction": "full",  # the rank of one score among those of n + 1 rows
        }
        return Design(learn, kept, [], kept, claim)


def others(n: int, left_out: Tensor) -> Tensor:
    """Rows that remain without each of these sets, (sets, size) → (sets, n − size)."""
    kept = torch.ones(len(left_out), n, dtype=torch.bool)
    kept.scatter_(1, left_out, False)
    return kept.nonzero()[:, 1].reshape(len(left_out), -1)
