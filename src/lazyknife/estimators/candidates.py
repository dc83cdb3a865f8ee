"""From ``network`` to the candidates that every model chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..choosing.space import weight_unit
from ..compute import Machine
from ..data.own_scaling import FeatureScale, unscaled
from ..networks import CANDIDATES, Framed, wide
from ..ridge.problem import typical_size
from ..tangent import PROBE, Linear, Selection, Tangent, WideTangent, linearise

MOST_ROWS = 5000  # for which candidates are the default
# Features whose weights are searched one by one. Beyond, features are scaled but not centred (the
# models of a wide table would share few frames), and the default candidates are fewer.
MOST_FEATURES = 64


@dataclass(frozen=True)
class Candidate:
    """A network to choose from.

    Attributes
    ----------
    name
        For tables.
    network
        An infinitely wide network of a known kind, whose weights are searched; else None.
    tangent
        For any other network: from a frame of the features to its tangent.

    """

    name: str
    network: wide | None
    tangent: Callable[[FeatureScale], Linear] | None = None

    @property
    def scales(self) -> bool:
        """Whether its features are scaled by the rows of each model."""
        return not isinstance(self.tangent, FiniteNetwork) or self.tangent.framed

    def at(self, frame: FeatureScale) -> Linear:
        """The tangent in a frame, of a network without searched weights."""
        assert self.tangent is not None
        return self.tangent(frame)


def is_narrow(X: Tensor) -> bool:
    """Whether rows have few enough features for everything to be searched."""
    return X.shape[1] <= MOST_FEATURES


def default_networks(X: Tensor, symmetric: bool) -> tuple[wide, ...]:
    """The candidates of ``network=None``, by the shape of the rows.

    Full conformal prediction (``symmetric``) compares all pairs of candidates for each new row, so
    it has fewer.
    """
    if not is_narrow(X):
        return CANDIDATES[:2]
    return tuple(network for network in CANDIDATES if not (symmetric and network.squash))


def wide_candidate(network: wide) -> Candidate:
    """An infinitely wide network; a kernel function is taken as it is."""
    if isinstance(network.kind, str):
        return Candidate(str(network), network)

    return Candidate(str(network), None, GivenKernel(network))


@dataclass(frozen=True)
class GivenKernel:
    """From a frame to a kernel function in it."""

    network: wide

    def __call__(self, frame: FeatureScale) -> WideTangent:
        return WideTangent(self.network, torch.ones_like(frame.scale), frame)


def in_frame(network: wide, frame: FeatureScale) -> WideTangent:
    """An infinitely wide network with equal weights in a frame."""
    unit = weight_unit(len(frame.scale)) * (network.scale or 1.0)
    return WideTangent(network, torch.full_like(frame.scale, unit), frame)


def finite_candidate(
    name: str, module: nn.Module, X: Tensor, parameters: Selection, machine: Machine, framed: bool
) -> Candidate:
    """A network at its base weights; with ``framed`` its inputs are scaled by each model's rows."""
    return Candidate(name, None, FiniteNetwork(module, X[:PROBE], parameters, machine, framed))


@dataclass(frozen=True)
class FiniteNetwork:
    """From a frame to the tangent of a finite network; see ``finite_candidate``."""

    module: nn.Module
    probe: Tensor  # rows to try it on
    parameters: Selection
    machine: Machine
    framed: bool

    def __call__(self, frame: FeatureScale) -> Tangent:
        module = self.module
        if self.framed:
            module = Framed(module, frame.center, frame.scale)  # float64, as its copy that runs
        return linearise(module, self.probe, self.parameters, self.machine)


@dataclass(frozen=True)
class CandidateStep:
    """Settings of a lazy step with several candidates.

    Attributes
    ----------
    candidates
        The networks.
    ridge
        λ of all models, or None: searched.
    intercept, machine
        As in ``LazyStep``.
    scaled
        Whether models scale by their own rows.
    seed
        Of folds, of the part of the rows that the search uses, and of probes.
    nominal
        Which features are nominal; None: none of them.
    widths
        A key of ``WIDTHS``.

    """

    candidates: Sequence[Candidate]
    ridge: float | None
    intercept: bool
    scaled: bool
    seed: int
    machine: Machine
    nominal: tuple[bool, ...] | None
    widths: str

    def unit(self, candidate: Candidate, X: Tensor) -> float:
        """λ of exponent 0: the typical k(x, x) at synthetic rows, a function of the network."""
        if self.ridge is not None:
            return self.ridge
        if candidate.network is not None:
            return 1.0
        plain = unscaled(1, X.shape[1])[0]
        return typical_size(candidate.at(plain).on(self.machine), X, self.seed)
