"""Records for models of a convex loss while they are solved; newton.py has the notation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..losses import Loss


@dataclass(frozen=True)
class Limits:
    """Largest number of Newton steps for all models together, and for one model alone."""

    joint: int = 25
    alone: int = 500


LIMITS = Limits()


@dataclass(frozen=True)
class ConvexProblem:
    """What all models share; rows of m models are columns of (n, m) tensors."""

    kernel: Tensor  # K, (n, n)
    y: Tensor  # (n, 1)
    offsets: Tensor  # o, (n, 1)
    ridge: float  # λ
    intercept: bool
    loss: Loss
    size: float  # ‖K‖
    limits: Limits = LIMITS

    def values(self, dual: Tensor, intercepts: Tensor) -> Tensor:
        """Return f = o + Kα + β."""
        return self.kernel @ dual + self.offsets + intercepts

    def weights(self, values: Tensor, keep: Tensor) -> Tensor:
        """ℓ'' of the rows kept; where all are 0, those of a parabola above the loss."""
        weights = keep * self.loss.curvature(values, self.y)
        none = ~(weights > 0).any(dim=0)
        if none.any():
            weights[:, none] = (keep * self.loss.majorant(values, self.y))[:, none]
        return weights


@dataclass(frozen=True)
class Models:
    """m models being solved; ``keep`` is 0 at the rows that they leave out, else 1."""

    dual: Tensor  # α, (n, m)
    intercepts: Tensor  # β, (m,)
    values: Tensor  # f, (n, m)
    keep: Tensor  # (n, m)
    left_out: Tensor  # row that each leaves out, (m,); empty for the full model

    def take(self, which: Tensor) -> Models:
        """Return some of the models."""
        return Models(
            self.dual[:, which],
            self.intercepts[which],
            self.values[:, which],
            self.keep[:, which],
            self.left_out[which] if len(self.left_out) else self.left_out,
        )

    def put_(self, which: Tensor, other: Models) -> None:
        """Copy these models from another record."""
        self.dual[:, which] = other.dual
        self.intercepts[which] = other.intercepts
        self.values[:, which] = other.values

    def moved(self, step: Step, length: Tensor) -> Models:
        """Return the models after a step of this length."""
        return replace(
            self,
            dual=self.dual + length * step.dual,
            intercepts=self.intercepts + length * step.intercepts,
            values=self.values + length * step.values,
        )


@dataclass(frozen=True)
class Step:
    """A direction for m models."""

    dual: Tensor  # a, (n, m)
    intercepts: Tensor  # b, (m,)
    values: Tensor  # φ = Ka + b, (n, m)

    def take(self, which: Tensor) -> Step:
        """Return the direction of some of the models."""
        return Step(self.dual[:, which], self.intercepts[which], self.values[:, which])

    def plus(self, other: Step, length: Tensor) -> Step:
        """Return self + length·other."""
        return Step(
            torch.addcmul(self.dual, length, other.dual),
            torch.addcmul(self.intercepts, length, other.intercepts),
            torch.addcmul(self.values, length, other.values),
        )


@dataclass(frozen=True)
class Shared:
    """The full model's inverse: Z, and the intercept b = qᵀR that goes with a = ZR."""

    inverse: Tensor  # Z, (n, n)
    share: Tensor  # q, (n,); zeros without an intercept

    def solve(self, problem: ConvexProblem, residual: Tensor, left_out: Tensor) -> Step:
        """λa + W(Ka + b) = R for the full model's weights, without the row left out."""
        columns = torch.arange(len(left_out), device=left_out.device)
        dual, intercepts = self.inverse @ residual, self.share @ residual
        own = residual[left_out, columns] / problem.ridge
        excess = (dual[left_out, columns] - own) / self.inverse[left_out, left_out]
        dual.addcmul_(self.inverse[:, left_out], excess, value=-1)
        dual[left_out, columns] = own
        if problem.intercept:  # Σa = 0 exactly, not to the rounding of Z
            excess_sum = dual.sum(dim=0) / (len(dual) - 1)
            dual -= excess_sum
            dual[left_out, columns] += excess_sum
            intercepts = intercepts - self.share[left_out] * excess
        return Step(dual, intercepts, problem.kernel @ dual + intercepts)
