"""Scores of rows with two of them left out: what jackknife+ would say of row i without row i.

The interval that jackknife+ makes of the other rows contains y_i or not. Its ends are made of
models without i and j, for all j. With c, d and A of a solved system (ridge/system.py),

    e_{i,−ij} = (d_j c_i − A_ij c_j)/(d_i d_j − A_ij²),    σ²_{i,−ij} = d_j/(d_i d_j − A_ij²),

so one solution has them all. In the primal form c, d and A are r, 1 − h and −φᵀG⁻¹φ.

Where the settings are given, or a part of the rows chose them for all, these are the models of a
fit without row i. Where each model chose, the one without i and j is taken at the settings of the
model without i when it predicts row i, and at those of the model without j for the score of row j
and the width that goes with it: no setting saw the row that it is judged by, but it saw the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choosing.shape import Factors, LocalAverage
from ..ridge.dual import DualSystem
from ..ridge.readout import LinearModels, MovedNetworks
from ..tangent import Dual
from .chosen import ChosenModels, Group, OtherScale
from .order import kth_largest
from .streamed import StreamedModels

ENTRIES = 2**22  # of pairs of rows at a time


class Pairs(NamedTuple):
    """Rows i and j at the settings of the model without i, both left out; each (i, j)."""

    errors: Tensor  # of row i; NaN at j = i
    widths: Tensor  # σ of row i
    there: Tensor  # σ of row j
    lean: Tensor  # c of the model without i, (i,), which is part of all scores
    scores: Tensor  # the size of that of row j; NaN at j = i
    before: Tensor  # the same without j alone
    alone: Tensor  # the signed score of row i without i alone, (i,)


class Part(NamedTuple):
    """Some of the rows i, whose models share settings."""

    rows: Tensor
    pairs: Pairs
    targets: Tensor  # y on the scale of these models, of all rows
    elsewhere: OtherScale | None  # from there to that of the full model


class Games(NamedTuple):
    """What the other rows say of some rows i, by the models without j; each (i, j), NaN at j = i.

    On the scale of y of the model without j.
    """

    errors: Tensor  # of the prediction of row i
    scores: Tensor  # of row j
    widths: Tensor  # σ of row i

    def missed(self, rank: int, construction: str) -> Tensor:
        """Whether the interval of the other rows misses each row, (i,)."""
        if not rank:
            return torch.zeros(len(self.errors), dtype=torch.bool)
        margins = self.scores * self.widths
        if construction == "plus":
            reached = [(side <= margins).sum(dim=1) for side in (self.errors, -self.errors)]
            return (torch.minimum(*reached) < rank).cpu()
        size = kth_largest(self.scores.nan_to_num(-torch.inf, torch.inf), [rank])
        gaps = [side - size * self.widths for side in (self.errors, -self.errors)]
        return torch.maximum(*(gap.nan_to_num(torch.inf).amin(dim=1) for gap in gaps)).cpu() > 0


def has_pairs(loo: Any) -> bool:
    """Whether models without two rows follow from these models."""
    if isinstance(loo, ChosenModels):
        return all(map(has_pairs, [loo.full, *(group.read for group in loo.groups)]))
    if isinstance(loo, LinearModels) and not isinstance(loo, MovedNetworks):
        solved = loo.models.model_of is None and loo.models.unsolved == 0.0
        return solved and loo.loss.closed_form and isinstance(loo.basis, Dual)
    return isinstance(loo, StreamedModels)


def parts(loo: Any, rows: Tensor, columns: Tensor) -> Iterator[Part]:
    """Pairs of some of the rows that are left out, i, and some others, j."""
    if isinstance(loo, StreamedModels):
        for some in rows.split(max(1, ENTRIES // len(columns))):
            yield Part(some, _streamed(loo, some, columns), loo.residuals, None)
    elif isinstance(loo, ChosenModels):
        y = _targets(loo.full)
        for group in loo.groups:
            yield from _dual(group, y, rows, columns, loo.factors)
    else:
        every = torch.arange(len(loo.residuals), device=loo.residuals.device)
        yield from _dual(Group(every, loo), _targets(loo), rows, columns, None)


def games(loo: Any, rows: Tensor) -> Games:
    """What the other rows say of some of the rows that are left out."""
    unknown = torch.isinf(loo.scores)
    every = torch.arange(len(unknown), device=unknown.device)
    errors, scores, widths = loo.residuals.new_empty(3, len(rows), len(every))
    place = torch.full_like(every, -1)
    place[rows] = torch.arange(len(rows), device=rows.device)
    for part in parts(loo, rows, every):
        own, found = place[part.rows], part.pairs
        if isinstance(loo, StreamedModels):  # all have the same settings
            errors[own], scores[own], widths[own] = found.errors, found.scores, found.widths
            continue
        errors[own] = part.targets[part.rows, None] - found.errors  # predictions
        if part.elsewhere is not None:
            errors[own] = part.elsewhere.there(errors[own])
    for part in () if isinstance(loo, StreamedModels) else parts(loo, every, rows):
        own, found = part.rows, part.pairs
        predicted = errors[:, own]
        if part.elsewhere is not None:
            predicted = part.elsewhere.back(predicted)
        errors[:, own] = part.targets[rows, None] - predicted
        scores[:, own] = (found.errors / found.widths - found.lean[:, None]).abs().T
        widths[:, own] = found.there.T
        errors[:, own] -= (found.there * found.lean[:, None]).T
    scores[:, unknown] = torch.inf
    scores[place[rows], rows] = torch.nan
    return Games(errors, scores, widths)


def _streamed(loo: StreamedModels, rows: Tensor, columns: Tensor) -> Pairs:
    """Given what rows set aside chose."""
    passes, left = loo.passes, loo.out.left
    mine = passes.features(loo.out.rows[rows.to(loo.out.rows.device)])[0]
    steps, shares = torch.cholesky_solve(mine.T, loo.solved.lower), list[Tensor]()
    for block in passes.blocks(len(columns)):
        some = loo.out.rows[columns[block].to(loo.out.rows.device)]
        shares.append(passes.features(some)[0] @ steps)
    terms = left.training_residuals, 1 - left.leverages
    own, others, _ = _errors(-torch.cat(shares).T, *terms, rows, columns)
    shift, scale, _ = loo.out.shape
    here, there = scale[rows, None].expand_as(own), scale[columns].expand_as(own)
    alone, scores = (loo.residuals - shift) / scale, (others - shift[columns]).abs() / there
    before = alone.abs()[columns].expand_as(own)
    lean = torch.zeros_like(alone[rows])
    return Pairs(own - shift[rows, None], here, there, lean, scores, before, alone[rows])


def _dual(
    group: Group, y: Tensor, rows: Tensor, columns: Tensor, factors: Factors | None
) -> Iterator[Part]:
    """Models at one place, in the coordinates of a kernel; ``y`` is on the scale of the full one.

    Rows that train every model come last.
    """
    read, basis = group.read, group.read.basis
    mine = torch.isin(group.members, rows)
    if not mine.any():
        return
    assert isinstance(basis, Dual)
    if group.elsewhere is not None:
        y = group.elsewhere.back(y)
    kernel, intercept = basis.tangent.gram(basis.features), bool(read.models.intercepts.any())
    targets = y - basis.features.outputs
    system = DualSystem(kernel, targets, intercept, basis.tangent.machine)
    ridges = torch.where(mine, read.models.ridges[:-1], torch.nan)
    for ridge in ridges[mine].unique().tolist():
        some, solved = group.members[ridges == ridge], system.solve(ridge)
        A, diagonal = solved.inverse_rows(some)[:, columns], solved.diagonal
        own, others, open_part = _errors(A, solved.dual, diagonal, some, columns)
        here = there = unit = torch.ones_like(own)
        alone, lean = solved.left_out[some], torch.zeros_like(solved.left_out[some])
        if read.scales is not None:
            here = (diagonal[columns] / open_part).sqrt()
            there, unit = (diagonal[some, None] / open_part).sqrt(), diagonal[columns].rsqrt()
            alone = alone * diagonal[some].sqrt()
        if factors is not None:
            predicted = y[columns] - others
            mean, each = _factors(factors, some, columns, predicted)
            here, there, unit = here * mean[:, None], there * each, unit * each
            lean = factors.shift[some]
            alone = alone / mean - lean
        before = (solved.left_out[columns] / unit - lean[:, None]).abs()
        scores = (others / there - lean[:, None]).abs()
        pairs = Pairs(own, here, there, lean, scores, before, alone)
        yield Part(some, pairs, y, group.elsewhere)


def _errors(
    A: Tensor, dual: Tensor, diagonal: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Errors of rows i and of j without both, NaN at j = i, and d_i d_j − A_ij²."""
    (c, d), (others, each) = ((dual[k], diagonal[k]) for k in (rows[:, None], columns))
    open_part = d * each - A.square()
    open_part[rows[:, None] == columns] = torch.nan
    return (each * c - A * others) / open_part, (d * others - A * c) / open_part, open_part


def _factors(
    factors: Factors, rows: Tensor, columns: Tensor, predicted: Tensor
) -> tuple[Tensor, Tensor]:
    """Of the models without some rows: at the rows, (i,), and at others, (i, j)."""
    found = torch.ones_like(predicted)
    for shape in factors.shapes:
        which = shape.members == rows[:, None]
        places = which.any(dim=1)
        some = shape.some(which[places].int().argmax(dim=1))
        if isinstance(some, LocalAverage):
            weights = some.tangent.gram(some.tangent.features(some.X)).fill_diagonal_(0.0)
            found[places] = some.averages(weights[columns]).T
        else:
            found[places] = some.of(predicted[places].T).T
    return factors.own[rows], found


def _targets(read: LinearModels) -> Tensor:
    """The y of all rows that the models learn from: (K + λI)c + β + f(X; θ0) of the full one."""
    basis, models = read.basis, read.models
    assert isinstance(basis, Dual)
    fitted = basis.tangent.gram(basis.features) @ models.full
    fitted += models.ridges[-1] * models.full + models.intercepts[-1]
    return fitted + basis.features.outputs
