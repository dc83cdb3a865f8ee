"""The restricted likelihood of some rows as a function of the weights of features and of λ.

With G = K + λI, A the inverse of the bordered system where there is an intercept, c = A y and ν
degrees of freedom, the criterion of evidence.py for one model of all m rows and its derivative are

    value = log(yᵀc/ν) + (log det)/ν,   ∂value/∂K = A/ν − c cᵀ/(yᵀc),

since dA = −A dK A and d log det = tr(A dK). The rows are more likely where it is lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..networks import Kind
from .slopes import Pairs

Numbers = NDArray[np.float64]
LEAST = 1e-6  # mean of a feature's terms below which it is left out of the sums
LITTLE = 1e-3  # a weight for which terms are powers of it


class Height(NamedTuple):
    """The criterion, and its derivative by K, shape (m, m)."""

    value: float
    derivative: Tensor


def height(kernel: Tensor, ridge: float, y: Tensor, intercept: bool) -> Height:
    """Return the criterion of a kernel (m, m), infinite if it is not positive definite."""
    system = kernel.clone()
    system.diagonal().add_(ridge)
    lower, failed = torch.linalg.cholesky_ex(system)
    if int(failed) or not bool(lower.diagonal().isfinite().all()):
        return Height(math.inf, torch.zeros_like(kernel))
    freedom, logs = len(y) - int(intercept), 2 * lower.diagonal().log().sum()
    inverse = torch.cholesky_inverse(lower)
    if intercept:
        sums = inverse.sum(dim=1)
        total = sums.sum()
        inverse.addr_(sums, sums / total, alpha=-1)
        logs, y = logs + total.log(), y - y.mean()
    dual = inverse @ y
    quadratic = (y @ dual).clamp(min=torch.finfo(y.dtype).tiny)
    value = float((quadratic / freedom).log() + logs / freedom)
    return Height(value, inverse.div_(freedom).addr_(dual, dual / quadratic, alpha=-1))


class Slope(NamedTuple):
    """The criterion, and its derivatives by log w of each feature and by log λ."""

    value: float
    by_weights: Numbers
    by_ridge: float


@dataclass
class Hill:
    """The criterion of a kind of kernels, and the best place so far.

    A place is log w of each feature, or a common one, and log λ where λ is not given.

    Attributes
    ----------
    kind
        Of kernels with slopes.
    X, y
        Rows as the kernel takes them, (m, features), and targets, (m,).
    nominal
        Which features are nominal.
    intercept
        Whether there is an unpenalised intercept.
    relevance
        Whether every feature has a weight of its own.
    ridge
        λ; None: part of the place.

    """

    kind: Kind
    X: Tensor
    y: Tensor
    nominal: Sequence[bool]
    intercept: bool
    relevance: bool
    ridge: float | None
    best: tuple[float, Numbers] = (math.inf, np.empty(0))
    evaluations: int = 0
    pairs: Pairs = field(init=False)
    spreads: Numbers = field(init=False)  # mean of each feature's terms at weight 1

    def __post_init__(self) -> None:
        self.pairs = Pairs(self.kind, self.X, self.nominal)
        others = self.X.roll(len(self.X) // 2, 0)
        terms = [
            float(self.kind.term(LITTLE, self.X[:, f], others[:, f], codes).abs().mean())
            for f, codes in enumerate(self.nominal)
        ]
        self.spreads = np.array(terms) / LITTLE**self.kind.power

    def sizes(self, weights: Numbers) -> Numbers:
        """About the mean of each feature's terms over pairs of rows, shape (features,)."""
        found: Numbers = self.spreads * weights**self.kind.power
        return found

    def join(self, weights: Numbers, ridge: float) -> Numbers:
        """Return the place of some weights, (features,), and λ."""
        logs: Numbers = np.log(weights if self.relevance else weights[:1])
        return logs if self.ridge is not None else np.append(logs, math.log(ridge))

    def split(self, place: Numbers) -> tuple[Numbers, float]:
        """Return the weights, (features,), and λ of a place."""
        count = len(self.spreads)
        weights = np.exp(place[:count] if self.relevance else np.repeat(place[:1], count))
        return weights, math.exp(place[-1]) if self.ridge is None else self.ridge

    def look(self, place: Numbers) -> tuple[float, Numbers]:
        """Return the criterion at a place and its gradient, as a minimiser takes them.

        Where the criterion is infinite, it is a value from which a line search turns back.
        """
        weights, ridge = self.split(place)
        value, slope, by_ridge = self.at(weights, ridge, self.sizes(weights) > LEAST)
        if value < self.best[0] or not len(self.best[1]):
            self.best = value, place.copy()
        slope = slope if self.relevance else slope.sum(keepdims=True)
        gradient = slope if self.ridge is not None else np.append(slope, by_ridge)
        if math.isfinite(value):
            return value, gradient
        return (self.best[0] if math.isfinite(self.best[0]) else 0.0) + 10, 0 * gradient

    def at(self, weights: Numbers, ridge: float, used: NDArray[np.bool_]) -> Slope:
        """Return the criterion with some of the features."""
        self.evaluations += 1
        which = np.flatnonzero(used).tolist()
        own = self.X.new_tensor(weights[which])
        kernel = self.pairs.kernel(own, which)
        value, derivative = height(kernel.values, ridge, self.y, self.intercept)
        by_ridge, by_weights = ridge * float(derivative.trace()), np.zeros(len(weights))
        by_weights[which] = self.pairs.slopes(own, which, kernel, derivative).cpu().numpy()
        return Slope(value if math.isfinite(value) else math.inf, by_weights, by_ridge)
