"""Bases without noise: public weights, ordinary training, and training on other rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..compute import track
from ..data.checks import check_fraction, check_positive_int, check_reasonable
from ..networks import RandomStream, like, listed_networks, outputs, set_training, spawn_seeds, wide
from ..records import INDEPENDENT, Base, PrivacyCurve
from .method import BaseMethod, Rows, Task, check_steps, check_training


@dataclass(frozen=True)
class Public(BaseMethod):
    """Keep the network's own weights: a random start, or a network trained on other data.

    Its weights cost the guarantee nothing, whatever seed was fixed before looking at the rows.
    """

    trains = False

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        return Base(task.start, INDEPENDENT, {"method": "public"})


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


@dataclass(frozen=True)
class Split(BaseMethod):
    """Train on a random part of the rows; the leave-one-out step never sees that part.

    Parameters
    ----------
    fraction
        Share of the rows that the base learns on, strictly between 0 and 1.
    training
        How it is trained.

    """

    fraction: float = 0.5
    training: Plain = field(default_factory=Plain)

    def __post_init__(self) -> None:
        check_fraction("fraction", self.fraction)
        check_training(self.training)

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT  # given its own part, the base does not depend on the other

    def rows_left(self, n: int) -> int:
        return n - part_size(n, self.fraction)

    def rows(self, n: int, seed: int) -> tuple[Rows, Rows]:
        return random_parts(n, self.rows_left(n), seed)

    def learn(self, task: Task) -> Base:
        trained = self.training.learn(task)
        details = {"method": "split", "rows_learnt": len(task.y), "seed": task.seed}
        return Base(trained.module, INDEPENDENT, details)


def part_size(n: int, fraction: float) -> int:
    """Rows in a part, with at least one row on either side."""
    return min(max(round(fraction * n), 1), n - 1)


def random_parts(n: int, size: int, seed: int) -> tuple[Rows, Rows]:
    """All rows but a random part of this size, and that part, both in order."""
    shuffled = np.random.default_rng(seed).permutation(n)
    return np.sort(shuffled[size:]), np.sort(shuffled[:size])


def check_base(base: BaseMethod | None) -> BaseMethod:
    """Return the base; None is ``Public()``."""
    if not isinstance(base, BaseMethod | None):
        raise TypeError(f"base={base!r}: give an instance such as DPSGD(), Public() or Split()")
    return Public() if base is None else base


def check_trainable(base: BaseMethod, network: Any) -> None:
    """Refuse a base that would have nothing to train."""
    listed = listed_networks(network)
    if listed and base.trains and all(isinstance(each, wide) for each in listed):
        raise ValueError(
            f"base={base} with network={network!r}: infinitely wide networks have no weights to "
            "train: use base=Public(), or add a finite network such as mlp((64, 64))"
        )
