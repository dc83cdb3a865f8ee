"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..compute import PROCESSOR, Machine
from ..networks import evaluation_copy, is_chain, lent, note_draws
from .basis import Basis, Dual, Primal, choose_basis
from .capture import capturable_layers
from .jacobian import row_by_row
from .moved import moved_outputs
from .selection import Selection, freeze_others, selected
from .sketch import Sketch
from .tangent import Features, Tangent, make_tangent

PROBE = 2  # rows

__all__ = [
    "Basis",
    "Dual",
    "Features",
    "Primal",
    "Selection",
    "Sketch",
    "Tangent",
    "choose_basis",
    "linearise",
    "moved_outputs",
    "selected",
]


def linearise(
    module: nn.Module,
    X: Tensor,
    parameters: Selection = "all",
    machine: Machine = PROCESSOR,
) -> Tangent:
    """Return the tangent of a network at its weights, in evaluation mode.

    ``parameters`` selects those that move; the tangent lives on ``machine``.

    Parameters come from layer factors where a layer with a known formula is their only user, and
    from explicit Jacobian rows elsewhere. A probe with rows of ``X`` compares the two, in float64,
    unless the network is a plain chain of layers; where they disagree after all, everything comes
    from explicit rows.
    """
    network = evaluation_copy(module)
    freeze_others(network, parameters)
    probe = PROCESSOR.put(X[:PROBE])
    note_draws(network, probe)
    with lent(network) as own:
        layers = capturable_layers(own, probe)
    tangent = make_tangent(network, layers, probe)
    if layers and not is_chain(network) and not agrees(tangent, probe):
        tangent = make_tangent(network, (), probe)
    return tangent.on(machine)


def agrees(tangent: Tangent, X: Tensor) -> bool:
    """Whether the kernel of these rows is that of their explicit Jacobian, row by row."""
    with lent(tangent.module) as module:
        rows = row_by_row(module, tangent.moved, X)
    jacobian = torch.cat([part.flat for part in rows], dim=1)
    features = tangent.features(X)
    wanted = jacobian @ jacobian.T
    difference = tangent.kernel(features, features) - wanted
    return bool(difference.abs().max() <= 1e-9 * wanted.abs().max())
