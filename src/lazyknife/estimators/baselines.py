"""The methods to compare with, behind the same ``predict_interval``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..base import Plain
from ..certificate import Certificate, exchangeable_rows, make_certificate
from ..compute import PROCESSOR, steps
from ..data.checks import check_fraction, check_positive_int
from ..data.scaling import Scaling
from ..intervals import miss_bound
from ..networks import Network, build, dtype_of, make
from ..records import INDEPENDENT, Predictions
from .refits import Ensemble, train_ensemble
from .shared import Fitted, Given, IntervalRegressor, Seeds

# Units of rounding by which two evaluations of the same network may differ.
ROUNDED = 32.0
ROWS_AT_ONCE = 2**22  # rows times networks
THEOREMS = {
    "jackknife_plus": "By the jackknife+ theorem of Barber, Candès, Ramdas and Tibshirani (2021).",
    "cv_plus": "By the CV+ theorem, after that of Barber, Candès, Ramdas and Tibshirani (2021).",
    "split_conformal": "By the rank of an exchangeable score.",
}


@dataclass(frozen=True)
class Refits:
    """Leave-one-out models that were really trained.

    Attributes
    ----------
    full
        The network of all rows.
    models
        The networks of parts of the rows; None where the construction needs none.
    model_of
        For each row the number of the network that did not see it, shape (n,).

    """

    full: Ensemble
    models: Ensemble | None
    model_of: Tensor
    residuals: Tensor
    training_residuals: Tensor

    @property
    def rows_at_once(self) -> int:
        """Rows for which all predictions and their order statistics fit."""
        return PROCESSOR.rows_at_once(len(self.residuals), 48 * len(self.residuals))

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the network of all rows."""
        return self.full.outputs(X)[0]

    @property
    def scores(self) -> Tensor:
        """Sizes of the residuals."""
        return self.residuals.abs()

    def scaled(self, X: Tensor) -> Predictions:
        """Predictions, and no scales."""
        point, each = self.predict(X)
        one = each.new_ones(())
        # Networks are evaluated in their own type, in blocks that may round apart.
        slack = ROUNDED * torch.finfo(dtype_of(self.full.module)).eps * each.abs().amax(dim=1)
        return Predictions(point, each, 0 * one, one, 0 * one, slack)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """For each row of the training data, the predictions of the network without it."""
        assert self.models is not None
        return self.point(X), self.models.outputs(X).T[:, self.model_of]


