"""The lazy step in which every model chooses its network, weights of features, λ and widths.

With more than 1,000 rows, networks that cannot be fitted by passes over the rows (fit_shared.py)
are chosen here, too: by rows that are set aside, for all models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ..choosing.candidates import CandidateStep, is_narrow, wide_tangent
from ..choosing.likelihood import Together
from ..choosing.per_model import ModelSearch, PointValues, SearchResult, coordinate_search, grouped
from ..choosing.record import ChosenSettings
from ..choosing.rows import (
    MANY,
    SEARCHED,
    SHARED,
    draw_part,
    first_of_each,
    places_in,
    rows_apart,
)
from ..choosing.shape import Errors, choose_factors, errors_of
from ..choosing.space import Exponents
from ..choosing.target_scale import NO_SCALES, ScalesOfY, on_scale, scales_of_y
from ..compute import few_threads
from ..data.own_scaling import Compression, FeatureScales
from ..intervals import Construction, find_construction
from ..intervals.chosen import ChosenModels, Group, OtherScale, some_of
from ..records import RoundedModels
from ..ridge.leave_one_out import Folds, draw_folds
from ..ridge.problem import System
from ..ridge.readout import LinearModels
from ..ridge.system import Indefinite, OwnRidges, Ridge, joined
from ..ridge.widths import WIDTHS, LeverageAgain, LeverageScales
from ..tangent import Dual, Linear, Tangent
from .fit_network import LazyStep

MATRICES = 6  # n×n ones that a fit needs, beside the factors that it keeps if they fit
STEP_UP, LARGEST = 2.0**8, 1e60  # of λ with which models are solved that rounding leaves open


class _Place(NamedTuple):
    """A frame, a network with weights of its features in it, and a scale of y.

    Models there share a system.
    """

    frame: int
    network: int
    weights: Exponents
    scale: int = 0


class _Solved(NamedTuple):
    """The models of one place, and where they choose widths their errors."""

    read: LinearModels
    errors: list[Errors]
    sure: bool  # whether they have the λ that they chose


@dataclass(frozen=True)
class ChoosingStep(CandidateStep):
    """Settings: those of ``CandidateStep``, and these."""

    construction: str | Construction
    relevance: bool  # whether a weight for each feature is searched
    folds: Folds
    progress: bool = False
    searched: int = SEARCHED  # rows that the search uses, on average, where there are more
    together: Together | None = None  # of y of several outputs: from their criteria to one
    alpha: float = 0.1  # the level for which models shift their intervals

    def models(self, X: Tensor, y: Tensor) -> tuple[RoundedModels, ChosenSettings]:
        """Choose, solve at every place where some model stands, and join the models."""
        n = len(y)
        if n > MANY and not isinstance(self.folds, tuple):
            return self._shared(X, y)
        sets, frames, scales, found, searched = self._searched(X, y)
        with few_threads(n):
            loo = self._solve(X, y, sets, frames, found, scales.scales)
        widths = loo.factors.names if loo.factors else (self.widths,)
        choice = self.choice(found, widths, n, searched, X.shape[1])
        return loo, replace(choice, scales_of_y=scales.scales, each_scale_of_y=found.scales)

    def _searched(
        self, X: Tensor, y: Tensor
    ) -> tuple[Sequence[Tensor], FeatureScales, ScalesOfY, SearchResult, int]:
        """What models leave out, frames, scales of y, what the search found, on how many rows."""
        n = len(y)
        needed, what = MATRICES * self.machine.item * n**2, f"choosing with {n:,} rows"
        self.machine.check_fits(needed, what, "give a number for ridge, or fewer rows")
        uses_folds = find_construction(self.construction).uses_folds
        sets = draw_folds(n, self.folds, self.seed) if uses_folds else torch.arange(n).split(1)
        frames = self.frames(X, [*sets, torch.arange(0)], is_narrow(X))
        part = draw_part(n, self.seed, self.searched)
        if isinstance(self.folds, tuple):
            part = first_of_each(sets, self.searched)
        folds, columns = places_in(part, n, sets if uses_folds else None)
        scales = self._scales_of_y(y[part], folds)
        with few_threads(len(part)):
            found = self._search(X[part], y[part], frames, columns, folds, scales)
        return sets, frames, scales, found, len(part)

    def _scales_of_y(self, y: Tensor, folds: Sequence[Tensor] | None) -> ScalesOfY:
        """The scales of y that models may choose, which leave out rows of the part, or folds."""
        if not self.any_scale:
            return NO_SCALES
        sets = torch.arange(len(y)).split(1) if folds is None else folds
        return scales_of_y(y, [*(rows.numpy() for rows in sets), np.empty(0, dtype=int)])

    def _shared(self, X: Tensor, y: Tensor) -> tuple[RoundedModels, ChosenSettings]:
        """Rows that are set aside choose for all models, and train them, but are not left out."""
        (loo,), choice = self._shared_by(X, y, [y])
        return loo, choice

    def _shared_by(
        self, X: Tensor, Y: Tensor, targets: Sequence[Tensor]
    ) -> tuple[list[LinearModels], ChosenSettings]:
        """The same for several targets, where Y is what the rows set aside look at."""
        rest, apart = rows_apart(len(Y), self.seed)
        few, frames = apart[:SHARED], self.frames(X[apart], [torch.arange(0)], is_narrow(X))
        with few_threads(len(few)):
            found = self._search(X[few], Y[few], frames, [len(few)], None)
        tangent = self._tangent(_Place(0, *found.points[-1][:2]), frames)
        widths = "leverage" if WIDTHS[self.widths].needs_candidates else self.widths
        step = self._lazy(float(found.ridges[-1]), widths)
        if not isinstance(tangent, Tangent):  # finite networks were checked before their training
            step.check_fits(len(Y), len(Y), self.machine)
        order = torch.cat([rest, apart])
        with few_threads(len(Y)):
            models = [step.models(tangent, X[order], y[order], len(rest)) for y in targets]
        choice = self.choice(found, (widths,), len(rest), len(few), X.shape[1])
        return [cast("LinearModels", loo) for loo in models], choice

    def _search(
        self,
        X: Tensor,
        y: Tensor,
        frames: FeatureScales,
        columns: Sequence[int],
        folds: Sequence[Tensor] | None,
        scales: ScalesOfY = NO_SCALES,
    ) -> SearchResult:
        """Let every model search on some rows, last the full one."""
        kernels = self.kernels(X, [frames[k] for k in range(len(frames))])
        targets = self.machine.put(scales.targets(y) if self.together is None else y.T)
        values = PointValues(kernels, targets, self.intercept, self.machine, folds, self.together)
        models = list(map(ModelSearch, frames.of.tolist(), columns))
        relevance = self.relevance and is_narrow(X)
        free = relevance, self.ridge is None
        found = coordinate_search(values, models, *free, self.progress, offsets=scales.offsets)
        unsure = scales.doubtful[columns] if len(scales.doubtful) > 1 else scales.doubtful
        return found._replace(doubtful=found.doubtful | unsure)

    def _tangent(self, place: _Place, frames: FeatureScales) -> Linear:
        return self.tangent(place.network, place.weights, frames[place.frame])

    def _solve(
        self,
        X: Tensor,
        y: Tensor,
        sets: Sequence[Tensor],
        frames: FeatureScales,
        found: SearchResult,
        scales: Sequence[Compression | None],
    ) -> ChosenModels:
        """Solve at every place, and let every model choose its widths."""
        each_y = [on_scale(y, scale) for scale in scales]
        X, each_y = self.machine.put(X), [self.machine.put(one) for one in each_y]
        y = each_y[0]
        stands = zip(frames.of.tolist(), found.points, found.scales.tolist(), strict=True)
        ends = [_Place(frame, *point[:2], scale) for frame, point, scale in stands]
        owners = torch.empty(len(y), dtype=torch.long)  # for each row the model without it
        for k, rows in enumerate(sets):
            owners[rows] = k
        rows_at = grouped(ends[k] for k in owners.tolist())
        rows_at.setdefault(ends[-1], [])
        members = [torch.tensor(n, device=y.device, dtype=torch.long) for n in rows_at.values()]
        places = list(zip(rows_at, members, strict=True))
        keeps = len(places) * self.machine.item * len(y) ** 2 <= self.machine.kept
        ridges = y.new_tensor(found.ridges)

        def solve(place_and_members: tuple[_Place, Tensor]) -> _Solved:
            place, own = place_and_members
            mine = torch.tensor([end == place for end in ends], device=y.device)
            # Models that stand elsewhere are solved at some λ too, and not used.
            each, sure = torch.where(mine, ridges, ridges[mine][0]), True
            tangent = self._tangent(place, frames)
            while True:
                try:
                    read, errors = self._solve_at(tangent, each, X, each_y[place.scale], own)
                    break
                except Indefinite:  # of rows that are far away in the scale of these models
                    if place == ends[-1] or float(each.max()) > LARGEST:
                        raise
                    each, sure = STEP_UP * each, False
            scales = read.scales
            if isinstance(scales, LeverageScales) and isinstance(read.basis, Dual) and not keeps:
                read = replace(read, scales=LeverageAgain.of(scales, tangent, X))
            return _Solved(read, errors, sure)

        if all(candidate.weighted for candidate in self.candidates):
            solved = self.machine.map(solve, places, MATRICES * len(y) ** 2)
        else:  # modules have one state
            solved = map(solve, places)
        groups, errors = list[Group](), defaultdict[tuple[int, int], list[Errors]](list)
        full: LinearModels | None = None
        unsolved = torch.zeros_like(y, dtype=torch.bool)
        for (place, own), one in zip(places, solved, strict=True):
            unsolved[own] = not one.sure
            other = None
            if place.scale != ends[-1].scale:
                both = scales[place.scale], scales[ends[-1].scale]
                other = OtherScale(*both, each_y[place.scale][own])
            groups += [Group(own, some_of(one.read, own), other)] if len(own) else []
            errors[place.frame, place.scale] += one.errors
            full = some_of(one.read, own[:0]) if place == ends[-1] else full
        assert full is not None
        factors = None
        if any(errors.values()):  # local averages are computed once for each frame
            every = {key: joined(parts, -1) for key, parts in errors.items() if parts}
            which = [partial(wide_tangent, frame=frames[k], machine=self.machine) for k, _ in every]
            own_y = [each_y[scale] for _, scale in every]
            factors = choose_factors(X, own_y, list(every.values()), which, self.alpha)
        unsure = torch.from_numpy(found.doubtful[:-1]) | frames.doubtful[:-1]
        doubtful = unsure[owners].to(y.device) | unsolved
        doubtful = doubtful | (factors.doubtful if factors else False)
        return ChosenModels(tuple(groups), full, doubtful, factors)

    def _solve_at(
        self, tangent: Linear, ridges: Tensor, X: Tensor, y: Tensor, members: Tensor
    ) -> tuple[LinearModels, list[Errors]]:
        """All models around one network, and the errors of members where widths are chosen."""
        errors, mine = list[Errors](), torch.zeros(len(y), dtype=torch.bool, device=y.device)
        mine[members] = True
        chosen = WIDTHS[self.widths].needs_candidates
        outputs = tangent.features(X).outputs if chosen else y

        def visit(system: System, solved: Ridge, which: Tensor) -> None:
            own = torch.nonzero(which[:-1] & mine)[:, 0]
            errors.extend([errors_of(system, solved, outputs, own)] if len(own) else [])

        step = self._lazy(OwnRidges(ridges, y.new_zeros(len(ridges) - 1)), self.widths)
        read = step.models(tangent, X, y, visit=visit if chosen else None)
        assert isinstance(read, LinearModels)
        return read, errors

    def _lazy(self, ridge: float | OwnRidges, widths: str) -> LazyStep:
        """How all models around one network are solved."""
        return LazyStep(
            ridge,
            self.intercept,
            construction=self.construction,
            widths=widths,
            folds=self.folds,
            seed=self.seed,
            progress=self.progress and not isinstance(ridge, OwnRidges),
        )
