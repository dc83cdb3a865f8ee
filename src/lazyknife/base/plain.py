"""Plain: ordinary training on the data, without privacy ("lazy finetune")."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from ..compute import track
from ..data.checks import check_positive_int, check_reasonable
from ..networks import RandomStream, like, outputs, set_training, spawn_seeds
from ..records import Base
from .method import BaseMethod, Task, check_steps


@dataclass(frozen=True)
class Plain(BaseMethod):
    """Adam on the squared error, or on the task's loss.

    It sees all of the data, so no coverage is guaranteed after it.

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
        check_reasonable("lr", self.lr)

    def dependence(self, n: int, n_parameters: int | None = None) -> None:
        return None

    def learn(self, task: Task) -> Base:
        module = copy.deepcopy(task.start)
        set_training(module)
        # An intercept takes up the mean of y, but only if the loss predicts y itself.
        y = task.y - task.y.mean() if task.center and task.loss.identity else task.y
        inputs, target = like(task.X, module), like(y, module)
        check_steps(self.epochs, self.batch_size, len(inputs))
        free = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(free, lr=self.lr)
        shuffling = torch.Generator().manual_seed(task.seed)
        dropping = RandomStream.of(module, inputs[: self.batch_size], *spawn_seeds(task.seed, 1))
        for _ in track(range(self.epochs), "training", self.epochs, task.progress):
            for batch in torch.randperm(len(inputs), generator=shuffling).split(self.batch_size):
                optimizer.zero_grad()
                with dropping.fork():
                    errors = task.loss.training(outputs(module, inputs[batch]), target[batch])
                    errors.mean().backward()
                optimizer.step()
        return Base(module.eval(), None, {"method": "plain", "seed": task.seed})
