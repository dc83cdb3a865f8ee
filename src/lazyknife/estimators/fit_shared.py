"""The lazy step for many rows: choices on a part of them, models by passes over all of them.

A random part S of the rows is set aside. On S alone are chosen: the scale of each feature, the
network, a weight for each feature, λ, the landmarks, and how errors vary. Given S all of that is
fixed. The rows of S also train every model, but are never left out: the other rows and a new one
are exchangeable given S, so the guarantee holds with their number.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..choosing.candidates import CandidateStep, is_narrow, wide_tangent
from ..choosing.per_model import ModelSearch, PointValues, coordinate_search
from ..choosing.record import ChosenSettings
from ..choosing.rows import drawn_part, part_of
from ..choosing.shape import FOLDS, LEAST_GAIN, fit_shape
from ..choosing.shared import Holdout, choose_network
from ..choosing.space import CandidateKernels
from ..choosing.target_scale import on_scale, scales_of_y
from ..compute import one_thread
from ..data.own_scaling import Compression
from ..intervals.streamed import Passes, StreamedModels
from ..networks import wide
from ..ridge.streamed import Sums
from ..tangent import Landmarks
from ..tangent.trees import grow

LOG = logging.getLogger("lazyknife")
SCALED = 200  # rows that choose the scale of y
# Landmarks: n·d² stays below this where that leaves enough of them.
WORK, FEWEST, MOST = 2e11, 512, 2000
# Boosted trees: the fewest rows of the part for them, how they grow, and the rows whose left-out
# errors choose their weight, in units of √λ, and a multiple of λ.
FEWEST_GROWN, JUDGES = 1500, 2000
TREES = {"max_iter": 200, "min_samples_leaf": 10}
WEIGHTS, RIDGE_TIMES = (1.0, 10.0), (1.0, 8.0)


def landmarks_of(n: int) -> int:
    """Number of landmarks, a function of the number of rows alone."""
    return min(part_of(n), MOST, max(FEWEST, int(math.sqrt(WORK / n))))


@dataclass(frozen=True)
class PartedStep(CandidateStep):
    """Settings: those of ``CandidateStep``, whose candidates are of known kinds, and these."""

    relevance: bool  # whether a weight for each feature is searched
    progress: bool = False  # whether to show progress bars
    alpha: float = 0.1  # the level for which the shape of intervals is learnt
    splits: bool = False  # whether models learn from the part alone

    def models(self, X: Tensor, y: Tensor) -> tuple[StreamedModels, ChosenSettings]:
        """Choose on the part, and solve."""
        own, landmarks = drawn_part(len(y), self.seed), landmarks_of(len(y))
        features = self.machine.item * len(y) * landmarks  # kept for the second pass if they fit
        needed = features if features <= self.machine.kept else 0
        needed += self.machine.item * (8 * landmarks**2 + 12 * len(y))
        self.machine.check_fits(needed, f"fitting {len(y):,} rows", "use fewer rows")
        LOG.info("fitting %d rows: %d choose, %d landmarks", len(y), len(own), landmarks)
        rest = torch.from_numpy(np.delete(np.arange(len(y)), own))
        with one_thread():
            passes, choice, grown = self.chosen(X[own], y[own], len(y))
            values = torch.full_like(y, torch.nan)
            values[own] = grown.to(values)
            y = on_scale(y, choice.target_scale)
            loo = passes.models(X, y, rest, self.progress, values, self.splits)
        return loo, choice

    def chosen(self, X: Tensor, y: Tensor, n: int) -> tuple[Passes, ChosenSettings, Tensor]:
        """What is chosen on a part of n rows, which is given in a random order.

        Also the values of trees for these rows, which they were grown on, shape (rows,).
        """
        frame = self.frames(X, [torch.arange(0)], centered=True)[0]
        networks = [each.weighted for each in self.candidates if each.weighted is not None]
        framed = self.machine.put(frame.apply(X))
        scale = self._scale_of_y(networks, framed[:SCALED], y[:SCALED], frame.nominal)
        y = on_scale(y, scale)
        targets = self.machine.put(y)
        rows = Holdout(framed, targets, frame.nominal, self.intercept, self.relevance, self.ridge)
        found = choose_network(networks, rows, self.machine, self.progress)
        best = found.fits[found.best]
        tangent = wide_tangent(networks[found.best], frame, best.weights, self.machine)
        basis = Landmarks.of(tangent, X[: landmarks_of(n)])
        center = float(y.mean()) if self.intercept else 0.0
        passes = Passes(basis, best.ridge, self.intercept, center)
        passes, grown = self._with_trees(passes, X, y)
        first = passes.models(X, y, torch.arange(len(y)), grown=grown)  # of the part alone
        shape, errors = None, first.residuals
        if self.widths != "constant":
            given = (self.machine.put(X), targets - errors, errors)
            shape = fit_shape(*given, self.alpha, self.seed, self.machine)
        passes = replace(passes, shape=shape, start=first.solved.weights)
        choice = ChosenSettings(
            networks=tuple(candidate.name for candidate in self.candidates),
            each_network=np.array([found.best]),
            each_weights=np.array([best.weights]),
            each_ridge=np.array([passes.ridge]),
            each_widths=("constant" if shape is None else "learnt",),
            each_gap=np.array([found.gaps]),
            rows=n - len(y),
            evaluated=sum(fit.evaluations for fit in found.fits),
            searched=len(y),
            landmarks=basis.size,
            scales_of_y=(scale,),
            trees=passes.basis.trees is not None,
        )
        return passes, choice, grown

    def _with_trees(self, passes: Passes, X: Tensor, y: Tensor) -> tuple[Passes, Tensor]:
        """Boosted trees as one more feature, if that lowers left-out errors of the part.

        Also their values for these rows: of trees without the fold of a row, in which the ridge
        may trust as in those of the whole part for other rows.
        """
        nothing = torch.full_like(y, torch.nan)
        spread = float(y.std())
        if len(y) < FEWEST_GROWN or not X.shape[1] or not 0 < spread < math.inf:
            return passes, nothing
        targets = (y - passes.center) / 2.0 ** round(math.log2(spread))
        trees, grown = grow(X, targets, self.seed, self.machine, **TREES), torch.empty_like(y)
        for k in range(FOLDS):
            held = torch.arange(len(y)) % FOLDS == k
            without = grow(X[~held], targets[~held], self.seed, self.machine, **TREES)
            grown[held] = without(self.machine.put(X[held])).to(grown)
        unit = math.sqrt(passes.ridge)
        tried = replace(passes, basis=replace(passes.basis, trees=trees))
        total, few = None, list[Tensor]()
        for part in tried.blocks(len(y)):
            sums, rows = tried.sums(X[part], y[part], grown[part])
            total = sums if total is None else total + sums
            few += [rows] * (part.start < JUDGES)
        assert total is not None
        errors = self._errors_with(total, torch.cat(few), passes, y)
        weight, times = min(errors, key=errors.__getitem__)
        if not errors[weight, times] <= (1 - LEAST_GAIN) * errors[0.0, 1.0]:
            return passes, nothing
        trees = replace(trees, values=weight * unit * trees.values)
        basis = replace(passes.basis, trees=trees)
        return replace(passes, basis=basis, ridge=times * passes.ridge), weight * unit * grown

    def _errors_with(
        self, sums: Sums, rows: Tensor, passes: Passes, y: Tensor
    ) -> dict[tuple[float, float], float]:
        """Mean square of left-out errors by the weight of the trees and the multiple of λ.

        ``sums`` and ``rows``, the first of them, have the trees as the feature after those of
        ``passes``. In units of √λ their weight w is a penalty of times/w² for weight 1; the other
        features are eliminated first. A weight of 0 leaves the trees out.
        """
        own = passes.basis.size
        kept = torch.arange(rows.shape[1], device=rows.device) != own
        gram, moments, targets = sums.gram, sums.moments, passes.targets(rows, y[: len(rows)])
        others = Sums(gram[kept][:, kept], moments[kept], sums.square, sums.count)
        errors = dict[tuple[float, float], float]()
        for times in RIDGE_TIMES if self.ridge is None else RIDGE_TIMES[:1]:
            solved = replace(passes, ridge=times * passes.ridge).solve(others)
            half, cross, moved = map(
                solved.half, (rows[:, kept], gram[own][None, kept], moments[None, kept])
            )
            left, open_part = targets - half.T @ moved[:, 0], 1 - half.square().sum(dim=0)
            column = rows[:, own] - half.T @ cross[:, 0]
            square = gram[own, own] - cross.square().sum()
            toward = moments[own] - (cross * moved).sum()
            errors.setdefault((0.0, 1.0), float((left / open_part).square().mean()))
            for weight in WEIGHTS:
                size = square + times / weight**2
                found = (left - column * toward / size) / (open_part - column.square() / size)
                errors[weight, times] = float(found.square().mean())
        return errors

    def _scale_of_y(
        self, networks: Sequence[wide], framed: Tensor, y: Tensor, nominal: Sequence[bool]
    ) -> Compression | None:
        """The scale of y that one model with these rows chooses."""
        if not self.any_scale:
            return None
        offered = scales_of_y(y, [np.empty(0, dtype=int)])
        kernels = CandidateKernels(networks, [1.0] * len(networks), [framed], nominal)
        targets = self.machine.put(offered.targets(y))
        values = PointValues(kernels, targets, self.intercept, self.machine)
        models = [ModelSearch(0, len(y))]
        free = self.relevance and is_narrow(framed), self.ridge is None
        found = coordinate_search(values, models, *free, offsets=offered.offsets)
        return offered.scales[int(found.scales[0])]
