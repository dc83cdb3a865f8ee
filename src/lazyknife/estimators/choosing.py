"""The lazy step in which every model chooses its network, weights of features, λ and widths."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.frames import Frame, Frames, own_frames, unscaled
from ..intervals import Construction, find_construction
from ..intervals.chosen import ChosenModels, Group, some_of
from ..networks import wide
from ..solve.again import LeverageAgain
from ..solve.dual import DualSystem
from ..solve.factors import choose_factors
from ..solve.folds import draw_folds
from ..solve.kernels import CandidateKernels, weights_of
from ..solve.pairs import Errors, errors_of, joined
from ..solve.part import SEARCHED, draw_part, toll
from ..solve.places import Place
from ..solve.problem import Problem, make_system, ridge_grid
from ..solve.reading import Read
from ..solve.scales import LeverageScales
from ..solve.search import Found, Groups, Search, Walker, walk
from ..solve.widths import WIDTHS
from ..tangent import Dual, Linear, WideTangent
from ..threads import few_threads
from .candidates import Candidate, CandidateStep, in_frame, is_narrow
from .choice import Choice

MATRICES = 6  # n×n ones that a fit needs, beside the factors that it keeps if they fit


class _Rows(NamedTuple):
    """The data, and which rows each model leaves out."""

    X: Tensor
    y: Tensor
    sets: Sequence[Tensor]
    frames: Frames

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
    construction, widths, folds, alpha, progress
        As in ``LazyStep``.
    relevance
        Whether a weight for each feature is searched.
    searched
        Rows that the search uses, on average, where there are more.

    """

    construction: str | Construction[Any]
    widths: str
    relevance: bool
    folds: int
    alpha: float
    progress: bool = False
    searched: int = SEARCHED

    def models(self, X: Tensor, y: Tensor) -> tuple[ChosenModels, Choice]:
        """Search, solve at every place where some model stands, and join the models."""
        needed, what = MATRICES * self._bytes(y), f"choosing with {len(y):,} rows"
        self.machine.check_fits(needed, what, "use network=mlp((64, 64), skip=True) or fewer rows")
        sets = list(torch.arange(len(y))[:, None])
        if find_construction(self.construction).uses_folds:
            sets = draw_folds(len(y), self.folds, self.seed)
        rows = _Rows(X, y, sets, self._frames(X, sets))
        units = [self.unit(candidate, X) for candidate in self.candidates]
        with self.machine.exact.products():
            part = draw_part(len(y), self.seed, self.searched)
            with few_threads(len(part)):
                found = self._search(rows, part, units)
            with few_threads(len(y)):
                loo = self._solve(rows, found, units)
        return loo, self._choice(found, loo, units, len(part), X.shape[1])

    def _frames(self, X: Tensor, sets: Sequence[Tensor]) -> Frames:
        if not self.scaled:
            return unscaled(len(sets) + 1, X.shape[1], self.nominal)
        every = [*sets, torch.arange(0)]
        return own_frames(X, every, centered=is_narrow(X), nominal=self.nominal)

    def _search(self, rows: _Rows, part: Tensor, units: Sequence[float]) -> Found:
        """Let every model search, last the full one."""
        frames, of = rows.frames, rows.frames.of.tolist()
        folds, columns = self._columns(rows, part)
        walkers = [Walker(frame, column) for frame, column in zip(of, columns, strict=True)]
        framed = [self.machine.put(frames[k].apply(rows.X[part])) for k in range(len(frames))]
        networks = [
            candidate.network or partial(self._given, candidate, frames, rows.X[part])
            for candidate in self.candidates
        ]
        kernels = CandidateKernels(networks, units, framed, frames[0].nominal)
        y = self.machine.put(rows.y[part])
        distinct = list(dict.fromkeys(walkers))
        found = walk(
            Search(kernels, y, self.intercept, self.machine, folds),
            distinct,
            np.array([toll(len(part), folds, walker.left_out) for walker in distinct]),
            self.relevance and is_narrow(rows.X),
            self.ridge is None,
            self.progress,
        )
        place_of = {walker: k for k, walker in enumerate(distinct)}
        return found.of([place_of[walker] for walker in walkers])

    def _columns(self, rows: _Rows, part: Tensor) -> tuple[list[Tensor] | None, list[int]]:
        """Folds among the search rows, and each model's number among those left out of them."""
        place_of = {row: k for k, row in enumerate(part.tolist())}
        if find_construction(self.construction).uses_folds:
            inside = [[place_of[r] for r in s.tolist() if r in place_of] for s in rows.sets]
            folds = [torch.tensor(s, dtype=torch.long, device=self.machine.device) for s in inside]
            return folds, list(range(len(folds) + 1))
        columns = [place_of.get(row, len(part)) for row in range(len(rows.y))]
        return None, [*columns, len(part)]

    def _given(
        self, candidate: Candidate, frames: Frames, X: Tensor, frame: int
    ) -> tuple[Tensor, Tensor]:
        """Kernel and outputs of a network whose weights of features are not searched."""
        tangent = self._tangent(candidate, Place(0, (), 0), frames[frame])
        features = tangent.features(X)
        return tangent.gram(features), features.outputs

    def _tangent(self, candidate: Candidate, place: Place, frame: Frame) -> Linear:
        if candidate.network is None:
            return candidate.at(frame).on(self.machine)
        weights = weights_of(candidate.network, place.weights, len(frame.scale))
        own = frame.scale.new_tensor(weights)
        return WideTangent(candidate.network, own, frame).on(self.machine)

    def _solve(self, rows: _Rows, found: Found, units: Sequence[float]) -> ChosenModels:
        """Solve at every place where some model stands."""
        X, y = self.machine.put(rows.X), self.machine.put(rows.y)
        owners, frames = rows.owners, rows.frames
        ends = list(zip(frames.of.tolist(), found.places, strict=True))
        places = Groups([ends[k] for k in owners.tolist()])
        places.setdefault(ends[-1], [])

        def solve(item: tuple[tuple[int, Place], list[int]]) -> tuple[Read, Errors | None]:
            (frame, place), numbers = item
            tangent = self._tangent(self.candidates[place.network], place, frames[frame])
            ridge = units[place.network] * 2.0**place.ridge
            members = torch.tensor(numbers, device=y.device, dtype=torch.long)
            read, pairs = self._solve_at(tangent, ridge, X, y, members)
            if len(places) * self._bytes(y) > self.machine.kept:
                read = self._without_factor(read, tangent, ridge, X, y)
            return read, pairs

        groups, errors = list[Group](), defaultdict[int, list[Errors]](list)
        full: Read | None = None
        alike = all(candidate.network for candidate in self.candidates)  # modules have one state
        items = list(places.items())
        solved = (
            self.machine.map(solve, items, MATRICES * len(y) ** 2) if alike else map(solve, items)
        )
        for ((frame, place), numbers), (read, pairs) in zip(items, solved, strict=True):
            members = torch.tensor(numbers, device=y.device, dtype=torch.long)
            groups += [Group(members, some_of(read, members))] if numbers else []
            errors[frame] += [pairs] if pairs is not None else []
            full = some_of(read, members[:0]) if (frame, place) == ends[-1] else full
        assert full is not None
        factors = None
        if any(errors.values()):  # local averages are computed once for each frame
            every = {k: joined(parts) for k, parts in errors.items() if parts}
            which = [partial(self._in_frame, frames[k]) for k in every]
            factors = choose_factors(X, y, list(every.values()), which)
        unsure = torch.from_numpy(found.doubtful[:-1]) | frames.doubtful[:-1]
        doubtful = unsure[owners].to(y.device) | (factors.doubtful if factors else False)
        return ChosenModels(tuple(groups), full, doubtful, factors)

    def _solve_at(
        self, tangent: Linear, ridge: float, X: Tensor, y: Tensor, members: Tensor
    ) -> tuple[Read, Errors | None]:
        """All models at one place, and the errors of its members where widths are chosen."""
        widths = WIDTHS[self.widths]
        basis = Dual(tangent, tangent.features(X))
        system = make_system(basis, X, y, self.intercept)
        errors = None
        if widths.needs_candidates and len(members):
            assert isinstance(system, DualSystem)
            errors = errors_of(system, ridge, basis.features.outputs, members)
        grid = tuple(ridge_grid(tangent, X, self.seed).tolist()) if widths.needs_grid else ()
        terms = {"widths": widths, "folds": self.folds, "seed": self.seed}
        problem = Problem(basis, X, y, system, (ridge,), grid, **terms)  # type: ignore[arg-type]
        read = find_construction(self.construction).fit(problem, "tangent", self.alpha).loo
        assert isinstance(read, Read)
        return read, errors

    def _bytes(self, y: Tensor) -> int:
        return self.machine.item * len(y) ** 2

    def _without_factor(
        self, read: Read, tangent: Linear, ridge: float, X: Tensor, y: Tensor
    ) -> Read:
        """The same models; the factor of their widths is computed again for new rows."""
        scales = read.scales
        if not isinstance(scales, LeverageScales):
            return read
        own = (scales.gamma, scales.own, scales.own_error)
        again = LeverageAgain(tangent, X, y, self.intercept, ridge, *own)
        return replace(read, scales=again)

    def _in_frame(self, frame: Frame, network: wide) -> WideTangent:
        return in_frame(network, frame).on(self.machine)

    def _choice(
        self, found: Found, loo: ChosenModels, units: Sequence[float], searched: int, features: int
    ) -> Choice:
        networks = [self.candidates[place.network].network for place in found.places]
        weights = [
            weights_of(network, place.weights, features) if network else [math.nan] * features
            for network, place in zip(networks, found.places, strict=True)
        ]
        return Choice(
            networks=tuple(candidate.name for candidate in self.candidates),
            network=np.array([place.network for place in found.places]),
            weights=np.array(weights),
            ridge=np.array([units[p.network] * 2.0**p.ridge for p in found.places]),
            widths=loo.factors.names if loo.factors else (self.widths,) * len(loo.doubtful),
            behind=(found.starting - found.starting.min(axis=1, keepdims=True)) * searched / 2,
            evaluated=found.evaluated,
            searched=searched,
        )
