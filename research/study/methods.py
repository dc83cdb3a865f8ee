"""The methods that a study can name, with the settings of the committed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lazyknife import (
    DPSGD,
    BaseMethod,
    CVPlusRegressor,
    DPLazyPI,
    JackknifeRegressor,
    LazyJackknifeRegressor,
    Plain,
    Split,
    SplitConformalRegressor,
)
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.networks import mlp

from .grid import Setting
from .libraries import LIBRARIES, NATIVE
from .own import FitPredict, FunctionRegressor
from .peers import Method, mapie

Base = Callable[[Setting], BaseMethod]

NETWORK = mlp((64, 64))  # the paper's
# What the committed rows of choices were made with.
EARLIER: dict[str, Any] = {
    "network": mlp((64, 64), skip=True),
    "feature_weights": None,
}
# Settings that only some methods have, and their names in a study.
OWN = {"ridge": "ridge", "readout": "readout", "fit_intercept": "intercept"}
PAPER: dict[str, Any] = {
    "ridge": 10.0,
    "readout": "network",
    "widths": "constant",
    "scaling": None,
}


def _trained(kind: Callable[..., IntervalRegressor], **own: Any) -> Method:
    """Real trainings of the network."""

    def make(setting: Setting) -> IntervalRegressor:
        names = ("alpha", "network", "epochs", "batch_size")
        return kind(**{name: getattr(setting, name) for name in names}, **own)

    return make


def _plain(setting: Setting) -> Plain:
    """Training on all rows."""
    return Plain(setting.epochs, setting.batch_size)


def _private(setting: Setting) -> DPSGD:
    """Private training on all rows."""
    return DPSGD(setting.epsilon, setting.delta, setting.epochs, setting.batch_size)


def _dp_lazy_pi(setting: Setting) -> IntervalRegressor:
    """The library's form of the paper's method."""
    names = ("alpha", "network", "epsilon", "delta", "epochs", "batch_size")
    return DPLazyPI(**{k: getattr(setting, k) for k in names}).set_params(device="cpu")


def _split(setting: Setting) -> Split:
    """Training on some of the rows."""
    return Split(training=_plain(setting))


def _lazy(base: Base | None = None, **own: Any) -> Method:
    """The library's defaults but for ``own``."""

    def make(setting: Setting) -> IntervalRegressor:
        start = None if base is None else base(setting)
        given = {"network": setting.network, "base": start} | own
        return LazyJackknifeRegressor(alpha=setting.alpha, device="cpu", **given)

    return make


PAPERS: dict[str, Method] = {
    "naive": _trained(JackknifeRegressor, construction="naive"),
    "jackknife+": _trained(JackknifeRegressor),
    "cv+": _trained(CVPlusRegressor),
    "split_conformal": _trained(SplitConformalRegressor),
    "jackknife": _trained(JackknifeRegressor, construction="jackknife"),
    "lazy_finetune": _lazy(_plain, **PAPER),
    "lazy_dp": _dp_lazy_pi,
    "lazy_public": _lazy(**PAPER),
    "lazy_split": _lazy(_split, **PAPER),
}


def _papers(method: Method) -> Method:
    """The paper's network, and the setting's ridge, readout and intercept."""

    def make(setting: Setting) -> IntervalRegressor:
        model = method(replace(setting, network=NETWORK))
        names = model.get_params(deep=False).keys() & OWN.keys()
        return model.set_params(**{name: getattr(setting, OWN[name]) for name in names})

    return make


def _earlier(base: Base | None = None, **own: Any) -> Method:
    return _lazy(base, **EARLIER | own)


def _tables(**own: Any) -> Method:
    """The library's defaults but for ``own``, on the device that it chooses."""
    return lambda setting: LazyJackknifeRegressor(alpha=setting.alpha, **own)


def _function(function: FitPredict) -> Method:
    return lambda setting: FunctionRegressor(function, setting.alpha)


VARIANTS: dict[str, Method] = {
    "lazyknife_leverage": _earlier(widths="leverage"),
    "lazyknife_absolute": _earlier(widths="constant"),
    "lazyknife_minmax": _earlier(construction="minmax"),
    "lazyknife_full": _earlier(construction="full"),
    "lazyknife_cv+": _earlier(construction="cv+"),
    "lazyknife_network": _earlier(readout="network"),
    "lazyknife_linear": _earlier(network=mlp(())),
    "lazyknife_no_skip": _earlier(network=mlp((64, 64))),
    "lazyknife_256": _earlier(network=mlp((256, 256), skip=True)),
    "lazyknife_starts": _earlier(n_starts=8),
    "lazyknife_starts_leverage": _earlier(n_starts=8, widths="leverage"),
}
PEERS: dict[str, Method] = {
    f"mapie_{scheme}_{model}": mapie(scheme, model)
    for scheme in ("cv", "split")
    for model in ("ridge", "forest", "boosting")
}
DEFAULT = "lazyknife_tables"
STRONG: dict[str, Method] = {
    f"mapie_{scheme}_{model}": mapie(scheme, model)
    for scheme, model in (
        *(("cv", model) for model in ("gp", "extratrees", "boosting5", "forest")),
        ("split", "boosting5"),
        *(("quantile", "gradient"), ("normalised", "gradient")),
    )
}
# The default, and the same with a guarantee of 1 − alpha; for every row of a comparison.
CERTIFYING: dict[str, Method] = {
    "lazyknife_tables_minmax": _tables(construction="minmax"),
    "lazyknife_tables_full": _tables(construction="full"),
}
METHODS: dict[str, Method] = {
    **{name: _papers(method) for name, method in PAPERS.items()},
    # The rows were made when DP-SGD was the default base: their "lazyknife" is private.
    "lazyknife": _earlier(_private),
    "lazyknife_public": _earlier(),
    **VARIANTS,
    **PEERS,
    DEFAULT: _tables(),
    **STRONG,
    **CERTIFYING,
    **{name: _function(function) for name, function in (LIBRARIES | NATIVE).items()},
}


def effective(method: str, setting: Setting) -> Setting:
    """Return the setting with the values that a method really uses."""
    own = METHODS[method](setting).get_params(deep=False)
    return replace(setting, **{field: own[name] for name, field in OWN.items() if name in own})
