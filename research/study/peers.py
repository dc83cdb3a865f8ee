"""Models that studies put MAPIE around, and its schemes that calibrate on half of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
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

from lazyknife.compare import BOOSTING, PROCESS
from lazyknife.estimators.fit_input import Seeds
from lazyknife.estimators.mapie import MapieRegressor, complement
from lazyknife.intervals import kappa
from lazyknife.records import Array

from .grid import Setting
from .own import FunctionRegressor

Method = Callable[[Setting], Any]  # an unfitted estimator
Three = tuple[Array, Array, Array]  # point, lower and upper ends, (m,) each
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


def seeded(model: str, seed: int) -> Any:
    """Return an unfitted model with this seed."""
    found = clone(MODELS[model])
    drawn = [name for name in found.get_params() if name.endswith("random_state")]
    return found.set_params(**dict.fromkeys(drawn, seed))


def held_out(
    X: Array, y: Array, X_new: Array, alpha: float, seed: int, *, scheme: str, model: str
) -> Three:
    """MAPIE's schemes that calibrate on half of the rows.

    ``"split"``; ``"quantile"``, for models with a quantile loss and more than 2/α calibration
    rows; ``"normalised"``, errors divided by their predicted size. A quarter of the calibration
    rows, MAPIE's default, trains the model of the size, a forest with large leaves: with so few
    rows MAPIE's linear regression and boosting are far worse.
    """
    mapie, seeds = import_module("mapie.regression"), Seeds.of(seed)
    learn, kept = train_test_split(
        np.arange(len(y)), test_size=CALIBRATION, random_state=seeds.rows
    )
    inner, level = seeded(model, seeds.base), complement(alpha)
    if scheme == "quantile":
        inner.set_params(loss="quantile")
        wrapped = mapie.ConformalizedQuantileRegressor(inner, level)
    else:
        score: Any = "absolute"
        if scheme == "normalised":
            size = seeded("forest", seeds.base).set_params(min_samples_leaf=LEAF)
            scores = import_module("mapie.conformity_scores")
            score = scores.ResidualNormalisedScore(size, random_state=seeds.base)
        wrapped = mapie.SplitConformalRegressor(inner, level, score, prefit=False)
    before = np.random.get_state()  # noqa: NPY002, split conformal draws a number from it
    try:
        wrapped.fit(X[learn], y[learn]).conformalize(X[kept], y[kept])
    finally:
        np.random.set_state(before)  # noqa: NPY002
    n = calibration_rows(len(y), scheme)
    if math.ceil((1 - complement(level)) * (n + 1)) > n:  # MAPIE raises for too few rows
        whole = np.full(len(X_new), np.inf)
        return wrapped.predict(X_new), -whole, whole
    point, ends = wrapped.predict_interval(X_new, allow_infinite_bounds=True)
    return point, ends[:, 0, 0], ends[:, 1, 0]


def calibration_rows(n: int, scheme: str) -> int:
    """How many of n rows calibrate."""
    rows = math.ceil(CALIBRATION * n)
    return rows - math.ceil(rows / 4) if scheme == "normalised" else rows


def held_out_coverage(alpha: float, n: int, *, scheme: str) -> float:
    """The bound of split conformal.

    Each end of quantile regression misses with probability κ(α/2)/(n + 1) at most, and twice that
    is at most the same.
    """
    rows = calibration_rows(n, scheme)
    return 1 - kappa(alpha, rows) / (rows + 1)


def mapie(scheme: str, model: str) -> Method:
    """MAPIE's intervals, by ``"cv"`` or a scheme of ``held_out``, around a key of ``MODELS``."""
    if scheme == "cv":
        return lambda setting: MapieRegressor(MODELS[model], alpha=setting.alpha)
    function = partial(held_out, scheme=scheme, model=model)
    guarantee = partial(held_out_coverage, scheme=scheme)
    return lambda setting: FunctionRegressor(function, setting.alpha, guarantee=guarantee)
