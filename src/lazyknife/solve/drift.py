"""Bounds on what rounding changes in models of many rows; streamed.py derives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Drift(NamedTuple):
    """What rounding may have changed.

    Attributes
    ----------
    slope, constant
        Predictions at x are off by at most slope·√h(x) + constant·√(1 + ‖φ(x)‖²), where h(x) ≤ 1.
    steep
        The slope where h(x) > 1.
    own
        Bounds on the errors of left-out residuals, shape (n,); infinite where nothing is known.

    """

    slope: float
    constant: float
    steep: float
    own: Tensor

    def slack(self, leverages: Tensor, norms: Tensor) -> Tensor:
        """Bounds on the errors of predictions, shape (m,)."""
        slopes = torch.where(leverages > 1, self.steep, self.slope)
        return slopes * leverages.sqrt() + self.constant * (1 + norms).sqrt()


class Extremes(NamedTuple):
    """What bounds on rounding need of all rows; those of several sets of rows can be joined.

    Attributes
    ----------
    load
        The largest load of rows without a large leverage.
    known
        That of rows of whose models something is known; −∞ if there are none.
    least
        The smallest 1 − h of these; ∞ if there are none.

    """

    load: float
    known: float
    least: float

    @classmethod
    def joined(cls, parts: Sequence[Extremes]) -> Extremes:
        """Those of all rows."""
        loads, known, least = zip(*parts, strict=True)
        return cls(max(loads), max(known), min(least))
