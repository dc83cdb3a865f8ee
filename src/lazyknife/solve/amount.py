"""How large errors are at a row: a function σ(x) learnt from rows that no model leaves out.

With e_i the left-out residuals of those rows, a kernel ridge predicts log(|e_i| + ε), where ε is a
small part of their median, and σ is the exponential of it, kept between the smallest and the
largest of those errors. Given those rows σ is fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tangent import Features, WideTangent
from .dual import DualSystem
from .ridge import left_out

# Relative error of σ by rounding: far above what a few thousand terms of order one can add up to,
# and for larger terms this many times a random walk of as many roundings.
STRETCH, SAFETY = 1e-9, 8.0
LOWEST = 0.1  # part of the median that is added to errors


@dataclass(frozen=True)
class Amount:
    """σ(x) = exp(k(x)ᵀc + β), the exponent kept within limits.

    Attributes
    ----------
    tangent, points
        The kernel and the rows.
    coefficients, intercept
        c, shape (rows,), and β, a single number.
    limits
        The smallest and the largest log σ.
    error
        Bound on the relative error of σ by rounding.

    """

    tangent: WideTangent
    points: Features
    coefficients: Tensor
    intercept: Tensor
    limits: tuple[float, float] = (-math.inf, math.inf)
    error: float = STRETCH

    def __call__(self, X: Tensor) -> Tensor:
        """σ of each row, shape (m,)."""
        kernel = self.tangent.kernel(self.tangent.features(X), self.points)
        return torch.exp((kernel @ self.coefficients + self.intercept).clamp(*self.limits))


def log_errors(errors: Tensor) -> Tensor:
    """log(|e| + ε), shape (m,)."""
    sizes = errors.abs()
    tiny = torch.finfo(sizes.dtype).tiny
    return (sizes + LOWEST * sizes.median()).clamp(min=tiny).log()


def fit_amount(tangent: WideTangent, X: Tensor, errors: Tensor, ridge: float) -> Amount | None:
    """σ learnt with this kernel and λ; None if a constant describes the errors as well.

    Compared by mean log σ_i + log mean |e_i|/σ_i, where σ_i is that of the row, left out.
    """
    points, targets = tangent.features(X), log_errors(errors)
    kernel = tangent.gram(points)
    largest = float(kernel.abs().max())
    solved = DualSystem(kernel, targets, True, tangent.machine).at(ridge)
    logs, sizes = targets - left_out(solved), errors.abs()
    gain = sizes.mean().log() - logs.mean() - (sizes * torch.exp(-logs)).mean().log()
    if not float(gain) > math.log(len(X)) / len(X):
        return None
    terms = largest * float(solved.dual.abs().sum())
    error = SAFETY * torch.finfo(targets.dtype).eps * math.sqrt(len(X)) * terms
    limits = float(targets.min()), float(targets.max())
    return Amount(tangent, points, solved.dual, solved.intercept, limits, max(STRETCH, error))
