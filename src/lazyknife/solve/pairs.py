"""Errors of models at their own rows: with two rows left out, over their leverage widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .choose import strips, two_left_out, two_left_out_diagonal
from .dual import DualSystem
from .evidence import replaced
from .ridge import left_out
from .rounding import gamma_of

HEAVY = 100.0  # times the errors of all other rows, above which r_j is replaced


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


def errors_of(system: DualSystem, ridge: float, outputs: Tensor, members: Tensor) -> Errors:
    """Return the errors of some of the models at one λ.

    Nothing of model j depends on r_j, so it may be any number. Where the error of row j, left out,
    outweighs those of all others, they would lose their digits: then the prediction by the other
    rows takes the place of r_j.

    Parameters
    ----------
    system
        The equations, which are left as they are.
    ridge
        λ.
    outputs
        f(X; θ0), shape (n,).
    members
        The models, shape (k,).

    """
    found, own = _errors(system, ridge, outputs, members)
    for k in torch.nonzero(own > HEAVY * found.sizes.sum(dim=0))[:, 0].tolist():
        row, targets = members[k : k + 1], system.targets
        wanted = (found.own[k] - outputs[row])[None]
        lighter = system.with_targets(replaced(targets[None], row, wanted)[0])
        again, _ = _errors(lighter, ridge, outputs, row)
        for every, one in zip(found[1:], again[1:], strict=True):
            every[..., k] = one[..., 0]
    return found


def _errors(
    system: DualSystem, ridge: float, outputs: Tensor, members: Tensor
) -> tuple[Errors, Tensor]:
    """Errors of the models, and |e_j|/σ_j at the rows that they leave out, shape (k,)."""
    machine, targets, n = system.machine, system.targets, len(outputs)
    if system.intercept:  # absorbs any constant: one of the targets, so that equal ones become 0
        middle = targets.median()
        targets, outputs = targets - middle, outputs + middle
    solved = system.copy().with_targets(targets).at(ridge)
    sizes, predicted = targets.new_empty(n, len(members)), targets.new_empty(n, len(members))
    spans = torch.empty_like(targets)
    for rows in strips(n, machine):
        strip = solved.inverse_rows(rows)
        spans[rows] = solved.spans(rows, strip)
        # σ²_{i,−ij} = 1/(d_i − A_ij²/d_j)
        open_part = two_left_out_diagonal(strip.clone(), rows, solved.diagonal)[:, members]
        errors = two_left_out(strip, rows, solved)[:, members]
        predicted[rows] = (outputs + targets)[rows, None] - errors
        sizes[rows] = errors.abs() * open_part.sqrt()
    sizes[members, torch.arange(len(members), device=sizes.device)] = 0.0
    residuals, widths = left_out(solved), solved.diagonal.abs().sqrt()
    own = solved.sensitivity(spans).own * widths
    mean = sizes.sum(dim=0) / (n - 1)
    share = torch.where(own.max() > 0, own.max() / mean, 0.0)
    noise = 2 * gamma_of(sizes.dtype) * (share + solved.strain)
    here = (outputs + (targets - residuals))[members]
    return Errors(members, sizes, predicted, here, noise), (residuals.abs() * widths)[members]
