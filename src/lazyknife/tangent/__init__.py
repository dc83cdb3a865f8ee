"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

from __future__ import annotations

from torch import Tensor, nn

from ..networks import evaluation_copy
from .factors import FactorTangent, factorable_layers
from .jacobian import JacobianTangent
from .moved import moved_outputs
from .tangent import Tangent

__all__ = ["FactorTangent", "JacobianTangent", "Tangent", "linearise", "moved_outputs"]


def linearise(module: nn.Module, X: Tensor) -> Tangent:
    """Return the tangent of a network at its weights, in float64 and evaluation mode.

    Layer factors are used where every moved parameter belongs to a linear layer and a probe with
    rows of ``X`` agrees with the explicit Jacobian; explicit Jacobian blocks elsewhere.
    """
    network = evaluation_copy(module)
    explicit = JacobianTangent(network)
    probe = X[:2]
    layers = factorable_layers(network, probe)
    if layers is None:
        return explicit
    factored = FactorTangent(network, layers)
    features, expected = factored.features(probe), explicit.features(probe)
    fast, slow = factored.kernel(features, features), explicit.kernel(expected, expected)
    agree = bool((fast - slow).abs().max() <= 1e-9 * slow.abs().max())
    return factored if agree else explicit
