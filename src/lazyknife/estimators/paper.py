"""The paper's method: DP-Lazy PI."""

from __future__ import annotations

from typing import Any

from ..base import DPSGD
from ..networks import Network, mlp
from .lazy import LazyJackknifeRegressor


def DPLazyPI(
    *,
    network: Network | None = None,
    alpha: float = 0.1,
    epsilon: float = 0.01,
    delta: float = 1e-3,
    epochs: int = 10,
    batch_size: int = 10,
    ridge: float = 10.0,
    nu: float = 0.0,
    scaling: Any = None,
    target: Any = None,
    bounds: tuple[float | None, float | None] | None = None,
    random_state: Any = None,
    progress: bool = False,
) -> LazyJackknifeRegressor:
    """Return the estimator with the settings of the paper's experiments.

    DP-SGD, a fixed ridge, no intercept, constant widths, and jackknife+ on predictions of the real
    network at the moved weights.

    Parameters
    ----------
    network
        As in ``LazyJackknifeRegressor``; here None is the paper's ``mlp((64, 64))``.
    epsilon, delta, epochs, batch_size
        Settings of the ``DPSGD`` base.
    alpha, ridge, nu, scaling, target, bounds, random_state, progress
        As in ``LazyJackknifeRegressor``.

    Returns
    -------
    LazyJackknifeRegressor
        The estimator, not yet fitted.

    """
    return LazyJackknifeRegressor(
        network=mlp((64, 64)) if network is None else network,
        base=DPSGD(epsilon=epsilon, delta=delta, epochs=epochs, batch_size=batch_size),
        ridge=ridge,
        construction="plus",
        widths="constant",
        readout="network",
        intercept=False,
        scaling=scaling,
        target=target,
        bounds=bounds,
        alpha=alpha,
        nu=nu,
        random_state=random_state,
        progress=progress,
    )
