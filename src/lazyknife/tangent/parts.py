"""The forms in which Jacobian rows of some parameters are kept, and what can be had from each.

A part holds n rows. ``add_kernel`` adds its share of J J'ᵀ with the same part of other rows,
``pull`` gives its share of Jᵀ C: for each of the b columns of C a move of its parameters,
(b, *shape).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

Moves = dict[str, Tensor]
_AnyPart = TypeVar("_AnyPart")


class Part(Protocol):
    """Jacobian rows of one or two parameters, in one of the forms below."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""

    def add_kernel(self, other: Self, total: Tensor) -> None:
        """Add the share of the kernel to ``total``, shape (n, n')."""

    def norms(self) -> Tensor:
        """Share of each row's own kernel entry, shape (n,)."""

    def pull(self, coefficients: Tensor) -> Moves:
        """Share of Jᵀ C for C of shape (n, b)."""

    def plus(self, other: Self) -> Self:
        """Rows of the same parameters, used once more."""

    def explicit(self) -> list[Explicit]:
        """The same rows multiplied out."""

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a row as one matrix M."""

    @property
    def places(self) -> int:
        """How many projections ``project`` holds for one row at a time."""

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        """Entry k of a row is Σ_ab left_ak M_ab right_bk; left (a, k), right (b, k)."""


@dataclass(frozen=True)
class Outer:
    """A matrix used at T places: rows Σ_t g_t ⊗ h_t, never multiplied out.

    Attributes
    ----------
    weight, bias
        Names of the parameters; None for one that is frozen or absent.
    signals
        g, shape (n, T, out).
    inputs
        h, with a last entry 1 if there is a bias, shape (n, T, in).

    """

    weight: str | None
    bias: str | None
    signals: Tensor
    inputs: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that are there."""
        return tuple(name for name in (self.weight, self.bias) if name is not None)

    def add_kernel(self, other: Outer, total: Tensor) -> None:
        """Σ_{t,t'} ⟨g_t, g'_t'⟩·⟨h_t, h'_t'⟩."""
        if self.signals.shape[1:] == (1, 1):  # one output at one place: the rows are g·h
            total.addmm_(self._scaled(), other._scaled().T)
            return
        for g, h in self._places():
            for g_other, h_other in other._places():
                total.addcmul_(g @ g_other.T, h @ h_other.T)

    def norms(self) -> Tensor:
        """Σ_{t,t'} ⟨g_t, g_t'⟩·⟨h_t, h_t'⟩ of each row with itself."""
        return (_inner(self.signals) * _inner(self.inputs)).sum(dim=(1, 2))

    def pull(self, coefficients: Tensor) -> Moves:
        """Column j moves the matrix by Σ_i C_ij Σ_t g_it h_itᵀ."""
        columns = coefficients.T.repeat_interleave(self.signals.shape[1], dim=1)
        weighted = columns[:, None, :] * self.signals.flatten(0, 1).T  # (b, out, n·T)
        return self._named(weighted @ self.inputs.flatten(0, 1))

    def plus(self, other: Outer) -> Outer:
        """Used at the other's places too."""
        return _joined([self, other], dim=1)

    def explicit(self) -> list[Explicit]:
        """The same rows multiplied out."""
        matrices = self.signals.transpose(1, 2) @ self.inputs
        return [Explicit(name, rows) for name, rows in self._named(matrices).items()]

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Outputs and inputs, the bias among the latter."""
        return self.signals.shape[2], self.inputs.shape[2]

    @property
    def places(self) -> int:
        """T."""
        return self.signals.shape[1]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        """Factor by factor, summed over the places."""
        return _summed((self.signals @ left).mul_(self.inputs @ right))

    def cheapest(self) -> list[Part]:
        """Multiplied out if T places make T² products of factors dearer than one of matrices."""
        places, out = self.signals.shape[1:]
        size_in = self.inputs.shape[2]
        if places > 1 and places**2 * (out + size_in) > out * size_in:
            return [*self.explicit()]
        return [self]

    def _named(self, matrices: Tensor) -> Moves:
        """Cut (…, out, in) into the weight and, last, the bias."""
        named: Moves = {}
        if self.bias is not None:
            named[self.bias], matrices = matrices[..., -1], matrices[..., :-1]
        if self.weight is not None:
            named[self.weight] = matrices
        return named

    def _scaled(self) -> Tensor:
        return self.signals[:, 0] * self.inputs[:, 0]

    def _places(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.signals.unbind(1), self.inputs.unbind(1), strict=True))


@dataclass(frozen=True)
class Lookup:
    """A table read at T places: rows Σ_t e_code ⊗ g_t. Codes (n, T), signals (n, T, width)."""

    name: str
    size: int
    codes: Tensor
    signals: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """The table's name."""
        return (self.name,)

    def add_kernel(self, other: Lookup, total: Tensor) -> None:
        """Σ over the places t, t' with equal codes of ⟨g_t, g'_t'⟩."""
        for code, g in zip(self.codes.unbind(1), self.signals.unbind(1), strict=True):
            pairs = zip(other.codes.unbind(1), other.signals.unbind(1), strict=True)
            for other_code, other_g in pairs:
                total.addcmul_(g @ other_g.T, (code[:, None] == other_code).to(g.dtype))

    def norms(self) -> Tensor:
        """Σ over the places t, t' of a row with equal codes of ⟨g_t, g_t'⟩."""
        equal = self.codes[:, :, None] == self.codes[:, None, :]
        return (_inner(self.signals) * equal).sum(dim=(1, 2))

    def pull(self, coefficients: Tensor) -> Moves:
        """Column j moves entry e of the table by Σ_i C_ij Σ_{t: code = e} g_it."""
        weighted = coefficients.T[:, :, None, None] * self.signals  # (b, n, T, width)
        moves = weighted.new_zeros(len(weighted), self.size, weighted.shape[-1])
        return {self.name: moves.index_add_(1, self.codes.flatten(), weighted.flatten(1, 2))}

    def plus(self, other: Lookup) -> Lookup:
        """Read at the other's places too."""
        return _joined([self, other], dim=1)

    def explicit(self) -> list[Explicit]:
        """The same rows multiplied out."""
        n, _, width = self.signals.shape
        rows = self.signals.new_zeros(n, self.size, width)
        where = self.codes[..., None].expand_as(self.signals)
        return [Explicit(self.name, rows.scatter_add_(1, where, self.signals))]

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Width and number of entries of the table."""
        return self.signals.shape[2], self.size

    @property
    def places(self) -> int:
        """T."""
        return self.signals.shape[1]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        """Signals by a product, codes by looking up."""
        return _summed((self.signals @ left).mul_(right[self.codes]))


@dataclass(frozen=True)
class Explicit:
    """Jacobian rows of one parameter as they are, shape (n, *shape)."""

    name: str
    rows: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """The parameter's name."""
        return (self.name,)

    @property
    def flat(self) -> Tensor:
        """One row for each row, shape (n, size); a parameter may be a single number."""
        return self.rows.reshape(len(self.rows), -1)

    def add_kernel(self, other: Explicit, total: Tensor) -> None:
        """Inner products of the rows."""
        total.addmm_(self.flat, other.flat.T)

    def norms(self) -> Tensor:
        """Squared lengths of the rows."""
        return self.flat.square().sum(dim=1)

    def pull(self, coefficients: Tensor) -> Moves:
        """Weighted sums of the rows."""
        moves = coefficients.T @ self.flat
        return {self.name: moves.reshape(-1, *self.rows.shape[1:])}

    def plus(self, other: Explicit) -> Explicit:
        """Derivatives add."""
        return Explicit(self.name, self.rows + other.rows)

    def explicit(self) -> list[Explicit]:
        """As it is."""
        return [self]

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """First axis against the others; a vector is one row."""
        shape = self.rows.shape[1:]
        return (shape[0], shape[1:].numel()) if len(shape) > 1 else (1, shape.numel())

    @property
    def places(self) -> int:
        """Rows of the matrix."""
        return self.matrix_shape[0]

    def project(self, left: Tensor, right: Tensor) -> Tensor:
        """The long axis by a product, the short one by a weighted sum."""
        matrices = self.rows.reshape(len(self.rows), *self.matrix_shape)
        return _summed((matrices @ right).mul_(left))


