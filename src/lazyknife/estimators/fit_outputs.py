"""The lazy step for several targets of the same rows: one choice and one factorisation for all.

Every model, or the part that is set aside, chooses by the likelihood of all targets together. Where
rows are set aside, the sums of landmark features serve all targets, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..choosing.candidates import (
    Candidate,
    CandidateStep,
    FiniteNetwork,
    default_networks,
    is_narrow,
)
from ..choosing.likelihood import Together
from ..choosing.record import ChosenSettings
from ..choosing.rows import ENOUGH, MANY, SEARCHED, Leaving, drawn_part, rows_apart
from ..compute import few_threads, one_thread
from ..intervals.chosen import ChosenModels, Group, some_of
from ..intervals.streamed import LeftOut, Passes, StreamedModels
from ..networks import Network, is_known, listed_networks, mlp, tangent_alone, wide
from ..records import Array, RoundedModels
from ..ridge.streamed import Sums
from ..tangent import EXACT, PROBE, Landmarks, WideTangent
from .fit_clusters import ClustersStep
from .fit_full import FullStep
from .fit_input import Given
from .fit_per_model import MATRICES, ChoosingStep, _Place
from .fit_shared import landmarks_of

if TYPE_CHECKING:
    from .lazy import LazyJackknifeRegressor

FEWEST = 4  # rows that can choose


class Outputs(NamedTuple):
    """What the step gives."""

    columns: tuple[RoundedModels, ...]  # the models of each target
    # For each model the typical size of errors of each target, up to a common factor, (n, targets),
    # and a bound on their relative error by rounding, (n,).
    units: Tensor
    unit_error: Tensor
    choice: ChosenSettings
    left_out: Tensor  # numbers of the rows that are left out, in order


def leaving_of(n: int) -> Leaving:
    """Which of n rows are left out: as for one target, but few enough for all their models."""
    found = Leaving.choosing(n)
    rows = min(found.rows, ENOUGH)
    return found if rows == found.rows else Leaving(rows, n - rows)


def check_networks(network: Any, n: int, finite: bool = False) -> tuple[Network | wide, ...]:
    """The candidates for several targets of n rows, none for the default; refuse others.

    ``finite`` networks may be among them, but not with many rows kernel functions.
    """
    listed = listed_networks(network)
    every = (network,) if listed is None and network is not None else listed or ()
    others = [each for each in every if not isinstance(each, wide)]
    if network is not None and (not every or (others and not finite)):
        raise TypeError(
            f"network={network!r}: clusters and several outputs take infinitely wide networks: "
            "give wide('laplace'), a list of such networks, or None"
        )
    if n > MANY and any(isinstance(each, wide) and not is_known(each) for each in every):
        raise ValueError(
            f"network={network!r}: with more than {MANY:,} rows, classes and several outputs take "
            "networks of lazyknife.networks.KINDS, not kernel functions: use these, or fewer rows"
        )
    return every


def units_of(values: Array) -> Tensor:
    """The scale of each target's errors, up to a factor of each model, (models, targets).

    Criteria, log(rᵀc/ν) and what targets have in common, differ by twice its logarithm.
    """
    return torch.from_numpy((values - values.mean(axis=1, keepdims=True)) / 2).exp()


@dataclass(frozen=True)
class OutputsStep(ChoosingStep):
    """Settings: those of ``ChoosingStep``, with a rule for values ``together``."""

    def full(self) -> FullStep:
        """The step in which all rows and a new one choose together, with the same settings."""
        return FullStep(**self._common(), features=EXACT)

    def many_clusters(self, any_scale: bool) -> ClustersStep:
        """The step that leaves clusters of many rows out, with the same settings."""
        return ClustersStep(**self._common() | {"any_scale": any_scale})

    def _common(self) -> dict[str, Any]:
        common = {field.name: getattr(self, field.name) for field in fields(CandidateStep)}
        return common | {"relevance": self.relevance, "progress": self.progress}

    def outputs(self, X: Tensor, Y: Tensor) -> Outputs:
        """Models of every target, for rows X and targets Y, shape (n, targets)."""
        n, targets = Y.shape
        if n > MANY:
            known = all(candidate.weighted for candidate in self.candidates)
            return self._parted(X, Y) if known else self._apart(X, Y)
        needed = (MATRICES + targets) * self.machine.item * n**2
        what = f"fitting {targets} targets of {n:,} rows"
        self.machine.check_fits(needed, what, "use fewer rows")
        sets, frames, _, found, searched = self._searched(X, Y)
        with few_threads(n):
            columns = [self._solve(X, y, sets, frames, found, (None,)) for y in Y.T.contiguous()]
        choice = self.choice(found, (self.widths,), n, searched, X.shape[1])
        values, noise = (part[:-1] for part in found.outputs)
        units = units_of(values), torch.from_numpy(noise.max(axis=1))
        return Outputs(tuple(columns), *units, choice, torch.arange(n))

    def _apart(self, X: Tensor, Y: Tensor) -> Outputs:
        """The same where finite networks are among the candidates."""
        rest, _ = rows_apart(len(Y), self.seed)
        found, choice = self._shared_by(X, Y, list(Y.T.contiguous()))
        members = torch.arange(len(rest), device=found[0].residuals.device)
        sure = torch.zeros_like(members, dtype=torch.bool)
        models = [
            ChosenModels((Group(members, each),), some_of(each, members[:0]), sure)
            for each in found
        ]
        units = Y.new_ones(len(rest), Y.shape[1]), Y.new_zeros(len(rest))
        return Outputs(tuple(models), *units, choice, rest)

    def _parted(self, X: Tensor, Y: Tensor) -> Outputs:
        """A part of the rows chooses for all models, and trains them, but is not left out."""
        (n, targets), landmarks = Y.shape, landmarks_of(len(Y))
        needed = self.machine.item * ((8 + targets) * landmarks**2 + 12 * targets * n)
        what = f"fitting {targets} targets of {n:,} rows"
        self.machine.check_fits(needed, what, "use fewer rows")
        own = torch.from_numpy(drawn_part(n, self.seed))
        rest = torch.from_numpy(np.delete(np.arange(n), own.numpy())[: leaving_of(n).rows])
        few, frames = own[:SEARCHED], self.frames(X[own], [torch.arange(0)], True)
        with few_threads(len(few)):
            found = self._search(X[few], Y[few], frames, [len(few)], None)
        tangent = self._tangent(_Place(0, *found.points[-1][:2]), frames)
        assert isinstance(tangent, WideTangent), "checked with the settings"
        basis = Landmarks.of(tangent, X[own[:landmarks]])
        passes = Passes(basis, float(found.ridges[-1]), self.intercept, 0.0)
        with one_thread():
            centers = Y[own].mean(dim=0) * self.intercept
            columns = streamed_outputs(passes, X, Y, rest, centers)
        units = units_of(found.outputs[0][-1:]).repeat(len(rest), 1), Y.new_zeros(len(rest))
        choice = self.choice(found, ("constant",), len(rest), len(few), X.shape[1])
        return Outputs(columns, *units, replace(choice, landmarks=basis.size), rest)


def outputs_step(
    settings: LazyJackknifeRegressor,
    given: Given,
    widths: str,
    together: Together | None,
    shape: tuple[int, ...] | None = None,
) -> OutputsStep:
    """The lazy step for several targets of these rows; refuse rows that cannot have one.

    Finite networks may be among the candidates if ``shape`` is that of the rows that they take.
    """
    if given.X.dim() != 2 or not given.X.is_floating_point():
        raise ValueError(
            "X: classes and several outputs take rows of numbers, shape (n, features), or frames"
        )
    if (n := len(given.X)) < FEWEST:
        raise ValueError(f"X has {n} rows (n_samples={n}): give at least {FEWEST}")
    chosen = check_networks(settings.network, n, shape is not None) or default_networks(given.X)
    own = isinstance(settings.scaling, str) and settings.scaling == "auto"
    candidates = [
        _candidate(settings, each, given, k, shape or ()) for k, each in enumerate(chosen)
    ]
    return OutputsStep(
        candidates=candidates,
        ridge=None if isinstance(settings.ridge, str) else float(settings.ridge),
        intercept=settings.fit_intercept,
        scaled=own and any(candidate.scales for candidate in candidates),
        seed=given.seeds.lazy,
        machine=settings._machine(),
        nominal=given.nominal,
        widths=widths,
        any_scale=False,
        construction=settings._construction,
        relevance=settings.feature_weights is not None and is_narrow(given.X),
        folds=settings.folds,
        progress=settings.verbose,
        together=together,
    )


def _candidate(
    settings: LazyJackknifeRegressor,
    network: Network | wide,
    given: Given,
    which: int,
    shape: tuple[int, ...],
) -> Candidate:
    """A network to choose from; of a finite one the tangent features alone."""
    if isinstance(network, wide):
        return Candidate(str(network), network)
    module = tangent_alone(network, given.X, given.seeds.start + which, shape)
    scaled = settings._is_scaled(network, given.X)
    finite = FiniteNetwork(module, given.X[:PROBE], "all", settings._machine(), scaled)
    return Candidate(str(network) if isinstance(network, mlp) else type(network).__name__, finite)


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
