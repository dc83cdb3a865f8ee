"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

from __future__ import annotations

from torch import Tensor, nn

from ..networks import evaluation_copy
from .capture import capturable_layers
from .moved import moved_outputs
from .selection import Selection, freeze_others
from .tangent import Features, Tangent, make_tangent

__all__ = ["Features", "Selection", "Tangent", "linearise", "moved_outputs"]


def linearise(module: nn.Module, X: Tensor, parameters: Selection = "all") -> Tangent:
    """Return the tangent of a network at its weights, in float64 and evaluation mode.

    ``parameters`` selects those that move.

    Parameters come from layer factors where a layer with a known formula is their only user, and
    from explicit Jacobian rows elsewhere. A probe with rows of ``X`` compares the two; where they
    disagree after all, everything comes from explicit rows.
    """
    network = evaluation_copy(module)
    freeze_others(network, parameters)
    probe = X[:3]
    explicit = make_tangent(network, (), probe)
    layers = capturable_layers(network, probe)
    if not layers:
        return explicit
    factored = make_tangent(network, layers, probe)
    fast, slow = (t.kernel(f := t.features(probe), f) for t in (factored, explicit))
    agree = bool((fast - slow).abs().max() <= 1e-9 * slow.abs().max())
    return factored if agree else explicit
