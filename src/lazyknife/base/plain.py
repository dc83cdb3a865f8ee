"""Plain: ordinary training on the data, without privacy ("lazy finetune")."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data.checks import check_positive, check_positive_int
from ..networks import Dice, like, outputs, set_training, spawn_seeds
from ..progress import track
from ..records import Base
from .method import BaseMethod, Task


@dataclass(frozen=True)
class Plain(BaseMethod):
    """Adam on the squared error, or on the task's loss.

    It sees all of the data, so nothing is guaranteed after it.

    Parameters
    ----------
    epochs, batch_size, lr
        Passes over the data, rows in a batch, and Adam's step size.

    """

    epochs: int = 10
    batch_size: int = 10
    lr: float = 1e-3

    def __post_init__(self) -> None:
        check_positive_int("epochs", self.epochs)
        check_positive_int("batch_size", self.batch_size)
        check_positive("lr", self.lr)

    def dependence(self, n: int, n_parameters: int | None = None) -> None:
        """Nothing is known."""
        return None

    def learn(self, task: Task) -> Base:
        """Train a copy of the start."""
        module = train(task, self)
        return Base(module, None, {"method": "plain", "seed": task.seed})


def train(task: Task, settings: Plain) -> nn.Module:
    """Return a copy of the task's start trained by Adam on shuffled batches."""
    module = copy.deepcopy(task.start)
    set_training(module)
    inputs = like(task.X, module)
    target = like(_centred(task), module)
    optimizer = torch.optim.Adam(
        [p for p in module.parameters() if p.requires_grad], lr=settings.lr
    )
    shuffling = torch.Generator().manual_seed(task.seed)
    dropping = Dice.of(module, inputs[:2], *spawn_seeds(task.seed, 1))
    for _ in track(range(settings.epochs), "training", settings.epochs, task.progress):
        order = torch.randperm(len(inputs), generator=shuffling)
        for batch in order.split(settings.batch_size):
            optimizer.zero_grad()
            with dropping.turn():
                errors = task.loss.training(outputs(module, inputs[batch]), target[batch])
                errors.mean().backward()
            optimizer.step()
    return module.eval()


def _centred(task: Task) -> Tensor:
    """Return the targets, less the mean that an intercept takes up: only of an identity link."""
    return task.y - task.y.mean() if task.center and task.loss.identity else task.y
