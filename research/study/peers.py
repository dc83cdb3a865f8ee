"""The models that studies put MAPIE around, and the schemes beside CV+."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from lazyknife.certificate import Claim
from lazyknife.compare import BOOSTING, PROCESS
from lazyknife.data.checks import check_choice
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.estimators.fit_input import Fitted, Given, Seeds
from lazyknife.estimators.mapie import FOLDS, Conformalized, MapieRegressor, complement
from lazyknife.records import Ends

from .grid import Setting

Method = Callable[[Setting], IntervalRegressor]
LEAF = 5  # least rows in a leaf, for few rows
CALIBRATION = 0.5  # share of the rows, as in ``SplitConformalRegressor``
RIDGES = np.logspace(-3, 6, 37)
MODELS: dict[str, Any] = {
    "ridge": make_pipeline(StandardScaler(), RidgeCV(RIDGES)),
    "forest": RandomForestRegressor(n_estimators=100),
    "boosting": HistGradientBoostingRegressor(),
    "gp": PROCESS,
    "extratrees": ExtraTreesRegressor(n_estimators=100),
    "boosting5": BOOSTING,
    "gradient": GradientBoostingRegressor(min_samples_leaf=LEAF),
}
SCHEMES = {
    "split": "split conformal",
    "quantile": "conformalised quantile regression",
    "normalised": "split conformal",
}
TRAINED = {"split": 1, "quantile": 3, "normalised": 2}  # of "quantile": both ends and the median


def seeded(model: str, seed: int) -> Any:
    """Return an unfitted model with this seed."""
    found = clone(MODELS[model])
    drawn = [name for name in found.get_params() if name.endswith("random_state")]
    return found.set_params(**dict.fromkeys(drawn, seed))


@dataclass(eq=False, repr=False)
class HeldOutRegressor(MapieRegressor):
    """MAPIE's schemes that calibrate on half of the rows.

    ``scheme`` is ``"split"``; ``"quantile"``, for models with a quantile loss and more than 2/α
    calibration rows: each end misses with probability κ(α/2)/(n + 1) at most, and twice that is at
    most the bound of split conformal, which the certificate states; or ``"normalised"``, errors
    divided by their predicted size. A quarter of the calibration rows, MAPIE's default, trains the
    model of the size, a forest with large leaves: with so few rows MAPIE's linear regression and
    boosting are far worse.
    """

    _: KW_ONLY
    scheme: str = "split"

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("scheme", self.scheme, SCHEMES)

    def _parts(self, n: int, seeds: Seeds) -> Any:
        """Rows to fit to, and rows to calibrate on."""
        return train_test_split(np.arange(n), test_size=CALIBRATION, random_state=seeds.rows)

    def _rows_apart(self, n: int, seeds: Seeds) -> Any:
        return self._parts(n, seeds)[0]

    def _rows_left(self, n: int) -> int:
        rows = math.ceil(CALIBRATION * n)
        return 3 * rows // 4 if self.scheme == "normalised" else rows

    def _wrap(self, seeds: Seeds) -> Any:
        """Put a class of ``mapie.regression`` around the model."""
        mapie, model, level = import_module("mapie.regression"), self._seeded(seeds), self.alpha
        if self.scheme == "quantile":
            quantiles = model.set_params(loss="quantile")
            return mapie.ConformalizedQuantileRegressor(quantiles, complement(level))
        score = "absolute"
        if self.scheme == "normalised":
            scores = import_module("mapie.conformity_scores")
            size = seeded("forest", seeds.base).set_params(min_samples_leaf=LEAF)
            score = scores.ResidualNormalisedScore(size, random_state=seeds.base)
        return mapie.SplitConformalRegressor(model, complement(level), score, prefit=False)

    def _fit(self, given: Given) -> Fitted:
        X, y, seeds = given.X.numpy(), given.y.numpy(), given.seeds
        wrapped, (learn, kept) = self._wrap(seeds), self._parts(len(y), seeds)
        before = np.random.get_state()  # noqa: NPY002, split conformal draws a number from it
        try:
            wrapped.fit(X[learn], y[learn]).conformalize(X[kept], y[kept])
        finally:
            np.random.set_state(before)  # noqa: NPY002
        scores = np.atleast_2d(wrapped.conformity_scores)[-1]  # of quantiles: the larger one
        scores = torch.from_numpy(scores[~np.isnan(scores)])
        rows = f"{len(scores)} calibration rows of {len(y)}"
        certify = Claim(
            subject=f"MAPIE's {SCHEMES[self.scheme]}, {type(self.model).__name__}, {rows}",
            theorem="split_conformal",
            construction="full",  # the rank of one among n + 1 scores
            n=len(scores),
            **given.stated,
        )
        loo = Conformalized(wrapped, {}, self.alpha, float(np.median(y)), scores)
        return Fitted(loo, certify, {})

    def _ends(self, X: Tensor, ranks: Any) -> Ends:
        # Split conformal raises even where infinite bounds are allowed. The rank is in MAPIE's own
        # floats: at a few levels one above n + 1 − κ, never below.
        n = len(self.loo_.residuals)
        if math.ceil((1 - complement(complement(self.loo_.alpha))) * (n + 1)) > n:
            whole = torch.full((len(X), 1), torch.inf, dtype=torch.float64)
            return self.loo_.point(X), -whole, whole
        return super()._ends(X, ranks)


def mapie(scheme: str, model: str) -> Method:
    """MAPIE's intervals, by ``"cv"`` or a key of ``SCHEMES``, around a key of ``MODELS``."""
    if scheme == "cv":
        return lambda setting: MapieRegressor(MODELS[model], alpha=setting.alpha)
    return lambda setting: HeldOutRegressor(MODELS[model], alpha=setting.alpha, scheme=scheme)


def models_trained(model: MapieRegressor) -> int:
    """Return how many models the fit trained."""
    if isinstance(model, HeldOutRegressor):
        return TRAINED[model.scheme]
    return min(FOLDS, model.n_samples_fit_) + 1
