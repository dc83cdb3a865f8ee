"""The methods that ``compare_methods`` knows by name.

A method is a function from settings to an unfitted estimator. The estimators are imported when one
is made, so that the command's help can list the names without loading torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..base import DPSGD, BaseMethod, Plain, Public, Split
    from ..networks import Network
    from .shared import IntervalRegressor


@dataclass(frozen=True)
class MethodSettings:
    """Settings of the methods; each method uses those that apply to it.

    Attributes
    ----------
    alpha
        Level of the intervals.
    network
        Network of all methods but MAPIE's; None is ``mlp((64, 64), skip=True)``.
    epochs, batch_size
        Of every training, private or not.
    epsilon, delta
        Privacy of the DP-SGD bases; ``inf`` adds no noise.
    ridge, readout
        Of the ``lazy_`` methods.
    intercept
        Whether the trained and the ``lazy_`` methods fit one.

    """

    alpha: float = 0.1
    network: Network | None = None
    epochs: int = 10
    batch_size: int = 10
    epsilon: float = 0.01
    delta: float = 1e-3
    ridge: float | Literal["auto"] = 10.0
    readout: str = "network"
    intercept: bool = True


Base = Callable[[MethodSettings], "BaseMethod"]
Method = Callable[[MethodSettings], "IntervalRegressor"]


def _network(settings: MethodSettings) -> Network:
    from ..networks import mlp

    return mlp((64, 64), skip=True) if settings.network is None else settings.network


def _trained(kind: str, **fixed: Any) -> Method:
    """A class of ``estimators.baselines`` by its name: real trainings of the network."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        from . import baselines

        model: IntervalRegressor = getattr(baselines, kind)(
            network=_network(settings),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            intercept=settings.intercept,
            alpha=settings.alpha,
            **fixed,
        )
        return model

    return make


def _lazy(base: Base, settings: MethodSettings, **own: Any) -> IntervalRegressor:
    """The lazy jackknife on a processor; networks predict in float32, as the trained ones do."""
    from .lazy import LazyJackknifeRegressor

    model = LazyJackknifeRegressor(
        network=_network(settings),
        base=base(settings),
        alpha=settings.alpha,
        device="cpu",
        precision="mixed",
    )
    changed: IntervalRegressor = model.set_params(**own)
    return changed


def _papers(base: Base) -> Method:
    """The paper's lazy jackknife around one kind of base."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        return _lazy(
            base,
            settings,
            ridge=settings.ridge,
            readout=settings.readout,
            widths="constant",
            intercept=settings.intercept,
        )

    return make


def _private(settings: MethodSettings) -> DPSGD:
    from ..base import DPSGD

    return DPSGD(settings.epsilon, settings.delta, settings.epochs, settings.batch_size)


def _plain(settings: MethodSettings) -> Plain:
    from ..base import Plain

    return Plain(settings.epochs, settings.batch_size)


def _split(settings: MethodSettings) -> Split:
    from ..base import Split

    return Split(training=_plain(settings))


def _public(settings: MethodSettings) -> Public:
    from ..base import Public

    return Public()


def _changed(hidden: tuple[int, ...] | None = None, skip: bool = False, **changes: Any) -> Method:
    """The library's defaults but for these changes; ``hidden`` and ``skip`` make a network."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        from ..networks import mlp

        network = {} if hidden is None else {"network": mlp(hidden, skip=skip)}
        return _lazy(_public, settings, **network, **changes)

    return make


def _mapie(scheme: str, model: str) -> Method:
    """MAPIE's scheme around one of scikit-learn's models."""

    def make(settings: MethodSettings) -> IntervalRegressor:
        from .peers import SCHEMES

        return SCHEMES[scheme](model, alpha=settings.alpha)

    return make


TRAINED: dict[str, Method] = {
    "naive": _trained("JackknifeRegressor", construction="naive"),
    "jackknife": _trained("JackknifeRegressor", construction="jackknife"),
    "jackknife+": _trained("JackknifeRegressor"),
    "cv+": _trained("CVPlusRegressor"),
    "split_conformal": _trained("SplitConformalRegressor"),
}
PAPERS: dict[str, Method] = {
    "lazy_finetune": _papers(_plain),
    "lazy_dp": _papers(_private),
    "lazy_public": _papers(_public),
    "lazy_split": _papers(_split),
}
LIBRARY: dict[str, Method] = {"lazyknife": _changed(), "lazyknife_dp": partial(_lazy, _private)}
VARIANTS: dict[str, Method] = {
    "lazyknife_leverage": _changed(widths="leverage"),
    "lazyknife_absolute": _changed(widths="constant"),
    "lazyknife_minmax": _changed(construction="minmax"),
    "lazyknife_full": _changed(construction="full"),
    "lazyknife_cv+": _changed(construction="cv+"),
    "lazyknife_network": _changed(readout="network"),
    "lazyknife_linear": _changed(hidden=()),
    "lazyknife_no_skip": _changed(hidden=(64, 64)),
    "lazyknife_256": _changed(hidden=(256, 256), skip=True),
    "lazyknife_starts": _changed(starts=8),
    "lazyknife_starts_leverage": _changed(starts=8, widths="leverage"),
}
PEERS: dict[str, Method] = {
    f"mapie_{scheme}_{model}": _mapie(scheme, model)
    for scheme in ("cv", "split")
    for model in ("ridge", "forest", "boosting")
}
METHODS: dict[str, Method] = {**TRAINED, **PAPERS, **LIBRARY, **VARIANTS, **PEERS}
DEFAULT = (
    *("naive", "jackknife+", "cv+", "split_conformal"),
    *("lazy_finetune", "lazy_dp", "lazyknife_dp", "lazyknife"),
)
