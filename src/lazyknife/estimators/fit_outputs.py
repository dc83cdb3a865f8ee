"""The lazy step for several targets of the same rows: one choice and one factorisation for all.

Every model, or the part that is set aside, chooses by the likelihood of all targets together. Where
rows are set aside, the sums of landmark features serve all targets, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..choosing.record import ChosenSettings
from ..choosing.rows import MANY, SEARCHED, drawn_part
from ..compute import few_threads, one_thread
from ..intervals.streamed import LeftOut, Passes, StreamedModels
from ..records import RoundedModels
from ..ridge.streamed import Sums
from ..tangent import Landmarks, WideTangent
from .fit_per_model import MATRICES, ChoosingStep, _Place
from .fit_shared import landmarks_of


class Outputs(NamedTuple):
    """What the step gives."""

    columns: tuple[RoundedModels, ...]  # the models of each target
    choice: ChosenSettings
    left_out: Tensor  # numbers of the rows that are left out, in order


@dataclass(frozen=True)
class OutputsStep(ChoosingStep):
    """Settings: those of ``ChoosingStep``, with a rule for values ``together``."""

    def outputs(self, X: Tensor, Y: Tensor) -> Outputs:
        """Models of every target, for rows X and targets Y, shape (n, targets)."""
        n, targets = Y.shape
        if n > MANY:
            return self._parted(X, Y)
        needed = (MATRICES + targets) * self.machine.item * n**2
        what = f"fitting {targets} targets of {n:,} rows"
        self.machine.check_fits(needed, what, "use fewer rows")
        sets, frames, _, found, searched = self._searched(X, Y)
        with few_threads(n):
            columns = [self._solve(X, y, sets, frames, found, (None,)) for y in Y.T.contiguous()]
        choice = self._choice(found, (self.widths,), n, searched, X.shape[1])
        return Outputs(tuple(columns), choice, torch.arange(n))

    def _parted(self, X: Tensor, Y: Tensor) -> Outputs:
        """A part of the rows chooses for all models, and trains them, but is not left out."""
        (n, targets), landmarks = Y.shape, landmarks_of(len(Y))
        needed = self.machine.item * ((8 + targets) * landmarks**2 + 12 * targets * n)
        what = f"fitting {targets} targets of {n:,} rows"
        self.machine.check_fits(needed, what, "use fewer rows")
        own = torch.from_numpy(drawn_part(n, self.seed))
        rest = torch.from_numpy(np.delete(np.arange(n), own.numpy()))
        few, frames = own[:SEARCHED], self.frames(X[own], [torch.arange(0)], True)
        with few_threads(len(few)):
            found = self._search(X[few], Y[few], frames, [len(few)], None)
        tangent = self._tangent(_Place(0, *found.points[-1][:2]), frames)
        assert isinstance(tangent, WideTangent), "checked with the settings"
        basis = Landmarks.of(tangent, X[own[:landmarks]])
        passes = Passes(basis, float(found.ridges[-1]), self.intercept, 0.0)
        with one_thread():
            columns = streamed_outputs(passes, X, Y, rest, Y[own].mean(dim=0) * self.intercept)
        choice = self._choice(found, (self.widths,), len(rest), len(few), X.shape[1])
        return Outputs(columns, replace(choice, landmarks=basis.size), rest)


def streamed_outputs(
    passes: Passes, X: Tensor, Y: Tensor, left_out: Tensor, centers: Tensor
) -> tuple[StreamedModels, ...]:
    """Both passes of ``Passes.models`` for targets (n, targets), less a centre for each."""
    machine, centred = passes.machine, Y - centers
    blocks = list(passes.blocks(len(Y)))

    def summed(part: slice) -> tuple[Tensor, Tensor]:
        rows = passes.features(X[part])[0]
        return rows.T @ rows, machine.put(centred[part]).T @ rows

    gram, moments = torch.zeros(()), torch.zeros(())
    for more, own_moments in machine.map(summed, blocks, passes.basis.size**2):
        gram, moments = gram.to(more) + more, moments.to(more) + own_moments
    first = [left_out[part] for part in passes.blocks(len(left_out))]
    rows = [passes.features(X[part])[0] for part in first]
    found = []
    for k, center in enumerate(centers.tolist()):
        own = replace(passes, center=center)
        sums = Sums(gram, moments[k], machine.put(centred[:, k].square().sum()), len(Y))
        solved, y = own.solve(sums), Y[:, k]
        parts = zip(first, rows, strict=True)
        out = LeftOut.joined([own.left(solved, X[p], y[p], some) for p, some in parts])
        bounds = solved.bounds(out.left, own.error_of(out), out.size)
        found.append(StreamedModels(own, solved, bounds, out))
    return tuple(found)
