"""Validation at the edge: each check names the argument, the value and the way out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import one_line

LARGEST_COUNT = 2**53  # beyond it not every whole number is a float
LEAST_LEVEL = 1e-15  # finite intervals would need more rows than anybody has


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the choices."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name}={one_line(repr(value))}: choose from {listed(options)}")


def listed(choices: Iterable[str]) -> str:
    """Return ``'a', 'b'``."""
    return ", ".join(map(repr, choices))


def check_real(name: str, value: Any) -> float:
    """Return the value as a float; refuse what is not a finite number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}={one_line(repr(value))}: give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name}={value!r}: give a finite number")
    return number


def check_between(name: str, value: Any, limits: tuple[float, float], reason: str) -> None:
    """Refuse a number outside of closed limits, with the reason for them."""
    least, most = limits
    if not least <= check_real(name, value) <= most:
        raise ValueError(f"{name}={value!r}: give a number from {least:g} to {most:g}. {reason}")


def _number_check(rule: str, holds: Callable[[float], bool]) -> Callable[[str, Any], float]:
    """Return a check of numbers, which returns them as floats."""

    def check(name: str, value: Any) -> float:
        number = check_real(name, value)
        if not holds(number):
            raise ValueError(f"{name}={value!r}: give {rule}")
        return number

    return check


check_positive = _number_check("a number above 0", lambda x: x > 0)
check_not_negative = _number_check("0 or a number above 0", lambda x: x >= 0)
check_fraction = _number_check("a number strictly between 0 and 1", lambda x: 0 < x < 1)
# Squares and quotients of these neither overflow nor vanish.
check_reasonable = _number_check(
    "a number above 0, from 1e-100 to 1e+100", lambda x: 1e-100 <= x <= 1e100
)


def check_level(name: str, value: Any) -> float:
    """Refuse a level outside of (0, 1), or so small that no number of rows is enough."""
    if (level := check_fraction(name, value)) < LEAST_LEVEL:
        raise ValueError(f"{name}={value!r}: give a number from {LEAST_LEVEL:g} to below 1")
    return level


def check_flag(name: str, value: Any) -> bool:
    """Refuse what is not True or False: any text, "no" included, would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={one_line(repr(value))}: give True or False")
    return bool(value)


def check_positive_int(name: str, value: Any) -> int:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name}={one_line(repr(value))}: give a whole number")
    number = int(value)
    if not 1 <= number <= LARGEST_COUNT:
        most = "at least 1" if number < 1 else f"at most {LARGEST_COUNT:,}"
        raise ValueError(f"{name}={value!r}: give a whole number of {most}")
    return number


def check_folds(folds: Any, n: float = math.inf) -> int:
    """Return a number of folds; refuse less than two, and more than the n rows."""
    if check_positive_int("folds", folds) < 2:
        raise ValueError(f"folds={folds}: give at least 2")
    if folds > n:
        raise ValueError(f"folds={folds} is more than the {n} rows: give at most {n}")
    return int(folds)


def check_targets(wrong: ArrayLike, y: ArrayLike, rule: str, remedy: str = "") -> None:
    """Refuse targets of which some are wrong, with the rule, the first of them and a way out."""
    if (found := np.asarray(wrong)).any():
        row, advice = int(found.argmax()), f": {remedy}" if remedy else ""
        raise ValueError(f"{rule}, but y has {float(np.asarray(y)[row])!r} in row {row}{advice}")
