"""The methods that a study can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..base import DPSGD, BaseMethod, Plain, Public, Split
from ..baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
from ..estimators import LazyJackknifeRegressor
from ..regressor import IntervalRegressor
from .grid import Setting

Maker = Callable[[Setting], IntervalRegressor]


def _trained(kind: Callable[..., IntervalRegressor], **fixed: Any) -> Maker:
    """Return a maker of a baseline around the same network and training as all others."""

    def make(setting: Setting) -> IntervalRegressor:
        return kind(
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            intercept=setting.intercept,
            alpha=setting.alpha,
            **fixed,
        )

    return make


def _lazy(base: Callable[[Setting], BaseMethod]) -> Maker:
    """Return a maker of the lazy jackknife around one kind of base."""

    def make(setting: Setting) -> IntervalRegressor:
        return LazyJackknifeRegressor(
            base=base(setting),
            ridge=setting.ridge,
            readout=setting.readout,
            intercept=setting.intercept,
            alpha=setting.alpha,
            device="cpu",
            precision="mixed",  # networks predict in float32, as those of the other methods do
        )

    return make


# The library's own choices, whatever the setting says.
LIBRARY: dict[str, Any] = {"ridge": "auto", "readout": "tangent", "intercept": True}


def effective(method: str, setting: Setting) -> Setting:
    """Return what a method really runs with."""
    return replace(setting, **LIBRARY) if method.startswith("lazyknife") else setting


def _private(setting: Setting) -> DPSGD:
    return DPSGD(setting.epsilon, setting.delta, setting.epochs, setting.batch_size)


def _plain(setting: Setting) -> Plain:
    return Plain(setting.epochs, setting.batch_size)


METHODS: dict[str, Maker] = {
    "naive": _trained(JackknifeRegressor, construction="naive"),
    "jackknife": _trained(JackknifeRegressor, construction="jackknife"),
    "jackknife+": _trained(JackknifeRegressor),
    "cv+": _trained(CVPlusRegressor),
    "split_conformal": _trained(SplitConformalRegressor),
    "lazy_finetune": _lazy(_plain),
    "lazy_dp": _lazy(_private),
    "lazy_public": _lazy(lambda setting: Public()),
    "lazy_split": _lazy(lambda setting: Split(training=_plain(setting))),
    "lazyknife": lambda setting: _lazy(_private)(effective("lazyknife", setting)),
    "lazyknife_public": lambda setting: METHODS["lazy_public"](effective("lazyknife", setting)),
}
