"""Full conformal prediction with several candidates: the symmetric choice among them.

For every candidate value of y the network, the common scale of its features and λ have the smallest
leave-one-out error of all n + 1 rows (intervals/full_conformal.py), a rule that treats them alike.

Features are scaled by the training rows and the new row together: that treats them alike, too, so
ranks of scores stay exchangeable. Being rounded, the scale is the same for nearly all new rows;
each distinct one has models of its own, made when first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..data.own_scaling import FeatureScale, FeatureScales, joined_frames, own_frames, unscaled
from ..intervals.full_conformal import FullModels, family_of
from ..networks import wide
from ..records import Ends
from ..ridge.problem import Problem, make_system
from ..tangent import Dual, Linear
from .candidates import CandidateStep, in_frame, is_narrow

# Exponents of the scales and of λ: fewer than in a search, since every pair is compared for each y.
SCALES, RIDGES = (-1, 0, 1), (-8, -5, -2, 1)


class FullStep(CandidateStep):
    """The step; see ``CandidateStep``."""

    def models(self, X: Tensor, y: Tensor) -> tuple[FramedFull, None]:
        """Models of all rows, ready for new ones; they make no choice of their own."""
        return FramedFull.fitted(self, X, y), None

    def frames(self, X: Tensor, new: Tensor) -> FeatureScales:
        """Scales of the new rows; of the training rows alone if there are none."""
        if not self.scaled:
            return unscaled(max(len(new), 1), X.shape[1], self.nominal)
        if not len(new):
            return own_frames(X, [torch.arange(0)], is_narrow(X), self.nominal)
        return joined_frames(X, new.cpu(), is_narrow(X), self.nominal)

    def make(self, X: Tensor, y: Tensor, frame: FeatureScale) -> FullModels:
        """Models of the rows in a frame."""
        rows, targets = self.machine.put(X), self.machine.put(y)
        families = []
        for tangent, unit in self._tangents(X, frame):
            basis = Dual(tangent, tangent.features(rows))
            system = make_system(basis, rows, targets, self.intercept)
            exponents = RIDGES if self.ridge is None else (0,)
            ridges = tuple(unit * 2.0**exponent for exponent in exponents)
            families.append(family_of(Problem(basis, rows, targets, system, ridges)))
        return FullModels.of(families)

    def _tangents(self, X: Tensor, frame: FeatureScale) -> list[tuple[Linear, float]]:
        """Every network at every scale, with its unit of λ."""
        found: list[tuple[Linear, float]] = []
        for candidate in self.candidates:
            unit = self.unit(candidate, X)
            if candidate.network is None:
                found.append((candidate.at(frame).on(self.machine), unit))
            else:
                scaled = _scaled(candidate.network)
                framed = [in_frame(network, frame).on(self.machine) for network in scaled]
                found += [(tangent, unit) for tangent in framed]
        return found


@dataclass(frozen=True)
class FramedFull(FullModels):
    """Full conformal models in several frames, those of the training rows alone for points.

    Attributes
    ----------
    step, X, y
        How models are made, and the training rows.
    made
        Models that were made so far, by the centre and scale of each feature.

    """

    step: FullStep
    X: Tensor
    y: Tensor
    made: dict[tuple[float, ...], FullModels] = field(default_factory=dict)

    @classmethod
    def fitted(cls, step: FullStep, X: Tensor, y: Tensor) -> FramedFull:
        """Make the models in the frame of the training rows, which most new rows share."""
        frame = step.frames(X, X[:0])[0]
        main = step.make(X, y, frame)
        return cls(main.families, main.place, step, X, y, {_key(frame): main})

    def accepted(self, X: Tensor, ranks: Sequence[int]) -> Ends:
        """Ends of each row in its own frame; the whole line where rounding decided which it is."""
        point, frames = self.point(X), self.step.frames(self.X, X)
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


def _key(frame: FeatureScale) -> tuple[float, ...]:
    return (*frame.center.tolist(), *frame.scale.tolist())


def _scaled(network: wide) -> list[wide]:
    """The network at several scales, unless its own is given."""
    if network.scale is not None:
        return [network]
    return [wide(network.kind, 2.0**exponent, network.squash) for exponent in SCALES]
