"""A network linearised at θ0: outputs, kernel blocks, moves of its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..blocks import blocks, fits
from ..networks import outputs
from .capture import Use, moves, uses_of
from .jacobian import jacobian_rows
from .layers import LAYERS
from .parts import Explicit, Moves, Part, merge, size_of_a_row, stack

NUMBER = 8  # bytes


@dataclass(frozen=True)
class Features:
    """Rows, their outputs f(X; θ0), and their tangent features where these fit in memory."""

    X: Tensor
    outputs: Tensor
    parts: tuple[Part, ...] | None


@dataclass(frozen=True)
class Tangent:
    """A network linearised at θ0; J is the Jacobian of its outputs in the moved parameters.

    Attributes
    ----------
    module
        The network at θ0, float64, evaluation mode.
    layers
        Layers whose parameters come from factors.
    rest
        Moved parameters that need explicit Jacobian rows.
    row_bytes, work_bytes
        Memory that the features of one row take, and that it takes to make them.

    """

    module: nn.Module
    layers: tuple[str, ...]
    rest: tuple[str, ...]
    row_bytes: int = 0
    work_bytes: int = 0

    def features(self, X: Tensor) -> Features:
        """Features of the rows of X; too large ones are made anew, block by block, when needed."""
        if fits(len(X), self.row_bytes):
            made = [self._make(X[rows]) for rows in blocks(len(X), self.work_bytes)]
            predicted = torch.cat([values for values, _, _ in made])
            return Features(X, predicted, stack([parts for _, parts, _ in made]))
        with torch.no_grad():
            each = [outputs(self.module, X[rows]) for rows in blocks(len(X), self.work_bytes)]
        return Features(X, torch.cat(each), None)

    def kernel(self, left: Features, right: Features) -> Tensor:
        """J_left J_rightᵀ, shape (m, n)."""
        total = left.outputs.new_empty(len(left.X), len(right.X))
        for rows, above in self._blocks(left):
            for columns, below in self._blocks(right):
                block = total[rows, columns].zero_()
                for a, b in zip(above, below, strict=True):
                    a.add_kernel(b, block)
        return total

    def pull(self, features: Features, coefficients: Tensor) -> Moves:
        """Jᵀ C: for each of the b columns of C (n, b) a move of every parameter, (b, *shape)."""
        total: Moves = {}
        for rows, parts in self._blocks(features):
            for part in parts:
                for name, move in part.pull(coefficients[rows]).items():
                    total[name] = total[name] + move if name in total else move
        return total

    def _blocks(self, features: Features) -> Iterator[tuple[slice, Sequence[Part]]]:
        if features.parts is not None:
            yield slice(0, len(features.X)), features.parts
            return
        for rows in blocks(len(features.X), max(self.row_bytes, self.work_bytes)):
            yield rows, self._make(features.X[rows])[1]

    def _make(self, X: Tensor) -> tuple[Tensor, list[Part], list[Use]]:
        """Outputs (n,), parts of all moved parameters, and the calls that they come from."""
        predicted, uses = uses_of(self.module, self.layers, X)
        parts = [part for use in uses for part in parts_of(self.module, use)]
        rest = jacobian_rows(self.module, self.rest, X) if self.rest else []
        return predicted, [*merge(parts), *rest], uses


def make_tangent(module: nn.Module, layers: Sequence[str], probe: Tensor) -> Tangent:
    """Return the tangent that takes these layers by factors and the rest by Jacobian rows."""
    covered = {
        id(p) for name in layers for p in module.get_submodule(name).parameters(recurse=False)
    }
    rest = tuple(n for n, p in module.named_parameters() if moves(p) and id(p) not in covered)
    bare = Tangent(module, tuple(layers), rest)
    _, parts, uses = bare._make(probe)
    work = sum(use.x[0].numel() * _overlap(module, use) + use.signal[0].numel() for use in uses)
    work += sum(part.rows[0].numel() for part in parts if isinstance(part, Explicit))
    return replace(bare, row_bytes=NUMBER * size_of_a_row(parts), work_bytes=2 * NUMBER * work)


def parts_of(module: nn.Module, use: Use) -> list[Part]:
    """Parts of the moved parameters of one layer in one use."""
    names = {id(p): name for name, p in module.named_parameters()}
    layer = module.get_submodule(use.layer)
    own = {role: names[id(p)] for role, p in layer.named_parameters(recurse=False) if moves(p)}
    return LAYERS[type(layer)](layer, use.x, use.signal, own)


def _overlap(module: nn.Module, use: Use) -> int:
    """In how many patches a convolution reads each input."""
    size = getattr(module.get_submodule(use.layer), "kernel_size", (1,))
    return math.prod(size)
