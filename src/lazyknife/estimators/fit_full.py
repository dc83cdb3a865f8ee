"""Full conformal prediction with several candidates: the symmetric choice among them.

For every candidate value of y the network, the common scale of its features and λ have the smallest
leave-one-out error of all n + 1 rows (intervals/full_conformal.py), a rule that treats them alike.

Features are scaled by the training rows and the new row together: that treats them alike, too, so
ranks of scores stay exchangeable. Being rounded, the scale is the same for nearly all new rows;
each distinct one has models of its own, made when first needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..choosing.candidates import Candidate, CandidateStep, is_narrow, wide_tangent
from ..data.own_scaling import FeatureScale, FeatureScales, own_scales, unscaled
from ..intervals.full_conformal import FullModels, family_of
from ..networks import wide
from ..records import Ends
from ..ridge.problem import Problem, make_system
from ..tangent import Dual, Linear

# Exponents of the scales and of λ: fewer than in a search, since every pair is compared for each y.
SCALES, RIDGES = (-1, 0, 1), (-8, -5, -2, 1)


class FullStep(CandidateStep):
    """The step; see ``CandidateStep``."""

    def models(self, X: Tensor, y: Tensor) -> tuple[FramedFull, None]:
        """Models of all rows, ready for new ones; they make no choice of their own."""
        return fit_framed(self, X, y), None

    def make(self, X: Tensor, y: Tensor, frame: FeatureScale) -> FullModels:
        """Models of the rows in a frame."""
        rows, targets = self.machine.put(X), self.machine.put(y)
        families = []
        for candidate in self.candidates:
            unit, exponents = self.unit(candidate, X), (0,) if self.ridge is not None else RIDGES
            ridges = tuple(unit * 2.0**exponent for exponent in exponents)
            for network in _at_all_scales(candidate, frame):
                tangent = network.on(self.machine)
                basis = Dual(tangent, tangent.features(rows))
                system = make_system(basis, rows, targets, self.intercept)
                families.append(family_of(Problem(basis, rows, targets, system, ridges)))
        return FullModels.of(families)


def _at_all_scales(candidate: Candidate, frame: FeatureScale) -> Iterator[Linear]:
    """A network at several scales, unless its own is given."""
    network = candidate.weighted
    if network is None or network.scale is not None:
        yield candidate.at(frame)
        return
    for exponent in SCALES:
        yield wide_tangent(wide(network.kind, 2.0**exponent, network.squash), frame)


@dataclass(frozen=True)
class FramedFull(FullModels):
    """Full conformal models in several frames, those of the training rows alone for points."""

    step: FullStep
    X: Tensor
    y: Tensor
    # Models that were made so far, by the centre and scale of each feature.
    made: dict[tuple[float, ...], FullModels] = field(default_factory=dict)

    def frames(self, new: Tensor) -> FeatureScales:
        """Scales of the training rows together with each new one."""
        if not self.step.scaled:
            return unscaled(len(new), self.X.shape[1], self.step.nominal)
        joined = (torch.cat([self.X, row]) for row in new.cpu().split(1))
        return own_scales(joined, is_narrow(self.X), self.step.nominal)

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Ends of each row in its own frame; the whole line where rounding decided which it is."""
        point, frames = self.point(X), self.frames(X)
        lower = point.new_full((len(X), len(ranks)), -torch.inf)
        upper = -lower
        for k in range(len(frames)):
            rows = torch.nonzero((frames.of == k) & ~frames.doubtful)[:, 0]
            if not len(rows):
                continue
            key = _key(frames[k])
            if key not in self.made:
                self.made[key] = self.step.make(self.X, self.y, frames[k])
            _, low, high = self.made[key].accepted(X[rows], ranks)
            lower[rows.to(point.device)], upper[rows.to(point.device)] = low, high
        return point, lower, upper


def fit_framed(step: FullStep, X: Tensor, y: Tensor) -> FramedFull:
    """Make the models in the frame of the training rows, which most new rows share."""
    frame = step.frames(X, [torch.arange(0)], is_narrow(X))[0]
    main = step.make(X, y, frame)
    return FramedFull(main.families, main.place, step, X, y, {_key(frame): main})


def _key(frame: FeatureScale) -> tuple[float, ...]:
    return (*frame.center.tolist(), *frame.scale.tolist())
