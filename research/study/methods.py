"""The methods that a study can name, with the settings of the committed rows."""

from __future__ import annotations

from dataclasses import replace

from lazyknife.estimators import methods
from lazyknife.estimators.methods import Method
from lazyknife.networks import mlp

from .grid import Setting

NETWORK = mlp((64, 64))  # the paper's


def _papers(make: Method) -> Method:
    return lambda settings: make(replace(settings, network=NETWORK))


METHODS: dict[str, Method] = {
    **{name: _papers(make) for name, make in {**methods.TRAINED, **methods.PAPERS}.items()},
    # The rows were made when DP-SGD was the default base: their "lazyknife" is private.
    "lazyknife": methods.METHODS["lazyknife_dp"],
    "lazyknife_public": methods.METHODS["lazyknife"],
    **methods.VARIANTS,
    **methods.PEERS,
}


def effective(method: str, setting: Setting) -> Setting:
    """Return the setting with the values that a method really uses."""
    own = METHODS[method](setting).get_params(deep=False)
    names = ("ridge", "readout", "intercept")
    return replace(setting, **{name: own[name] for name in names if name in own})
