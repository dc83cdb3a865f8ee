"""Starts and rows for the bases, and their optimizers written out as slow twins."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from lazyknife.base import BaseMethod, Task
from lazyknife.losses import Huber, Logistic, Loss, Poisson, Squared
from lazyknife.networks import mlp, seeded
from lazyknife.records import INDEPENDENT, Base, PrivacyCurve

Error = Callable[[Tensor, Tensor], Tensor]


def start_network(features: int = 3, widths: tuple[int, ...] = (5,), seed: int = 0) -> nn.Module:
    with seeded(seed):
        return mlp(widths, "tanh")(features).double()


def zero_linear(features: int) -> nn.Module:
    network = nn.Linear(features, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(network.weight)
    return network


def rows(n: int = 30, features: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, features, dtype=torch.float64, generator=generator)
    return X, X.sum(dim=1) + torch.randn(n, dtype=torch.float64, generator=generator)


def weights(module: nn.Module) -> Tensor:
    return parameters_to_vector(module.parameters()).detach().clone()


def squared_error(f: Tensor, y: Tensor) -> Tensor:
    return (f - y).square().mean()


# A loss, the map of real targets to its own, and the mean loss of rows as torch has it.
TWINS: dict[str, tuple[Loss, Callable[[Tensor], Tensor], Error]] = {
    "squared": (Squared(), lambda y: y + 3, squared_error),
    "huber": (Huber(0.3), lambda y: y, lambda f, y: functional.huber_loss(f, y, delta=0.3)),
    "logistic": (
        Logistic(),
        lambda y: (y > 0).double(),
        functional.binary_cross_entropy_with_logits,
    ),
    "poisson": (Poisson(), lambda y: y.abs().round(), functional.poisson_nll_loss),
}


@dataclass(frozen=True)
class Moved(BaseMethod):
    """A base that looks at covariates alone: their sum and the seed move all weights."""

    epochs: int = 1
    lr: float = 1e-3
    uses_covariates: ClassVar[bool] = True

    def dependence(self, n: int, n_parameters: int | None = None) -> PrivacyCurve:
        return INDEPENDENT

    def learn(self, task: Task) -> Base:
        assert task.covariates is not None
        module = copy.deepcopy(task.start)
        noise = torch.Generator().manual_seed(task.seed)
        with torch.no_grad():
            for p in module.parameters():
                p += 1e-3 * float(task.covariates.double().sum()) * torch.rand((), generator=noise)
        return Base(module.eval(), INDEPENDENT, {"covariates": len(task.covariates)})


def adam(
    error: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    batches: Iterable[Tensor],
    lr: float,
) -> None:
    """Adam's recursion on the error of each batch."""
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for step, batch in enumerate(batches, start=1):
        gradients = torch.autograd.grad(error(batch), parameters)
        with torch.no_grad():
            for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                size = (v / (1 - 0.999**step)).sqrt() + 1e-8
                p -= lr * (m / (1 - 0.9**step)) / size


def clipped_descent(
    start: nn.Module,
    X: Tensor,
    y: Tensor,
    batches: Iterable[Iterable[int]],
    clip: float,
    lr: float,
    expected: float,
    loss: Error = squared_error,
) -> Tensor:
    """Noiseless DP-SGD, a row at a time."""
    module = copy.deepcopy(start)
    parameters = [p for p in module.parameters() if p.requires_grad]
    for batch in batches:
        total = [torch.zeros_like(p) for p in parameters]
        for i in batch:
            error = loss(module(X[i : i + 1]).reshape(()), y[i])
            gradients = torch.autograd.grad(error, parameters, materialize_grads=True)
            norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
            factor = min(1.0, clip / (norm + 1e-6))
            total = [t + factor * g for t, g in zip(total, gradients, strict=True)]
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p -= lr / expected * t
    return weights(module)
