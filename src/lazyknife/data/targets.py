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
from numpy.typing import NDArray
from torch import Tensor

from .. import sentences
from .checks import check_real, listed
from .scaling import symlog

Values = NDArray[np.float64]
Function = Callable[[Values], Values]

ULPS = 8 * float(np.finfo(np.float64).eps)  # above the errors of numpy's functions
ROUND_TRIP = 1e-6  # relative error that inverse(function(y)) may have
DOUBLINGS = 64  # of a step by which ends are moved outwards


@dataclass(frozen=True)
class Named:
    """An increasing function that is defined on an open interval.

    Attributes
    ----------
    name
        Its key in ``TARGETS``.
    apply, point
        The function and its inverse, whose limits at ±inf are ``low`` and ``high``.
    low, high
        The interval.
    otherwise
        What to do with targets outside of it.

    """

    name: str
    apply: Function
    point: Function
    low: float
    high: float
    otherwise: str = ""

    @property
    def domain(self) -> str:
        """The values that y may have; nothing if it may have any."""
        most = "" if self.high == np.inf else f" and below {self.high:g}"
        return "" if self.low == -np.inf else f"above {self.low:g}{most}"

    def check(self, y: Values) -> Named:
        outside = ~((self.low < y) & (y < self.high))
        required = f"target_transform={self.name!r} requires y {self.domain}"
        refuse_first(outside, y, required, self.otherwise)
        return self

    def ends(self, lower: Values, upper: Values) -> tuple[Values, Values]:
        down = self.point(lower - ULPS * (1 + np.abs(lower)))  # more than rounding changes in z
        up = self.point(upper + ULPS * (1 + np.abs(upper)))
        for _ in range(2):  # ulps: the inverse itself rounds
            down, up = np.nextafter(down, -np.inf), np.nextafter(up, np.inf)
        return np.maximum(down, self.low), np.minimum(up, self.high)


@dataclass(frozen=True)
class Pair:
    """A function of the user and its inverse.

    Attributes
    ----------
    apply, inverse
        The functions.
    falling
        Whether they decrease.
    error
        Largest error of ``inverse(apply(y))`` on the training targets.
    limits
        The smallest and the largest of the training targets on this scale.
    size
        The largest size of a training target.

    """

    apply: Function
    inverse: Function
    falling: bool = False
    error: float = 0.0
    limits: tuple[float, float] = (0.0, 0.0)
    size: float = 0.0

    def check(self, y: Values) -> Pair:
        with np.errstate(all="ignore"):
            z = _values("function", self.apply, y)
            errors = np.abs(_values("inverse", self.inverse, z) - y)
        refuse_first(~np.isfinite(z), y, "the function of target must give finite numbers")
        size = float(np.abs(y).max())
        wrong = ~(errors <= ROUND_TRIP * size)
        refuse_first(wrong, y, "the inverse of target must undo its function")
        steps = np.diff(z[np.unique(y, return_index=True)[1]])
        if not steps.any():
            raise ValueError(
                f"y has a single value, {y[0]}, which tells nothing of target_transform: use None"
            )
        if not ((steps >= 0).all() or (steps <= 0).all()):
            raise ValueError(
                f"target_transform={(self.apply, self.inverse)!r}: the function is not monotone on "
                "the values of y: give one that always rises or always falls"
            )
        falling, limits = bool((steps < 0).any()), (float(z.min()), float(z.max()))
        return Pair(self.apply, self.inverse, falling, float(errors.max()), limits, size)

    def point(self, z: Values) -> Values:
        """Where nothing is known of the function, at the nearest training target."""
        back, known = self._back(z)
        return np.where(known, back, self._back(z.clip(*self.limits))[0])

    def ends(self, lower: Values, upper: Values) -> tuple[Values, Values]:
        if self.falling:
            lower, upper = upper, lower
        return self._beyond(lower, -1), self._beyond(upper, 1)

    def _beyond(self, z: Values, side: int) -> Values:
        """Values of y whose function is beyond z, however the inverse rounds."""
        back, known = self._back(z)
        sign = -side if self.falling else side
        step = side * ULPS * np.where(back == 0, self.size, np.abs(back))
        inside = known & np.isfinite(back) & np.isfinite(z)
        with np.errstate(all="ignore"):
            for _ in range(DOUBLINGS):
                back = np.where(inside, back + step, back)
                beyond = sign * (_values("function", self.apply, back) - z)
                inside &= beyond <= ULPS * np.abs(z)  # where it is undefined there is no y
                if not inside.any():
                    break
                step = 2 * step
        return np.where(known & ~inside, back, side * np.inf)

    def _back(self, z: Values) -> tuple[Values, NDArray[np.bool_]]:
        """The inverse, and where it is one: the function may not reach every number.

        Numbers beyond the training targets must stay beyond them: 1/z changes its branch.
        """
        size = max(map(abs, self.limits))
        with np.errstate(all="ignore"):
            back = _values("inverse", self.inverse, z)
            again = _values("function", self.apply, back)
            near = np.abs(again - z) <= ROUND_TRIP * np.maximum(np.abs(z), size)
        found = ((near & np.isfinite(z)) | (again == z)) & ~np.isnan(back)
        sign = -1 if self.falling else 1
        first, last = _values("inverse", self.inverse, np.array(self.limits))
        slack = 2 * self.error + ULPS * max(abs(first), abs(last))
        low, high = sign * (back - first) <= slack, sign * (back - last) >= -slack
        in_order = np.where(z < self.limits[0], low, np.where(z > self.limits[1], high, True))
        return back, found & in_order


def _values(role: str, function: Function, given: Values) -> Values:
    """Call a function of the user; refuse results of another shape."""
    found = np.asarray(function(given), dtype=np.float64)
    if found.shape != given.shape:
        raise ValueError(
            f"the {role} of target returns shape {found.shape} for shape {given.shape}: give "
            "functions that act on each number of an array"
        )
    return found


def refuse_first(bad: NDArray[np.bool_], y: Values, rule: str, otherwise: str = "") -> None:
    """Refuse targets, with the first bad value and what to do."""
    if bad.any():
        row = int(bad.argmax())
        advice = f": {otherwise}" if otherwise else ""
        raise ValueError(f"{rule}, but y has {float(y[row])!r} in row {row}{advice}")


def _logit(y: Values) -> Values:
    return np.log(y) - np.log1p(-y)


def _expit(z: Values) -> Values:  # scipy's is 0 below -709, where y is subnormal
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

    scale: Named | Pair | None = None
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
        f"target_transform={target!r}: choose from None, {listed(TARGETS)}, or give a "
        "pair (function, inverse) of monotone functions of arrays"
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
