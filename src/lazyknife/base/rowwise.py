"""What private training requires of a network: each row is treated on its own, also in training.

The privacy of DP-SGD rests on one fact: a row changes one term of the sum of clipped gradients. The
probe looks at those terms, in training mode, where a network may do what it does not do in
evaluation mode.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from ..networks import outputs, seeded
from .method import load_extra

ROWS = 4
# Differences that rounding explains, in units of the type's precision and relative to the largest
# number: between batches of the same shape, and of different shapes.
SAME_SHAPE = 2**8
ANY_SHAPE = 2**15
HOOK_FILTER = ("ignore", re.compile("Full backward hook is firing"), UserWarning, None, 0)
WAY_OUT = (
    "Use layers that treat each row on its own (GroupNorm or LayerNorm instead of statistics of "
    "the batch), or base=Public()"
)


class FixedNorm(nn.Module):
    """A batch norm on its running statistics: constants, not buffers, which opacus refuses."""

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.statistics = (norm.running_mean, norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(x, *self.statistics, self.weight, self.bias, eps=self.eps)


def fix_norms(module: nn.Module) -> None:
    """Replace every batch norm by a ``FixedNorm``, under each of its names."""
    for part in list(module.modules()):
        for name, child in part._modules.items():  # named_children would skip a second name
            if isinstance(child, _BatchNorm):
                setattr(part, name, FixedNorm(child))


def check_same_buffers(start: nn.Module, trained: nn.Module) -> None:
    """Refuse a network whose training changed its buffers: they would bypass the noise."""
    after = dict(trained.named_buffers())
    both = [(name, value) for name, value in start.named_buffers() if name in after]
    changed = [name for name, value in both if not torch.equal(value, after[name])]
    if changed:
        raise ValueError(
            f"network changes its buffers {changed} while it is trained, and no noise is added to "
            "them, so the base would not be private: switch the statistics off (for instance "
            "track_running_stats=False), or use base=Public() or Split()"
        )


class NoDropout(TorchFunctionMode):
    """Within this context nothing is dropped, neither by layers nor by functions."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if "dropout" in getattr(func, "__name__", ""):
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Seen:
    """What a network does with a batch."""

    outputs: Tensor  # shape (rows,)
    gradients: list[Tensor]  # those to be clipped: (rows, *shape) for each free parameter
    later: Tensor  # outputs for another batch afterwards

    def at(self, rows: list[int]) -> Seen:
        return Seen(self.outputs[rows], [g[rows] for g in self.gradients], self.later)

    def agrees(self, other: Seen, units: float) -> bool:
        """Whether outputs and gradients are the same but for rounding."""
        same = _agree([self.outputs], [other.outputs], units)
        return same and _agree(self.gradients, other.gradients, units)