def _inner(values: Tensor) -> Tensor:
    """Inner products of a row's places with each other, (n, T, width) → (n, T, T)."""
    return values @ values.transpose(1, 2)


def _summed(values: Tensor) -> Tensor:
    """Sum over the places, axis 1."""
    return values[:, 0] if values.shape[1] == 1 else values.sum(dim=1)


def merge(parts: Iterable[Part]) -> list[Part]:
    """One part for each parameter, however often and by whichever layers it is used."""
    by_names: dict[tuple[str, ...], Part] = {}
    for part in parts:
        before = by_names.get(part.names)
        if before is not None and type(before) is not type(part):  # tied table and matrix
            before, part = before.explicit()[0], part.explicit()[0]
        by_names[part.names] = part if before is None else before.plus(part)
    # A weight that is tied without its bias is in parts of different names.
    counts = Counter(name for names in by_names for name in names)
    result: list[Part] = []
    tied: dict[str, Explicit] = {}
    for names, part in by_names.items():
        if all(counts[name] == 1 for name in names):
            result += part.cheapest() if isinstance(part, Outer) else [part]
            continue
        for rows in part.explicit():
            tied[rows.name] = tied[rows.name].plus(rows) if rows.name in tied else rows
    return result + list(tied.values())


def size_of_a_row(parts: Iterable[Part]) -> int:
    """Return how many numbers the parts hold for one row."""
    return sum(part_tensor[0].numel() for part in parts for part_tensor in _tensors(part).values())


def stack(blocks: Sequence[Sequence[Part]]) -> tuple[Part, ...]:
    """Parts of several blocks of rows as parts of all rows."""
    if len(blocks) == 1:
        return tuple(blocks[0])
    return tuple(_joined(parts, dim=0) for parts in zip(*blocks, strict=True))


def take(parts: Iterable[Part], rows: slice) -> list[Part]:
    """The same parts of some of the rows."""
    return [
        replace(part, **{name: value[rows] for name, value in _tensors(part).items()})  # type: ignore[type-var]
        for part in parts
    ]


def explicit_rows(parts: Iterable[Part]) -> dict[str, Tensor]:
    """Jacobian rows multiplied out, by the parameters' names, each (n, size)."""
    return {rows.name: rows.flat for part in parts for rows in part.explicit()}


def _joined(parts: Sequence[_AnyPart], dim: int) -> _AnyPart:
    """Parts of the same parameters end to end: rows along axis 0, places along axis 1."""
    tensors = {
        name: torch.cat([_tensors(part)[name] for part in parts], dim=dim)
        for name in _tensors(parts[0])
    }
    joined: _AnyPart = replace(parts[0], **tensors)  # type: ignore[type-var]
    return joined


def _tensors(part: Any) -> dict[str, Tensor]:
    return {name: value for name, value in vars(part).items() if isinstance(value, Tensor)}
