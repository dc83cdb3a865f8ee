"""Losses for the lazy step: convex in the prediction f, which is on the scale of the link.

A loss knows its value ℓ(y, f), the first two derivatives in f, and the mean of y that f stands
for. Everything is elementwise over tensors that broadcast, and safe for |f| up to 700 in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from .data.checks import check_reasonable, check_targets, listed
from .settings import Settings

# A network may exceed this during training; e³⁰ is still far from float32's largest number.
LARGEST_TRAINED_LOG = 30.0
# A row this near to Huber's δ, relative to it, is at δ: solutions end up there to rounding.
EDGE = 1e-6


class Loss(Settings, ABC):
    """A convex loss ℓ(y, f).

    Where f is not the mean of y itself, a shift of f by t must multiply that mean by at most
    e^{±t}, as it does for logarithms and logits: bounds on rounding rely on it.
    """

    name: ClassVar[str]  # in settings and messages
    identity: ClassVar[bool] = True  # whether f is the mean of y itself
    domain: ClassVar[str] = ""  # the values that y may have, where not any
    closed_form: ClassVar[bool] = False  # of leave-one-out models; or Newton's method finds them

    @abstractmethod
    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """ℓ(y, f)."""

    @abstractmethod
    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        """ℓ'(y, f), the derivative in f; at f = ±∞ its limit."""

    @abstractmethod
    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        """ℓ''(y, f), never below 0."""

    def majorant(self, f: Tensor, y: Tensor) -> Tensor:
        """A weight above 0 for iterations in which no row has any curvature."""
        return torch.ones_like(f + y)

    def flat(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """How far f may fall, and how far it may rise, with its gradient unchanged."""
        zero = torch.zeros_like(f + y)
        return zero, zero

    def mean(self, f: Tensor) -> Tensor:
        """The mean of y that f stands for (the inverse link)."""
        return f

    def variance(self, mean: Tensor) -> Tensor:
        """ℓ'' where f stands for this mean of y."""
        return torch.ones_like(mean)

    def training(self, f: Tensor, y: Tensor) -> Tensor:
        """Row by row, what a base trains on; its gradient is finite for every finite f."""
        return self.value(f, y)

    def takes(self, y: Tensor) -> Tensor:
        return torch.isfinite(y)

    def check(self, y: Tensor) -> None:
        """Refuse targets that the loss does not take."""
        rule = f"loss={self.name!r} requires y of {self.domain or 'finite numbers'}"
        check_targets(~self.takes(y), y, rule, "leave such rows out, or use another loss")


@dataclass(frozen=True)
class Squared(Loss):
    """(y − f)²/2: the mean."""

    name = "squared"
    closed_form = True

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).square() / 2

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return f - y

    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.ones_like(f + y)

    def training(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).square()


@dataclass(frozen=True)
class Huber(Loss):
    """(y − f)²/2 up to a distance, linear beyond it, which limits the influence of outliers.

    Parameters
    ----------
    delta
        The distance, in the unit of y.

    """

    delta: float = 1.0
    name = "huber"

    def __post_init__(self) -> None:
        check_reasonable("delta", self.delta)

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """r²/2 for |r| ≤ δ, else δ(|r| − δ/2), r = f − y."""
        near = self.gradient(f, y)
        return near * (f - y - near / 2)

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).clamp(-self.delta, self.delta)

    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        return ((f - y).abs() <= self.delta).to((f + y).dtype)

    def majorant(self, f: Tensor, y: Tensor) -> Tensor:
        """ℓ'/(f − y): the parabola with it lies above the loss and touches it at f."""
        return self.delta / (f - y).abs().clamp(min=self.delta)

    def flat(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Beyond δ, as far as δ on the near side and without end on the far side."""
        over, edge = f - y, (1 - EDGE) * self.delta
        beyond = (over.abs() - self.delta).clamp(min=0.0)
        endless = torch.full_like(over, torch.inf)
        return (
            torch.where(over <= -edge, endless, beyond),
            torch.where(over >= edge, endless, beyond),
        )


@dataclass(frozen=True)
class Logistic(Loss):
    """−log P(y) for y of 0 or 1, where f is the log-odds of 1."""

    name = "logistic"
    identity = False
    domain = "0 or 1"

    # With the sign s = 1 − 2y everything is a function of sf, and no digit of a small tail is lost.

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return functional.softplus((1 - 2 * y) * f, threshold=40.0)

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        sign = 1 - 2 * y
        return sign * torch.sigmoid(sign * f)

    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        return (torch.sigmoid(f) * torch.sigmoid(-f)).expand((f + y).shape)

    def mean(self, f: Tensor) -> Tensor:
        return torch.sigmoid(f)

    def variance(self, mean: Tensor) -> Tensor:
        return mean * (1 - mean)

    def takes(self, y: Tensor) -> Tensor:
        return (y == 0) | (y == 1)


@dataclass(frozen=True)
class Poisson(Loss):
    """−log P(y) of a count, up to a constant; f is the log of the mean.

    Targets need not be integers: for rates, or counts per exposure, the mean is still e^f.
    """

    name = "poisson"
    identity = False
    domain = "0 or more"

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.exp(f) - y * f

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.exp(f) - y

    def curvature(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.exp(f).expand((f + y).shape)

    def mean(self, f: Tensor) -> Tensor:
        return torch.exp(f)

    def variance(self, mean: Tensor) -> Tensor:
        return mean

    def training(self, f: Tensor, y: Tensor) -> Tensor:
        """The value, but with e^f continued as a line where a network diverges."""
        near = f.clamp(max=LARGEST_TRAINED_LOG)
        return torch.exp(near) * (1 + f - near) - y * f

    def takes(self, y: Tensor) -> Tensor:
        return (y >= 0) & torch.isfinite(y)


SQUARED = Squared()
LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "huber": Huber,
    "logistic": Logistic,
    "poisson": Poisson,
}


def find_loss(loss: str | Loss) -> Loss:
    """Return a loss by its name, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    raise ValueError(
        f"loss={loss!r}: choose from {listed(LOSSES)}, or give one such as Huber(delta=2.0)"
    )
