"""Many networks trained at once, each on its own rows, as one batched computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap

from .. import networks
from ..base import Plain
from ..base.method import check_steps
from ..compute import PROCESSOR, blocks, steps, track
from ..intervals.constructions import ROUNDED, evaluation_slack
from ..networks import Dice, dtype_of, evaluation_copy, like
from ..records import Predictions
from ..sentences import OWN_TYPE

Weights = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]
# Parameters, gradients and Adam's two moments, and the starting module itself.
COPIES_IN_TRAINING = 5
TRAINING_BYTES = 256 * 2**20
ROWS_AT_ONCE = 2**22  # rows times networks
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

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a certificate must assume of their rounding."""
        exact = dtype_of(self.module) == torch.float64
        return () if exact else (OWN_TYPE.format(units=ROUNDED),)

    def outputs(self, X: Tensor) -> Tensor:
        """Predictions of all networks at all rows, shape (networks, m), float64."""
        each = networks.ensemble_outputs(self.module, self.weights, like(X, self.module))
        return each.double() + self.offsets[:, None]

    def rounding(self, X: Tensor) -> float:
        """Bound rounding in float64 where outputs are small differences of large numbers.

        It acts as a small change of the weights does, which is measured here at some rows.
        """
        dice = torch.Generator().manual_seed(0)
        weights = dict(self.weights)
        for name, weight in weights.items():
            if weight.is_floating_point():
                draw = torch.randn(weight.shape, generator=dice, dtype=torch.float64)
                weights[name] = weight * (1 + SHAKE * draw)
        moved = replace(self, weights=weights).outputs(X[:FEW_ROWS])
        return SHARE * float((moved - self.outputs(X[:FEW_ROWS])).abs().max())

    def own_outputs(self, X: Tensor, model_of: Tensor) -> Tensor:
        """Predictions at each row by one network, shape (m,), computed as for new rows."""
        each = max(1, ROWS_AT_ONCE // len(self.offsets))
        parts = steps(len(X), each)
        return torch.cat([self.outputs(X[p]).gather(0, model_of[None, p])[0] for p in parts])


def join(parts: Sequence[Ensemble]) -> Ensemble:
    """Return one ensemble of all networks."""
    weights = _concatenated([part.weights for part in parts])
    return Ensemble(parts[0].module, weights, torch.cat([part.offsets for part in parts]))


def _concatenated(parts: Sequence[Weights]) -> Weights:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class Refits:
    """Leave-one-out models that were really trained."""

    full: Ensemble  # the network of the point predictions
    models: Ensemble | None  # those that leave rows out; None where the construction needs none
    model_of: Tensor  # for each row the number of the network that left it out, shape (n,)
    residuals: Tensor  # errors on rows that the network did not see, shape (n,)
    training_residuals: Tensor  # errors of ``full`` on its own rows
    rounding: float = 0.0  # of ``full``; see ``Ensemble``

    @property
    def rows_at_once(self) -> int:
        """Number of rows for which all predictions and their order statistics fit in memory."""
        return PROCESSOR.rows_at_once(len(self.residuals), 48 * len(self.residuals))

    @property
    def scores(self) -> Tensor:
        return self.residuals.abs()

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
        spread = (each - self.full.offsets).abs().amax(dim=1) + self.scores.median()
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
    batched: bool | None = None,
    memory: int = TRAINING_BYTES,
) -> Ensemble:
    """Train one network for each row of ``subsets``, all of them side by side.

    ``start`` goes from a number to a starting network, ``subsets`` holds the indices of each
    network's training rows, shape (networks, rows), and with ``center`` each network is trained on
    the deviations from the mean of its own targets. Networks are trained in blocks of ``memory``
    bytes, each step as one product for all of them if ``batched``; None tries that out.
    """
    module = start(0)
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    inputs, target = like(X, module), like(y, module)
    offsets = y[subsets].mean(dim=1) if center else y.new_zeros(len(subsets))
    networks.set_training(module)
    dropping = networks.draws(module, inputs[: settings.batch_size])
    if batched is None:
        with networks.seeded(seed):
            batched = _can_batch(networks.private(module), inputs[:2])
    updates = check_steps(settings.epochs, settings.batch_size, subsets.shape[1])
    parts = []
    for number, block in enumerate(blocks(len(subsets), COPIES_IN_TRAINING * size, memory)):
        starts = [start(k) for k in range(block.start, block.stop)]
        labels = target[subsets[block]] - offsets[block, None].to(target.dtype)
        batches = _batches(subsets[block], labels, settings, seed + number)
        shown = track(batches, "training networks", updates, progress)
        dice = Dice(seed + number, needed=dropping)
        parts.append(_train(starts, inputs, shown, settings.lr, dice, batched))
    module = _evaluated(module.eval(), X[:2])
    networks.note_draws(module, like(X[:2], module))
    return Ensemble(module, _concatenated(parts), offsets)


def _evaluated(module: nn.Module, probe: Tensor) -> nn.Module:
    """Return the network in float64, or as it is if it fails there."""
    exact = evaluation_copy(module)
    try:
        with networks.seeded(0), torch.no_grad():
            networks.private(exact)(like(probe, exact))
    except (RuntimeError, ValueError, IndexError):
        return module
    return exact


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
    dice: Dice,
    batched: bool,
) -> Weights:
    """Train by Adam, which treats each number on its own, so that one serves all networks."""
    for module in starts:
        networks.set_training(module)
    weights = _stacked(starts)

    def losses(rows: Tensor, labels: Tensor) -> Iterator[Tensor]:
        if batched:  # one product for all networks
            predicted = networks.stacked_outputs(starts[0], weights, inputs[rows], own_rows=True)
            yield (predicted - labels).square().mean(dim=1).sum()
            return
        for module, own, wanted in zip(starts, rows, labels, strict=True):
            yield (networks.outputs(module, inputs[own]) - wanted).square().mean()

    each = [p for module in starts for p in module.parameters()]
    trained = [p for p in (weights.values() if batched else each) if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=lr)
    for rows, labels in batches:
        optimizer.zero_grad()
        with dice.turn():
            for loss in losses(rows, labels):
                loss.backward()
        optimizer.step()
    final = weights if batched else _stacked(starts)
    return {name: value.detach() for name, value in final.items()}


def _stacked(modules: Sequence[nn.Module]) -> Weights:
    """Parameters and buffers, shape (networks, *shape)."""
    parameters, buffers = stack_module_state(list(modules))
    return {**parameters, **buffers}


def _can_batch(module: nn.Module, probe: Tensor) -> bool:
    """Whether torch can run this network for many weights at once."""
    weights = {name: value.detach() for name, value in _stacked([module]).items()}
    try:
        with torch.no_grad():
            vmap(partial(networks.call_with, module), randomness="different")(weights, probe[None])
    except RuntimeError:
        return False
    return True
