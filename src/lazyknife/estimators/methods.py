"""The methods that ``compare_methods`` knows by name: functions from settings to an estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..base import DPSGD, BaseMethod, Plain, Split
from ..networks import Network
from .baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
from .lazy import LazyJackknifeRegressor
from .mapie import SCHEMES, is_installed
from .mapie_adaptive import ADAPTIVE
from .shared import IntervalRegressor


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


def split(settings: MethodSettings) -> Split:
    """Training on some of the rows."""
    return Split(training=plain(settings))


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


def mapie(scheme: str, model: str) -> Method:
    """MAPIE's intervals around a model of scikit-learn."""
    kind = {**SCHEMES, **ADAPTIVE}[scheme]
    return lambda settings: kind(model, alpha=settings.alpha)


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
OTHERS: dict[str, Method] = {
    "jackknife": trained(JackknifeRegressor, construction="jackknife"),
    "lazy_public": lazy(**PAPER),
    "lazy_split": lazy(split, **PAPER),
    "lazyknife_split": lazy(split),
    "lazyknife_leverage": lazy(widths="leverage"),
    "lazyknife_constant": lazy(widths="constant"),
    "lazyknife_minmax": lazy(construction="minmax"),
    "lazyknife_full": lazy(construction="full"),
    "lazyknife_cv+": lazy(construction="cv+"),
}
PEERS: dict[str, Method] = {
    "mapie_cv_boosting": mapie("cv", "boosting5"),
    "mapie_cv_forest": mapie("cv", "forest"),
    "mapie_cv_gp": mapie("cv", "gp"),
    "mapie_split_boosting": mapie("split", "boosting5"),
    "mapie_cqr_boosting": mapie("quantile", "gradient"),
}
METHODS = {**DEFAULT, **OTHERS, **PEERS}

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
    "jackknife": "Like jackknife+, but centred at one network. No guarantee.",
    "lazy_public": "The paper's lazy jackknife+ around untrained weights.",
    "lazy_split": "The paper's lazy jackknife+ around a training on other rows.",
    "lazyknife_split": "This library's models around a training on other rows.",
    "lazyknife_leverage": "The default with widths by the distance from other rows.",
    "lazyknife_constant": "The default with widths that are nearly the same for all rows.",
    "lazyknife_minmax": "The default with wider intervals that guarantee 1 − alpha.",
    "lazyknife_full": "The default as full conformal prediction, which guarantees 1 − alpha.",
    "lazyknife_cv+": "The default with models that leave out a tenth of the rows each.",
    "mapie_cv_boosting": "MAPIE's CV+ with ten folds around gradient boosting.",
    "mapie_cv_forest": "MAPIE's CV+ with ten folds around a random forest.",
    "mapie_cv_gp": "MAPIE's CV+ with ten folds around a Gaussian process.",
    "mapie_split_boosting": "MAPIE's split conformal around gradient boosting.",
    "mapie_cqr_boosting": "MAPIE's conformalised quantile regression with gradient boosting.",
}


def usual_methods(n: int, alpha: float) -> tuple[str, ...]:
    """Methods to compare by default with n training rows: peers if they are installed.

    Conformalised quantile regression requires more than 2/alpha calibration rows, half of all.
    """
    peers = [name for name in PEERS if "cqr" not in name or n // 2 > 2 / alpha + 1]
    return (*DEFAULT, *(peers if is_installed() else ()))
