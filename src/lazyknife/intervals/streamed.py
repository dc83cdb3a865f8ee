"""Models of many rows: a ridge on few features, whose models are never all computed.

From blocks of rows to the models: one pass for sums, one that leaves rows out. Where the rows are
on other machines, what the intervals of some levels need of their models is kept here: the windows
of the largest η that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choosing.shape import STRETCH, QuantileShape, Shaped
from ..compute import Machine, blocks, track
from ..records import Predictions, Side, errors_on, rounded_up
from ..ridge.rounding import FEW_ROWS, largest
from ..ridge.streamed import (
    BLOCK_ROWS,
    EPSILON,
    Left,
    StreamedBounds,
    StreamedRidge,
    Sums,
    product_error,
)
from ..ridge.system import joined
from ..tangent import Landmarks
from .full_shared import ComparedRows
from .window import Among, FullPrediction, Windowed

FAR = 2.0  # times the size of a landmark


class LeftOut(NamedTuple):
    """Rows that were left out, in blocks that can be joined."""

    rows: Tensor  # as they were given
    left: Left
    shape: Shaped
    size: float  # the largest |y|

    @classmethod
    def joined(cls, parts: Sequence[LeftOut]) -> LeftOut:
        """All rows."""
        rows, lefts, shapes, sizes = zip(*parts, strict=True)
        return cls(torch.cat(rows), joined(lefts), joined(shapes), max(sizes))

    def some(self, members: Tensor) -> LeftOut:
        """Some of the rows."""
        left = Left(*(field[members] for field in self.left))
        shape = Shaped(*(field[members] for field in self.shape))
        return LeftOut(self.rows[members.to(self.rows.device)], left, shape, self.size)


@dataclass(frozen=True)
class Passes:
    """What is done with each block; given the features everything is a sum over rows."""

    basis: Landmarks  # the features
    ridge: float  # λ
    intercept: bool  # whether there is a last feature of 1, which is not penalised
    center: float  # subtracted from y
    shape: QuantileShape | None = None  # of intervals, by the first guess; None: constant widths
    start: Tensor | None = None  # a first guess of the weights, shape (q,); None: 0

    @property
    def machine(self) -> Machine:
        return self.basis.tangent.machine

    def models(
        self,
        X: Tensor,
        y: Tensor,
        left_out: Tensor,
        progress: bool = False,
        grown: Tensor | None = None,
        splits: bool = False,
    ) -> StreamedModels:
        """Both passes: the ridge of all rows, and the models without each of some of them.

        Features of the first pass are kept for the second one if they fit in memory. ``grown``:
        values of trees for rows that these were grown on, shape (n,); NaN for others. ``splits``:
        the ridge learns from the other rows alone, so that nothing has to be left out of it.
        """
        grown = torch.full_like(y, torch.nan) if grown is None else grown
        others = torch.ones(len(y), dtype=torch.bool)
        others[left_out] = False
        first = [left_out[part] for part in self.blocks(len(left_out))]
        rest = torch.nonzero(others)[:, 0]
        last = [rest[part] for part in self.blocks(len(rest))]
        every = last if splits else [*first, *last]
        needed = len(left_out) * self.machine.item * (self.basis.size + 1)
        keeps = needed <= self.machine.kept and not splits
        numbers = BLOCK_ROWS * self.basis.row_bytes // self.machine.item + self.basis.size**2

        def summed(part: Tensor) -> tuple[Sums, Tensor | None]:
            sums, rows = self.sums(X[part], y[part], grown[part])
            return sums, rows if keeps else None

        total, kept = None, list[Tensor | None]()
        found = self.machine.map(summed, every, numbers)
        for more, rows in track(found, "summing", len(every), progress and len(every) > 1):
            total = more if total is None else total + more
            kept.append(rows)
        assert total is not None
        solved = self.solve(total)

        def left(k: int) -> LeftOut:
            part = first[k]
            known = kept[k] if keeps else None
            return self.left(solved, X[part], y[part], known, grown[part], splits)

        parts = self.machine.map(left, range(len(first)), numbers)
        shown = track(parts, "leaving out", len(first), progress and len(first) > 1)
        out = LeftOut.joined(list(shown))
        return StreamedModels(
            self, solved, solved.bounds(out.left, self.error_of(out), out.size), out
        )

    def sums(self, X: Tensor, y: Tensor, grown: Tensor | None = None) -> tuple[Sums, Tensor]:
        """The first pass; and φ of the rows."""
        rows = self.features(X, grown)[0]
        return Sums.of(rows, self.targets(rows, y)), rows

    def solve(self, sums: Sums) -> StreamedRidge:
        """Between the passes."""
        start = torch.zeros_like(sums.moments) if self.start is None else self.start
        return StreamedRidge.of(sums, self.ridge, self.intercept, start)

    def left(
        self,
        solved: StreamedRidge,
        X: Tensor,
        y: Tensor,
        rows: Tensor | None = None,
        grown: Tensor | None = None,
        splits: bool = False,
    ) -> LeftOut:
        """The second pass; ``rows`` are features, ``splits``: the rows are not part of the sums."""
        rows = self.features(X, grown)[0] if rows is None else rows
        found = solved.leave_out(rows, self.targets(rows, y), splits)
        return LeftOut(X, found, self.shaped(X, rows, found.norms), largest(y))

    def shaped(self, X: Tensor, rows: Tensor, norms: Tensor) -> Shaped:
        """The shape of intervals at rows with these features."""
        if self.shape is None:
            return Shaped.constant(norms)
        weights = rows.new_zeros(rows.shape[1]) if self.start is None else self.start
        levels, unit = rows @ weights + self.center, product_error(weights, self.feature_error)
        errors = unit * (1 + norms).sqrt() + EPSILON * (levels.abs() + abs(self.center))
        return self.shape.at(self.machine.put(X), levels, errors)

    def features(self, X: Tensor, grown: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """φ, shape (m, q), and ‖φ‖² without the intercept, shape (m,)."""
        _, rows, norms = self.basis.at(X, grown)
        return torch.nn.functional.pad(rows, (0, int(self.intercept)), value=1.0), norms

    def targets(self, rows: Tensor, y: Tensor) -> Tensor:
        """Y less its centre and what the first guess explains, shape (m,)."""
        targets = self.machine.put(y) - self.center
        return targets if self.start is None else targets - rows @ self.start

    @cached_property
    def feature_error(self) -> float:
        """Error of the features of a row, measured by computing those of some landmarks alone.

        It depends neither on the order of the rows nor on how they are partitioned.
        """
        return self._again(self.basis.points.X[:FEW_ROWS])

    def error_of(self, out: LeftOut) -> float:
        """The same, and that of the largest rows if they are far larger than landmarks."""
        norms, points = out.left.norms, self.basis.at(self.basis.points.X[:FEW_ROWS]).norms
        if float(norms.max()) <= FAR * (1 + float(points.max())):
            return self.feature_error
        few = norms.topk(min(FEW_ROWS, len(out.rows))).indices
        return max(self.feature_error, self._again(out.rows[few.to(out.rows.device)]))

    def _again(self, X: Tensor) -> float:
        together = self.basis.at(X).coordinates
        alone = torch.cat([self.basis.at(row).coordinates for row in X.split(1)])
        return float((together - alone).norm(dim=1).max())

    def blocks(self, n: int) -> Iterator[slice]:
        """Split n rows into blocks whose features fit."""
        each = 2 * self.basis.row_bytes
        return blocks(n, each, min(self.machine.block, BLOCK_ROWS * each))


@dataclass(frozen=True, eq=False)
class StreamedPredictor:
    """The ridge of all rows, how its features are computed, and what rounding may have changed."""

    passes: Passes
    solved: StreamedRidge
    rounding: StreamedBounds

    @property
    def rows_at_once(self) -> int:
        """Rows whose features, and whose windows of models, fit."""
        basis = self.passes.basis
        return self.passes.machine.rows_at_once(basis.size, 8 * basis.row_bytes)

    @property
    def sharing(self) -> tuple[Machine, int] | None:
        """Where several threads can predict, and the bytes of a row; None: they cannot."""
        return self.passes.machine, 8 * self.passes.basis.row_bytes

    @property
    def stretch(self) -> float:
        """Relative error of widths by rounding."""
        return 0.0 if self.passes.shape is None else STRETCH

    def point(self, X: Tensor) -> Tensor:
        """Predictions of the full model."""
        return self.passes.features(X)[0] @ self.solved.weights + self.passes.center

    def full_at(self, X: Tensor, features: tuple[Tensor, Tensor] | None = None) -> FullPrediction:
        """The full model at some rows, and L⁻¹φ of them; ``features`` are φ and ‖φ‖²."""
        rows, norms = self.passes.features(X) if features is None else features
        half, point = self.solved.half(rows), rows @ self.solved.weights + self.passes.center
        leverages, shape = half.square().sum(dim=0), self.passes.shaped(X, rows, norms)
        found = Predictions(
            point,
            point.new_empty(len(point), 0),
            shape.scale,
            point.new_tensor(self.stretch),
            self.rounding.slack(leverages, norms) + shape.error,
            shape.shift,
        )
        return FullPrediction(found, leverages.sqrt(), half.T)


@dataclass(frozen=True, eq=False, repr=False)
class StreamedModels(StreamedPredictor, Windowed):
    """The full model, and what leaving each of n rows out changes."""

    out: LeftOut
    side: Side = "both"

    def __repr__(self) -> str:
        return f"<{len(self.residuals)} leave-one-out models>"

    @property
    def block(self) -> int:
        return self.passes.machine.block

    @property
    def residuals(self) -> Tensor:
        return self.out.left.residuals

    @property
    def training_residuals(self) -> Tensor:
        return self.out.left.training_residuals

    @property
    def own(self) -> Tensor:
        """What rounding may change in e and c, shape (n,); infinite where nothing is known."""
        return self.rounding.own + self.out.shape.error

    @cached_property
    def scores(self) -> Tensor:
        """R, rounded up, shape (n,); infinite where the model is undetermined."""
        shift, scale, _ = self.out.shape
        sizes = (errors_on(self.residuals - shift, self.side) + self.own) / scale
        unknown = torch.isinf(self.own) | sizes.isnan()
        return torch.where(unknown, torch.inf, rounded_up(sizes, self.stretch))

    @cached_property
    def reach(self) -> Tensor:
        return self.out.left.leverages.sqrt() * self.steps.abs()

    @property
    def steps(self) -> Tensor:
        """e, or 0 where there is none: a leverage was rounded to 1, and the score is infinite."""
        return self.residuals.nan_to_num(0.0, 0.0, 0.0)

    @property
    def undetermined(self) -> int:
        return int(torch.isinf(self.scores).sum())

    @property
    def errors(self) -> Tensor:
        """What rounding may change in a prediction at each row, and in its residual, (n,)."""
        return self.rounding.slack(self.out.left.leverages, self.out.left.norms) + self.rounding.own

    def typical_error(self) -> tuple[float, float]:
        known = torch.isfinite(self.scores)
        if not known.any():
            return math.inf, math.inf
        return float(self.errors[known].median()), self.stretch

    def among(self, rank: int, eta: float) -> Among:
        return Among(self)

    def columns(self, members: Tensor) -> Tensor:
        """−L⁻¹φ_j e_j of some rows, shape (q, members)."""
        return self.halves(members) * -self.steps[members]

    def halves(self, members: Tensor) -> Tensor:
        """L⁻¹φ_j of some rows, shape (q, members)."""
        rows = self.out.rows[members.to(self.out.rows.device)]
        return self.solved.half(self.passes.features(rows)[0])

    @cached_property
    def compared(self) -> ComparedRows:
        """What full conformal prediction needs of the rows."""
        return ComparedRows.of(self)

    @cached_property
    def changed(self) -> float:
        """What rounding may change in products with G⁻¹, relative to their largest size."""
        return self.solved.changed(self.passes.error_of(self.out))

    def scaled(self, X: Tensor) -> Predictions:
        """Everything that intervals are computed from, of all models."""
        (found, _, factors), n = self.full_at(X), len(self.residuals)
        every = torch.arange(n, device=self.residuals.device)
        parts = blocks(n, 4 * self.passes.basis.row_bytes, self.block)
        moved = [factors @ self.columns(every[part]) for part in parts]
        each = found.point[:, None] + torch.cat(moved, dim=1)
        stretch = found.stretch.expand(len(each))
        return found._replace(each=each, scales=found.scales[:, None], stretch=stretch)

    @cached_property
    def all_halves(self) -> Tensor:
        """L⁻¹φ_j of the rows that are left out, shape (q, n); of few rows."""
        return self.halves(torch.arange(len(self.residuals)))

    def only(self, members: Tensor) -> StreamedModels:
        """Some of the models."""
        bounds = self.rounding._replace(own=self.rounding.own[members])
        return replace(self, out=self.out.some(members), rounding=bounds)


def scaled_together(columns: Sequence[StreamedModels], X: Tensor) -> list[Predictions]:
    """``scaled`` for several targets of the same few rows, which share features and L."""
    features, moved, found = columns[0].passes.features(X), None, list[Predictions]()
    for each in columns:
        full, _, factors = each.full_at(X, features)
        moved = factors @ columns[0].all_halves if moved is None else moved
        values = full.point[:, None] - moved * each.steps
        stretch = full.stretch.expand(len(values))
        found.append(full._replace(each=values, scales=full.scales[:, None], stretch=stretch))
    return found


BLOCK = 2**28  # bytes of predictions of rows by models


@dataclass(frozen=True, eq=False)
class KeptModels:
    """The k models among which the order statistic of a rank is."""

    scores: Tensor  # R, shape (k,)
    reach: Tensor  # ρ, shape (k,)
    shifts: Tensor  # −L⁻¹φ_j e_j, shape (q, k)
    block = BLOCK

    def columns(self, members: Tensor) -> Tensor:
        return self.shifts[:, members]


@dataclass(frozen=True, eq=False)
class CompactModels(StreamedPredictor, Windowed):
    """The full model, and those of n others that levels need."""

    count: int  # n
    undetermined: int  # of how many of them rounding leaves nothing known
    error: float  # the typical one of predictions and residuals by rounding
    levels: dict[int, Among] = field(default_factory=dict)  # what is known, by rank; it grows
    # From a rank and an η to its level, or None where the other models are gone. It does not travel
    # with a copy.
    ask: Callable[[int, float], Among | None] | None = None
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

    def among(self, rank: int, eta: float) -> Among:
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
