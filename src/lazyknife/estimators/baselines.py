"""Methods to compare with: leave-one-out models that are really trained, as one computation.

Networks that leave out other rows differ in their weights only, so that all of them are trained
side by side: each step is one batched product for all networks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from .. import networks
from ..base import Plain
from ..base.method import Rows, check_steps
from ..base.plain import part_size, random_parts
from ..certificate import Claim
from ..certificate.certify import start_assumptions
from ..compute import PROCESSOR, blocks, track
from ..data.checks import check_flag, check_folds, check_fraction
from ..data.encoder import TableEncoder
from ..data.targets import Function
from ..intervals import Construction
from ..intervals.constructions import ROUNDED, evaluation_slack
from ..networks import Network, RandomStream, build, dtype_of, evaluation_copy, like, make
from ..records import Predictions, Side, errors_on
from ..sentences import OWN_TYPE
from .base import Bounds, IntervalRegressor, ScalingName, Transformer, TransformName
from .fit_input import Fitted, Given, RandomState, Seeds

Weights = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]
CALLS_APART = 7919  # between the seeds of two calls; a prime
# Parameters, gradients and Adam's two moments, and the starting module itself.
COPIES_IN_TRAINING = 5
TRAINING_BYTES = 256 * 2**20
# Rows at which weights are shaken, by how much, and which share of the effect rounding may have:
# 2^10 units of float64.
FEW_ROWS, SHAKE, SHARE = 64, 2.0**-26, 2.0**-16


@dataclass(frozen=True)
class Ensemble:
    """Networks that differ in their weights, and in the constant added to their output.

    They run in the type of the module: float64, in which the output for a row hardly depends on its
    batch, unless the network works in no other type than its own.
    """

    module: nn.Module
    weights: Weights
    offsets: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Ensemble]) -> Ensemble:
        """All networks of several ensembles."""
        names, offsets = parts[0].weights, torch.cat([part.offsets for part in parts])
        weights = {name: torch.cat([part.weights[name] for part in parts]) for name in names}
        return cls(parts[0].module, weights, offsets)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a certificate must assume of their rounding."""
        exact = dtype_of(self.module) == torch.float64
        return () if exact else (OWN_TYPE.format(units=ROUNDED),)

    def outputs(self, X: Tensor) -> Tensor:
        """Predictions of all networks at all rows, shape (networks, m), float64."""
        each = networks.ensemble_outputs(self.module, self.weights, like(X, self.module))
        return each.double() + self.offsets[:, None]

    def own_outputs(self, X: Tensor, model_of: Tensor) -> Tensor:
        """Predictions at each row by one network, shape (m,), computed as for new rows."""
        return self.outputs(X).gather(0, model_of[None])[0]

    def rounding(self, X: Tensor) -> float:
        """Bound rounding in float64 where outputs are small differences of large numbers.

        It acts as a small change of the weights does, which is measured here at some rows.
        """
        generator = torch.Generator().manual_seed(0)
        weights = dict(self.weights)
        for name, weight in weights.items():
            if weight.is_floating_point():
                draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weights[name] = weight * (1 + SHAKE * draw)
        moved = replace(self, weights=weights).outputs(X[:FEW_ROWS])
        return SHARE * float((moved - self.outputs(X[:FEW_ROWS])).abs().max())


