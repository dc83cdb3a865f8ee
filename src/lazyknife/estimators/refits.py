"""Many networks trained at once, each on its own rows, as one batched computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap

from ..base import Plain
from ..compute import blocks, track
from ..networks import (
    Dice,
    call_with,
    draws,
    ensemble_outputs,
    lent,
    like,
    note_draws,
    outputs,
    private,
    seeded,
    set_training,
    stacked_outputs,
)

Weights = dict[str, Tensor]
Batch = tuple[Tensor, Tensor]
# Parameters, gradients and Adam's two moments, and the starting module itself.
COPIES_IN_TRAINING = 5
TRAINING_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Ensemble:
    """Networks that differ in their weights, and in the constant added to their output."""

    module: nn.Module
    weights: Weights
    offsets: Tensor

    def outputs(self, X: Tensor) -> Tensor:
        """Predictions of all networks at all rows, shape (networks, m), float64."""
        each = ensemble_outputs(self.module, self.weights, like(X, self.module))
        return each.double() + self.offsets[:, None]

    def own_outputs(self, X: Tensor) -> Tensor:
        """Prediction of network j at row j, shape (networks,)."""
        inputs = like(X, self.module)[:, None]
        with torch.no_grad(), lent(self.module) as module:
            predicted = stacked_outputs(module, self.weights, inputs, own_rows=True)
        return predicted[:, 0].double() + self.offsets


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
) -> Ensemble:
    """Train one network for each row of ``subsets``, all of them side by side.

    Parameters
    ----------
    start
        From a number to a starting network.
    X, y
        All rows.
    subsets
        Indices of each network's training rows, shape (networks, rows).
    settings
        How to train.
    center
        Whether each network learns its own rows' deviations from their mean.
    seed
        Seed of all shuffling.
    progress
        Whether to show a progress bar.

    """
    module = start(0)
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    inputs, target = like(X, module), like(y, module)
    offsets = y[subsets].mean(dim=1) if center else y.new_zeros(len(subsets))
    set_training(module)
    dropping = draws(module, inputs[:2])
    with seeded(seed):
        fit = _train_batched if _can_batch(private(module), inputs[:2]) else _train_one_by_one
    parts: list[Weights] = []
    for number, block in enumerate(blocks(len(subsets), COPIES_IN_TRAINING * size, TRAINING_BYTES)):
        starts = [start(k) for k in range(block.start, block.stop)]
        labels = target[subsets[block]] - offsets[block, None].to(target.dtype)
        steps = settings.epochs * math.ceil(subsets.shape[1] / settings.batch_size)
        batches = _batches(subsets[block], labels, settings, seed + number)
        shown = track(batches, "training networks", steps, progress)
        dice = Dice(seed + number, needed=dropping)
        parts.append(fit(starts, inputs, shown, settings.lr, dice))
    weights = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    note_draws(module.eval(), inputs[:2])
    return Ensemble(module, weights, offsets)


def _batches(subsets: Tensor, labels: Tensor, settings: Plain, seed: int) -> Iterator[Batch]:
    """Rows and labels of each step, for every network its own: both (networks, batch)."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        order = torch.rand(subsets.shape, generator=generator).argsort(dim=1)
        for chosen in order.split(settings.batch_size, dim=1):
            yield subsets.gather(1, chosen), labels.gather(1, chosen)


def _train_batched(
    starts: Sequence[nn.Module], inputs: Tensor, batches: Iterable[Batch], lr: float, dice: Dice
) -> Weights:
    """Every step is one product for all networks; Adam works on the stacked weights."""
    for module in starts:
        set_training(module)
    parameters, buffers = stack_module_state(list(starts))
    weights = {**parameters, **buffers}
    optimizer = torch.optim.Adam([w for w in weights.values() if w.requires_grad], lr=lr)
    for rows, labels in batches:
        optimizer.zero_grad()
        with dice.turn():
            predicted = stacked_outputs(starts[0], weights, inputs[rows], own_rows=True)
            (predicted - labels).square().mean(dim=1).sum().backward()
        optimizer.step()
    return {name: value.detach() for name, value in weights.items()}


def _train_one_by_one(
    starts: Sequence[nn.Module], inputs: Tensor, batches: Iterable[Batch], lr: float, dice: Dice
) -> Weights:
    """The same training, network by network."""
    for module in starts:
        set_training(module)
    optimizers = [
        torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=lr)
        for module in starts
    ]
    for rows, labels in batches:
        for module, optimizer, own, wanted in zip(starts, optimizers, rows, labels, strict=True):
            optimizer.zero_grad()
            with dice.turn():
                (outputs(module, inputs[own]) - wanted).square().mean().backward()
            optimizer.step()
    parameters, buffers = stack_module_state(list(starts))
    return {name: value.detach() for name, value in {**parameters, **buffers}.items()}


def _can_batch(module: nn.Module, probe: Tensor) -> bool:
    """Whether torch can run this network for many weights at once."""
    named = [*module.named_parameters(), *module.named_buffers()]
    weights = {name: value.detach()[None] for name, value in named}
    try:
        with torch.no_grad():
            vmap(lambda own, rows: call_with(module, own, rows), randomness="different")(
                weights, probe[None]
            )
    except RuntimeError:
        return False
    return True
