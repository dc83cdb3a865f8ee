"""Tangent from explicit Jacobian rows, for any network; also the oracle for the fast path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..blocks import blocks
from ..networks import outputs
from .tangent import Moves


@dataclass(frozen=True)
class Rows:
    """Outputs (n,) and the rows themselves: Jacobian blocks are made when they are needed."""

    outputs: Tensor
    X: Tensor


@dataclass(frozen=True)
class JacobianTangent:
    """Tangent of any network, from blocks of its Jacobian; the whole of it is never held."""

    module: nn.Module
    size: int = field(init=False)

    def __post_init__(self) -> None:
        size = sum(p.numel() for p in self.module.parameters() if p.requires_grad)
        object.__setattr__(self, "size", size)

    def features(self, X: Tensor) -> Rows:
        """Only the outputs; Jacobian rows are recomputed block by block."""
        with torch.no_grad():
            return Rows(outputs(self.module, X), X)

    def kernel(self, left: Rows, right: Rows) -> Tensor:
        """J Jᵀ, block by block."""
        total = left.outputs.new_empty(len(left.X), len(right.X))
        for rows in blocks(len(left.X), 16 * self.size):
            above = self.jacobian(left.X[rows])
            for columns in blocks(len(right.X), 16 * self.size):
                same = left is right and rows == columns
                below = above if same else self.jacobian(right.X[columns])
                total[rows, columns] = above @ below.T
        return total

    def pull(self, features: Rows, coefficients: Tensor) -> Moves:
        """Jᵀ C, summed over blocks of rows and cut into the parameters' shapes."""
        total = coefficients.new_zeros(coefficients.shape[1], self.size)
        for rows in blocks(len(features.X), 16 * self.size):
            total += coefficients[rows].T @ self.jacobian(features.X[rows])
        moved = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        parts = total.split([p.numel() for p in moved.values()], dim=1)
        return {
            name: part.reshape(-1, *p.shape)
            for (name, p), part in zip(moved.items(), parts, strict=True)
        }

    def jacobian(self, X: Tensor) -> Tensor:
        """Jacobian of the outputs in all moved parameters, shape (n, M)."""
        try:
            return _vectorised(self.module, X)
        except RuntimeError:  # the network looks at values: one row at a time
            return torch.stack([_single(self.module, row) for row in X.split(1)])


def _vectorised(module: nn.Module, X: Tensor) -> Tensor:
    moved = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}

    def output(parameters: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(module, parameters, (x.unsqueeze(0),)).reshape(())

    gradients = vmap(grad(output), in_dims=(None, 0))(moved, X)
    return torch.cat([gradients[name].reshape(len(X), -1) for name in moved], dim=1)


def _single(module: nn.Module, row: Tensor) -> Tensor:
    moved = [p for p in module.parameters() if p.requires_grad]
    with torch.enable_grad():
        gradients = torch.autograd.grad(
            outputs(module, row).sum(), moved, allow_unused=True, materialize_grads=True
        )
    return torch.cat([g.reshape(-1) for g in gradients])
