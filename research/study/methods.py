"""The methods that a study can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lazyknife.base import DPSGD, BaseMethod, Plain, Public, Split
from lazyknife.estimators.baselines import (
    CVPlusRegressor,
    JackknifeRegressor,
    SplitConformalRegressor,
)
from lazyknife.estimators.lazy import LazyJackknifeRegressor
from lazyknife.estimators.shared import IntervalRegressor
from lazyknife.networks import mlp

from .grid import Setting
from .peers import MapieCVRegressor, MapieSplitRegressor

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
    """Return a maker of the paper's lazy jackknife around one kind of base."""

    def make(setting: Setting) -> IntervalRegressor:
        return LazyJackknifeRegressor(
            network=mlp((64, 64)),
            base=base(setting),
            ridge=setting.ridge,
            readout=setting.readout,
            widths="constant",
            intercept=setting.intercept,
            alpha=setting.alpha,
            device="cpu",
            precision="mixed",  # networks predict in float32, as those of the other methods do
        )

    return make


# The library's own choices, whatever the setting says: its defaults, and one thing changed.
LIBRARY: dict[str, Any] = {"ridge": "auto", "readout": "tangent", "intercept": True}
CHANGES: dict[str, dict[str, Any]] = {
    "lazyknife_public": {},
    "lazyknife_leverage": {"widths": "leverage"},
    "lazyknife_absolute": {"widths": "constant"},
    "lazyknife_minmax": {"construction": "minmax"},
    "lazyknife_full": {"construction": "full"},
    "lazyknife_cv+": {"construction": "cv+"},
    "lazyknife_network": {"readout": "network"},
    "lazyknife_linear": {"network": mlp(())},
    "lazyknife_no_skip": {"network": mlp((64, 64))},
    "lazyknife_256": {"network": mlp((256, 256), skip=True)},
    "lazyknife_starts": {"starts": 8},
    "lazyknife_starts_leverage": {"starts": 8, "widths": "leverage"},
}


def _changed(base: Callable[[Setting], BaseMethod], changes: dict[str, Any]) -> Maker:
    """Return a maker of the estimator with the class's defaults, but for these changes."""

    def make(setting: Setting) -> IntervalRegressor:
        model = LazyJackknifeRegressor(
            base=base(setting), alpha=setting.alpha, device="cpu", precision="mixed"
        )
        changed: IntervalRegressor = model.set_params(**changes)
        return changed

    return make


def effective(method: str, setting: Setting) -> Setting:
    """Return what a method really runs with."""
    if not method.startswith("lazyknife"):
        return setting
    readout = CHANGES.get(method, {}).get("readout", LIBRARY["readout"])
    return replace(setting, **LIBRARY | {"readout": readout})


def _private(setting: Setting) -> DPSGD:
    return DPSGD(setting.epsilon, setting.delta, setting.epochs, setting.batch_size)


def _plain(setting: Setting) -> Plain:
    return Plain(setting.epochs, setting.batch_size)


def _public(setting: Setting) -> Public:
    return Public()


METHODS: dict[str, Maker] = {
    "naive": _trained(JackknifeRegressor, construction="naive"),
    "jackknife": _trained(JackknifeRegressor, construction="jackknife"),
    "jackknife+": _trained(JackknifeRegressor),
    "cv+": _trained(CVPlusRegressor),
    "split_conformal": _trained(SplitConformalRegressor),
    "lazy_finetune": _lazy(_plain),
    "lazy_dp": _lazy(_private),
    "lazy_public": _lazy(_public),
    "lazy_split": _lazy(lambda setting: Split(training=_plain(setting))),
    "lazyknife": _changed(_private, {}),
    **{name: _changed(_public, changes) for name, changes in CHANGES.items()},
    "mapie_cv_ridge": lambda setting: MapieCVRegressor("ridge", alpha=setting.alpha),
    "mapie_cv_forest": lambda setting: MapieCVRegressor("forest", alpha=setting.alpha),
    "mapie_cv_boosting": lambda setting: MapieCVRegressor("boosting", alpha=setting.alpha),
    "mapie_split_ridge": lambda setting: MapieSplitRegressor("ridge", alpha=setting.alpha),
    "mapie_split_forest": lambda setting: MapieSplitRegressor("forest", alpha=setting.alpha),
    "mapie_split_boosting": lambda setting: MapieSplitRegressor("boosting", alpha=setting.alpha),
}
