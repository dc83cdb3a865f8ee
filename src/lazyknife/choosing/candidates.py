"""The networks that models choose from, each in the scale of a model's own rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from torch import Tensor, nn

from ..compute import PROCESSOR, Machine
from ..data.own_scaling import FeatureScale, FeatureScales, own_scales, unscaled, without
from ..networks import CANDIDATES, Framed, is_known, wide
from ..ridge.problem import typical_size
from ..tangent import Basis, Dual, Linear, Selection, Tangent, WideTangent, linearise
from .per_model import SearchResult
from .record import ChosenSettings
from .space import CandidateKernels, Exponents, GridPoint, weight_unit, weights_of

MOST_ROWS = 5000  # for which candidates are the default
# Features whose weights are searched one by one. Beyond, features are scaled but not centred (the
# models of a wide table would share few frames), and the default candidates are fewer.
MOST_FEATURES = 64


def is_narrow(X: Tensor) -> bool:
    """Whether rows have few enough features for everything to be searched."""
    return X.shape[1] <= MOST_FEATURES


def default_networks(X: Tensor) -> tuple[wide, ...]:
    """The candidates of ``network=None``, by the shape of the rows."""
    return CANDIDATES if is_narrow(X) else CANDIDATES[:2]


def wide_tangent(
    network: wide,
    frame: FeatureScale,
    weights: Sequence[float] | None = None,
    machine: Machine = PROCESSOR,
) -> WideTangent:
    """An infinitely wide network in a frame, with equal weights unless they are given."""
    if weights is None:
        unit = weight_unit(len(frame.scale)) * (network.scale or 1.0)
        weights = [unit if isinstance(network.kind, str) else 1.0] * len(frame.scale)
    return WideTangent(network, frame.scale.new_tensor(weights), frame).on(machine)


@dataclass(frozen=True)
class FiniteNetwork:
    """A finite network at its base weights."""

    module: nn.Module
    probe: Tensor  # rows to try it on
    parameters: Selection  # those that models move
    machine: Machine
    framed: bool  # whether its inputs are scaled by each model's own rows

    @cached_property
    def unframed(self) -> Tangent:
        return linearise(self.module, self.probe, self.parameters, self.machine)

    def tangent(self, frame: FeatureScale) -> Tangent:
        if not self.framed:
            return self.unframed
        module = Framed(self.module, frame.center, frame.scale)  # float64, as its copy that runs
        return linearise(module, self.probe, self.parameters, self.machine)


@dataclass(frozen=True)
class Candidate:
    """A network to choose from, and its name in tables."""

    name: str
    network: wide | FiniteNetwork

    @property
    def weighted(self) -> wide | None:
        """The network if the weights of its features are searched, else None."""
        return self.network if isinstance(self.network, wide) and is_known(self.network) else None

    @property
    def scales(self) -> bool:
        """Whether its features are scaled by the rows of each model."""
        return isinstance(self.network, wide) or self.network.framed

    def at(self, frame: FeatureScale, weights: Sequence[float] | None = None) -> Linear:
        """The tangent in a frame, with equal weights of features unless they are given."""
        if isinstance(self.network, wide):
            return wide_tangent(self.network, frame, weights)
        return self.network.tangent(frame)


@dataclass(frozen=True)
class CandidateStep:
    """Settings of a lazy step with several candidates."""

    candidates: Sequence[Candidate]
    ridge: float | None  # λ of all models; None: searched
    intercept: bool  # whether to fit an unpenalised intercept
    scaled: bool  # whether models scale by their own rows
    seed: int  # of folds, of the part of the rows that the search uses, and of probes
    machine: Machine
    nominal: tuple[bool, ...] | None  # which features are nominal; None: none of them
    widths: str  # a key of WIDTHS
    any_scale: bool  # whether models choose the scale of y, too

    def unit(self, candidate: Candidate, X: Tensor) -> float:
        """λ of exponent 0: the typical k(x, x) at synthetic rows, a function of the network."""
        if self.ridge is not None:
            return self.ridge
        if candidate.weighted is not None:
            return 1.0
        plain = unscaled(1, X.shape[1])[0]
        return typical_size(candidate.at(plain).on(self.machine), X, self.seed)

    def tangent(self, which: int, exponents: Exponents, frame: FeatureScale) -> Linear:
        """A candidate in a frame, with weights of its features where it has some."""
        candidate = self.candidates[which]
        if (network := candidate.weighted) is None:
            return candidate.at(frame).on(self.machine)
        weights = weights_of(network, exponents, len(frame.scale))
        return wide_tangent(network, frame, weights, self.machine)

    def basis(self, tangent: Linear, X: Tensor, kernel: bool = False) -> Basis:
        """Coordinates for some rows; ``kernel`` asks for the dual form where there is one."""
        return Dual(tangent, tangent.features(X))

    def kernels(self, X: Tensor, frames: Sequence[FeatureScale]) -> CandidateKernels:
        """Kernels of some rows in several frames."""

        def given(network: int, frame: int) -> tuple[Tensor, Tensor]:
            rows = self.machine.put(X)
            basis = self.basis(self.tangent(network, (), frames[frame]), rows, True)
            if isinstance(basis, Dual):
                return basis.tangent.gram(basis.features), basis.features.outputs
            outputs, coordinates, _ = basis.at(rows)
            return coordinates @ coordinates.T, outputs

        networks = [each.weighted or partial(given, k) for k, each in enumerate(self.candidates)]
        units = [self.unit(candidate, X) for candidate in self.candidates]
        weighted = any(candidate.weighted for candidate in self.candidates)
        framed = [self.machine.put(frame.apply(X) if weighted else X) for frame in frames]
        return CandidateKernels(networks, units, framed, frames[0].nominal)

    def choice(
        self,
        found: SearchResult,
        widths: tuple[str, ...],
        rows: int,
        searched: int,
        features: int,
    ) -> ChosenSettings:
        """What a search chose for models of so many rows."""

        def weights(point: GridPoint) -> list[float]:
            network = self.candidates[point.network].weighted
            missing = [math.nan] * features
            return weights_of(network, point.weights, features) if network else missing

        return ChosenSettings(
            networks=tuple(candidate.name for candidate in self.candidates),
            each_network=np.array([point.network for point in found.points]),
            each_weights=np.array([weights(point) for point in found.points]),
            each_ridge=found.ridges,
            each_widths=widths,
            each_gap=(found.starting - found.starting.min(axis=1, keepdims=True)) * searched / 2,
            rows=rows,
            evaluated=found.evaluated,
            searched=searched,
        )

    def frames(self, X: Tensor, left_out: Sequence[Tensor], centered: bool) -> FeatureScales:
        """Scales of the features for the models without some sets of rows."""
        if not self.scaled:
            return unscaled(len(left_out), X.shape[1], self.nominal)
        return own_scales(without(X, left_out), centered, self.nominal)
