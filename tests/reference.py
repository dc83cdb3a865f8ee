"""Slow twins: what the library computes in closed form, here by explicit refits and sorting."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Array = NDArray[np.float64]


def assert_close(actual: Tensor | Array, expected: Tensor | Array, relative: float = 1e-9) -> None:
    """Equal shapes, and every entry within ``relative`` of the largest expected entry."""
    got, wanted = (
        values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        for values in (actual, expected)
    )
    assert got.shape == wanted.shape
    assert np.isfinite(got).all()
    error, scale = np.abs(got - wanted).max(initial=0.0), np.abs(wanted).max(initial=0.0)
    assert error <= relative * scale, f"error {error:.3g} at scale {scale:.3g}"


def outputs(module: nn.Module, X: Tensor) -> Array:
    """f(X; θ0) in float64, one row at a time, shape (n,)."""
    network = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        return np.array([float(network(row)) for row in X.split(1)])


def jacobian(module: nn.Module, X: Tensor) -> Array:
    """∂f/∂θ in the parameters that are not frozen, one row at a time, shape (n, M)."""
    network = copy.deepcopy(module).double().eval()
    moved = [p for p in network.parameters() if p.requires_grad]
    rows = []
    for row in X.split(1):
        gradients = torch.autograd.grad(network(row).sum(), moved, allow_unused=True)
        parts = [
            torch.zeros_like(p) if g is None else g for p, g in zip(moved, gradients, strict=True)
        ]
        rows.append(torch.cat([part.reshape(-1) for part in parts]).numpy())
    return np.stack(rows)


def moved_network(module: nn.Module, move: Array) -> nn.Module:
    """Return a float64 copy whose free weights are θ0 + move."""
    network = copy.deepcopy(module).double().eval()
    moved = [p for p in network.parameters() if p.requires_grad]
    vector_to_parameters(parameters_to_vector(moved).detach() + torch.from_numpy(move), moved)
    return network


def ridge_fit(J: Array, r: Array, ridge: float, intercept: bool) -> tuple[Array, float]:
    """Least squares on the augmented rows [J, 1; √λ I, 0]: the move Δ and the intercept."""
    rows, size = J.shape
    data = np.hstack([J, np.ones((rows, 1))])
    penalty = np.hstack([math.sqrt(ridge) * np.eye(size), np.zeros((size, 1))])
    system = np.vstack([data, penalty])[:, : size + intercept]
    solution = np.linalg.lstsq(system, np.concatenate([r, np.zeros(size)]), rcond=None)[0]
    return solution[:size], float(solution[size]) if intercept else 0.0


@dataclass(frozen=True)
class Refits:
    """Row j < n: the model refitted without row j; row n: the model of all rows."""

    moves: Array  # (n + 1, M)
    intercepts: Array  # (n + 1,)


def refits(J: Array, r: Array, ridges: float | Sequence[float], intercept: bool) -> Refits:
    """Fit n + 1 times, each time on the rows themselves."""
    n = len(r)
    each = np.broadcast_to(np.asarray(ridges, dtype=float), (n + 1,))
    kept = [np.arange(n) != j for j in range(n + 1)]
    fits = [ridge_fit(J[k], r[k], lam, intercept) for k, lam in zip(kept, each, strict=True)]
    return Refits(np.stack([move for move, _ in fits]), np.array([b for _, b in fits]))


def tangent_predictions(module: nn.Module, models: Refits, X: Tensor) -> Array:
    """f(x; θ0) + ∇f(x; θ0)·Δ + β of every model, shape (m, n + 1)."""
    linear = jacobian(module, X) @ models.moves.T
    return outputs(module, X)[:, None] + linear + models.intercepts


def network_predictions(module: nn.Module, models: Refits, X: Tensor) -> Array:
    """f(x; θ0 + Δ) + β of every model, with the weights physically moved, shape (m, n + 1)."""
    each = [outputs(moved_network(module, move), X) for move in models.moves]
    return np.stack(each, axis=1) + models.intercepts


def left_out_error(J: Array, r: Array, ridge: float, intercept: bool) -> float:
    """Sum of squared leave-one-out residuals, by one refit a row."""
    total = 0.0
    for i in range(len(r)):
        kept = np.arange(len(r)) != i
        move, b = ridge_fit(J[kept], r[kept], ridge, intercept)
        total += float(r[i] - J[i] @ move - b) ** 2
    return total


def chosen_ridges(J: Array, r: Array, grid: Sequence[float], intercept: bool) -> list[float]:
    """λ of each of the n + 1 models, chosen by leave-one-out on that model's own rows alone."""
    chosen = []
    for j in range(len(r) + 1):
        kept = np.arange(len(r)) != j
        errors = [left_out_error(J[kept], r[kept], ridge, intercept) for ridge in grid]
        chosen.append(grid[errors.index(min(errors))])
    return chosen


def rank(alpha: Fraction, n: int) -> int:
    """κ = ⌊α(n+1)⌋, exactly."""
    return math.floor(alpha * (n + 1))


def lower_quantile(values: Sequence[float], alpha: Fraction) -> float:
    """Q⁻: the ⌊α(n+1)⌋-th smallest, −inf where there is none."""
    k = math.floor(alpha * (len(values) + 1))
    return sorted(values)[k - 1] if k > 0 else -math.inf


def upper_quantile(values: Sequence[float], alpha: Fraction) -> float:
    """Q⁺: the ⌈(1−α)(n+1)⌉-th smallest, inf where there is none."""
    k = math.ceil((1 - alpha) * (len(values) + 1))
    return sorted(values)[k - 1] if k <= len(values) else math.inf