class _TrainedRegressor(IntervalRegressor):
    """Settings that all baselines share."""

    def __init__(
        self,
        network: Network | None = None,
        epochs: int = 10,
        batch_size: int = 10,
        lr: float = 1e-3,
        intercept: bool = True,
        scaling: Any = None,
        alpha: float = 0.1,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.intercept = intercept
        self.scaling = scaling
        self.alpha = alpha
        self.random_state = random_state
        self.progress = progress

    def _check_settings(self) -> None:
        super()._check_settings()
        self._training()

    def _training(self) -> Plain:
        return Plain(self.epochs, self.batch_size, self.lr)

    def _trainer(self, X: Tensor, y: Tensor, seeds: Seeds) -> Callable[[Tensor, int], Ensemble]:
        """Return a function that trains networks on subsets of the rows, shape (networks, rows).

        Its second argument sets the random starts and orders of one call apart from another's.
        """
        build(self.network, X, seeds.start)  # refuses a network that cannot be used

        def train(subsets: Tensor, call: int) -> Ensemble:
            def start(number: int) -> nn.Module:
                return make(self.network, X, seeds.start + 7919 * call + number).cpu()

            return train_ensemble(
                start,
                X,
                y,
                subsets,
                self._training(),
                center=self.intercept,
                seed=seeds.base + 7919 * call,
                progress=self.progress,
            )

        return train


class JackknifeRegressor(_TrainedRegressor):
    """Jackknife+ and its relatives by n real trainings, run as one batched computation.

    Parameters
    ----------
    network
        None (two hidden layers of 64, ReLU), a ``torch.nn.Module``, or a callable
        ``n_features -> module``, which gives every network a random start of its own.
    construction
        ``"plus"``, ``"minmax"``, ``"jackknife"`` or ``"naive"``.
    epochs, batch_size, lr
        Training by Adam.
    intercept
        Whether each network learns deviations from the mean of its own rows.
    scaling, alpha, random_state, progress
        As for ``LazyJackknifeRegressor``.

    """

    def __init__(
        self,
        network: Network | None = None,
        construction: str = "plus",
        epochs: int = 10,
        batch_size: int = 10,
        lr: float = 1e-3,
        intercept: bool = True,
        scaling: Any = None,
        alpha: float = 0.1,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            network, epochs, batch_size, lr, intercept, scaling, alpha, random_state, progress
        )
        self.construction = construction

    def _fit(self, given: Given) -> Fitted:
        X, y, scaling, seeds, *_ = given
        train = self._trainer(X, y, seeds)
        n = len(y)
        rows = torch.arange(n)
        full = train(rows[None], 0)
        models, residuals = None, torch.full_like(y, torch.nan)  # naive needs none
        if self.construction != "naive":
            models = train(_leave_out(n, rows[:, None]), 1)
            residuals = y - _own(models, X)
        loo = Refits(full, models, rows, residuals, y - full.outputs(X)[0])
        certify = partial(
            _certificate,
            subject=f"construction {self.construction!r} of {n} refits, n = {n}",
            construction=self.construction,
            n=n,
            theorem="jackknife_plus",
            assumptions=self._start_assumptions(),
            scaling=scaling,
            without=f"Construction {self.construction!r} has no coverage theorem: use 'plus'.",
        )
        return Fitted(loo, certify, {})


class CVPlusRegressor(_TrainedRegressor):
    """CV+: jackknife+ with one network for each fold instead of one for each row.

    Parameters
    ----------
    network
        As for ``JackknifeRegressor``.
    folds
        Number of folds K; its theorem wants n to be a multiple of K.
    epochs, batch_size, lr, intercept, scaling, alpha, random_state, progress
        As for ``JackknifeRegressor``.

    """

    construction = "plus"

    def __init__(
        self,
        network: Network | None = None,
        folds: int = 10,
        epochs: int = 10,
        batch_size: int = 10,
        lr: float = 1e-3,
        intercept: bool = True,
        scaling: Any = None,
        alpha: float = 0.1,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            network, epochs, batch_size, lr, intercept, scaling, alpha, random_state, progress
        )
        self.folds = folds

    def _check_settings(self) -> None:
        super()._check_settings()
        check_positive_int("folds", self.folds)
        if self.folds < 2:
            raise ValueError(f"folds={self.folds}: give at least 2")

    def _fit(self, given: Given) -> Fitted:
        X, y, scaling, seeds, *_ = given
        train = self._trainer(X, y, seeds)
        n = len(y)
        if self.folds > n:
            raise ValueError(f"folds={self.folds} is more than the {n} rows: give at most {n}")
        fold_of = torch.arange(n) % self.folds
        fold_of = fold_of[torch.from_numpy(np.random.default_rng(seeds.rows).permutation(n))]
        members = [torch.nonzero(fold_of == k)[:, 0] for k in range(self.folds)]
        full = train(torch.arange(n)[None], 0)
        # Folds differ in size by one row at most: the larger ones come first.
        sizes = sorted({len(fold) for fold in members}, reverse=True)
        groups = [torch.stack([f for f in members if len(f) == size]) for size in sizes]
        models = _join([train(_leave_out(n, group), 1 + k) for k, group in enumerate(groups)])
        residuals = y - models.outputs(X).T[torch.arange(n), fold_of]
        loo = Refits(full, models, fold_of, residuals, y - full.outputs(X)[0])
        certify = partial(
            _certificate,
            subject=f"CV+ with {self.folds} folds, n = {n}",
            construction="cv+",
            n=n,
            folds=self.folds,
            theorem="cv_plus",
            assumptions=self._start_assumptions(),
            scaling=scaling,
            without=f"CV+ requires equal folds, and {n} is not divisible by {self.folds}.",
        )
        return Fitted(loo, certify, {})


class SplitConformalRegressor(_TrainedRegressor):
    """Split conformal: train on one part of the rows, take the errors on the other.

    Parameters
    ----------
    network
        As for ``JackknifeRegressor``.
    calibration
        Share of the rows that is kept from training.
    epochs, batch_size, lr, intercept, scaling, alpha, random_state, progress
        As for ``JackknifeRegressor``.

    """

    construction = "jackknife"  # point ± order statistic of errors on rows not trained on

    def __init__(
        self,
        network: Network | None = None,
        calibration: float = 0.5,
        epochs: int = 10,
        batch_size: int = 10,
        lr: float = 1e-3,
        intercept: bool = True,
        scaling: Any = None,
        alpha: float = 0.1,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            network, epochs, batch_size, lr, intercept, scaling, alpha, random_state, progress
        )
        self.calibration = calibration

    def _check_settings(self) -> None:
        super()._check_settings()
        check_fraction("calibration", self.calibration)

    def _parts(self, n: int, seeds: Seeds) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows to train on, and rows to calibrate on."""
        kept = min(max(round(self.calibration * n), 1), n - 1)
        shuffled = np.random.default_rng(seeds.rows).permutation(n)
        return np.sort(shuffled[kept:]), np.sort(shuffled[:kept])

    def _rows_apart(self, n: int, seeds: Seeds) -> NDArray[np.intp]:
        return self._parts(n, seeds)[0]

    def _fit(self, given: Given) -> Fitted:
        X, y, scaling, seeds, *_ = given
        learn, kept = (torch.from_numpy(rows) for rows in self._parts(len(y), seeds))
        network = self._trainer(X, y, seeds)(learn[None], 0)
        errors = y - network.outputs(X)[0]
        loo = Refits(network, None, kept, errors[kept], errors[learn])
        n = len(kept)
        certify = partial(
            _certificate,
            subject=f"split conformal, {n} calibration rows of {len(y)}",
            construction="full",  # the rank of one score among n + 1
            n=n,
            theorem="split_conformal",
            assumptions=self._start_assumptions(),
            scaling=scaling,
        )
        return Fitted(loo, certify, {})


def _leave_out(n: int, left_out: Tensor) -> Tensor:
    """Rows that remain without each of these sets, (sets, size) → (sets, n − size)."""
    kept = torch.ones(len(left_out), n, dtype=torch.bool)
    kept.scatter_(1, left_out, False)
    return kept.nonzero()[:, 1].reshape(len(left_out), -1)


def _own(models: Ensemble, X: Tensor) -> Tensor:
    """Predictions of network j at row j, shape (n,), by the very path of new rows."""
    each = max(1, ROWS_AT_ONCE // len(X))
    parts = [models.outputs(X[part])[part].diagonal() for part in steps(len(X), each)]
    return torch.cat(parts)


def _join(parts: list[Ensemble]) -> Ensemble:
    """One ensemble of several."""
    weights = {name: torch.cat([p.weights[name] for p in parts]) for name in parts[0].weights}
    return Ensemble(parts[0].module, weights, torch.cat([p.offsets for p in parts]))


def _certificate(
    *,
    alpha: float,
    subject: str,
    construction: str,
    n: int,
    theorem: str,
    assumptions: tuple[str, ...],
    scaling: Scaling,
    folds: int = 1,
    without: str = "",
) -> Certificate:
    """Certificate of a method whose networks share nothing that saw the left-out row."""
    miss, needed = miss_bound(construction, alpha, n, folds, True, scaling.new_rows)
    objections = (*(() if miss is not None else (without,)), *scaling.objections)
    return make_certificate(
        subject=f"{subject}, alpha = {alpha:g}",
        miss=miss,
        dependence=INDEPENDENT,
        assumptions=(*assumptions, *scaling.assumptions, *exchangeable_rows(needed)),
        objections=objections,
        rows=scaling.rows,
        remarks=() if objections else (THEOREMS[theorem],),
        theorem=theorem,
    )
