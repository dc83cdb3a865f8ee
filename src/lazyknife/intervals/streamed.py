"""Models of many rows: a ridge on few features, whose models are never all computed.

From blocks of rows to the models: one pass for sums, one that leaves rows out. Where the rows are
on other machines, what the intervals of some levels need of their models is kept here. The windows
of a rank are nested: one for a larger η contains those for smaller ones, and the models above it
are above those too. So the models of the window of the largest η, with their number of models
above, give the ends of all rows of smaller η, as all n models would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choosing.shape import NoiseModel
from ..compute import Machine, blocks, track
from ..records import Predictions
from ..ridge.measured import FEW_ROWS, largest
from ..ridge.rounding import Drift
from ..ridge.streamed import BLOCK_ROWS, Left, StreamedRidge, Sums
from ..tangent import Landmarks
from .window import SAFE, Near, etas

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


@dataclass(frozen=True, eq=False)
class FullModel:
    """The ridge of all rows.

    Attributes
    ----------
    basis, solved
        The features, and the ridge on them.
    center
        What was subtracted from y.
    intercept
        Whether the last feature is 1.
    amount
        σ of new rows; None: 1.
    drift
        What rounding may have changed.

    """

    basis: Landmarks
    solved: StreamedRidge
    center: float
    intercept: bool
    amount: NoiseModel | None
    drift: Drift

    @property
    def _machine(self) -> Machine:
        return self.basis.tangent.machine

    @property
    def rows_at_once(self) -> int:
        """Rows whose features, and whose windows of models, fit."""
        return self._machine.rows_at_once(self.basis.size, 8 * self.basis.row_bytes)

    @property
    def sharing(self) -> tuple[Machine, int] | None:
        """Where several threads can predict, and the bytes of a row; None: they cannot."""
        return self._machine, 8 * self.basis.row_bytes

    @property
    def block(self) -> int:
        return self._machine.block

    @property
    def stretch(self) -> float:
        """Relative error of σ by rounding."""
        return 0.0 if self.amount is None else self.amount.error

    def features(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """φ, shape (m, q), and ‖φ‖² without the intercept, shape (m,)."""
        _, rows, norms = self.basis.at(X)
        return with_intercept(rows, self.intercept), norms

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        return self.features(X)[0] @ self.solved.weights + self.center

    def near(self, X: Tensor) -> Near:
        """The full model at some rows, and L⁻¹φ of them."""
        rows, norms = self.features(X)
        half, point = self.solved.half(rows), rows @ self.solved.weights + self.center
        leverages, one = half.square().sum(dim=0), point.new_ones(())
        found = Predictions(
            point,
            point.new_empty(len(point), 0),
            one.expand(len(point)) if self.amount is None else self.amount(X),
            one * self.stretch,
            self.drift.slack(leverages, norms),
        )
        return Near(found, leverages.sqrt(), point, half.T)

    def columns_of(self, X: Tensor, residuals: Tensor) -> Tensor:
        """−L⁻¹φe of rows with these left-out residuals, shape (q, m)."""
        return self.solved.half(self.features(X)[0]) * -residuals


@dataclass(frozen=True, eq=False)
class StreamedModels(FullModel):
    """The full model, and what leaving each of n rows out changes.

    Attributes
    ----------
    rows
        The rows that are left out, as they were given, shape (n, features).
    residuals, training_residuals, leverages
        e, r − φᵀw and h, each (n,).
    own
        σ of the rows, shape (n,), or a single 1.
    norms
        ‖φ_j‖², shape (n,).

    """

    rows: Tensor
    residuals: Tensor
    training_residuals: Tensor
    leverages: Tensor
    own: Tensor
    norms: Tensor

    @cached_property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,); infinite where the model is conceded to rounding."""
        sizes: Tensor = (self.residuals.abs() + self.drift.own) / self.own * (1 + self.stretch)
        return torch.where(torch.isinf(self.drift.own) | sizes.isnan(), torch.inf, sizes)

    @cached_property
    def reach(self) -> Tensor:
        return self.leverages.sqrt() * self._steps.abs()

    @property
    def _steps(self) -> Tensor:
        """e, or 0 where there is none: a leverage was rounded to 1, and the score is infinite."""
        return self.residuals.nan_to_num(0.0, 0.0, 0.0)

    @property
    def conceded(self) -> int:
        return int(torch.isinf(self.scores).sum())

    @property
    def errors(self) -> Tensor:
        """What rounding may change in a prediction at each row, and in its residual, (n,)."""
        return self.drift.slack(self.leverages, self.norms) + self.drift.own

    def typical_error(self) -> tuple[float, float]:
        known = torch.isfinite(self.drift.own)
        if not known.any():
            return math.inf, math.inf
        return float(self.errors[known].median()), self.stretch

    def columns(self, members: Tensor) -> Tensor:
        """−L⁻¹φ_j e_j of some rows, shape (q, members)."""
        rows = self.rows[members.to(self.rows.device)]
        return self.columns_of(rows, self._steps[members])

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions of the full model, (m,), and of all others, (m, n)."""
        found = self.scaled(X)
        return found.point, found.each

    def scaled(self, X: Tensor) -> Predictions:
        """Everything that intervals are computed from, of all models."""
        near, every = self.near(X), torch.arange(len(self.residuals), device=self.residuals.device)
        parts = blocks(len(every), 4 * self.basis.row_bytes, self.block)
        moved = [near.factors @ self.columns(every[part]) for part in parts]
        found = near.found
        each = found.point[:, None] + torch.cat(moved, dim=1)
        stretch = found.stretch.expand(len(each))
        return found._replace(each=each, scales=found.scales[:, None], stretch=stretch)


def with_intercept(rows: Tensor, intercept: bool) -> Tensor:
    """Feature rows with a last entry of 1 where there is an intercept."""
    return torch.nn.functional.pad(rows, (0, 1), value=1.0) if intercept else rows


BLOCK = 2**28  # bytes of predictions of rows by models


@dataclass(frozen=True, eq=False)
class KeptLevel:
    """The k models among which the order statistic of a rank is, for rows of at most some η.

    Attributes
    ----------
    eta
        That η.
    above
        How many of the other models are above all of them.
    size
        The order statistic of |e|.
    top
        The order statistic of R + ηρ.
    farthest
        The largest ρ of all n models.
    scores, reach
        R and ρ, each (k,).
    shifts
        −L⁻¹φ_j e_j, shape (q, k).

    """

    eta: float
    above: int
    size: float
    top: float
    farthest: float
    scores: Tensor
    reach: Tensor
    shifts: Tensor

    @property
    def block(self) -> int:
        return BLOCK

    def columns(self, members: Tensor) -> Tensor:
        return self.shifts[:, members]

    def beyond(self, near: Near, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Ends that no order statistic exceeds, for rows of larger η."""
        found, more = near.found, (etas(near)[rows] - self.eta).clamp(min=0.0)
        farthest = (self.top + more * self.farthest) * (1 + SAFE)
        margins = farthest * found.scales[rows] * (1 + found.stretch)
        return found.point[rows] - margins, found.point[rows] + margins


