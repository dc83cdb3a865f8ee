"""The lazy step in which every model chooses its network, weights of features, λ and widths."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..choosing.per_model import (
    ModelSearch,
    PointValues,
    SearchResult,
    coordinate_search,
    grouped,
    minimum_gain,
)
from ..choosing.record import ChosenSettings
from ..choosing.rows import MANY, SEARCHED, SHARED, draw_part, places_in, rows_apart
from ..choosing.shape import Errors, choose_factors, errors_of, joined
from ..choosing.space import CandidateKernels, GridPoint, weights_of
from ..compute import few_threads
from ..data.own_scaling import FeatureScale, FeatureScales, own_frames, unscaled
from ..intervals import Construction, find_construction
from ..intervals.chosen import ChosenModels, Group, some_of
from ..networks import wide
from ..records import RoundedModels
from ..ridge.folds import draw_folds
from ..ridge.problem import LeverageAgain
from ..ridge.readout import Read
from ..ridge.system import Indefinite, OwnRidges, Ridge, System
from ..ridge.widths import WIDTHS, LeverageScales
from ..tangent import Dual, Linear, Tangent, WideTangent
from .candidates import Candidate, CandidateStep, in_frame, is_narrow
from .fit_network import LazyStep

MATRICES = 6  # n×n ones that a fit needs, beside the factors that it keeps if they fit
STEP_UP, LARGEST = 2.0**8, 1e60  # of λ with which models are solved that rounding leaves open


class _Rows(NamedTuple):
    """The data, and which rows each model leaves out."""

    X: Tensor
    y: Tensor
    sets: Sequence[Tensor]
    frames: FeatureScales

    @property
    def owners(self) -> Tensor:
        """For each row the model without it, shape (n,)."""
        owners = torch.empty(len(self.y), dtype=torch.long)
        for k, rows in enumerate(self.sets):
            owners[rows] = k
        return owners


@dataclass(frozen=True)
class ChoosingStep(CandidateStep):
    """Settings: those of ``CandidateStep``, and these.

    Attributes
    ----------
    construction, folds, progress
        As in ``LazyStep``.
    relevance
        Whether a weight for each feature is searched.
    searched
        Rows that the search uses, on average, where there are more.

    """

    construction: str | Construction
    relevance: bool
    folds: int
    progress: bool = False
    searched: int = SEARCHED

    def models(self, X: Tensor, y: Tensor) -> tuple[RoundedModels, ChosenSettings]:
        """Choose, solve at every grid point where some model stands, and join the models."""
        units = [self.unit(candidate, X) for candidate in self.candidates]
        if len(y) > MANY:
            return self._shared(X, y, units)
        needed, what = MATRICES * self._bytes(y), f"choosing with {len(y):,} rows"
        self.machine.check_fits(needed, what, "give a number for ridge, or fewer rows")
        sets = list(torch.arange(len(y))[:, None])
        if find_construction(self.construction).uses_folds:
            sets = draw_folds(len(y), self.folds, self.seed)
        rows = _Rows(X, y, sets, self._frames(X, sets))
        part = draw_part(len(y), self.seed, self.searched)
        with few_threads(len(part)):
            found = self._search(rows, part, units)
        with few_threads(len(y)):
            loo = self._solve(rows, found, units)
        names = loo.factors.names if loo.factors else (self.widths,)
        return loo, self._choice(found, names, len(y), units, len(part), X.shape[1])

    def _shared(
        self, X: Tensor, y: Tensor, units: Sequence[float]
    ) -> tuple[RoundedModels, ChosenSettings]:
        """Rows that are set aside choose for all models, and train them, but are not left out."""
        rest, apart = rows_apart(len(y), self.seed)
        few = apart[:SHARED]
        chosen = _Rows(X[few], y[few], [], self._frames(X[apart], []))
        with few_threads(len(few)):
            found = self._search(chosen, torch.arange(len(few)), units)
        point = found.points[-1]
        tangent = self._tangent(self.candidates[point.network], point, chosen.frames[0])
        widths = "leverage" if WIDTHS[self.widths].needs_candidates else self.widths
        ridge = units[point.network] * 2.0**point.ridge
        settings = (self.intercept, "tangent", self.construction, widths, self.folds)
        step = LazyStep(ridge, *settings, seed=self.seed, progress=self.progress)
        if not isinstance(
            tangent, Tangent
        ):  # finite networks were checked before they were trained
            step.check_fits(len(y), len(y), self.machine)
        order = torch.cat([rest, apart])
        with few_threads(len(y)):
            loo = step.models(tangent, X[order], y[order], len(rest))
        return loo, self._choice(found, (widths,), len(rest), units, len(few), X.shape[1])

    def _frames(self, X: Tensor, sets: Sequence[Tensor]) -> FeatureScales:
        if not self.scaled:
            return unscaled(len(sets) + 1, X.shape[1], self.nominal)
        every = [*sets, torch.arange(0)]
        return own_frames(X, every, centered=is_narrow(X), nominal=self.nominal)

    def _search(self, rows: _Rows, part: Tensor, units: Sequence[float]) -> SearchResult:
        """Let every model search, last the full one."""
        frames, of = rows.frames, rows.frames.of.tolist()
        uses_folds = find_construction(self.construction).uses_folds
        folds, columns = places_in(
            part, len(rows.sets), rows.sets if uses_folds and rows.sets else None
        )
        folds = folds and [fold.to(self.machine.device) for fold in folds]
        models = [ModelSearch(frame, column) for frame, column in zip(of, columns, strict=True)]
        framed = [self.machine.put(frames[k].apply(rows.X[part])) for k in range(len(frames))]
        networks = [
            candidate.network or partial(self._given, candidate, frames, rows.X[part])
            for candidate in self.candidates
        ]
        kernels = CandidateKernels(networks, units, framed, frames[0].nominal)
        y = self.machine.put(rows.y[part])
        distinct = list(dict.fromkeys(models))
        found = coordinate_search(
            PointValues(kernels, y, self.intercept, self.machine, folds),
            distinct,
            np.array([minimum_gain(len(part), folds, model.left_out) for model in distinct]),
            self.relevance and is_narrow(rows.X),
            self.ridge is None,
            self.progress,
        )
        number_of = {model: k for k, model in enumerate(distinct)}
        return found.of([number_of[model] for model in models])

    def _given(
        self, candidate: Candidate, frames: FeatureScales, X: Tensor, frame: int
    ) -> tuple[Tensor, Tensor]:
        """Kernel and outputs of a network whose weights of features are not searched."""
        tangent = self._tangent(candidate, GridPoint(0, (), 0), frames[frame])
        features = tangent.features(X)
        return tangent.gram(features), features.outputs

    def _tangent(self, candidate: Candidate, point: GridPoint, frame: FeatureScale) -> Linear:
        if candidate.network is None:
            return candidate.at(frame).on(self.machine)
        weights = weights_of(candidate.network, point.weights, len(frame.scale))
        own = frame.scale.new_tensor(weights)
        return WideTangent(candidate.network, own, frame).on(self.machine)

    def _solve(self, rows: _Rows, found: SearchResult, units: Sequence[float]) -> ChosenModels:
        """Solve around every network, with the weights that some model gave to its features."""
        X, y = self.machine.put(rows.X), self.machine.put(rows.y)
        owners, frames = rows.owners, rows.frames
        ends = [
            (frame, point._replace(ridge=0))
            for frame, point in zip(frames.of.tolist(), found.points, strict=True)
        ]
        ridges = y.new_tensor([units[p.network] * 2.0**p.ridge for p in found.points])
        points = grouped(ends[k] for k in owners.tolist())
        points.setdefault(ends[-1], [])

        def solve(item: tuple[tuple[int, GridPoint], list[int]]) -> tuple[Read, list[Errors], bool]:
            (frame, point), numbers = item
            tangent = self._tangent(self.candidates[point.network], point, frames[frame])
            mine = torch.tensor([end == (frame, point) for end in ends], device=y.device)
            # Models that stand elsewhere are solved at some λ too, and not used.
            each = torch.where(mine, ridges, ridges[mine][0])
            members = torch.tensor(numbers, device=y.device, dtype=torch.long)
            sure = True
            while True:
                try:
                    read, pairs = self._solve_at(tangent, each, X, y, members)
                    break
                except Indefinite:  # of rows that are far away in the scale of these models
                    if (frame, point) == ends[-1] or float(each.max()) > LARGEST:
                        raise
                    each, sure = STEP_UP * each, False
            if len(points) * self._bytes(y) > self.machine.kept:
                read = self._without_factor(read, tangent, X, y)
            return read, pairs, sure

        groups, errors = list[Group](), defaultdict[int, list[Errors]](list)
        full: Read | None = None
        alike = all(candidate.network for candidate in self.candidates)  # modules have one state
        items = list(points.items())
        solved = (
            self.machine.map(solve, items, MATRICES * len(y) ** 2) if alike else map(solve, items)
        )
        unsolved = torch.zeros_like(y, dtype=torch.bool)
        for ((frame, point), numbers), (read, pairs, sure) in zip(items, solved, strict=True):
            members = torch.tensor(numbers, device=y.device, dtype=torch.long)
            unsolved[members] = not sure
            groups += [Group(members, some_of(read, members))] if numbers else []
            errors[frame] += pairs
            full = some_of(read, members[:0]) if (frame, point) == ends[-1] else full
        assert full is not None
        factors = None
        if any(errors.values()):  # local averages are computed once for each frame
            every = {k: joined(parts) for k, parts in errors.items() if parts}
            which = [partial(self._in_frame, frames[k]) for k in every]
            factors = choose_factors(X, y, list(every.values()), which)
        unsure = torch.from_numpy(found.doubtful[:-1]) | frames.doubtful[:-1]
        doubtful = unsure[owners].to(y.device) | unsolved
        doubtful = doubtful | (factors.doubtful if factors else False)
        return ChosenModels(tuple(groups), full, doubtful, factors)

    def _solve_at(
        self, tangent: Linear, ridges: Tensor, X: Tensor, y: Tensor, members: Tensor
    ) -> tuple[Read, list[Errors]]:
        """All models around one network, and the errors of members where widths are chosen."""
        errors, mine = list[Errors](), torch.zeros(len(y), dtype=torch.bool, device=y.device)
        mine[members] = True

        widths = WIDTHS[self.widths]
        outputs = tangent.features(X).outputs if widths.needs_candidates else y

        def visit(system: System, solved: Ridge, which: Tensor) -> None:
            chosen = torch.nonzero(which[:-1] & mine)[:, 0]
            errors.extend([errors_of(system, solved, outputs, chosen)] if len(chosen) else [])

        own = OwnRidges(ridges, y.new_zeros(len(ridges) - 1))
        settings = (self.intercept, "tangent", self.construction, widths, self.folds)
        step = LazyStep(own, *settings, seed=self.seed)
        needed = visit if widths.needs_candidates else None
        read = step.models(tangent, X, y, visit=needed)
        assert isinstance(read, Read)
        return read, errors

    def _bytes(self, y: Tensor) -> int:
        return self.machine.item * len(y) ** 2

    def _without_factor(self, read: Read, tangent: Linear, X: Tensor, y: Tensor) -> Read:
        """The same models; the factors of their widths are computed again for new rows."""
        scales = read.scales
        if not (isinstance(scales, LeverageScales) and isinstance(read.basis, Dual)):
            return read
        own = (read.models.ridges[:-1], scales.gamma, scales.own, scales.own_error)
        return replace(read, scales=LeverageAgain(tangent, X, y, self.intercept, *own))

    def _in_frame(self, frame: FeatureScale, network: wide) -> WideTangent:
        return in_frame(network, frame).on(self.machine)

    def _choice(
        self,
        found: SearchResult,
        widths: tuple[str, ...],
        rows: int,
        units: Sequence[float],
        searched: int,
        features: int,
    ) -> ChosenSettings:
        networks = [self.candidates[point.network].network for point in found.points]
        weights = [
            weights_of(network, point.weights, features) if network else [math.nan] * features
            for network, point in zip(networks, found.points, strict=True)
        ]
        return ChosenSettings(
            networks=tuple(candidate.name for candidate in self.candidates),
            each_network=np.array([point.network for point in found.points]),
            each_weights=np.array(weights),
            each_ridge=np.array([units[p.network] * 2.0**p.ridge for p in found.points]),
            each_widths=widths,
            each_gap=(found.starting - found.starting.min(axis=1, keepdims=True)) * searched / 2,
            rows=rows,
            evaluated=found.evaluated,
            searched=searched,
        )
