"""A base that learns from covariates without labels, for the study of unlabelled rows.

All but the last layer learn; a linear map of the last hidden layer, discarded afterwards, has to
reconstruct the row. No label is used and the rows are shuffled, so the weights are a random
function of a set of covariates, given which the rows are still exchangeable: nothing is lost.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lazyknife.base import BaseMethod, Task
from lazyknife.networks import RandomStream, like, seeded, set_training, spawn_seeds
from lazyknife.records import INDEPENDENT, Base, PrivacyCurve


@dataclass(frozen=True)
class Autoencoded(BaseMethod):
    """Train the body of a network that ends in ``nn.Linear`` on covariates alone, by Adam."""

    epochs: int = 10
    batch_size: int = 256
    lr: float = 1e-3
    uses_covariates: ClassVar[bool] = True

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        if task.covariates is None:
            raise ValueError("nothing to learn from: pass X_pool or X_unlabeled to fit")
        module = copy.deepcopy(task.start)
        inputs = like(task.covariates, module)
        # The last linear layer; networks with a skip connection have it in their body.
        body = getattr(module, "body", module)
        head = [part for part in body.modules() if isinstance(part, nn.Linear)][-1]
        kept: list[Tensor] = []
        hook = head.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
        with seeded(task.seed):
            decoder = nn.Linear(head.in_features, inputs[0].numel()).to(inputs)
            shuffling = torch.Generator()
            shuffling.set_state(torch.get_rng_state())  # continues after the decoder's start
        fixed = {id(parameter) for parameter in head.parameters()}
        free = [p for p in module.parameters() if p.requires_grad and id(p) not in fixed]
        optimizer = torch.optim.Adam([*free, *decoder.parameters()], lr=self.lr)
        set_training(module)
        dropping = RandomStream.of(module, inputs[: self.batch_size], *spawn_seeds(task.seed, 1))
        for _ in range(self.epochs):
            order = torch.randperm(len(inputs), generator=shuffling)
            for batch in order.split(self.batch_size):
                optimizer.zero_grad()
                with dropping.fork():
                    module(inputs[batch])
                    error = decoder(kept.pop()) - inputs[batch].flatten(1)
                    error.square().mean().backward()
                optimizer.step()
        hook.remove()
        details = {"method": "autoencoded", "covariates": len(inputs), "seed": task.seed}
        return Base(module.eval(), INDEPENDENT, details)
