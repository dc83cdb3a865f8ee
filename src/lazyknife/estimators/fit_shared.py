"""The lazy step for many rows: choices on a part of them, models by passes over all of them.

A random part S of the rows is set aside. On S alone are chosen: the scale of each feature, the
network, a weight for each feature, λ, the landmarks, and how errors vary. Given S all of that is
fixed. The rows of S also train every model, but are never left out: the other rows and a new one
are exchangeable given S, so the guarantee holds with their number.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..choosing.record import ChosenSettings
from ..choosing.rows import MANY, drawn_part, part_of
from ..choosing.shape import NoiseModel, fit_noise_model, log_errors
from ..choosing.shared import (
    STAGES,
    Holdout,
    KernelFit,
    NetworkFits,
    fit_networks,
    select_by_validation,
)
from ..compute import one_thread
from ..data.own_scaling import FeatureScale, own_frames, unscaled
from ..intervals import Construction, find_construction
from ..intervals.streamed import Passes, StreamedModels
from ..networks import KINDS, is_known, wide
from ..tangent import Landmarks, WideTangent
from .candidates import CandidateStep

LOG = logging.getLogger("lazyknife")
# Rows of the search for each feature, below which weights of features would overfit, and rows that
# had no part in it, below which they do not decide.
ROWS_EACH, FEWEST_TRIED = 5, 250
AMOUNT = 2000  # rows that σ is learnt from
# Landmarks: n·d² stays below this where that leaves enough of them.
WORK, FEWEST, MOST = 2e11, 512, 2000


class Part(NamedTuple):
    """The rows set aside, in a random order, and what is said of them."""

    X: Tensor
    y: Tensor
    frame: FeatureScale

    @property
    def framed(self) -> Tensor:
        return self.frame.apply(self.X)


def is_parted(
    n: float, networks: Iterable[object], construction: str | Construction, widths: str | None
) -> bool:
    """Whether n rows are parted: wide networks of known kinds, and a model for each row."""
    known = all(map(is_known, networks)) and find_construction(construction).leaves_rows
    return n > MANY and known and widths in (None, "auto", "constant")


def stages_of(part: int) -> tuple[int, int]:
    """Rows of the part on which all networks are fitted, and the best; the others decide."""
    few, many = STAGES
    return min(few, part), min(many, 2 * part // 3 if 2 * part // 3 > few else part)


def landmarks_of(n: int) -> int:
    """Number of landmarks, a function of the number of rows alone."""
    return min(part_of(n), MOST, max(FEWEST, int(math.sqrt(WORK / n))))


@dataclass(frozen=True)
class PartedStep(CandidateStep):
    """Settings: those of ``CandidateStep``, whose candidates are of known kinds, and these.

    Attributes
    ----------
    relevance
        Whether a weight for each feature is searched.
    progress
        Whether to show progress bars.

    """

    relevance: bool
    progress: bool = False

    def models(self, X: Tensor, y: Tensor) -> tuple[StreamedModels, ChosenSettings]:
        """Choose on the part, and solve."""
        own, landmarks = drawn_part(len(y), self.seed), landmarks_of(len(y))
        features = self.machine.item * len(y) * landmarks  # kept for the second pass if they fit
        needed = features if features <= self.machine.kept else 0
        needed += self.machine.item * (6 * landmarks**2 + 12 * len(y))
        self.machine.check_fits(needed, f"fitting {len(y):,} rows", "use fewer rows")
        LOG.info("fitting %d rows: %d choose, %d landmarks", len(y), len(own), landmarks)
        rest = torch.from_numpy(np.delete(np.arange(len(y)), own))
        with one_thread():
            passes, choice = self.chosen(X[own], y[own], len(y))
            loo = passes.models(X, y, rest, self.progress)
        return loo, choice

    def chosen(self, X: Tensor, y: Tensor, n: int) -> tuple[Passes, ChosenSettings]:
        """What is chosen on a part of n rows, which is given in a random order."""
        part = Part(X, y, self._frame(X))
        found = self._fits(part, self._networks, y, self.ridge)
        own = found.fits[found.best]
        tangent = self._tangent(self._networks[found.best], own, part.frame)
        basis = Landmarks.of(tangent, X[: landmarks_of(n)])
        center = float(y.mean()) if self.intercept else 0.0
        passes = Passes(basis, own.ridge, self.intercept, center)
        first = passes.models(X, y, torch.arange(len(y)))  # of the part alone
        amount = self._amount(part, first.residuals)
        passes = replace(passes, amount=amount, start=first.solved.weights)
        return passes, self._choice(passes, n - len(y), part, found)

    def _frame(self, X: Tensor) -> FeatureScale:
        if not self.scaled:
            return unscaled(1, X.shape[1], self.nominal)[0]
        nobody = [torch.arange(0)]
        return own_frames(X, nobody, centered=True, nominal=self.nominal)[0]

    @property
    def _networks(self) -> list[wide]:
        found = [candidate.network for candidate in self.candidates]
        return [network for network in found if network is not None]

    def _fits(
        self, part: Part, networks: Sequence[wide], targets: Tensor, ridge: float | None = None
    ) -> NetworkFits:
        X, y = self.machine.put(part.framed), self.machine.put(targets)
        stages = stages_of(len(X))
        relevance = self.relevance and ROWS_EACH * X.shape[1] <= stages[-1]
        rows = Holdout(X, y, part.frame.nominal, self.intercept, relevance, ridge)
        found = fit_networks(networks, rows, stages, self.machine, self.progress)
        if len(X) - stages[-1] < FEWEST_TRIED:
            return found
        return select_by_validation(networks, found, rows, stages[-1], self.machine)

    def _tangent(self, network: wide, fit: KernelFit, frame: FeatureScale) -> WideTangent:
        weights = frame.scale.new_tensor(fit.weights)
        return WideTangent(network, weights, frame).on(self.machine)

    def _amount(self, part: Part, errors: Tensor) -> NoiseModel | None:
        """σ(x), learnt from the part's own left-out errors."""
        if self.widths == "constant":
            return None
        # σ is computed at every row: by kernels that are cheap.
        networks = [n for n in self._networks if KINDS[str(n.kind)].is_power] or self._networks
        found = self._fits(part, networks, log_errors(errors))
        own = self._tangent(networks[found.best], found.fits[found.best], part.frame)
        ridge = found.fits[found.best].ridge
        return fit_noise_model(own, part.X[:AMOUNT], errors[:AMOUNT], ridge)

    def _choice(self, passes: Passes, rows: int, part: Part, found: NetworkFits) -> ChosenSettings:
        own = found.fits[found.best]
        return ChosenSettings(
            networks=tuple(candidate.name for candidate in self.candidates),
            each_network=np.array([found.best]),
            each_weights=np.array([own.weights]),
            each_ridge=np.array([own.ridge]),
            each_widths=("constant" if passes.amount is None else "learnt",),
            each_gap=np.array([found.gaps]),
            rows=rows,
            evaluated=sum(fit.evaluations for fit in found.fits),
            searched=len(part.y),
            landmarks=passes.basis.size,
        )
