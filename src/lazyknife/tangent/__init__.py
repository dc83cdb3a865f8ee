"""Linearise a network at θ0: outputs, kernel blocks K(X, X') and moved networks."""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..compute import PROCESSOR, Machine
from ..networks import evaluation_copy, is_chain, private_copy, row_gradients
from .capture import capturable_layers
from .features import Basis, Dual, Exact, FeatureMap, Linear, Primal, Rows
from .landmarks import Landmarks
from .selection import Selection, check_selection, selected
from .sketch import Sketch
from .tangent import Features, Tangent, make_tangent, moved_outputs
from .wide import WideTangent

FEATURES: dict[str, type[FeatureMap]] = {"exact": Exact, "sketch": Sketch}
EXACT = Exact()
PROBE = 2  # rows


def linearise(
    module: nn.Module, X: Tensor, parameters: Selection = "all", machine: Machine = PROCESSOR
) -> Tangent:
    """Return the tangent of a network at its weights, in evaluation mode.

    ``parameters`` selects those that move; the tangent is evaluated on ``machine``, in float64.

    A parameter is in factored form where layers with a known formula are its only users, and has
    explicit Jacobian rows otherwise. Unless the network is a plain chain of layers, the kernel of a
    few rows of ``X`` is compared with that of their explicit Jacobian; if they differ, every
    parameter has explicit rows.
    """
    network = evaluation_copy(module)
    moved = selected(network, parameters)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in moved)
    probe = PROCESSOR.put(X[:PROBE])
    layers = capturable_layers(private_copy(network), probe)
    tangent = make_tangent(network, layers, probe)
    if layers and not is_chain(network) and not agrees(tangent, probe):
        tangent = make_tangent(network, (), probe)
    return tangent.on(machine)


def agrees(tangent: Tangent, X: Tensor) -> bool:
    """Whether the kernel of these rows is that of their explicit Jacobian, row by row."""
    rows = row_gradients(tangent.module, tangent.moved, X)
    jacobian = torch.cat([each.flatten(1) for each in rows.values()], dim=1)
    features = tangent.features(X)
    expected = jacobian @ jacobian.T
    difference = tangent.kernel(features, features) - expected
    return bool(difference.abs().max() <= 1e-9 * expected.abs().max())
