"""Full conformal prediction with several candidates: the symmetric choice among them.

For every candidate value of y the network, the common scale of its features and λ have the smallest
leave-one-out error of all n + 1 rows (intervals/full.py), a rule that treats them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compute import Machine
from ..data.frames import Frames, joined_frames, own_frames, unscaled
from ..intervals.framed import FramedFull
from ..intervals.full import FullModels, family_of
from ..networks import wide
from ..solve.problem import Problem, make_system, typical_size
from ..tangent import Dual, Linear
from .candidates import Candidate, in_frame, is_narrow
from .choosing import STEP

# Exponents of the scales and of λ: fewer than in a search, since every pair is compared for each y.
SCALES, RIDGES = (-1, 0, 1), (-8, -5, -2, 1)


@dataclass(frozen=True)
class FullStep:
    """Settings; see ``ChoosingStep``."""

    candidates: Sequence[Candidate]
    ridge: float | None
    intercept: bool
    scaled: bool
    seed: int
    machine: Machine

    def models(self, X: Tensor, y: Tensor) -> tuple[FramedFull, None]:
        """Models of all rows, ready for new ones; they make no choice of their own."""
        return FramedFull.of(FullSource(self, X, y)), None

    def frames(self, X: Tensor, new: Tensor) -> Frames:
        """Frames of the new rows; of the training rows alone if there are none."""
        if not self.scaled:
            return unscaled(max(len(new), 1), X.shape[1])
        if not len(new):
            return own_frames(X, [torch.arange(0)], STEP, centered=is_narrow(X))
        return joined_frames(X, new.cpu(), STEP, centered=is_narrow(X))

    def make(self, X: Tensor, y: Tensor, center: Tensor, scale: Tensor) -> FullModels:
        """Models of the rows in a frame."""
        rows, targets = self.machine.put(X), self.machine.put(y)
        families = []
        for tangent, unit in self._tangents(X, center, scale):
            basis = Dual(tangent, tangent.features(rows))
            with self.machine.exact.products():
                system = make_system(basis, rows, targets, self.intercept)
            exponents = RIDGES if self.ridge is None else (0,)
            ridges = tuple(unit * 2.0**exponent for exponent in exponents)
            families.append(family_of(Problem(basis, rows, targets, system, ridges)))
        return FullModels.of(families)

    def _tangents(self, X: Tensor, center: Tensor, scale: Tensor) -> list[tuple[Linear, float]]:
        """Every network at every scale, with its unit of λ."""
        found: list[tuple[Linear, float]] = []
        for candidate in self.candidates:
            if candidate.network is None:
                tangent = candidate.at(center, scale).on(self.machine)
                unit = self.ridge or self._unit(candidate, X)
                found.append((tangent, unit))
            else:
                for network in _scaled(candidate.network):
                    framed = in_frame(network, center, scale).on(self.machine)
                    found.append((framed, self.ridge or 1.0))
        return found

    def _unit(self, candidate: Candidate, X: Tensor) -> float:
        zeros = torch.zeros(X.shape[1], dtype=X.dtype)
        return typical_size(candidate.at(zeros, zeros + 1).on(self.machine), X, self.seed)


@dataclass(frozen=True)
class FullSource:
    """The training rows, and how models of them are made."""

    step: FullStep
    X: Tensor
    y: Tensor

    def start(self) -> tuple[Tensor, Tensor]:
        frames = self.frames(self.X[:0])
        return frames.centers[0], frames.scales[0]

    def frames(self, new: Tensor) -> Frames:
        return self.step.frames(self.X, new)

    def make(self, center: Tensor, scale: Tensor) -> FullModels:
        return self.step.make(self.X, self.y, center, scale)


def _scaled(network: wide) -> list[wide]:
    """The network at several scales, unless its own is given."""
    if network.scale is not None:
        return [network]
    return [wide(network.kind, 2.0**exponent, network.squash) for exponent in SCALES]
