"""The simulation of the DP-Lazy PI paper."""

from __future__ import annotations

import numpy as np

from lazyknife.data.checks import check_positive_int

from .record import DataSet, read_only

# The paper's text has variances; its authors' code uses 5 and 0.2 as standard deviations.
FEATURES, NOISE = np.sqrt(5), np.sqrt(0.5)


def simulated(p: int, n_total: int = 5000, seed: int = 0) -> DataSet:
    """X ~ N(0, 5·I), y = √relu(Xβ) + N(0, 0.5), with β ~ Beta(1, 2.5), one draw a coordinate.

    Parameters
    ----------
    p, n_total
        Number of features and of rows.
    seed
        Of numpy's ``default_rng``.

    Returns
    -------
    DataSet
        X has shape (n_total, p), y has shape (n_total,).

    """
    p, n_total = check_positive_int("p", p), check_positive_int("n_total", n_total)
    rng = np.random.default_rng(seed)
    X = rng.normal(0, FEATURES, (n_total, p))
    beta = rng.beta(1.0, 2.5, p)
    y = np.sqrt(np.maximum(X @ beta, 0)) + rng.normal(0, NOISE, n_total)
    return DataSet(
        name=f"simulated_p{p}",
        X=read_only(X),
        y=read_only(y),
        feature_names=tuple(f"x{k}" for k in range(1, p + 1)),
        target="√relu(Xβ) + noise",
        transform=None,
        title=f"Simulation, p = {p}",
    )
