"""The forms in which Jacobian rows are stored, and the products that each form computes.

The Jacobian J of n data rows is split by parameter. A part stores the columns of one or two
parameters, and every product with J is a sum or a list of what its parts give.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from ..compute import Machine

Moves = dict[str, Tensor]  # for every moved parameter its moves by b models, (b, *shape)


@dataclass(frozen=True)
class Part(Protocol):
    """Jacobian rows of the named parameters, n of them; each row is one matrix M.

    ``add_kernel`` adds the part's share of J J'ᵀ to ``total`` (n, n'), ``norms`` are the squared
    norms of the rows (n,), and ``pull`` gives Jᵀ C for C of shape (n, b). ``plus`` adds another use
    of the same parameters; ``explicit`` multiplies out, one part for each name. Entry k of a
    projected row is Σ_ab left_ak M_ab right_bk, which takes ``places`` vectors of this length.
    """

    names: tuple[str, ...]

    @property
    def matrix_shape(self) -> tuple[int, int]: ...
    @property
    def places(self) -> int: ...
    def add_kernel(self, other: Self, total: Tensor) -> None: ...
    def norms(self) -> Tensor: ...
    def pull(self, coefficients: Tensor) -> Moves: ...
    def plus(self, other: Self) -> Self: ...
    def explicit(self) -> list[Explicit]: ...
    def project(self, left: Tensor, right: Tensor) -> Tensor: ...

    def cheapest(self) -> Sequence[Part]:
        """The same rows in the form whose kernel takes the fewest operations."""
        return [self]

    def tensors(self) -> dict[str, Tensor]:
        """The fields with one entry for each data row."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def take(self, rows: slice) -> Self:
        """The same part for some of the data rows."""
        taken: dict[str, Any] = {name: value[rows] for name, value in self.tensors().items()}
        return replace(self, **taken)

    def joined(self, others: Sequence[Self], dim: int = 0) -> Self:
        """Concatenate along the data rows (dim 0) or the places (dim 1)."""
        every = [part.tensors() for part in (self, *others)]
        both: dict[str, Any] = {k: torch.cat([each[k] for each in every], dim) for k in every[0]}
        return replace(self, **both)


@dataclass(frozen=True)
class Factors(Part, Protocol):
    """Uses of a matrix at T places: rows Σ_t g_t ⊗ h_t, not multiplied out."""

    signals: Tensor  # g, shape (n, T, out)
    inputs: Tensor  # h, shape (n, T, in), or codes that stand for it, shape (n, T)

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        """⟨h, h'⟩ of all pairs of inputs, shape (..., a, b)."""

    @property
    def places(self) -> int:
        return self.signals.shape[1]

    def add_kernel(self, other: Self, total: Tensor) -> None:
        """Σ_{t,t'} ⟨g_t, g'_t'⟩·⟨h_t, h'_t'⟩."""
        for g, h in self._each():
            for other_g, other_h in other._each():
                total.addcmul_(g @ other_g.T, self.inner(h, other_h))

    def norms(self) -> Tensor:
        g, h = self.signals, self.inputs
        return (_inner(g, g) * self.inner(h, h)).sum(dim=(1, 2))

    def plus(self, other: Self) -> Self:
        return self.joined([other], dim=1)

    def _each(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.signals.unbind(1), self.inputs.unbind(1), strict=True))


@dataclass(frozen=True)
class Outer(Factors):
    """A weight and a bias, or one of them; the inputs have a last entry 1 for the bias."""

    bias: bool  # whether the last name is a bias

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return self.signals.shape[2], self.inputs.shape[2]

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        return _inner(left, right)

    def add_kernel(self, other: Self, total: Tensor) -> None:
        if self.signals.shape[1:] == (1, 1):  # one output at one place: the rows are g·h
            left, right = ((part.signals * part.inputs)[:, 0] for part in (self, other))
            total.addmm_(left, right.T)
        else:
            super().add_kernel(other, total)

    def pull(self, coefficients: Tensor) -> Moves:
        """Column j moves the matrix by Σ_i C_ij Σ_t g_it h_itᵀ."""
        columns = coefficients.T.repeat_interleave(self.places, dim=1)
        weighted = columns[:, None, :] * self.signals.flatten(0, 1).T  # (b, out, n·T)
        return self._named(weighted @ self.inputs.flatten(0, 1))

    def explicit(self) -> list[Explicit]:
        matrices = self.signals.transpose(1, 2) @ self.inputs
        return [Explicit((name,), rows) for name, rows in self._named(matrices).items()]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        return _summed((self.signals @ left).mul_(self.inputs @ right))

    def cheapest(self) -> Sequence[Part]:
        """Multiplied out if T² products of factors cost more than one product of matrices."""
        size_out, size_in = self.matrix_shape
        dear = self.places > 1 and self.places**2 * (size_out + size_in) > size_out * size_in
        return self.explicit() if dear else [self]

    def _named(self, matrices: Tensor) -> Moves:
        """Split (…, out, in) into the weight and the bias."""
        pieces = [matrices[..., :-1], matrices[..., -1]] if self.bias else [matrices]
        return dict(zip(self.names, pieces[-len(self.names) :], strict=True))


