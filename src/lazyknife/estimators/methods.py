"""The methods that ``compare_methods`` knows by name: functions from settings to an estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..base import DPSGD, BaseMethod, Plain, Split
from ..networks import Network
from .baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
from .lazy import LazyJackknifeRegressor
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
    """The library's defaults but for ``own``; networks predict in float32, as trained ones do."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        start = None if base is None else base(settings)
        given = {"network": settings.network, "base": start} | own
        return LazyJackknifeRegressor(
            alpha=settings.alpha, device="cpu", precision="mixed", **given
        )

    return make


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
METHODS = {**DEFAULT, **OTHERS}
