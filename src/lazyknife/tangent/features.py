"""Feature maps: in which coordinates a candidate's lazy step is solved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .basis import Basis, Dual, Primal
from .tangent import Tangent


class FeatureMap(ABC):
    """A choice of coordinates for the lazy step."""

    has_kernel: ClassVar[bool]  # whether the kernel of all training rows (the dual form) exists
    has_moves: ClassVar[bool]  # whether its models move the parameters (network readout)

    @abstractmethod
    def size(self, parameters: int) -> int:
        """Number of coordinates in the primal form, for a network that moves so many parameters."""

    @abstractmethod
    def basis(self, tangent: Tangent, X: Tensor, seed: int, kernel: bool = False) -> Basis:
        """Coordinates for the training rows X; ``kernel`` asks for the dual form at any size."""


@dataclass(frozen=True)
class Exact(FeatureMap):
    """The tangent features themselves, in the form with fewer coordinates."""

    has_kernel = has_moves = True

    def size(self, parameters: int) -> int:
        return parameters

    def basis(self, tangent: Tangent, X: Tensor, seed: int, kernel: bool = False) -> Basis:
        if tangent.size < len(X) and not kernel:
            return Primal(tangent, tangent.size)
        return Dual(tangent, tangent.features(X))
