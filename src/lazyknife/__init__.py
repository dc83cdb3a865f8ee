"""lazyknife: prediction intervals for neural networks with a coverage guarantee.

Public names are loaded when first used, so that the engine (``lazyknife.tangent``,
``lazyknife.loo``, ``lazyknife.intervals``) imports with numpy and torch alone.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .audit import StabilityAudit, audit_stability
    from .base import DPSGD, BaseMethod, Perturbed, Plain, Pretrained, Public, Split
    from .baselines import CVPlusRegressor, JackknifeRegressor, SplitConformalRegressor
    from .certificate import Certificate, Plan, certify, plan
    from .estimators import DPLazyPI, LazyJackknifeRegressor
    from .losses import Huber, Logistic, Poisson, Squared
    from .metrics import coverage, coverage_by_bin, interval_score, mean_width
    from .networks import mlp
    from .records import Intervals, PrivacyCurve
    from .scaling import symlog
    from .tangent import Sketch

_HOMES = {
    "audit": ("StabilityAudit", "audit_stability"),
    "base": ("DPSGD", "BaseMethod", "Perturbed", "Plain", "Pretrained", "Public", "Split"),
    "baselines": ("CVPlusRegressor", "JackknifeRegressor", "SplitConformalRegressor"),
    "certificate": ("Certificate", "Plan", "certify", "plan"),
    "estimators": ("DPLazyPI", "LazyJackknifeRegressor"),
    "losses": ("Huber", "Logistic", "Poisson", "Squared"),
    "metrics": ("coverage", "coverage_by_bin", "interval_score", "mean_width"),
    "networks": ("mlp",),
    "records": ("Intervals", "PrivacyCurve"),
    "scaling": ("symlog",),
    "tangent": ("Sketch",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DPSGD",
    "BaseMethod",
    "CVPlusRegressor",
    "Certificate",
    "DPLazyPI",
    "Huber",
    "Intervals",
    "JackknifeRegressor",
    "LazyJackknifeRegressor",
    "Logistic",
    "Perturbed",
    "Plain",
    "Plan",
    "Poisson",
    "Pretrained",
    "PrivacyCurve",
    "Public",
    "Sketch",
    "Split",
    "SplitConformalRegressor",
    "Squared",
    "StabilityAudit",
    "audit_stability",
    "certify",
    "coverage",
    "coverage_by_bin",
    "interval_score",
    "mean_width",
    "mlp",
    "plan",
    "symlog",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version("lazyknife")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lazyknife' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