def check_rowwise(module: nn.Module, X: Tensor, seed: int) -> None:
    """Refuse a network whose gradient for a row depends on other rows.

    ``module`` is in the mode in which it will be trained, and is left unchanged. It is probed on
    rows of X; ``seed`` is for dropout and other randomness within it.
    """
    spread = max(len(X) // (2 * ROWS), 1)
    chosen = spread * torch.arange(2 * ROWS) % len(X)  # neighbours differ if there are two rows
    rows, others = X[chosen[::2]], X[chosen[1::2]]
    _check_exchange(module, rows, others, seed)
    with NoDropout():
        _check_alone(module, rows, seed)


def _check_exchange(module: nn.Module, rows: Tensor, others: Tensor, seed: int) -> None:
    """Exchange one row; the same seed and shape give the same masks, so the rest must stay."""
    before = _look(module, rows, rows, seed)
    for k in (0, ROWS // 2, ROWS - 1):
        exchanged = rows.clone()
        exchanged[k] = others[k]
        after = _look(module, exchanged, rows, seed)
        rest = [i for i in range(ROWS) if i != k]
        if not before.at(rest).agrees(after.at(rest), SAME_SHAPE):
            raise ValueError(
                "network lets the rows of a batch affect each other while it is trained: the "
                "output or gradient of a row changes with another row, so clipping each row's "
                f"gradient does not bound what one row can change. {WAY_OUT}"
            )
        if not _agree([before.later], [after.later], SAME_SHAPE):
            raise ValueError(
                "network remembers the rows of earlier batches while it is trained, and no noise "
                f"is added to what it remembers, so the base would not be private. {WAY_OUT}"
            )


def _check_alone(module: nn.Module, rows: Tensor, seed: int) -> None:
    """Compare a batch with its rows alone, unless the network is random even without dropout."""
    together = _look(module, rows, rows, seed)
    if not together.agrees(_look(module, rows, rows, seed + 1), SAME_SHAPE):
        return
    for k in range(ROWS):
        alone = _look(module, rows[k : k + 1], rows, seed, first=k)
        if not together.at([k]).agrees(alone, ANY_SHAPE):
            raise ValueError(
                "network gives a row another output or gradient within a batch than alone while "
                "it is trained, so clipping each row's gradient does not bound what one row can "
                f"change. {WAY_OUT}"
            )


def _look(module: nn.Module, rows: Tensor, later: Tensor, seed: int, first: int = 0) -> Seen:
    """Run a copy of the network on a batch, then on another; ``first`` is the first row's number.

    A network that changes its parameters when it is called, or whose layers see other rows than
    the batch has, is refused.

    Each row has its own weight in the sum that is differentiated: where outputs are centred, a sum
    with equal weights would be constant.
    """
    network = copy.deepcopy(module)
    weights = torch.arange(1 + first, 1 + first + len(rows), device=rows.device)
    with seeded(seed, rows.device), opacus_errors():
        private = load_extra("opacus").GradSampleModule(network, loss_reduction="sum", strict=False)
        found = outputs(private, rows.clone())
        (weights * found).sum().backward()
        with torch.no_grad():
            afterwards = outputs(private, later.clone())
    own = dict(module.named_parameters())
    changed = [name for name, p in network.named_parameters() if not torch.equal(p, own[name])]
    if changed:
        raise ValueError(
            f"network changes its parameters {changed} when it is called, and no noise is added to "
            "the change, so the base would not be private: switch it off (for instance "
            "max_norm=None of an embedding), or use base=Public()"
        )
    gradients = [getattr(p, "grad_sample", None) for p in network.parameters() if p.requires_grad]
    used = [gradient for gradient in gradients if gradient is not None]
    other = {len(gradient) for gradient in used} - {len(rows)}
    if other:
        raise ValueError(
            f"network passes {len(rows)} rows to a layer as {other.pop()}, and gradients are "
            "clipped by the row of the layer: keep the rows in the first dimension of every "
            "layer's input, or use base=Public()"
        )
    return Seen(found.detach(), used, afterwards)


def _agree(ones: list[Tensor], twos: list[Tensor], units: float) -> bool:
    """Whether tensors are equal but for rounding, relative to the largest entry of all."""
    entries = [float(t.abs().nan_to_num(0.0, 0.0).max()) for t in (*ones, *twos) if t.numel()]
    rounding = max((torch.finfo(one.dtype).eps for one in ones), default=0.0)
    room = min(max(units * rounding, 1e-9), 0.05) * max(entries, default=0.0)
    return all(
        torch.allclose(one, two, rtol=0.0, atol=room, equal_nan=True)
        for one, two in zip(ones, twos, strict=True)
    )


@contextmanager
def opacus_errors() -> Iterator[None]:
    """Say what to do with a network that opacus cannot train, and silence its hooks."""
    # opacus hooks every layer, and torch warns if the network's input needs no gradient. Filters
    # belong to all threads, and catch_warnings would undo those of others: ours alone is removed.
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, HOOK_FILTER)
    try:
        yield
    except (NotImplementedError, TypeError) as error:
        raise ValueError(
            f"opacus cannot compute the gradient of each row in this network ({error}): use "
            "layers that it supports, such as those of opacus.layers, or base=Public() or Split()"
        ) from error
    finally:
        with suppress(ValueError):  # filters may have been reset meanwhile
            filters.remove(HOOK_FILTER)