@dataclass(frozen=True, eq=False)
class CompactModels(FullModel):
    """The full model, and those of n others that levels need.

    Attributes
    ----------
    count
        n.
    conceded
        How many of them are conceded to rounding.
    error
        The typical error of predictions and residuals by rounding.
    levels
        What is known, by rank; it grows.
    ask
        From a rank and an η to its level, or None where the other models are gone. It does not
        travel with a copy.

    """

    count: int
    conceded: int
    error: float
    levels: dict[int, KeptLevel] = field(default_factory=dict)
    ask: Callable[[int, float], KeptLevel | None] | None = None
    sharing = None  # one thread asks

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"ask": None}

    @property
    def residuals(self) -> Tensor:
        """NaN, n times, in the memory of one: the residuals are elsewhere."""
        return torch.full((1,), torch.nan, dtype=torch.float64).expand(self.count)

    training_residuals = residuals

    def typical_error(self) -> tuple[float, float]:
        return self.error, self.stretch if math.isfinite(self.error) else math.inf

    def size_at(self, rank: int) -> float:
        """The ``rank``-th largest |e|."""
        return self.among(rank, 0.0).size

    def among(self, rank: int, eta: float) -> KeptLevel:
        """The models of a rank; the best known ones where nothing can be asked."""
        known = self.levels.get(rank)
        if known is not None and known.eta >= eta:
            return known
        widest = max([eta, *(level.eta for level in self.levels.values())])
        found = (None if self.ask is None else self.ask(rank, widest)) or known
        if found is None:
            raise ValueError(
                f"alpha: this model has rank {rank} of {self.count:,} no more, only the ranks "
                f"{sorted(self.levels)} of the levels that were used while its rows were on the "
                "cluster. Predict with this alpha once before the model is saved or copied or the "
                "cluster is closed, or fit with it"
            )
        self.levels[rank] = found
        return found
