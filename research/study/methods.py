"""The methods that a study can name, with the settings of the committed rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from lazyknife import JackknifeRegressor, LazyJackknifeRegressor, Split
from lazyknife.estimators import methods
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.estimators.methods import Method, lazy
from lazyknife.networks import mlp
from lazyknife.records import Array

from .functions import FitPredict, FunctionRegressor
from .grid import Setting
from .libraries import LIBRARIES
from .peers import mapie

NETWORK = mlp((64, 64))  # the paper's
# What the committed rows of choices, and the earlier default, were made with.
EARLIER: dict[str, Any] = {
    "network": mlp((64, 64), skip=True),
    **({"feature_weights": None} if hasattr(LazyJackknifeRegressor, "feature_weights") else {}),
}
# Settings that only some methods have, and their names in a study.
OWN = {"ridge": "ridge", "readout": "readout", "fit_intercept": "intercept"}


def _split(setting: Setting) -> Split:
    """Training on some of the rows."""
    return Split(training=methods.plain(setting))


PAPERS: dict[str, Method] = {
    **{name: methods.METHODS[name] for name in ("naive", "jackknife+", "cv+", "split_conformal")},
    "jackknife": methods.trained(JackknifeRegressor, construction="jackknife"),
    **{name: methods.METHODS[name] for name in ("lazy_finetune", "lazy_dp")},
    "lazy_public": lazy(**methods.PAPER),
    "lazy_split": lazy(_split, **methods.PAPER),
}


def _papers(method: Method) -> Method:
    """The paper's network, and the setting's ridge, readout and intercept."""

    def make(setting: Setting) -> IntervalRegressor:
        model = method(replace(setting, network=NETWORK))
        names = model.get_params(deep=False).keys() & OWN.keys()
        return model.set_params(**{name: getattr(setting, OWN[name]) for name in names})

    return make


class StandardisedRegressor(LazyJackknifeRegressor):
    """Standardises by rows outside training and test where there are any, else by the pool."""

    outside: Array | None = None

    def fit(self, X: Any, y: Any, X_pool: Any = None, X_unlabeled: Any = None) -> Self:
        if self.outside is None:
            return super().fit(X, y, X_pool=X_pool)
        return super().fit(X, y, X_unlabeled=self.outside)


def _before(setting: Setting) -> IntervalRegressor:
    """The library's earlier defaults; its rows were made with widths that followed the noise."""
    return StandardisedRegressor(scaling="standardize", alpha=setting.alpha, **EARLIER)


def _earlier(base: methods.Base | None = None, **own: Any) -> Method:
    return lazy(base, **EARLIER | own)


def _tables(**own: Any) -> Method:
    """The library's defaults but for ``own``."""
    return lambda setting: LazyJackknifeRegressor(alpha=setting.alpha, **own)


def _function(function: FitPredict) -> Any:
    return lambda setting: FunctionRegressor(function, alpha=setting.alpha)


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
DEFAULT, BEFORE = "lazyknife_tables", "lazyknife_before"
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
    "lazyknife": _earlier(methods.private),
    "lazyknife_public": _earlier(),
    **VARIANTS,
    **PEERS,
    DEFAULT: _tables(),
    BEFORE: _before,
    **STRONG,
    **CERTIFYING,
    **{name: _function(function) for name, function in LIBRARIES.items()},
}


def effective(method: str, setting: Setting) -> Setting:
    """Return the setting with the values that a method really uses."""
    own = METHODS[method](setting).get_params(deep=False)
    return replace(setting, **{field: own[name] for name, field in OWN.items() if name in own})
