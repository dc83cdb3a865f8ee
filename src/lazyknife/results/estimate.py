"""A mean with its standard error, which counts as its value wherever a number is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(NDArrayOperatorsMixin):
    """A mean over rows and its standard error.

    ``value, error = estimate`` gives both. In comparisons, arithmetic, numpy's functions and
    formats such as ``f"{estimate:.2f}"`` an estimate is its value; ``str`` shows both.

    Attributes
    ----------
    value
        The mean: a number, or an array with one entry for each level.
    error
        Its standard error, of the same shape; NaN for a single row.

    """

    value: Any
    error: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.value, self.error))

    def __float__(self) -> float:
        return float(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        values = [each.value if isinstance(each, Estimate) else each for each in inputs]
        return getattr(ufunc, method)(*values, **options)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __repr__(self) -> str:
        values, errors = np.atleast_1d(self.value), np.atleast_1d(self.error)
        pairs = zip(values, errors, strict=True)
        return ", ".join(f"{value:.4g} ± {error:.2g}" for value, error in pairs)
