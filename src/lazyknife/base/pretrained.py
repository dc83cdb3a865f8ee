"""Pretrained: the network's body learns from covariates without labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..data.checks import check_choice
from ..networks import Averaged, Dice, like, seeded, set_training, spawn_seeds
from ..networks.calls import watched
from ..records import INDEPENDENT, Base, PrivacyCurve
from .method import BaseMethod, Task
from .plain import Plain

# What a linear map of the last hidden layer has to predict from the rows, shape (rows, targets).
OBJECTIVES: dict[str, Callable[[Tensor], Tensor]] = {"autoencode": lambda rows: rows.flatten(1)}


@dataclass(frozen=True)
class Pretrained(BaseMethod):
    """Train all but the last layer on covariates alone; the last layer keeps its start.

    The covariates come from ``X_pool`` or ``X_unlabeled`` of ``fit``. No label is used and the
    rows are shuffled, so θ0 is a random function of a bag of covariates: those of the training
    rows and the pool together, given which the rows are still exchangeable, or those of rows
    outside training and test. Either way the certificate loses nothing.

    Parameters
    ----------
    objective
        ``"autoencode"``: a linear map of the last hidden layer reconstructs the row.
    epochs, batch_size, lr
        Passes over the covariates, rows in a batch, and Adam's step size.

    """

    objective: str = "autoencode"
    epochs: int = 10
    batch_size: int = 256
    lr: float = 1e-3
    uses_covariates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        self._training()

    def _training(self) -> Plain:
        return Plain(self.epochs, self.batch_size, self.lr)

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        """No dependence: given the bag of covariates θ0 is a constant, up to its own randomness."""
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        covariates = check_covariates(task.covariates)
        module, error = self._train(task, covariates, OBJECTIVES[self.objective](covariates))
        details = {
            "method": "pretrained",
            "objective": self.objective,
            "covariates": len(covariates),
            "error": error,
            "seed": task.seed,
        }
        return Base(module, INDEPENDENT, details)

    def _train(self, task: Task, rows: Tensor, targets: Tensor) -> tuple[nn.Module, float]:
        """Train the body of a network, or of each network of a mean on its own."""
        if not isinstance(task.start, Averaged):
            return train_body(task, rows, targets, self._training())
        members = task.start.members
        seeds = zip(members, spawn_seeds(task.seed, len(members)), strict=True)
        tasks = [replace(task, start=member, seed=seed) for member, seed in seeds]
        trained = [self._train(each, rows, targets) for each in tasks]
        return Averaged([module for module, _ in trained]).eval(), fmean(e for _, e in trained)


def check_covariates(covariates: Tensor | None) -> Tensor:
    """Refuse what cannot be learnt from, or must not be."""
    if covariates is None:
        raise ValueError(
            "Pretrained has no covariates to learn from: pass the rows to predict as X_pool, or "
            "other rows as X_unlabeled, to fit. Learning from X alone would be a leak"
        )
    if not covariates.is_floating_point():
        raise ValueError(
            f"Pretrained got covariates of type {covariates.dtype}, but integer codes cannot be "
            "reconstructed by a linear map: give real numbers, or use base=Public()"
        )
    return covariates


def train_body(
    task: Task, rows: Tensor, targets: Tensor, training: Plain
) -> tuple[nn.Module, float]:
    """Train a body from whose outputs a linear map, the decoder, predicts the targets.

    ``rows`` are the inputs; targets have shape (rows, targets). The task's network ends in a linear
    layer with one output. Returns it without the decoder, and the mean squared error over the last
    epoch.
    """
    module = copy.deepcopy(task.start).eval()
    inputs, wanted = like(rows, module), like(targets, module)
    with seeded(task.seed, inputs.device):  # the network may draw numbers in every call
        head = find_head(module, inputs[:2])
    free = body_parameters(module, head)
    with body_of(module, head) as body:
        with seeded(task.seed, inputs.device):
            decoder = nn.Linear(body(inputs[:1]).shape[1], wanted.shape[1]).to(inputs)
            shuffling = torch.Generator()
            shuffling.set_state(torch.get_rng_state())  # continues after the decoder's start
        set_training(module)  # not before: in training a layer may store its first row
        error = training.minimise(
            lambda batch: (decoder(body(inputs[batch])) - wanted[batch]).square().mean(),
            [*free, *decoder.parameters()],
            len(inputs),
            shuffling,
            Dice.of(module, inputs[: training.batch_size], *spawn_seeds(task.seed, 1)),
            task.progress,
        )
    if not math.isfinite(error):
        raise ValueError(
            f"pretraining diverged (lr={training.lr:g}): bring the features to a common scale "
            "(for instance scaling='standardize'), or give Pretrained a smaller lr"
        )
    return module.eval(), error


def find_head(module: nn.Module, rows: Tensor) -> nn.Linear:
    """Return the linear layer that gives the network's output: the last one that runs."""
    ran: list[tuple[nn.Linear, int]] = []

    def note(part: nn.Module, _: Any, result: Any) -> None:
        if isinstance(part, nn.Linear):
            ran.append((part, result.numel()))

    with watched(module, note), torch.no_grad():
        module(rows.clone())
    if not ran or ran[-1][1] != len(rows):
        raise ValueError(
            "network does not end in a torch.nn.Linear with one output, so Pretrained cannot tell "
            "its body from its last layer: end it in nn.Linear(width, 1), or use base=Public()"
        )
    return ran[-1][0]


def body_parameters(module: nn.Module, head: nn.Linear) -> list[nn.Parameter]:
    """Return the free parameters outside the last layer."""
    fixed = {id(parameter) for parameter in head.parameters()}
    free = [p for p in module.parameters() if p.requires_grad and id(p) not in fixed]
    if not free:
        raise ValueError(
            "network has no free parameter before its last layer, so there is nothing to "
            "pretrain: give it a hidden layer, unfreeze one, or use base=Public()"
        )
    return free


@contextmanager
def body_of(module: nn.Module, head: nn.Linear) -> Iterator[Callable[[Tensor], Tensor]]:
    """Lend the map from rows to the inputs of the last layer, shape (rows, width)."""
    kept: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, args: kept.append(args[0]))

    def body(X: Tensor) -> Tensor:
        kept.clear()
        module(X.clone())  # it may change its input
        return kept[-1].reshape(len(X), -1)

    try:
        yield body
    finally:
        hook.remove()
