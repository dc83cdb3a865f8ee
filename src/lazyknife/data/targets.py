"""The scale on which models are fitted to y, and the way back to y.

A fixed, strictly monotone function of y changes no rank: models are fitted to z = forward(y), and z
lies in an interval exactly if y lies in its image. Ends are transformed back with rounding
outwards: where the rounded z of some y lies in the interval, y lies in what is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import sentences
from ..records import Side
from .checks import check_real, check_targets, listed
from .own_scaling import Compression
from .scaling import symlog

Values = NDArray[np.float64]
Function = Callable[[Values], Values]

ULPS = 8 * float(np.finfo(np.float64).eps)  # above the errors of numpy's functions
ROUND_TRIP = 1e-6  # relative error that inverse(function(y)) may have
DOUBLINGS = 64  # of a step by which ends are moved outwards


class Monotone(NamedTuple):
    """A monotone function that is defined on an open interval, and its inverse."""

    apply: Function
    inverse: Function
    low: float = -np.inf
    high: float = np.inf
    remedy: str = ""  # for targets outside of the interval

    @property
    def domain(self) -> str:
        """The values that y may have; nothing if it may have any."""
        most = "" if self.high == np.inf else f" and below {self.high:g}"
        return "" if self.low == -np.inf else f"above {self.low:g}{most}"


def _expit(z: Values) -> Values:  # scipy's is 0 below -709, where y is subnormal
    small = np.exp(-np.abs(z))
    result: Values = np.where(z < 0, small, 1.0) / (1 + small)
    return result


# Functions by name; all of them increase.
TARGETS: dict[str, Monotone] = {
    "log": Monotone(np.log, np.exp, 0.0, remedy="use 'log1p' if y can be 0"),
    "log1p": Monotone(np.log1p, np.expm1, -1.0, remedy="use 'symlog' if y can be negative"),
    "logit": Monotone(
        lambda y: np.log(y) - np.log1p(-y),
        _expit,
        *(0.0, 1.0),
        "use bounds=(0, 1) if y can be 0 or 1",
    ),
    "symlog": Monotone(symlog, lambda z: np.sign(z) * np.expm1(np.abs(z))),
}


@dataclass(frozen=True)
class Transform:
    """The scale of the models, and what the training targets show of it."""

    # Key of TARGETS, the user's function and inverse, or what models chose.
    given: str | tuple[Function, Function] | Compression
    size: float = 0.0  # the largest of a training target
    falling: bool = False  # whether the function decreases
    error: float = 0.0  # the largest of inverse(function(y)) on the training targets
    limits: tuple[float, float] = (0.0, 0.0)  # of the training targets on this scale

    @property
    def function(self) -> Monotone:
        if isinstance(self.given, str):
            return TARGETS[self.given]
        if isinstance(self.given, Compression):
            return Monotone(self.given.forward, self.given.inverse)
        return Monotone(*self.given)

    @property
    def known(self) -> bool:
        return isinstance(self.given, str | Compression)

    def check(self, y: Values) -> Transform:
        """Return the scale for these training targets; refuse those that it does not suit."""
        function, size = self.function, float(np.abs(y).max())
        if isinstance(self.given, str):
            outside = ~((function.low < y) & (y < function.high))
            rule = f"target_transform={self.given!r} requires y {function.domain}"
            check_targets(outside, y, rule, function.remedy)
            return replace(self, size=size)
        z = self.forward(y)
        with np.errstate(all="ignore"):
            errors = np.abs(self._inverse(z) - y)
        what = "of target_transform must"
        check_targets(~np.isfinite(z), y, f"the function {what} give finite numbers")
        wrong = ~(errors <= ROUND_TRIP * size)
        check_targets(wrong, y, f"the inverse {what} undo its function")
        steps = np.diff(z[np.unique(y, return_index=True)[1]])
        if not steps.any():
            raise ValueError(
                f"all y are {y[0]}, so that target_transform cannot be checked: use "
                "target_transform=None"
            )
        if not ((steps >= 0).all() or (steps <= 0).all()):
            raise ValueError(
                f"target_transform={self.given!r}: the function is not monotone on the values of "
                "y: give one that always rises or always falls"
            )
        limits = (float(z.min()), float(z.max()))
        return Transform(self.given, size, bool((steps < 0).any()), float(errors.max()), limits)

    def forward(self, y: Values) -> Values:
        """Targets on this scale; NaN where the function is not defined."""
        return _values("function", self.function.apply, y)

    def _inverse(self, z: Values) -> Values:
        return _values("inverse", self.function.inverse, z)

    def point(self, z: Values) -> Values:
        """Where nothing is known of the function, at the nearest training target."""
        return np.where(self._reached(z), self._inverse(z), self._inverse(z.clip(*self.limits)))

    def ends(self, lower: Values, upper: Values) -> tuple[Values, Values]:
        """Both ends, moved outwards by more than rounding may have moved them inwards."""
        if self.falling:
            lower, upper = upper, lower
        low, high = self.function.low, self.function.high
        return np.maximum(self._beyond(lower, -1), low), np.minimum(self._beyond(upper, 1), high)

    def _beyond(self, z: Values, side: int) -> Values:
        """Values of y whose function is beyond z, however the inverse rounds."""
        back, known = self._inverse(z), self._reached(z)
        sign = -side if self.falling else side
        step = side * ULPS * np.where(back == 0, self.size, np.abs(back))
        slack = ULPS * (np.abs(z) + self.known)  # logit subtracts: not relative
        inside = known & np.isfinite(back) & np.isfinite(z)
        with np.errstate(all="ignore"):
            for _ in range(DOUBLINGS):
                back = np.where(inside, back + step, back)
                inside &= sign * (self.forward(back) - z) <= slack  # undefined: there is no y
                if not inside.any():
                    break
                step = 2 * step
        return np.where(known & ~inside, back, side * np.inf)

    def _reached(self, z: Values) -> NDArray[np.bool_]:
        """Where the inverse is one: a function of the user may not reach every number.

        Numbers beyond the training targets must stay beyond them: 1/z changes its branch.
        """
        back = self._inverse(z)
        known: NDArray[np.bool_] = ~np.isnan(back)
        if self.known:
            return known
        again = self.forward(back)
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(z), max(map(abs, self.limits)))
            near = np.abs(again - z) <= ROUND_TRIP * size
        known &= (near & np.isfinite(z)) | (again == z)
        sign = -1 if self.falling else 1
        first, last = self._inverse(np.array(self.limits))
        slack = 2 * self.error + ULPS * max(abs(first), abs(last))
        low, high = sign * (back - first) <= slack, sign * (back - last) >= -slack
        return known & np.where(z < self.limits[0], low, np.where(z > self.limits[1], high, True))


def _values(role: str, function: Function, given: Values) -> Values:
    with np.errstate(all="ignore"):
        found = np.asarray(function(given), dtype=np.float64)
    if found.shape != given.shape:
        raise ValueError(
            f"the {role} of target_transform returns shape {found.shape} for shape {given.shape}: "
            "give functions that act on each number of an array"
        )
    return found


@dataclass(frozen=True)
class Target:
    """How y is fitted and given back: points and ends beyond the bounds are moved to them."""

    scale: Transform | None = None  # of the models; None is that of y
    bounds: tuple[float | None, float | None] = (None, None)  # of y, as the user gave them
    assumptions: tuple[str, ...] = ()
    chosen: bool = False  # whether models choose the scale

    @property
    def limits(self) -> tuple[float, float]:
        low, high = self.bounds
        return -np.inf if low is None else low, np.inf if high is None else high

    def check(self, y: Values) -> Target:
        """Return the target for these training rows; refuse values of y that it cannot have."""
        low, high = self.limits
        rule = f"bounds={self.bounds!r}"
        check_targets((y < low) | (high < y), y, rule, "give wider bounds or remove such rows")
        return replace(self, scale=self.scale and self.scale.check(y))

    def on(self, scale: Compression | None) -> Target:
        """With a scale that models chose."""
        return self if scale is None else replace(self, scale=Transform(scale, scale.unit))

    def forward(self, y: Values) -> Values:
        return y if self.scale is None else self.scale.forward(y)

    def side(self, side: Side) -> Side:
        """The side on the scale of the models: a falling function exchanges the ends."""
        if self.scale is None or not self.scale.falling or side == "both":
            return side
        return "lower" if side == "upper" else "upper"

    def point(self, z: Tensor) -> Tensor:
        if self.scale is not None:
            z = self._put(self.scale.point, z)[0]
        return z.clamp(*self.limits)

    def ends(self, lower: Tensor, upper: Tensor, nu: float = 0.0) -> tuple[Tensor, Tensor]:
        """Ends of intervals for y, widened by ν: on the given scale, or on that of y."""
        if not self.chosen:
            lower, upper = lower - nu, upper + nu
        if self.scale is not None:
            lower, upper = self._put(self.scale.ends, lower, upper)
        if self.chosen:
            lower, upper = lower - nu, upper + nu
        return lower.clamp(*self.limits), upper.clamp(*self.limits)

    @staticmethod
    def _put(function: Callable[..., Any], *parts: Tensor) -> tuple[Tensor, ...]:
        """Call a function of arrays with tensors."""
        with np.errstate(over="ignore"):
            found = function(*(part.double().cpu().numpy() for part in parts))
        found = found if isinstance(found, tuple) else (found,)
        return tuple(torch.as_tensor(one).to(parts[0].device) for one in found)


def find_target(target: Any, bounds: Any, auto: bool = False) -> Target:
    """Return the target for an estimator's settings; ``auto``: whether its models may choose."""
    limits = _check_bounds(bounds)
    stated = () if limits == (None, None) else (sentences.BOUNDED.format(bounds=limits),)
    chosen = auto and isinstance(target, str) and target == "auto"
    if target is None or chosen:
        return Target(None, limits, stated, chosen)
    if isinstance(target, str) and target in TARGETS:
        domain = sentences.domain(TARGETS[target].domain)
        return Target(Transform(target), limits, (*domain, *stated))
    if isinstance(target, (tuple, list)) and len(target) == 2 and all(map(callable, target)):
        return Target(Transform((target[0], target[1])), limits, (sentences.OWN_TARGET, *stated))
    error = ValueError if isinstance(target, str) else TypeError
    names = listed(["auto"] * auto + [*TARGETS])
    raise error(
        f"target_transform={target!r}: choose from None, {names}, or give a "
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
