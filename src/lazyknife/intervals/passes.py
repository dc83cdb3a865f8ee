"""From blocks of rows to the models of all of them: one pass for sums, one that leaves rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..choosing.shared import NoiseModel
from ..compute import blocks, track
from ..solve.drift import Drift
from ..solve.guard import FEW_ROWS, largest
from ..solve.streamed import BLOCK_ROWS, Left, StreamedRidge, Sums
from ..tangent import Landmarks
from .streamed import StreamedModels, with_intercept

FAR = 2.0  # times the size of a landmark


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
        own = torch.cat([part.own.expand(len(part.rows)) for part in parts])
        rows, size = torch.cat([part.rows for part in parts]), max(part.size for part in parts)
        return cls(rows, Left.joined(lefts), own, size)


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
    start
        A first guess of the weights, shape (q,); None: 0.

    """

    basis: Landmarks
    ridge: float
    intercept: bool
    center: float
    amount: NoiseModel | None = None
    start: Tensor | None = None

    def models(
        self, X: Tensor, y: Tensor, left_out: Tensor, progress: bool = False
    ) -> StreamedModels:
        """Both passes: the ridge of all rows, and the models without each of some of them.

        Features of the first pass are kept for the second one if they fit in memory.
        """
        others = torch.ones(len(y), dtype=torch.bool)
        others[left_out] = False
        first = [left_out[part] for part in self.blocks(len(left_out))]
        last = torch.nonzero(others)[:, 0]
        every = [*first, *(last[part] for part in self.blocks(len(last)))]
        keeps, machine = self._keeps(len(left_out)), self.basis.tangent.machine
        numbers = BLOCK_ROWS * self.basis.row_bytes // machine.item + self.basis.size**2

        def summed(part: Tensor) -> tuple[Sums, Tensor | None]:
            rows = self.features(X[part])
            return Sums.of(rows, self._targets(rows, y[part])), rows if keeps else None

        total, kept = None, list[Tensor | None]()
        found = machine.map(summed, every, numbers)
        for more, rows in track(found, "summing", len(every), progress and len(every) > 1):
            total = more if total is None else total + more
            kept.append(rows)
        assert total is not None
        solved = self.solve(total)

        def left(k: int) -> LeftOut:
            return self.left(solved, X[first[k]], y[first[k]], kept[k])

        parts = machine.map(left, range(len(first)), numbers)
        shown = track(parts, "leaving out", len(first), progress and len(first) > 1)
        return self.read(solved, LeftOut.joined(list(shown)))

    def sums(self, X: Tensor, y: Tensor) -> Sums:
        """The first pass."""
        rows = self.features(X)
        return Sums.of(rows, self._targets(rows, y))

    def solve(self, sums: Sums) -> StreamedRidge:
        """Between the passes."""
        start = torch.zeros_like(sums.moments) if self.start is None else self.start
        return StreamedRidge.of(sums, self.ridge, self.intercept, start)

    def left(
        self, solved: StreamedRidge, X: Tensor, y: Tensor, rows: Tensor | None = None
    ) -> LeftOut:
        """The second pass, for rows that are part of the sums; ``rows`` are their features."""
        rows = self.features(X) if rows is None else rows
        found = solved.leave_out(rows, self._targets(rows, y))
        own = found.residuals.new_ones(1) if self.amount is None else self.amount(X)
        return LeftOut(X, found, own, largest(y))

    def read(self, solved: StreamedRidge, every: LeftOut) -> StreamedModels:
        """Models with bounds on what rounding may have changed."""
        return self.bounded(
            solved, every, solved.drift(every.left, self._shaken(every), every.size)
        )

    def bounded(self, solved: StreamedRidge, every: LeftOut, drift: Drift) -> StreamedModels:
        """Models with these bounds."""
        left = every.left
        return StreamedModels(
            basis=self.basis,
            solved=solved,
            center=self.center,
            intercept=self.intercept,
            rows=every.rows,
            residuals=left.residuals,
            training_residuals=left.training_residuals,
            leverages=left.leverages,
            own=every.own,
            amount=self.amount,
            norms=left.norms,
            drift=drift,
        )

    def features(self, X: Tensor) -> Tensor:
        """φ, shape (m, q)."""
        return with_intercept(self.basis.at(X).coordinates, self.intercept)

    def _targets(self, rows: Tensor, y: Tensor) -> Tensor:
        targets = self.basis.tangent.machine.put(y) - self.center
        return targets if self.start is None else targets - rows @ self.start

    @cached_property
    def shaken(self) -> float:
        """Error of the features of a row, measured by computing those of some landmarks alone.

        It depends neither on the order of the rows nor on how they are partitioned.
        """
        return self._again(self.basis.points.X[:FEW_ROWS])

    def _shaken(self, every: LeftOut) -> float:
        """The same, and that of the largest rows if they are far larger than landmarks."""
        norms, points = every.left.norms, self.basis.at(self.basis.points.X[:FEW_ROWS]).norms
        if float(norms.max()) <= FAR * (1 + float(points.max())):
            return self.shaken
        few = norms.topk(min(FEW_ROWS, len(every.rows))).indices
        return max(self.shaken, self._again(every.rows[few.to(every.rows.device)]))

    def _again(self, X: Tensor) -> float:
        together = self.basis.at(X).coordinates
        alone = torch.cat([self.basis.at(row).coordinates for row in X.split(1)])
        return float((together - alone).norm(dim=1).max())

    def _keeps(self, n: int) -> bool:
        machine = self.basis.tangent.machine
        return n * machine.item * (self.basis.size + 1) <= machine.kept

    def blocks(self, n: int) -> Iterator[slice]:
        """Split n rows into blocks whose features fit."""
        each = 2 * self.basis.row_bytes
        return blocks(n, each, min(self.basis.tangent.machine.block, BLOCK_ROWS * each))
