"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..networks import evaluation_copy
from .capture import capturable_layers
from .jacobian import row_by_row
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
    layers = capturable_layers(network, probe)
    tangent = make_tangent(network, layers, probe)
    return tangent if not layers or agrees(tangent, probe) else make_tangent(network, (), probe)


def agrees(tangent: Tangent, X: Tensor) -> bool:
    """Whether the kernel of these rows is that of their explicit Jacobian, row by row."""
    moved = {name: p for name, p in tangent.module.named_parameters() if p.requires_grad}
    jacobian = torch.cat([part.rows.flatten(1) for part in row_by_row(tangent.module, moved, X)], 1)
    features = tangent.features(X)
    wanted = jacobian @ jacobian.T
    difference = tangent.kernel(features, features) - wanted
    return bool(difference.abs().max() <= 1e-9 * wanted.abs().max())
