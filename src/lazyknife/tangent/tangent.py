"""A network linearised at θ0: outputs, kernel blocks, moves of its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..compute import PROCESSOR, Machine, blocks, steps, wake
from ..networks import (
    ensemble_outputs,
    evaluation_copy,
    is_chain,
    layer_sizes,
    outputs,
    private_copy,
    row_gradients,
    stacked_outputs,
)
from .capture import capturable_layers, factored_parts
from .parts import Explicit, Moves, Part, merge

PROBE = 2  # rows on which a network is looked at
MIRRORED = 128  # rows at a time: tiles that stay in a processor's caches
# A name below, patterns of parameter names such as ["head.*"], or a function of name and parameter.
Selection = str | Sequence[str] | Callable[[str, nn.Parameter], bool]


SELECTIONS = ("all", "last")  # the last: the parameters of the module that has the last one


@dataclass(frozen=True)
class Features:
    """Data rows, their outputs f(X; θ0), and their Jacobian parts where these fit in memory."""

    X: Tensor
    outputs: Tensor
    parts: Sequence[Part] | None


@dataclass(frozen=True)
class Tangent:
    """A network linearised at θ0; J is the Jacobian of its outputs in the moved parameters."""

    module: nn.Module  # at θ0, in evaluation mode, on the machine
    layers: tuple[str, ...]  # those whose parameters are in factored form
    rest: tuple[str, ...]  # moved parameters that need explicit Jacobian rows
    machine: Machine = PROCESSOR
    row_bytes: int = 0  # memory for the features of one row
    work_bytes: int = 0  # memory for computing them

    @property
    def moved(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @property
    def size(self) -> int:
        """Number of entries of the parameters that move."""
        return sum(p.numel() for p in self.moved.values())

    def features(self, X: Tensor) -> Features:
        """Features of the rows of X; if they do not fit, they are recomputed when needed."""
        X = self.machine.put(X)
        work = blocks(len(X), self.work_bytes, self.machine.block)
        if len(X) * self.row_bytes > self.machine.kept:
            module = private_copy(self.module)
            with torch.no_grad():
                return Features(X, torch.cat([outputs(module, X[rows]) for rows in work]), None)
        made = [self.make(X[rows]) for rows in work]
        predicted = torch.cat([values for values, _ in made])
        parts, *others = [parts for _, parts in made]
        if others:
            parts = [part.joined(more) for part, *more in zip(parts, *others, strict=True)]
        return Features(X, predicted, parts)

    def kernel(self, left: Features, right: Features) -> Tensor:
        """J_left J_rightᵀ, shape (m, n)."""
        total = left.outputs.new_empty(len(left.X), len(right.X))
        for rows, above in self.blocks(left):
            for columns, below in self.blocks(right):
                self._fill(total[rows, columns], above, below)
        return total

    def gram(self, features: Features) -> Tensor:
        """J Jᵀ, shape (n, n): the tiles on and below the diagonal, then mirrored."""
        total = features.outputs.new_empty(len(features.X), len(features.X))
        for rows, above in self.blocks(features):
            for columns, below in self.blocks(features):
                diagonal = columns.start == rows.start
                self._fill(total[rows, columns], above, below, lower=diagonal)
                if diagonal:
                    break
        for i in steps(len(total), MIRRORED):
            total[: i.start, i] = total[i, : i.start].T
            total[i, i] = total[i, i].tril() + total[i, i].tril(-1).T
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
            for name, move in (each for p in parts for each in p.pull(coefficients[rows]).items()):
                total[name] = total[name] + move if name in total else move
        return total

    def blocks(self, features: Features) -> Iterator[tuple[slice, Sequence[Part]]]:
        """Rows and their parts; one block where the parts are stored."""
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
        for columns in steps(total.shape[1], 2 * max(1, math.isqrt(entries))):
            right = [part.take(columns) for part in below]
            for rows in blocks(len(total), columns.stop - columns.start, entries):
                if lower and rows.stop <= columns.start:
                    continue
                tile = total[rows, columns].zero_()
                for part, other in zip(above, right, strict=True):
                    part.take(rows).add_kernel(other, tile)

    def make(self, X: Tensor) -> tuple[Tensor, list[Part]]:
        """Outputs (n,) and parts of all moved parameters, for rows that fit at once."""
        X = self.machine.put(X)
        predicted, parts = factored_parts(self.module, self.layers, X)
        rest = {name: p for name, p in self.moved.items() if name in self.rest}
        rows = row_gradients(self.module, rest, X) if rest else {}
        return predicted, merge(parts) + [Explicit((name,), each) for name, each in rows.items()]

    def on(self, machine: Machine) -> Tangent:
        """Move the tangent, and its module, to another machine."""
        wake(machine.device)
        module = self.module.to(machine.device, torch.float64)
        return replace(self, module=module, machine=machine)


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
    tangent = make_tangent(network, capturable_layers(network, probe), probe)
    if tangent.layers and not is_chain(network) and not _agrees(tangent, probe):
        tangent = make_tangent(network, (), probe)
    return tangent.on(machine)


def make_tangent(module: nn.Module, layers: Sequence[str], probe: Tensor) -> Tangent:
    """Return the tangent with these layers in factored form and the rest as Jacobian rows."""
    covered = {id(p) for name in layers for p in module.get_submodule(name).parameters(False)}
    moved = ((name, p) for name, p in module.named_parameters() if p.requires_grad)
    bare = Tangent(module, tuple(layers), tuple(n for n, p in moved if id(p) not in covered))
    parts = bare.make(probe)[1]
    explicit = sum(part.rows[0].numel() for part in parts if isinstance(part, Explicit))
    kept = sum(values[0].numel() for part in parts for values in part.tensors().values())
    work = 2 * (explicit + sum(layer_sizes(module, probe[:1])))
    return replace(bare, row_bytes=bare.machine.item * kept, work_bytes=bare.machine.item * work)


def _agrees(tangent: Tangent, X: Tensor) -> bool:
    """Whether the kernel of these rows is that of their explicit Jacobian."""
    rows = row_gradients(tangent.module, tangent.moved, X)
    jacobian = torch.cat([each.reshape(len(X), -1) for each in rows.values()], dim=1)
    features, expected = tangent.features(X), jacobian @ jacobian.T
    difference = tangent.kernel(features, features) - expected
    return bool(difference.abs().max() <= 1e-9 * expected.abs().max())


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
    with torch.no_grad():
        return stacked_outputs(module, weights, X.unsqueeze(1), own_rows=True)[:, 0]


# Which parameters move.


def check_selection(selection: Any) -> None:
    """Refuse what cannot select parameters."""
    listed = isinstance(selection, list | tuple) and len(selection) > 0
    patterns = listed and all(isinstance(pattern, str) for pattern in selection)
    if callable(selection) or patterns or (isinstance(selection, str) and selection in SELECTIONS):
        return
    example = selection if isinstance(selection, str) else "head.*"
    raise (ValueError if isinstance(selection, str) else TypeError)(
        f"parameters={selection!r}: give {', '.join(map(repr, SELECTIONS))}, a list of name "
        f"patterns such as [{example!r}], or a function of name and parameter"
    )


def selected(module: nn.Module, selection: Selection) -> dict[str, nn.Parameter]:
    """Return the parameters that are selected and not frozen, by name."""
    check_selection(selection)
    named = dict(module.named_parameters())
    free = {name: p for name, p in named.items() if p.requires_grad}
    moved = {name: free[name] for name in _chosen(named, selection) if name in free}
    if not moved:
        raise ValueError(
            f"parameters={selection!r} selects none of the network's parameters that are not "
            f"frozen: choose from {list(free)}"
        )
    return moved


def _chosen(named: dict[str, nn.Parameter], selection: Selection) -> list[str]:
    if isinstance(selection, str):
        owners = [name.rpartition(".")[0] for name in named]
        pairs = zip(named, owners, strict=True)
        return [name for name, owner in pairs if selection == "all" or owner == owners[-1]]
    if callable(selection):
        chosen = []
        for name, parameter in named.items():
            try:
                chosen += [name] if selection(name, parameter) else []
            except Exception as error:
                raise ValueError(
                    f"parameters={selection!r} failed for {name!r}: {error}. Give a function of "
                    "name and parameter that returns True or False"
                ) from error
        return chosen
    unmatched = [p for p in selection if not any(fnmatchcase(name, p) for name in named)]
    if unmatched:
        raise ValueError(
            f"parameters: no parameter of the network matches {unmatched}: choose from "
            f"{list(named)}"
        )
    return [name for name in named if any(fnmatchcase(name, pattern) for pattern in selection)]
