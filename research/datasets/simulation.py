"""The simulation of the DP-Lazy PI paper, with the variances of its text or of its code."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from lazyknife.data.checks import check_choice, check_positive_int

from .record import DataSet, read_only


class Scale(NamedTuple):
    """Standard deviations of each feature and of the noise."""

    features: float
    noise: float


# The text has variances 5 and 0.5; the authors' code uses 5 and 0.2 as standard deviations.
VARIANTS = {
    "paper": Scale(float(np.sqrt(5)), float(np.sqrt(0.5))),
    "code": Scale(5.0, 0.2),
}


def simulated(p: int, n_total: int = 5000, seed: int = 0, variant: str = "paper") -> DataSet:
    """X ~ N(0, s²·I), y = √relu(Xβ) + N(0, t²), with β ~ Beta(1, 2.5), one draw a coordinate.

    Parameters
    ----------
    p
        Number of features.
    n_total
        Number of rows.
    seed
        Both variants make the same draws from a seed, on different scales.
    variant
        ``"paper"``: s² = 5, t² = 0.5; ``"code"``: s = 5, t = 0.2.

    Returns
    -------
    DataSet
        X has shape (n_total, p), y has shape (n_total,).

    """
    p, n_total = check_positive_int("p", p), check_positive_int("n_total", n_total)
    check_choice("variant", variant, VARIANTS)
    scale = VARIANTS[variant]
    rng = np.random.default_rng(_check_seed(seed))
    X = rng.normal(0, scale.features, (n_total, p))
    beta = rng.beta(1.0, 2.5, p)
    y = np.sqrt(np.maximum(X @ beta, 0)) + rng.normal(0, scale.noise, n_total)
    of_code = variant == "code"
    return DataSet(
        name=f"simulated{'_code' if of_code else ''}_p{p}",
        X=read_only(X),
        y=read_only(y),
        feature_names=tuple(f"x{k}" for k in range(1, p + 1)),
        target="√relu(Xβ) + noise",
        transform=None,
        source=f"drawn by numpy's default_rng({int(seed)})",
        title=f"Simulation{' with the code’s scales' if of_code else ''}, p = {p}",
    )


def _check_seed(seed: Any) -> int:
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise TypeError(f"seed={seed!r}: give a whole number")
    if seed < 0:
        raise ValueError(f"seed={seed!r}: give 0 or a whole number above 0")
    return int(seed)
