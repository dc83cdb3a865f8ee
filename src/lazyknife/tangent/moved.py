"""Outputs of many networks that differ in their weights only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap


def moved_outputs(
    module: nn.Module, moves: Mapping[str, Tensor], X: Tensor, *, own_row: bool = False
) -> Tensor:
    """Outputs of the real network at the weights θ0 + Δ_j, for all j in the moves.

    Parameters
    ----------
    module
        The network at θ0.
    moves
        For every moved parameter its moves, stacked: shape (b, *shape).
    X
        Rows, the same for every network: the result has shape (b, m).
    own_row
        Instead, network j reads row j only: the result has shape (b,).

    """
    parameters = dict(module.named_parameters())
    weights = {name: parameters[name].detach() + move for name, move in moves.items()}

    def output(one: dict[str, Tensor], rows: Tensor) -> Any:
        rows = rows.unsqueeze(0) if own_row else rows
        return functional_call(module, one, (rows,)).reshape(() if own_row else len(rows))

    with torch.no_grad():
        try:
            result: Tensor = vmap(output, in_dims=(0, 0 if own_row else None))(weights, X)
        except RuntimeError:  # the network looks at values: one model at a time
            count = len(next(iter(weights.values())))
            each = [{name: w[j] for name, w in weights.items()} for j in range(count)]
            result = torch.stack(
                [output(one, X[j] if own_row else X) for j, one in enumerate(each)]
            )
    return result
