"""Outputs of the network itself at moved weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..networks import ensemble_outputs, lent, stacked_outputs


def moved_outputs(
    module: nn.Module, moves: Mapping[str, Tensor], X: Tensor, *, own_row: bool = False
) -> Tensor:
    """Outputs of b networks at the weights θ0 + Δ_j, for moves of shape (b, *shape).

    All networks read the m rows of X, and the result has shape (b, m); with ``own_row`` network j
    reads row j only, and the result has shape (b,).
    """
    parameters = dict(module.named_parameters())
    weights = {name: parameters[name].detach() + move for name, move in moves.items()}
    if not own_row:
        return ensemble_outputs(module, weights, X)
    with torch.no_grad(), lent(module) as network:
        return stacked_outputs(network, weights, X.unsqueeze(1), own_rows=True)[:, 0]
