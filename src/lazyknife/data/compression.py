"""Scales of y that rise ever more slowly, from which models choose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Compression:
    """A scale that rises ever more slowly: like the root, or the logarithm, of |y| above a unit.

    Below the unit it is nearly linear; it is odd, and every y has a value on it.
    """

    kind: str  # "root" or "log"
    unit: float

    def forward(self, y: Values) -> Values:
        v = y / self.unit
        return np.arcsinh(v) if self.kind == "log" else v / (np.sqrt(np.abs(v) + 1) + 1)

    def inverse(self, z: Values) -> Values:
        return self.unit * (np.sinh(z) if self.kind == "log" else z * (np.abs(z) + 2))

    def log_slope(self, y: Values) -> Values:
        """The logarithm of the derivative."""
        v = np.abs(y / self.unit)
        above: Values = np.hypot(v, 1) if self.kind == "log" else 2 * np.sqrt(v + 1)
        return -np.log(above) - float(np.log(self.unit))

    def __str__(self) -> str:
        return f"{self.kind} of y above {self.unit:g}"