@dataclass(frozen=True)
class Refits:
    """Leave-one-out models that were really trained."""

    full: Ensemble  # the network of the point predictions
    models: Ensemble | None  # those that leave rows out; None where the construction needs none
    model_of: Tensor  # for each row the number of the network that left it out, shape (n,)
    residuals: Tensor  # errors on rows that the network did not see, shape (n,)
    training_residuals: Tensor  # errors of ``full`` on its own rows
    rounding: float = 0.0  # of ``full``; see ``Ensemble``
    side: Side = "both"

    @property
    def rows_at_once(self) -> int:
        """Number of rows for which all predictions and their order statistics fit in memory."""
        return PROCESSOR.rows_at_once(len(self.residuals), 48 * len(self.residuals))

    @property
    def scores(self) -> Tensor:
        return errors_on(self.residuals, self.side)

    def point(self, X: Tensor) -> Tensor:
        return self.full.outputs(X)[0]

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Point predictions, (m,), and those of the network that left out each row, (m, n).

        If one network left out all of them, the latter are (m, 1).
        """
        point = self.point(X)
        if self.models is None:
            return point, point[:, None]
        return point, self.models.outputs(X).T[:, self.model_of]

    def scaled(self, X: Tensor) -> Predictions:
        point, each = self.predict(X)
        one = each.new_ones(())
        spread = (each - self.full.offsets).abs().amax(dim=1) + self.residuals.abs().median()
        # A network may round to float32 wherever it runs.
        unit = torch.finfo(torch.float32).eps
        slack = evaluation_slack(spread, each.abs().amax(dim=1), unit) + self.rounding
        return Predictions(point, each, one, 0 * one, slack)


def train_ensemble(
    start: Callable[[int], nn.Module],
    X: Tensor,
    y: Tensor,
    subsets: Tensor,
    settings: Plain,
    *,
    center: bool,
    seed: int,
    progress: bool = False,
    memory: int = TRAINING_BYTES,
) -> Ensemble:
    """Train one network for each row of ``subsets``, all of them side by side.

    ``start`` goes from a number to a starting network, ``subsets`` holds the indices of each
    network's training rows, shape (networks, rows), and with ``center`` each network is trained on
    the deviations from the mean of its own targets. Networks are trained in blocks of ``memory``
    bytes, each step as one product for all of them, unless torch cannot batch the network.
    """
    module = start(0)
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    inputs, target = like(X, module), like(y, module)
    offsets = y[subsets].mean(dim=1) if center else y.new_zeros(len(subsets))
    networks.set_training(module)
    dropping = networks.draws(module, inputs[: settings.batch_size])
    updates = check_steps(settings.epochs, settings.batch_size, subsets.shape[1])
    parts = []
    for number, block in enumerate(blocks(len(subsets), COPIES_IN_TRAINING * size, memory)):
        starts = [start(k) for k in range(block.start, block.stop)]
        labels = target[subsets[block]] - offsets[block, None].to(target.dtype)
        batches = _batches(subsets[block], labels, settings, seed + number)
        shown = track(batches, "training networks", updates, progress)
        stream = RandomStream(seed + number, needed=dropping)
        weights = _train(starts, inputs, shown, settings.lr, stream)
        parts.append(Ensemble(module, weights, offsets[block]))
    found = Ensemble.joined(parts)
    exact = evaluation_copy(module)
    try:
        with networks.seeded(0), torch.no_grad():
            networks.private_copy(exact)(like(X[:2], exact))
    except (RuntimeError, ValueError, IndexError):  # it works in its own type alone
        exact = module.eval()
    return replace(found, module=exact)


def _batches(subsets: Tensor, labels: Tensor, settings: Plain, seed: int) -> Iterator[Batch]:
    """Rows and labels of each step, for every network its own: both (networks, batch)."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        order = torch.rand(subsets.shape, generator=generator).argsort(dim=1)
        for chosen in order.split(settings.batch_size, dim=1):
            yield subsets.gather(1, chosen), labels.gather(1, chosen)


def _train(
    starts: Sequence[nn.Module],
    inputs: Tensor,
    batches: Iterable[Batch],
    lr: float,
    stream: RandomStream,
) -> Weights:
    """Train by Adam, which treats each number on its own, so that one serves all networks."""
    module = starts[0]
    networks.set_training(module)
    parameters, buffers = stack_module_state(list(starts))
    weights = {**parameters, **buffers}  # each of shape (networks, *shape)
    optimizer = torch.optim.Adam([p for p in parameters.values() if p.requires_grad], lr=lr)
    for rows, labels in batches:
        optimizer.zero_grad()
        with stream.fork():
            predicted = networks.stacked_outputs(module, weights, inputs[rows], own_rows=True)
            (predicted - labels).square().mean(dim=1).sum().backward()
        optimizer.step()
    return {name: value.detach() for name, value in weights.items()}


class Design(NamedTuple):
    """Which networks a method trains, and what its certificate is about."""

    learn: Tensor  # rows that the network of the point predictions is trained on
    scored: Tensor  # rows whose errors set the widths, shape (n,)
    left_out: Sequence[Tensor]  # for every other network the scored rows that it leaves out
    claim: dict[str, Any]  # subject, theorem, construction and folds of the certificate


@dataclass(eq=False, repr=False)
class TrainedRegressor(IntervalRegressor):
    """The settings and the fit that all baselines share."""

    network: Network | None = None
    _: KW_ONLY
    epochs: int = 10
    batch_size: int = 10
    lr: float = 1e-3
    fit_intercept: bool = True
    scaling: ScalingName | Transformer | None = None
    encoding: TableEncoder | None = None
    target_transform: TransformName | tuple[Function, Function] | None = None
    bounds: Bounds | None = None
    alpha: float = 0.1
    random_state: RandomState = None
    verbose: bool = False

    @abstractmethod
    def _design(self, n: int, seeds: Seeds) -> Design:
        """Return which networks to train on n rows."""

    def _check_settings(self) -> None:
        super()._check_settings()
        check_flag("fit_intercept", self.fit_intercept)
        Plain(self.epochs, self.batch_size, self.lr)

    def _fit(self, given: Given) -> Fitted:
        X, y, seeds = given.X, given.y, given.seeds
        learn, scored, left_out, claim = self._design(len(y), seeds)
        build(self.network, X, seeds.start)  # refuses a network that cannot be used

        def train(call: int, subsets: Tensor) -> Ensemble:
            """Train on subsets of the rows; every call has random starts and orders of its own."""
            apart = CALLS_APART * call
            return train_ensemble(
                lambda number: make(self.network, X, seeds.start + apart + number).cpu(),
                X,
                y,
                subsets,
                Plain(self.epochs, self.batch_size, self.lr),
                center=self.fit_intercept,
                seed=seeds.base + apart,
                progress=self.verbose,
            )

        full, models, model_of = train(0, learn[None]), None, torch.zeros_like(scored)
        errors = y - full.outputs(X)[0]
        residuals = errors.index_fill(0, learn, torch.nan)[scored]  # none where all rows were seen
        if left_out:
            alike = [list(sets) for _, sets in groupby(left_out, len)]  # of the same size
            kept = [torch.stack([others(len(y), rows) for rows in sets]) for sets in alike]
            models = Ensemble.joined([train(1 + k, subsets) for k, subsets in enumerate(kept)])
            for number, rows in enumerate(left_out):
                model_of[rows] = number
            residuals = y - models.own_outputs(X, model_of)
        assumed = (*start_assumptions(self.network), *full.assumptions, *given.assumptions)
        terms = {**given.stated, "assumptions": assumed, **claim}
        certify = Claim(n=len(scored), available=tuple(self._constructions()), **terms)
        found = Refits(full, models, model_of, residuals, errors[learn], full.rounding(X))
        return Fitted(found, certify, {}, left_out=scored.numpy())


