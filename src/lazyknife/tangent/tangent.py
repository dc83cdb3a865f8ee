"""A network linearised at θ0: outputs, kernel blocks, moves of its parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..compute import PROCESSOR, Machine, blocks, wake
from ..networks import lent, outputs
from ..solve.symmetric import mirror_lower_
from .capture import Use, moves, uses_of
from .jacobian import jacobian_rows
from .layers import LAYERS
from .parts import Explicit, Moves, Part, merge, size_of_a_row, stack, take


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
        The network at θ0, on the machine, in its type, in evaluation mode.
    layers
        Layers whose parameters come from factors.
    rest
        Moved parameters that need explicit Jacobian rows.
    machine
        Where it is evaluated.
    row_bytes, work_bytes
        Memory that the features of one row take, and that it takes to make them.

    """

    module: nn.Module
    layers: tuple[str, ...]
    rest: tuple[str, ...]
    machine: Machine = PROCESSOR
    row_bytes: int = 0
    work_bytes: int = 0

    @property
    def moved(self) -> dict[str, nn.Parameter]:
        """The moved parameters."""
        return {name: p for name, p in self.module.named_parameters() if moves(p)}

    def features(self, X: Tensor) -> Features:
        """Features of the rows of X; too large ones are made anew, block by block, when needed."""
        X = self.machine.put(X)
        if len(X) * self.row_bytes <= self.machine.kept:
            made = [self.make(X[rows]) for rows in self._work_blocks(len(X))]
            predicted = torch.cat([values for values, _ in made])
            return Features(X, predicted, stack([parts for _, parts in made]))
        return Features(X, self.outputs(X), None)

    def outputs(self, X: Tensor) -> Tensor:
        """f(X; θ0), shape (m,)."""
        X = self.machine.put(X)
        with torch.no_grad(), lent(self.module) as module:
            return torch.cat([outputs(module, X[rows]) for rows in self._work_blocks(len(X))])

    def kernel(self, left: Features, right: Features) -> Tensor:
        """J_left J_rightᵀ, shape (m, n)."""
        total = left.outputs.new_empty(len(left.X), len(right.X))
        for rows, above in self.blocks(left):
            for columns, below in self.blocks(right):
                self._fill(total[rows, columns], above, below)
        return total

    def gram(self, features: Features) -> Tensor:
        """J Jᵀ, shape (n, n): the blocks below the diagonal, mirrored."""
        total = features.outputs.new_empty(len(features.X), len(features.X))
        for rows, above in self.blocks(features):
            for columns, below in self.blocks(features):
                if columns.start == rows.start:
                    self._fill(total[rows, rows], above, above, lower=True)
                elif columns.start < rows.start:
                    self._fill(total[rows, columns], above, below)
        mirror_lower_(total)
        return total

    def norms(self, features: Features) -> Tensor:
        """Diagonal of J Jᵀ, shape (n,)."""
        total = torch.zeros_like(features.outputs)
        for rows, parts in self.blocks(features):
            for part in parts:
                total[rows] += part.norms()
        return total

    def pull(self, features: Features, coefficients: Tensor) -> Moves:
        """Jᵀ C: for each of the b columns of C (n, b) a move of every parameter, (b, *shape)."""
        total: Moves = {}
        for rows, parts in self.blocks(features):
            for part in parts:
                for name, move in part.pull(coefficients[rows]).items():
                    total[name] = total[name] + move if name in total else move
        return total

    def blocks(self, features: Features) -> Iterator[tuple[slice, Sequence[Part]]]:
        """Rows and their parts; one block where the parts are kept."""
        if features.parts is not None:
            yield slice(0, len(features.X)), features.parts
            return
        each = max(self.row_bytes, self.work_bytes)
        for rows in blocks(len(features.X), each, self.machine.block):
            yield rows, self.make(features.X[rows])[1]

    def _fill(
        self, total: Tensor, above: Sequence[Part], below: Sequence[Part], lower: bool = False
    ) -> None:
        """Kernel of two blocks of rows, tile by tile; with ``lower`` no tile above the diagonal."""
        entries = self.machine.tile // self.machine.item
        across = blocks(total.shape[1], 1, 2 * max(1, math.isqrt(entries)))
        for columns in across:
            right = take(below, columns)
            for rows in blocks(len(total), columns.stop - columns.start, entries):
                if lower and rows.stop <= columns.start:
                    continue
                tile = total[rows, columns].zero_()
                for a, b in zip(take(above, rows), right, strict=True):
                    a.add_kernel(b, tile)

    def _work_blocks(self, count: int) -> Iterator[slice]:
        return blocks(count, self.work_bytes, self.machine.block)

    def make(self, X: Tensor) -> tuple[Tensor, list[Part]]:
        """Outputs (n,) and parts of all moved parameters, for rows that fit at once."""
        predicted, parts, _ = self._make(self.machine.put(X))
        return predicted, parts

    def _make(self, X: Tensor) -> tuple[Tensor, list[Part], list[Use]]:
        with lent(self.module) as module:
            predicted, uses = uses_of(module, self.layers, X)
            names = {id(p): name for name, p in module.named_parameters()}
            parts = [part for use in uses for part in _parts(module, names, use)]
            rest = jacobian_rows(module, self.rest, X) if self.rest else []
        return predicted, [*merge(parts), *rest], uses

    def on(self, machine: Machine) -> Tangent:
        """Return the same tangent on another machine, the module with it."""
        wake(machine.device)
        ratio = machine.item / self.machine.item
        return replace(
            self,
            module=self.module.to(machine.device, machine.dtype),
            machine=machine,
            row_bytes=math.ceil(ratio * self.row_bytes),
            work_bytes=math.ceil(ratio * self.work_bytes),
        )

    def of_type(self, dtype: torch.dtype) -> Tangent:
        """Return a copy of another floating type on the same device."""
        return replace(self, module=copy.deepcopy(self.module)).on(self.machine.of_type(dtype))


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
    item = bare.machine.item
    return replace(bare, row_bytes=item * size_of_a_row(parts), work_bytes=2 * item * work)


def _parts(module: nn.Module, names: Mapping[int, str], use: Use) -> list[Part]:
    """Parts of the moved parameters of one layer in one use."""
    layer = module.get_submodule(use.layer)
    own = {role: names[id(p)] for role, p in layer.named_parameters(recurse=False) if moves(p)}
    return LAYERS[type(layer)](layer, use.x, use.signal, own)


def _overlap(module: nn.Module, use: Use) -> int:
    """In how many patches a convolution reads each input."""
    size = getattr(module.get_submodule(use.layer), "kernel_size", (1,))
    return math.prod(size)
