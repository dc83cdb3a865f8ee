"""The restricted likelihood of a kernel for many λ at once, and the best of a few equal weights.

With K = U diag(l) Uᵀ, a = Uᵀ1 and b = Uᵀy all parts of the criterion of evidence.py are sums over
the eigenvalues: yᵀG⁻¹y = Σ b²/(l + λ), and likewise yᵀG⁻¹1 and 1ᵀG⁻¹1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..compute import Machine
from ..data.own_scaling import FeatureScale
from ..networks import wide
from ..tangent.wide import WideTangent
from .places import weight_unit

SCALES = tuple(2.0**k for k in range(-3, 3))  # of all weights, where they are searched
RIDGES = (1e-6, 1e3)  # λ, in units of the mean of k(x, x)
COUNT = 109  # of λ between them, twelve a decade
TINY = 1e-12  # the least such mean


class Best(NamedTuple):
    """A common weight, λ, the criterion, and the number of kernels that were decomposed."""

    weight: float
    ridge: float
    value: float
    evaluations: int


def best_of(
    network: wide,
    X: Tensor,
    y: Tensor,
    nominal: Sequence[bool],
    intercept: bool,
    ridge: float | None,
) -> Best:
    """Return the best common weight and λ for rows (m, features).

    A given scale is kept, and a kernel function has weights of 1.
    """
    found = [
        _best_ridge(weight, _kernel(network, weight, X, nominal), y, intercept, ridge)
        for weight in _common_weights(network, X.shape[1])
    ]
    return min(found, key=lambda best: best.value)._replace(evaluations=len(found))


def _common_weights(network: wide, features: int) -> list[float]:
    if not isinstance(network.kind, str):
        return [1.0]
    scales = SCALES if network.scale is None else (network.scale,)
    return [weight_unit(features) * scale for scale in scales]


def _kernel(network: wide, weight: float, X: Tensor, nominal: Sequence[bool]) -> Tensor:
    scale = torch.ones_like(X[0])
    frame = FeatureScale(torch.zeros_like(scale), scale, tuple(nominal))
    tangent = WideTangent(network, weight * scale, frame, Machine(X.device))
    features = tangent.features(X)
    return tangent.gram(features)


def _best_ridge(
    weight: float, kernel: Tensor, y: Tensor, intercept: bool, ridge: float | None
) -> Best:
    unit = max(float(kernel.diagonal().mean()), TINY)
    low, high = (math.log10(end * unit) for end in RIDGES)
    grid = torch.logspace(low, high, COUNT, dtype=y.dtype, device=y.device)
    ridges = grid if ridge is None else y.new_tensor([ridge])
    values = profile(kernel, ridges, y, intercept)
    k = int(values.argmin())
    return Best(weight, float(ridges[k]), float(values[k]), 1)


def profile(kernel: Tensor, ridges: Tensor, y: Tensor, intercept: bool) -> Tensor:
    """Return the criterion of a kernel (m, m) for each λ, infinite where it is not defined."""
    if not bool(kernel.isfinite().all()):
        return torch.full_like(ridges, torch.inf)
    values, vectors = torch.linalg.eigh(kernel)
    freedom = len(y) - int(intercept)
    shifted = values + ridges[:, None]
    sides = torch.stack([y - y.mean() if intercept else y, torch.ones_like(y)]) @ vectors
    own, ones = sides
    quadratic, logs = (own.square() / shifted).sum(dim=1), shifted.log().sum(dim=1)
    if intercept:
        total = (ones.square() / shifted).sum(dim=1)
        quadratic = quadratic - (own * ones / shifted).sum(dim=1).square() / total
        logs = logs + total.log()
    tiny = torch.finfo(y.dtype).tiny
    found = (quadratic.clamp(min=tiny) / freedom).log() + logs / freedom
    return torch.where((shifted > 0).all(dim=1) & found.isfinite(), found, torch.inf)
