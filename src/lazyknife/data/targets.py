"""The scale on which models are fitted to y, and the way back to y.

A fixed, strictly monotone function of y changes no rank: models are fitted to z = forward(y), and z
lies in an interval exactly if y lies in its image. Ends are transformed back with rounding
outwards: where the rounded z of some y lies in the interval, y lies in what is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import sentences
from .checks import check_real, listed
from .monotone import Named, Pair, Scale, Values, refuse_first
from .scaling import symlog


def _logit(y: Values) -> Values:
    return np.log(y) - np.log1p(-y)


def _expit(z: Values) -> Values:
    small = np.exp(-np.abs(z))
    result: Values = np.where(z < 0, small, 1.0) / (1 + small)
    return result


def _symexp(z: Values) -> Values:
    return np.sign(z) * np.expm1(np.abs(z))


TARGETS: dict[str, Named] = {
    "log": Named("log", np.log, np.exp, 0.0, np.inf, "use 'log1p' if y can be 0"),
    "log1p": Named("log1p", np.log1p, np.expm1, -1.0, np.inf, "use 'symlog' if y can be negative"),
    "logit": Named("logit", _logit, _expit, 0.0, 1.0, "use bounds=(0, 1) if y can be 0 or 1"),
    "symlog": Named("symlog", symlog, _symexp, -np.inf, np.inf),
}


@dataclass(frozen=True)
class Target:
    """How y is fitted and given back.

    Attributes
    ----------
    scale
        The scale of the models; None is that of y.
    bounds
        Limits of y, as the user gave them: points and ends beyond them are moved to them.

    """

    scale: Scale | None = None
    bounds: tuple[float | None, float | None] = (None, None)
    assumptions: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[float, float]:
        low, high = self.bounds
        return -np.inf if low is None else low, np.inf if high is None else high

    def check(self, y: Values) -> Target:
        """Return the target for these training rows; refuse values of y that it cannot have."""
        low, high = self.limits
        rule = f"bounds={self.bounds!r}"
        refuse_first((y < low) | (high < y), y, rule, "give wider bounds or remove such rows")
        return Target(self.scale and self.scale.check(y), self.bounds, self.assumptions)

    def forward(self, y: Values) -> Values:
        """Targets as the models are fitted to them."""
        return y if self.scale is None else np.asarray(self.scale.apply(y), dtype=np.float64)

    def point(self, z: Tensor) -> Tensor:
        """Predictions of y."""
        if self.scale is not None:
            z = self._put(self.scale.point, z)[0]
        return z.clamp(*self.limits)

    def ends(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of intervals for y."""
        if self.scale is not None:
            lower, upper = self._put(self.scale.ends, lower, upper)
        return lower.clamp(*self.limits), upper.clamp(*self.limits)

    @staticmethod
    def _put(function: Callable[..., Any], *parts: Tensor) -> tuple[Tensor, ...]:
        """Call a function of arrays with tensors."""
        with np.errstate(over="ignore"):
            found = function(*(part.double().cpu().numpy() for part in parts))
        found = found if isinstance(found, tuple) else (found,)
        return tuple(torch.as_tensor(one).to(parts[0].device) for one in found)


def find_target(target: Any, bounds: Any) -> Target:
    """Return the target for an estimator's settings."""
    limits = _check_bounds(bounds)
    stated = () if limits == (None, None) else (sentences.BOUNDED.format(bounds=limits),)
    if target is None:
        return Target(None, limits, stated)
    if isinstance(target, str) and target in TARGETS:
        scale = TARGETS[target]
        return Target(scale, limits, (*sentences.domain(scale.domain), *stated))
    if isinstance(target, (tuple, list)) and len(target) == 2 and all(map(callable, target)):
        return Target(Pair(*target), limits, (sentences.OWN_TARGET, *stated))
    error = ValueError if isinstance(target, str) else TypeError
    raise error(
        f"target={target!r}: choose from None, {listed(TARGETS)}, or give a pair (function, "
        "inverse) of monotone functions of arrays"
    )


def _check_bounds(bounds: Any) -> tuple[float | None, float | None]:
    if bounds is None:
        return None, None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"bounds={bounds!r}: give a pair such as (0, None), or None")
    low, high = (None if end is None else check_real("bounds", end) for end in bounds)
    if low is not None and high is not None and not low < high:
        raise ValueError(f"bounds={bounds!r}: give a lower end below the upper one")
    return low, high
