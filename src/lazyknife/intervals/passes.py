"""From blocks of rows to the models of all of them: one pass for sums, one that leaves rows out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import blocks, track
from ..solve.amount import Amount
from ..solve.guard import FEW_ROWS, TINY, largest
from ..solve.rounding import Sensitivity, gamma_of, rounding_of
from ..solve.streamed import Left, StreamedRidge, Sums
from ..tangent import Landmarks
from .streamed import StreamedModels, with_intercept


class LeftOut(NamedTuple):
    """Rows that were left out, in blocks that can be joined."""

    rows: Tensor  # as they were given
    left: Left
    own: Tensor  # σ, shape (rows,), or a single 1
    size: float  # the largest |y|

    @classmethod
    def joined(cls, parts: Sequence[LeftOut]) -> LeftOut:
        """All rows."""
        lefts = [part.left for part in parts]
        numbers = [torch.cat([left[k] for left in lefts]) for k in range(3)]  # type: ignore[misc]
        sensitivity = Sensitivity.joined([left.sensitivity for left in lefts])
        own = torch.cat([part.own.expand(len(part.rows)) for part in parts])
        rows, size = torch.cat([part.rows for part in parts]), max(part.size for part in parts)
        return cls(rows, Left(*numbers, sensitivity), own, size)


@dataclass(frozen=True)
class Passes:
    """What is done with each block; given the features everything is a sum over rows.

    Attributes
    ----------
    basis
        The features.
    ridge
        λ.
    intercept
        Whether there is an unpenalised intercept.
    center
        Subtracted from y.
    amount
        σ; None: 1.

    """

    basis: Landmarks
    ridge: float
    intercept: bool
    center: float
    amount: Amount | None

    def models(
        self, X: Tensor, y: Tensor, left_out: Tensor, progress: bool = False
    ) -> StreamedModels:
        """Both passes: the ridge of all rows, and the models without each of some of them."""
        total: Sums | None = None
        for part in self._blocks(len(y), "summing", progress):
            more = self.sums(X[part], y[part])
            total = more if total is None else total + more
        assert total is not None
        solved = self.solve(total)
        parts = [left_out[part] for part in self._blocks(len(left_out), "leaving out", progress)]
        return self.read(solved, LeftOut.joined([self.left(solved, X[p], y[p]) for p in parts]))

    def sums(self, X: Tensor, y: Tensor) -> Sums:
        """The first pass."""
        return Sums.of(self._rows(X), self._targets(y))

    def solve(self, sums: Sums) -> StreamedRidge:
        """Between the passes."""
        return StreamedRidge.of(sums, self.ridge, self.intercept)

    def left(self, solved: StreamedRidge, X: Tensor, y: Tensor) -> LeftOut:
        """The second pass, for rows that are part of the sums."""
        found = solved.leave_out(self._rows(X), self._targets(y))
        own = found.residuals.new_ones(1) if self.amount is None else self.amount(X)
        return LeftOut(X, found, own, largest(y))

    def read(self, solved: StreamedRidge, every: LeftOut) -> StreamedModels:
        """Models with bounds on what rounding may have changed."""
        left = every.left
        shaken = self._shaken(every.rows[:FEW_ROWS]) + _summed(solved.count, left.residuals.dtype)
        gamma = gamma_of(left.residuals.dtype, shaken)
        rounding = rounding_of(left.sensitivity, gamma, every.size)
        errors = (left.residuals, left.training_residuals, left.leverages)
        rest = (every.own, self.amount, left.sensitivity.roots, rounding)
        own = (self.basis, solved, self.center, self.intercept, every.rows)
        return StreamedModels(*own, *errors, *rest)

    def _rows(self, X: Tensor) -> Tensor:
        return with_intercept(self.basis.at(X).coordinates, self.intercept)

    def _targets(self, y: Tensor) -> Tensor:
        return self.basis.tangent.machine.put(y) - self.center

    def _shaken(self, X: Tensor) -> float:
        """Relative error of features, measured by computing those of a row alone."""
        together, alone = self.basis.at(X), self.basis.at(X[:1])
        gap = (together.coordinates[:1] - alone.coordinates).abs().max()
        return float(gap / alone.norms.sqrt().clamp(min=TINY))

    def _blocks(self, n: int, what: str, progress: bool) -> Iterator[slice]:
        machine = self.basis.tangent.machine
        parts = list(blocks(n, 2 * self.basis.row_bytes, min(machine.block, BLOCK)))
        return track(parts, what, len(parts), progress and len(parts) > 1)


BLOCK = 2**28  # bytes of a block: larger ones are no faster


def _summed(n: int, dtype: torch.dtype) -> float:
    """Relative error of a sum over n rows, whose roundings are as often up as down."""
    return math.sqrt(n) * torch.finfo(dtype).eps
