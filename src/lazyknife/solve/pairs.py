"""Errors of models at their own rows: with two rows left out, over their leverage widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import Machine
from .choose import strips, two_left_out, two_left_out_diagonal
from .ridge import Ridge, left_out
from .rounding import GAMMA


class Errors(NamedTuple):
    """Errors of some models with two rows left out.

    Attributes
    ----------
    members
        The models: the rows that they leave out, shape (k,).
    sizes
        N_ij = |e_{i,−ij}|/σ_{i,−ij}, shape (n, k); 0 at a model's own row.
    predicted
        Predictions with two rows left out, shape (n, k).
    own
        Predictions of the left-out rows, shape (k,).
    noise
        Bounds on the errors of N over their mean by rounding, shape (k,).

    """

    members: Tensor
    sizes: Tensor
    predicted: Tensor
    own: Tensor
    noise: Tensor

    @property
    def kept(self) -> Tensor:
        """1 at the model's own rows, 0 at the row that it leaves out, shape (n, k)."""
        kept = torch.ones_like(self.sizes)
        kept[self.members, torch.arange(len(self.members), device=kept.device)] = 0.0
        return kept


def joined(parts: Sequence[Errors]) -> Errors:
    """The errors of all these models together."""
    members, sizes, predicted, own, noise = zip(*parts, strict=True)
    across = (torch.cat(sizes, dim=1), torch.cat(predicted, dim=1))
    return Errors(torch.cat(members), *across, torch.cat(own), torch.cat(noise))


def errors_of(solved: Ridge, y: Tensor, members: Tensor, machine: Machine) -> Errors:
    """Return the errors of some of the models at one λ; y and the members are on the machine."""
    sizes, predicted = y.new_empty(len(y), len(members)), y.new_empty(len(y), len(members))
    spans = torch.empty_like(y)
    for rows in strips(len(y), machine):
        strip = solved.inverse_rows(rows)
        spans[rows] = solved.spans(rows, strip)
        # σ²_{i,−ij} = 1/(d_i − A_ij²/d_j)
        open_part = two_left_out_diagonal(strip.clone(), rows, solved.diagonal)[:, members]
        errors = two_left_out(strip, rows, solved)[:, members]
        predicted[rows] = y[rows, None] - errors
        sizes[rows] = errors.abs() * open_part.sqrt()
    sizes[members, torch.arange(len(members), device=y.device)] = 0.0
    own = solved.sensitivity(spans).own * solved.diagonal.abs().sqrt()
    mean = sizes.sum(dim=0) / (len(y) - 1)
    share = torch.where(own.max() > 0, own.max() / mean, 0.0)
    noise = 2 * GAMMA * (share + solved.strain)
    return Errors(members, sizes, predicted, y[members] - left_out(solved)[members], noise)
