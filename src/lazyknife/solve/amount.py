"""How large errors are at a row: a function σ(x) learnt from rows that no model leaves out.

With e_i the left-out residuals of those rows, a kernel ridge predicts log(|e_i| + ε), where ε is a
small part of their median, and σ is the exponential of it. Given those rows σ is fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tangent import Features, WideTangent
from .dual import DualSystem
from .ridge import left_out

# Relative error of σ by rounding: far above what a few thousand terms of order one can add up to.
STRETCH = 1e-9
LOWEST = 0.1  # part of the median that is added to errors


@dataclass(frozen=True)
class Amount:
    """σ(x) = exp(k(x)ᵀc + β).

    Attributes
    ----------
    tangent, points
        The kernel and the rows.
    coefficients, intercept
        c, shape (rows,), and β, a single number.

    """

    tangent: WideTangent
    points: Features
    coefficients: Tensor
    intercept: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """σ of each row, shape (m,)."""
        kernel = self.tangent.kernel(self.tangent.features(X), self.points)
        return torch.exp(kernel @ self.coefficients + self.intercept)


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
    solved = DualSystem(tangent.gram(points), targets, True, tangent.machine).at(ridge)
    logs, sizes = targets - left_out(solved), errors.abs()
    gain = sizes.mean().log() - logs.mean() - (sizes * torch.exp(-logs)).mean().log()
    if not float(gain) > math.log(len(X)) / len(X):
        return None
    return Amount(tangent, points, solved.dual, solved.intercept)