def others(n: int, rows: Tensor) -> Tensor:
    """All of n rows but these."""
    return torch.arange(n)[torch.ones(n, dtype=torch.bool).index_fill(0, rows, False)]


@dataclass(eq=False, repr=False)
class JackknifeRegressor(TrainedRegressor):
    """Jackknife+ and related methods by n real trainings, run as one batched computation.

    Parameters
    ----------
    network
        None (``mlp((64, 64), skip=True)``), a ``torch.nn.Module``, or a callable
        ``n_features -> module``, which gives every network its own random start.
    construction
        ``"plus"``, ``"minmax"``, ``"jackknife"`` or ``"naive"``.
    epochs, batch_size, lr
        Number of epochs, batch size and step size of Adam.
    fit_intercept
        Whether each network is trained on the deviations from the mean of its own targets.
    scaling, target_transform, bounds, alpha, random_state, verbose
        As in ``LazyJackknifeRegressor``.

    """

    construction: Literal["plus", "minmax", "jackknife", "naive"] | Construction = "plus"

    def _design(self, n: int, seeds: Seeds) -> Design:
        rows = torch.arange(n)
        left_out = [] if self.construction == "naive" else list(rows[:, None])
        claim = {
            "subject": f"construction {self.construction!r} of {n} refits, n = {n}",
            "theorem": "jackknife_plus",
            "construction": self.construction,
        }
        return Design(rows, rows, left_out, claim)


@dataclass(eq=False, repr=False)
class CVPlusRegressor(TrainedRegressor):
    """CV+: jackknife+ with one network for each fold instead of one for each row.

    Parameters
    ----------
    network, epochs, batch_size, lr, fit_intercept, scaling, target_transform, bounds, alpha,
    random_state, verbose
        As in ``JackknifeRegressor``.
    folds
        Number of folds; their sizes differ by at most one row.

    """

    folds: int = 10
    construction = "plus"
    _leaves_rows = False

    def _check_settings(self) -> None:
        super()._check_settings()
        check_folds(self.folds)

    def _design(self, n: int, seeds: Seeds) -> Design:
        check_folds(self.folds, n)
        rows = torch.arange(n)
        shuffled = torch.from_numpy(np.random.default_rng(seeds.rows).permutation(n))
        fold_of = (rows % self.folds)[shuffled]
        left_out = [torch.nonzero(fold_of == k)[:, 0] for k in range(self.folds)]  # larger first
        claim = {
            "subject": f"CV+ with {self.folds} folds, n = {n}",
            "theorem": "cv_plus",
            "construction": "cv+",
            "folds": self.folds,
        }
        return Design(rows, rows, left_out, claim)


@dataclass(eq=False, repr=False)
class SplitConformalRegressor(TrainedRegressor):
    """Split conformal: train on one part of the rows, use the errors on the other part.

    Parameters
    ----------
    network, epochs, batch_size, lr, fit_intercept, scaling, target_transform, bounds, alpha,
    random_state, verbose
        As in ``JackknifeRegressor``.
    calibration
        Share of the rows that is held out from training.

    """

    calibration: float = 0.5
    construction = "minmax"  # of one model: point ± order statistic of errors on other rows

    def _check_settings(self) -> None:
        super()._check_settings()
        check_fraction("calibration", self.calibration)

    def _rows_left(self, n: int) -> int:
        return part_size(n, self.calibration)

    def _rows_apart(self, n: int, seeds: Seeds) -> Rows:
        return random_parts(n, self._rows_left(n), seeds.rows)[0]

    def _design(self, n: int, seeds: Seeds) -> Design:
        learn = torch.from_numpy(self._rows_apart(n, seeds))
        kept = others(n, learn)
        claim = {
            "subject": f"split conformal, {len(kept)} calibration rows of {n}",
            "theorem": "split_conformal",
            "construction": "split",
        }
        return Design(learn, kept, [], claim)