@dataclass(frozen=True)
class Lookup(Factors):
    """A table with ``size`` entries: h is the unit vector of the code."""

    size: int

    @property
    def matrix_shape(self) -> tuple[int, int]:
        return self.signals.shape[2], self.size

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        return (left[..., :, None] == right[..., None, :]).to(self.signals.dtype)

    def pull(self, coefficients: Tensor) -> Moves:
        """Column j moves entry e of the table by Σ_i C_ij Σ_{t: code = e} g_it."""
        weighted = coefficients.T[:, :, None, None] * self.signals  # (b, n, T, width)
        moves = weighted.new_zeros(len(weighted), self.size, weighted.shape[-1])
        moves.index_add_(1, self.inputs.flatten(), weighted.flatten(1, 2))
        return {self.names[0]: moves}

    def explicit(self) -> list[Explicit]:
        rows = self.signals.new_zeros(len(self.signals), self.size, self.signals.shape[2])
        where = self.inputs[..., None].expand_as(self.signals)
        return [Explicit(self.names, rows.scatter_add_(1, where, self.signals))]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        return _summed((self.signals @ left).mul_(right[self.inputs]))


@dataclass(frozen=True)
class Explicit(Part):
    """Jacobian rows of one parameter as they are, shape (n, *shape)."""

    rows: Tensor

    @property
    def flat(self) -> Tensor:
        """Rows as vectors, shape (n, size)."""
        return self.rows.reshape(len(self.rows), -1)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """First axis by the others; a vector is one row."""
        shape = self.rows.shape[1:]
        return (shape[0], shape[1:].numel()) if len(shape) > 1 else (1, shape.numel())

    @property
    def places(self) -> int:
        return self.matrix_shape[0]

    def add_kernel(self, other: Self, total: Tensor) -> None:
        total.addmm_(self.flat, other.flat.T)

    def norms(self) -> Tensor:
        return self.flat.square().sum(dim=1)

    def pull(self, coefficients: Tensor) -> Moves:
        moves = coefficients.T @ self.flat
        return {self.names[0]: moves.reshape(-1, *self.rows.shape[1:])}

    def plus(self, other: Self) -> Self:
        return replace(self, rows=self.rows + other.rows)

    def explicit(self) -> list[Explicit]:
        return [self]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        matrices = self.rows.reshape(len(self.rows), *self.matrix_shape)
        return _summed((matrices @ right).mul_(left))


def merge(parts: Iterable[Part]) -> list[Part]:
    """Return one part for each parameter, however many layers use it and how often."""
    forms = _added(parts)
    counts = Counter(name for part in forms for name in part.names)
    alone: list[Part] = []
    shared: list[Part] = []  # in two forms, or a weight that is tied without its bias
    for part in forms:
        if max(counts[name] for name in part.names) == 1:
            alone += part.cheapest()
        else:
            shared += part.explicit()
    return alone + _added(shared)


def _added(parts: Iterable[Part]) -> list[Part]:
    """Sum the parts that have the same form and the same names."""
    total: dict[tuple[type[Part], tuple[str, ...]], Part] = {}
    for part in parts:
        form = type(part), part.names
        total[form] = total[form].plus(part) if form in total else part
    return list(total.values())


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner products, (..., a, width) and (..., b, width) → (..., a, b)."""
    if left.dim() == 3 and left.shape[1] == 1:  # much faster than a batch of 1×1 products
        return (left * right).sum(dim=2, keepdim=True)
    return left @ right.mT


def _summed(values: Tensor) -> Tensor:
    return values[:, 0] if values.shape[1] == 1 else values.sum(dim=1)


@dataclass(frozen=True)
class Signs:
    """Random signs for the rows and for the columns of each part's matrix, by its names."""

    pairs: Mapping[tuple[str, ...], tuple[Tensor, Tensor]]
    places: int

    def project(self, parts: Sequence[Part]) -> Tensor:
        """Projected Jacobian rows, shape (n, dimension)."""
        first, *others = parts
        total = first.project(*self.pairs[first.names])
        for part in others:
            total += part.project(*self.pairs[part.names])
        return total


def draw_signs(dimension: int, parts: Sequence[Part], seed: int, machine: Machine) -> Signs:
    """Draw the signs of each part, the first ones divided by √dimension."""
    generator = torch.Generator().manual_seed(seed)

    def signs(size: int) -> Tensor:
        bits = torch.randint(0, 2, (size, dimension), generator=generator, dtype=torch.int8)
        return machine.put((2 * bits - 1).double())

    scale = 1 / math.sqrt(dimension)
    shapes = {part.names: part.matrix_shape for part in parts}
    pairs = {names: (scale * signs(a), signs(b)) for names, (a, b) in shapes.items()}
    return Signs(pairs, max(part.places for part in parts))
