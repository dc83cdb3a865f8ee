"""The models that studies put MAPIE around, and MAPIE's residual-normalised score."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lazyknife.estimators import methods
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import FOLDS, MapieRegressor, complement
from lazyknife.estimators.methods import LEAF, Method

RIDGES = np.logspace(-3, 6, 37)
MODELS: dict[str, Any] = {
    "ridge": make_pipeline(StandardScaler(), RidgeCV(RIDGES)),
    "forest": methods.FOREST,
    "boosting": HistGradientBoostingRegressor(),
    "gp": methods.PROCESS,
    "extratrees": ExtraTreesRegressor(n_estimators=100),
    "boosting5": methods.BOOSTING,
    "gradient": methods.GRADIENT,
}
TRAINED = {"split": 1, "quantile": 3, "normalised": 2}  # of "quantile": both ends and the median


def seeded(model: str, seed: int) -> Any:
    """Return an unfitted model with this seed."""
    found = clone(MODELS[model])
    drawn = [name for name in found.get_params() if name.endswith("random_state")]
    return found.set_params(**dict.fromkeys(drawn, seed))


class NormalisedRegressor(MapieRegressor):
    """Split conformal with errors divided by their predicted size.

    A quarter of the calibration rows, MAPIE's default, trains the model of the size, a forest with
    large leaves: with so few rows MAPIE's linear regression and boosting are far worse.
    """

    def _rows_left(self, n: int) -> int:
        return 3 * super()._rows_left(n) // 4

    def _wrap(self, mapie: Any, model: Any, n: int, seeds: Seeds) -> Any:
        scores = import_module("mapie.conformity_scores")
        size = seeded("forest", seeds.base).set_params(min_samples_leaf=LEAF)
        score = scores.ResidualNormalisedScore(size, random_state=seeds.base)
        return mapie.SplitConformalRegressor(model, complement(self.alpha), score, prefit=False)


def mapie(scheme: str, model: str) -> Method:
    """MAPIE's intervals by a scheme of its adapter, or "normalised", around a key of ``MODELS``."""
    if scheme == "normalised":
        return lambda setting: NormalisedRegressor(MODELS[model], "split", alpha=setting.alpha)
    return methods.mapie(scheme, MODELS[model])


def models_trained(model: MapieRegressor) -> int:
    """Return how many models the fit trained."""
    if model.scheme == "cv":
        return min(FOLDS, model.n_samples_fit_) + 1
    return TRAINED["normalised" if isinstance(model, NormalisedRegressor) else model.scheme]
