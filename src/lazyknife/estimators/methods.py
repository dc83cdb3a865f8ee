"""The methods that ``compare_methods`` knows by name: functions from settings to an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..base import DPSGD, BaseMethod, Plain
from ..networks import Network
from .base import IntervalRegressor
from .baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
from .lazy import LazyJackknifeRegressor
from .mapie import MapieRegressor

LEAF = 5  # least rows in a leaf, for few rows


@dataclass(frozen=True)
class MethodSettings:
    """Settings of the methods; each method uses those that apply to it."""

    alpha: float = 0.1
    network: Network | None = None
    epochs: int = 10
    batch_size: int = 10
    epsilon: float = 0.01  # privacy of the DP-SGD bases, as delta
    delta: float = 1e-3


Base = Callable[[MethodSettings], BaseMethod]
Method = Callable[[MethodSettings], IntervalRegressor]


def trained(kind: Callable[..., IntervalRegressor], **own: Any) -> Method:
    """Real trainings of the network."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        names = ("alpha", "network", "epochs", "batch_size")
        return kind(**{name: getattr(settings, name) for name in names}, **own)

    return make


def plain(settings: MethodSettings) -> Plain:
    """Training on all rows."""
    return Plain(settings.epochs, settings.batch_size)


def private(settings: MethodSettings) -> DPSGD:
    """Private training on all rows."""
    return DPSGD(settings.epsilon, settings.delta, settings.epochs, settings.batch_size)


def lazy(base: Base | None = None, **own: Any) -> Method:
    """The library's defaults but for ``own``."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        start = None if base is None else base(settings)
        given = {"network": settings.network, "base": start} | own
        return LazyJackknifeRegressor(alpha=settings.alpha, device="cpu", **given)

    return make


def mapie(scheme: str, model: Any) -> Method:
    """MAPIE's intervals around a model of scikit-learn."""
    return lambda settings: MapieRegressor(model, scheme, alpha=settings.alpha)


class MaternProcess(GaussianProcessRegressor):  # type: ignore[misc]
    """A Gaussian process with one length scale for each feature, all chosen by likelihood."""

    def fit(self, X: Any, y: Any) -> Self:
        scales = Matern(np.ones(X.shape[1]), nu=1.5)
        self.kernel = ConstantKernel() * scales + WhiteKernel()
        with warnings.catch_warnings():
            # A feature that does not matter has a length scale at the upper bound.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)  # type: ignore[no-any-return]


# What MAPIE is put around. Models that depend on the scale of the features standardise them by the
# rows that they are fitted to; trees do not depend on it.
BOOSTING = HistGradientBoostingRegressor(min_samples_leaf=LEAF)
GRADIENT = GradientBoostingRegressor(min_samples_leaf=LEAF)
FOREST = RandomForestRegressor(n_estimators=100)
PROCESS = make_pipeline(StandardScaler(), MaternProcess(normalize_y=True))

PAPER: dict[str, Any] = {
    "ridge": 10.0,
    "readout": "network",
    "widths": "constant",
    "scaling": None,
}
DEFAULT: dict[str, Method] = {
    "naive": trained(JackknifeRegressor, construction="naive"),
    "jackknife+": trained(JackknifeRegressor),
    "cv+": trained(CVPlusRegressor),
    "split_conformal": trained(SplitConformalRegressor),
    "lazy_finetune": lazy(plain, **PAPER),
    "lazy_dp": lazy(private, **PAPER),
    "lazyknife_dp": lazy(private),
    "lazyknife": lazy(),
}
PEERS: dict[str, Method] = {
    "mapie_cv_boosting": mapie("cv", BOOSTING),
    "mapie_cv_forest": mapie("cv", FOREST),
    "mapie_cv_gp": mapie("cv", PROCESS),
    "mapie_split_boosting": mapie("split", BOOSTING),
    "mapie_cqr_boosting": mapie("quantile", GRADIENT),
}
METHODS = {**DEFAULT, **PEERS}

# Each method in a line.
ABOUT: dict[str, str] = {
    "naive": "One network; widths from its errors on its own training rows. No guarantee.",
    "jackknife+": "As many networks as rows, each trained without one row.",
    "cv+": "Ten networks, each trained without one tenth of the rows.",
    "split_conformal": "One network trained on half of the rows; widths from the other half.",
    "lazy_finetune": "The paper's lazy jackknife+ around an ordinary training. No guarantee.",
    "lazy_dp": "The paper's lazy jackknife+ around a private training.",
    "lazyknife_dp": "This library's models around a private training.",
    "lazyknife": "This library's default: every leave-one-out model chooses its wide network.",
    "mapie_cv_boosting": "MAPIE's CV+ with ten folds around gradient boosting.",
    "mapie_cv_forest": "MAPIE's CV+ with ten folds around a random forest.",
    "mapie_cv_gp": "MAPIE's CV+ with ten folds around a Gaussian process.",
    "mapie_split_boosting": "MAPIE's split conformal around gradient boosting.",
    "mapie_cqr_boosting": "MAPIE's conformalised quantile regression with gradient boosting.",
}


def usual_methods(n: int, alpha: float) -> tuple[str, ...]:
    """Methods to compare by default with n training rows: peers if MAPIE is installed.

    Conformalised quantile regression requires more than 2/alpha calibration rows, half of all.
    """
    if find_spec("mapie") is None:
        return tuple(DEFAULT)
    peers = [name for name in PEERS if "cqr" not in name or n // 2 > 2 / alpha + 1]
    return (*DEFAULT, *peers)
