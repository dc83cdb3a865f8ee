"""The regressors that MAPIE is put around: from a seed to an unfitted one.

Models that depend on the scale of the features standardise them by the rows that they are fitted
to; trees do not depend on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

RIDGES = np.logspace(-3, 6, 37)
LEAF = 5  # least rows in a leaf, for few rows


class MaternProcess(GaussianProcessRegressor):  # type: ignore[misc]
    """A Gaussian process with one length scale for each feature, all chosen by likelihood."""

    def fit(self, X: Any, y: Any) -> Self:
        scales = Matern(np.ones(X.shape[1]), nu=1.5)
        self.kernel = ConstantKernel() * scales + WhiteKernel()
        with warnings.catch_warnings():
            # A feature that does not matter has a length scale at the upper bound.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[int], Any]] = {
    "ridge": lambda seed: make_pipeline(StandardScaler(), RidgeCV(RIDGES)),
    "forest": lambda seed: RandomForestRegressor(n_estimators=100, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "gp": lambda seed: make_pipeline(
        StandardScaler(), MaternProcess(normalize_y=True, random_state=seed)
    ),
    "extratrees": lambda seed: ExtraTreesRegressor(n_estimators=100, random_state=seed),
    "boosting5": lambda seed: HistGradientBoostingRegressor(
        min_samples_leaf=LEAF, random_state=seed
    ),
    "gradient": lambda seed: GradientBoostingRegressor(min_samples_leaf=LEAF, random_state=seed),
}
