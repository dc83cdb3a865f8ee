"""MAPIE's intervals around a regressor of scikit-learn, behind the same ``predict_interval``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from torch import Tensor

from ..certificate import TrainedCertifier
from ..compute import PROCESSOR
from ..data.checks import check_choice
from ..intervals.constructions import evaluation_slack
from ..records import Ends
from .base import IntervalRegressor, Levels
from .fit_input import Fitted, Given, Seeds

SCHEMES = {"cv": "CV+", "split": "split conformal", "quantile": "conformalised quantile regression"}
FOLDS, CALIBRATION = 10, 0.5  # share of the rows, as in ``SplitConformalRegressor``
UNIT = 2.0**-35  # of rounding, for models in float64: 2^17 times theirs


@dataclass(frozen=True)
class Conformalized:
    """A regressor of MAPIE after its fit."""

    wrapped: Any
    options: dict[str, Any]  # keywords of its prediction methods
    alpha: float  # the level that it was fitted for
    center: float  # median of y
    residuals: Tensor  # conformity scores of rows that no model was fitted to, shape (n,)

    @property
    def training_residuals(self) -> NoReturn:
        raise NotImplementedError("MAPIE keeps no errors on training rows")

    @property
    def rows_at_once(self) -> int:  # MAPIE has eight arrays of (rows × n) numbers at a time
        return max(1, PROCESSOR.block // (64 * len(self.residuals)))

    def point(self, X: Tensor) -> Tensor:
        return torch.from_numpy(self.wrapped.predict(X.numpy(), **self.options))

    def ends(self, X: Tensor) -> Ends:
        # Split conformal raises here even where infinite bounds are allowed. The rank is in
        # MAPIE's own floats: at a few levels one above n + 1 − κ, never below.
        n = len(self.residuals)
        if math.ceil((1 - complement(complement(self.alpha))) * (n + 1)) > n:
            whole = torch.full((len(X), 1), torch.inf, dtype=torch.float64)
            return self.point(X), -whole, whole
        found = self.wrapped.predict_interval(X.numpy(), allow_infinite_bounds=True, **self.options)
        point, ends = torch.from_numpy(found[0]), torch.from_numpy(found[1][:, :, 0])
        off = (point - self.center).abs()[:, None] + (ends - self.center).abs()
        slack = evaluation_slack(off, point.abs()[:, None] + ends.abs(), UNIT)
        return point, (ends - slack)[:, :1], (ends + slack)[:, 1:]  # outwards


@dataclass(eq=False, repr=False)
class MapieRegressor(IntervalRegressor):
    """MAPIE's intervals around an unfitted ``model``, whose seeds come from ``random_state``.

    ``scheme`` is ``"cv"`` (CV+ with ten folds; below ten rows, one a fold), ``"split"`` (calibrated
    on half of the rows) or ``"quantile"``: for models with a quantile loss and more than 2/α
    calibration rows; each end misses with probability κ(α/2)/(n + 1) at most, and twice that is at
    most the bound of split conformal, which the certificate states. A seed that all folds share
    does not affect the theorem: exchangeable rows come in a random order, and a random order makes
    any algorithm symmetric.
    """

    model: Any
    scheme: str = "cv"
    scaling: Any = None
    alpha: float = 0.1
    random_state: Any = None
    loo_: Conformalized = field(init=False)
    construction, network, verbose = "plus", None, False

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("scheme", self.scheme, SCHEMES)
        try:
            import_module("mapie.regression")
        except ImportError as error:
            raise ImportError("mapie_… needs MAPIE: pip install mapie") from error

    def _levels(self, alpha: Levels) -> float | tuple[float, ...]:
        if (asked := super()._levels(alpha)) != self.loo_.alpha:
            raise ValueError(
                f"alpha={asked}: MAPIE was fitted for alpha={self.loo_.alpha}. Set alpha first, "
                "then fit"
            )
        return asked

    def _ends(self, X: Tensor, ranks: Any) -> Ends:
        return self.loo_.ends(X)

    def _parts(self, n: int, seeds: Seeds) -> Any:
        """Rows to fit to, and rows to calibrate on."""
        return train_test_split(np.arange(n), test_size=CALIBRATION, random_state=seeds.rows)

    def _rows_apart(self, n: int, seeds: Seeds) -> Any:
        return None if self.scheme == "cv" else self._parts(n, seeds)[0]

    def _rows_left(self, n: int) -> int:
        return n if self.scheme == "cv" else math.ceil(CALIBRATION * n)

    def _wrap(self, mapie: Any, model: Any, n: int, seeds: Seeds) -> Any:
        """Put a class of ``mapie.regression`` around a model."""
        level = complement(self.alpha)
        if self.scheme == "quantile":
            return mapie.ConformalizedQuantileRegressor(model.set_params(loss="quantile"), level)
        if self.scheme == "split":
            return mapie.SplitConformalRegressor(model, level, "absolute", prefit=False)
        cut = {"cv": min(FOLDS, n), "random_state": seeds.rows}
        return mapie.CrossConformalRegressor(model, level, "absolute", "plus", **cut)

    def _fit(self, given: Given) -> Fitted:
        X, y, seeds = given.X.numpy(), given.y.numpy(), given.seeds
        model, n, cv = clone(self.model), len(y), self.scheme == "cv"
        drawn = [name for name in model.get_params() if name.endswith("random_state")]
        model.set_params(**dict.fromkeys(drawn, seeds.base))
        wrapped = self._wrap(import_module("mapie.regression"), model, n, seeds)
        before = np.random.get_state()  # noqa: NPY002, split conformal draws a number from it
        try:
            if cv:
                wrapped.fit_conformalize(X, y)
            else:
                learn, kept = self._parts(n, seeds)
                wrapped.fit(X[learn], y[learn]).conformalize(X[kept], y[kept])
        finally:
            np.random.set_state(before)  # noqa: NPY002
        scores = np.atleast_2d(wrapped.conformity_scores)[-1]  # of quantiles: the larger one
        scores = torch.from_numpy(scores[~np.isnan(scores)])
        # The point is that of the model of all rows, as for the other methods.
        options = {"aggregate_point_predictions": None} if cv else {}
        terms: dict[str, Any] = {"theorem": "split_conformal", "construction": "full"}
        rows = f"{len(scores)} calibration rows of {n}"  # full: the rank of one among n + 1 scores
        if cv:
            terms = {"theorem": "cv_plus", "construction": "cv+", "folds": min(FOLDS, n)}
            rows = f"{terms['folds']} folds, n = {n}"
        subject = f"MAPIE's {SCHEMES[self.scheme]}, {type(self.model).__name__}, {rows}"
        certify = TrainedCertifier(subject=subject, n=len(scores), **terms, **given.stated)
        loo = Conformalized(wrapped, options, float(self.alpha), float(np.median(y)), scores)
        return Fitted(loo, certify, {})


def complement(share: float) -> float:
    """1 − share in decimals, as MAPIE goes from a confidence level to its α."""
    return float(1 - Decimal(repr(float(share))))
