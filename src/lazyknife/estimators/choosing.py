"""Every model chooses its network, the weights of its features, λ and widths on its own rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..compute import Machine, few_threads
from ..data.frames import Frames, own_frames, unscaled
from ..intervals import CONSTRUCTIONS
from ..intervals.chosen import ChosenModels, Group, some_of
from ..networks import wide
from ..solve.choose import left_out, strips, two_left_out, two_left_out_diagonal
from ..solve.factors import Errors, Factors, choose_factors
from ..solve.folds import draw_folds
from ..solve.kernels import CandidateKernels, weights_of
from ..solve.places import Place
from ..solve.problem import Problem, make_system, ridge_grid
from ..solve.ridge import Ridge
from ..solve.rounding import gamma_of
from ..solve.search import Found, Groups, Search, Walker, walk
from ..solve.widths import WIDTHS
from ..tangent import Dual, WideTangent
from .candidates import AnyTangent, Candidate
from .choice import Choice

SEARCHED = 400  # rows that the search uses, on average, where there are more
STEP = 1.0  # scales are powers of 2
MOST_FEATURES = 64  # whose weights are searched


@dataclass(frozen=True)
class ChoosingStep:
    """Settings of the lazy step with several candidates.

    Attributes
    ----------
    candidates
        The networks.
    ridge
        λ in units of each network, or None: searched.
    intercept, construction, folds, alpha, progress
        As in ``LazyStep``.
    widths
        A key of ``WIDTHS``, or ``"auto"``.
    relevance
        Whether a weight for each feature is searched.
    scaled
        Whether each model scales the features by its own rows.
    seed
        Of folds, of the part of the rows that the search uses, and of probes.

    """

    candidates: Sequence[Candidate]
    ridge: float | None
    intercept: bool
    construction: str
    widths: str
    relevance: bool
    scaled: bool
    folds: int
    seed: int
    alpha: float
    machine: Machine
    progress: bool = False

    def models(self, X: Tensor, y: Tensor) -> tuple[ChosenModels, Choice]:
        """Search, solve every place that some model stands at, and join the models."""
        uses_folds = CONSTRUCTIONS[self.construction].uses_folds
        sets = (
            draw_folds(len(y), self.folds, self.seed)
            if uses_folds
            else list(torch.arange(len(y))[:, None])
        )
        model_of = _owners(sets, len(y))
        frames = self._frames(X, sets)
        found, walkers, searched = self._searched(X, y, frames, sets)
        ends = [(walker.frame, place) for walker, place in zip(walkers, found.places, strict=True)]
        X, y = self.machine.put(X), self.machine.put(y)
        with self.machine.exact.products(), few_threads(len(y)):
            solved = self._solved(X, y, frames, ends, model_of)
        doubtful = torch.from_numpy(found.doubtful[:-1]) | frames.doubtful[:-1]
        loo = ChosenModels(*solved[:2], doubtful[model_of].to(y.device), solved[2])
        if solved[2] is not None:
            loo = ChosenModels(loo.groups, loo.full, loo.doubtful | solved[2].doubtful, solved[2])
        return loo, self._choice(found, solved[2], searched, X.shape[1])

    def _frames(self, X: Tensor, sets: Sequence[Tensor]) -> Frames:
        if not self.scaled:
            return unscaled(len(sets) + 1, X.shape[1])
        return own_frames(X.double().cpu(), [*sets, torch.arange(0)], STEP)

    def _searched(
        self, X: Tensor, y: Tensor, frames: Frames, sets: Sequence[Tensor]
    ) -> tuple[Found, list[Walker], int]:
        """Let every model search; last, the full one."""
        part = draw_part(len(y), self.seed)
        place_of = {int(row): k for k, row in enumerate(part)}
        folds = None
        if len(sets) == len(y):
            columns = [place_of.get(int(rows[0]), len(part)) for rows in sets]
        else:
            inside = [[place_of[int(row)] for row in rows if int(row) in place_of] for rows in sets]
            folds, columns = (
                [torch.tensor(rows, device=self.machine.device) for rows in inside],
                list(range(len(sets))),
            )
        last = len(part) if folds is None else len(folds)
        of = frames.of.tolist()
        walkers = [
            Walker(frame, column) for frame, column in zip(of, [*columns, last], strict=True)
        ]
        rows = [self.machine.put(frames.apply(k, X[part])) for k in range(len(frames))]
        kernels = CandidateKernels(*self._networks(X, frames, part), rows)
        search = Search(kernels, self.machine.put(y[part]), self.intercept, self.machine, folds)
        distinct = list(dict.fromkeys(walkers))
        sizes = [len(part) - _gone(w.left_out, folds, len(part)) for w in distinct]
        tolls = np.array([math.log(max(size, 2)) / max(size, 2) for size in sizes])
        relevance = self.relevance and X.shape[1] <= MOST_FEATURES
        with few_threads(len(part)):
            found = walk(search, distinct, tolls, relevance, self.ridge is None, self.progress)
        index = {walker: k for k, walker in enumerate(distinct)}
        each = np.array([index[walker] for walker in walkers])
        spread = Found(
            [found.places[k] for k in each],
            found.values[each],
            found.doubtful[each],
            found.starting[each],
            found.evaluated,
        )
        return spread, walkers, len(part)

    def _networks(self, X: Tensor, frames: Frames, part: Tensor):  # type: ignore[no-untyped-def]
        """The networks as the search takes them, and their units of λ."""
        networks, units = [], []
        for candidate in self.candidates:
            unit = 1.0
            if candidate.network is not None:
                networks.append(candidate.network)
            else:
                networks.append(self._given(candidate, X, frames, part))
                unit = self._unit(candidate, X)
            units.append(unit if self.ridge is None else self.ridge)
        return networks, units

    def _given(self, candidate: Candidate, X: Tensor, frames: Frames, part: Tensor):  # type: ignore[no-untyped-def]
        def kernel(frame: int) -> tuple[Tensor, Tensor]:
            tangent = self._tangent(candidate, Place(0, (), 0), frames, frame)
            features = tangent.features(X[part])
            return tangent.gram(features), features.outputs

        return kernel

    def _unit(self, candidate: Candidate, X: Tensor) -> float:
        """Typical k(x, x), at synthetic rows: a function of the network alone."""
        zeros = torch.zeros(X.shape[1], dtype=torch.float64)
        assert candidate.tangent is not None
        tangent = candidate.tangent(zeros, zeros + 1).on(self.machine)
        return 1e4 * float(ridge_grid(tangent, X, self.seed)[0])

    def _tangent(
        self, candidate: Candidate, place: Place, frames: Frames, frame: int
    ) -> AnyTangent:
        center, scale = frames.centers[frame], frames.scales[frame]
        if candidate.network is None:
            assert candidate.tangent is not None
            return candidate.tangent(center, scale).on(self.machine)
        weights = weights_of(candidate.network, place, len(scale))
        parts = (torch.tensor(weights, dtype=torch.float64), center, scale)
        return WideTangent(candidate.network, *parts).on(self.machine)

    def _solved(self, X, y, frames, ends, model_of):  # type: ignore[no-untyped-def]
        """Groups of models, the full model, and the factors of widths."""
        construction = CONSTRUCTIONS[self.construction]
        auto = self.widths == "auto"
        widths = WIDTHS["leverage" if auto else self.widths]
        places = Groups([ends[k] for k in model_of.tolist()])
        places.setdefault(ends[-1], [])
        units = self._networks(X, frames, torch.arange(0))[1]
        groups, errors, tangents, full = [], [], [], None
        for (frame, place), rows in places.items():
            tangent = self._tangent(self.candidates[place.network], place, frames, frame)
            basis = Dual(tangent, tangent.features(X))  # type: ignore[arg-type]
            system = make_system(basis, X, y, self.intercept)
            ridge = units[place.network] * 2.0**place.ridge
            grid = tuple(ridge_grid(tangent, X, self.seed).tolist()) if widths.needs_grid else ()  # type: ignore[arg-type]
            members = torch.tensor(rows, device=y.device, dtype=torch.long)
            if auto and rows:
                errors.append(two_out(system.copy().at(ridge), y, members, self.machine))
                tangents.append(self._frame(frames, frame))
            problem = Problem(
                basis, X, y, system, (ridge,), grid, widths=widths, folds=self.folds, seed=self.seed
            )
            read = construction.fit(problem, "tangent", self.alpha).loo
            if rows:
                groups.append(Group(members, some_of(read, members)))
            if (frame, place) == ends[-1]:
                full = some_of(read, members[:0])
        factors = choose_factors(X, y, errors, tangents) if auto else None
        return tuple(groups), full, factors

    def _frame(self, frames: Frames, frame: int) -> WideTangent:
        center, scale = frames.centers[frame], frames.scales[frame]
        return WideTangent(wide(), torch.ones_like(scale), center, scale).on(self.machine)

    def _choice(
        self, found: Found, factors: Factors | None, searched: int, features: int
    ) -> Choice:
        weights = [
            self.candidates[place.network].network and place.weights for place in found.places
        ]
        unit = [
            weights_of(self.candidates[p.network].network, p, features)
            if w
            else [math.nan] * features
            for p, w in zip(found.places, weights, strict=True)
        ]
        chosen = np.array([place.network for place in found.places])
        gaps = found.starting - found.starting.min(axis=1, keepdims=True)
        return Choice(
            networks=tuple(candidate.name for candidate in self.candidates),
            network=chosen,
            weights=np.array(unit),
            ridge=np.array([2.0**place.ridge for place in found.places]),
            widths=(self.widths,) * (len(chosen) - 1) if factors is None else factors.names,
            behind=gaps * searched / 2,
            evaluated=found.evaluated,
            searched=searched,
        )


def draw_part(n: int, seed: int) -> Tensor:
    """Rows for the search: all of them, or each with the same probability, by its own coin."""
    if n <= SEARCHED:
        return torch.arange(n)
    coins = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nonzero(coins < SEARCHED / n)[:, 0]


def two_out(solved: Ridge, y: Tensor, members: Tensor, machine: Machine) -> Errors:
    """Errors of some models with two rows left out, over their leverage widths."""
    n, residuals, gamma = len(y), left_out(solved), gamma_of(y.dtype)
    sizes, predicted = y.new_empty(n, len(members)), y.new_empty(n, len(members))
    spans = torch.empty_like(y)
    for rows in strips(n, machine):
        strip = solved.inverse_rows(rows)
        spans[rows] = solved.spans(rows, strip)
        variances = 1 / two_left_out_diagonal(strip.clone(), rows, solved.diagonal)[:, members]
        errors = two_left_out(strip, rows, solved)[:, members]
        predicted[rows] = y[rows, None] - errors
        sizes[rows] = errors.abs() / variances.sqrt()
    sizes[members, torch.arange(len(members), device=y.device)] = 0.0
    own = solved.sensitivity(spans).own * solved.diagonal.abs().sqrt()
    mean = sizes.sum(dim=0) / (n - 1)
    noise = 2 * gamma * (own.max() / mean + solved.strain)
    return Errors(members, sizes, predicted, y[members] - residuals[members], noise)


def _owners(sets: Sequence[Tensor], n: int) -> Tensor:
    """For each row the set that contains it."""
    owners = torch.empty(n, dtype=torch.long)
    for k, rows in enumerate(sets):
        owners[rows] = k
    return owners


def _gone(column: int, folds: Sequence[Tensor] | None, rows: int) -> int:
    """How many of the search rows a walker leaves out."""
    if folds is None:
        return int(column < rows)
    return len(folds[column]) if column < len(folds) else 0
