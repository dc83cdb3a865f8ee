"""Slow twins: what the library computes in closed form, here by explicit refits and sorting."""

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
    """Models refitted without each set of rows; last, the model of all rows."""

    moves: Array  # (models, M)
    intercepts: Array  # (models,)


def refits(
    J: Array,
    r: Array,
    ridges: float | Sequence[float],
    intercept: bool,
    left_out: Sequence[Array] | None = None,
) -> Refits:
    """Fit without each of these sets, or without each row in turn, and last with all rows."""
    rows = np.arange(len(r))
    kept = [np.setdiff1d(rows, out) for out in (rows if left_out is None else left_out)] + [rows]
    each = np.broadcast_to(np.asarray(ridges, dtype=float), (len(kept),))
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


def unit_fits(J: Array, ridge: float, intercept: bool) -> Refits:
    """Row j: the fit to targets that are 1 at row j and 0 elsewhere."""
    fits = [ridge_fit(J, unit, ridge, intercept) for unit in np.eye(len(J))]
    return Refits(np.stack([move for move, _ in fits]), np.array([b for _, b in fits]))


def inverse(J: Array, ridge: float, intercept: bool) -> Array:
    """A', shape (n, n): what the fits to unit targets leave of them, over λ."""
    units = unit_fits(J, ridge, intercept)
    return (np.eye(len(J)) - J @ units.moves.T - units.intercepts) / ridge


def left_open(J: Array, new: Array, ridge: float, intercept: bool) -> Array:
    """s(x) of new rows, shape (m,): add each with target 1, the others 0, and see what is left."""
    unit = np.append(np.zeros(len(J)), 1.0)
    fits = [ridge_fit(np.vstack([J, row]), unit, ridge, intercept) for row in new]
    return np.array(
        [ridge / (1 - row @ move - b) for row, (move, b) in zip(new, fits, strict=True)]
    )


def leverage(J: Array, new: Array, ridges: Sequence[float], intercept: bool) -> Array:
    """σ_{−j}(x) with row j deleted, shape (m, n)."""
    each = [
        left_open(np.delete(J, j, axis=0), new, ridge, intercept) for j, ridge in enumerate(ridges)
    ]
    return np.sqrt(np.stack(each, axis=1))


def left_out_residuals(J: Array, r: Array, ridge: float, intercept: bool) -> Array:
    """Residual at each row by a refit without it, shape (n,)."""
    fits = refits(J, r, ridge, intercept)
    predicted: Array = np.einsum("im,im->i", J, fits.moves[:-1]) + fits.intercepts[:-1]
    return r - predicted


def candidate_scores(
    J: Array, r: Array, x: Array, candidates: Array, ridge: float, intercept: bool
) -> Array:
    """|residual|/σ of all n + 1 rows, left out in turn, for every candidate target of the row x.

    Shape (n + 1, candidates).
    """
    rows = np.vstack([J, x])
    targets = np.vstack([np.repeat(r[:, None], len(candidates), axis=1), candidates])
    size = J.shape[1]
    penalty = np.hstack([math.sqrt(ridge) * np.eye(size), np.zeros((size, 1))])
    residuals, sigmas = [], []
    for i in range(len(rows)):
        kept, ones = np.arange(len(rows)) != i, np.ones((len(rows), 1))
        data = np.hstack([rows, ones])
        system = np.vstack([data[kept], penalty])[:, : size + intercept]
        wanted = np.vstack([targets[kept], np.zeros((size, len(candidates)))])
        solution = np.linalg.lstsq(system, wanted, rcond=None)[0]
        residuals.append(targets[i] - data[i, : size + intercept] @ solution)
        sigmas.append(math.sqrt(left_open(rows[kept], rows[i : i + 1], ridge, intercept)[0]))
    scores: Array = np.abs(residuals) / np.array(sigmas)[:, None]
    return scores
