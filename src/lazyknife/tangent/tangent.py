"""What a linearised network can be asked."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

Moves = dict[str, Tensor]


class Features(Protocol):
    """The tangent features of some rows, in whatever form the tangent keeps them."""

    @property
    def outputs(self) -> Tensor:
        """f(X; θ0), shape (n,)."""


class Tangent(Protocol):
    """A network linearised at θ0; J is the Jacobian of its outputs in the moved parameters."""

    @property
    def module(self) -> nn.Module:
        """The network at θ0, float64, evaluation mode."""

    def features(self, X: Tensor) -> Any:
        """Features of the rows of X, to be passed to the other methods."""

    def kernel(self, left: Any, right: Any) -> Tensor:
        """J_left J_rightᵀ, shape (m, n)."""

    def pull(self, features: Any, coefficients: Tensor) -> Moves:
        """Jᵀ C: for each of the b columns of C (n, b) a move of every parameter, (b, *shape)."""
