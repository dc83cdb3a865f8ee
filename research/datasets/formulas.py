"""The paper's simulation, and simulators with known formulas in the units of the formula.

Friedman's three sets (Friedman 1991) have their own noise. Borehole, piston, robot arm and wing
weight are computer models without noise: noise of a tenth of the standard deviation is added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy import cos, exp, log, pi, sin, sqrt

from lazyknife.data.checks import check_positive_int
from lazyknife.records import Array

from .record import DataSet, read_only

ROWS = 5000
# The paper's text has variances; its authors' code uses 5 and 0.2 as standard deviations.
FEATURES, NOISE = np.sqrt(5), np.sqrt(0.5)

Columns = tuple[Array, ...]
Range = tuple[float, float]


@dataclass(frozen=True)
class Formula:
    """Uniform features in their ranges, the mean of y, and the noise around it."""

    title: str
    ranges: tuple[Range, ...]
    mean: Callable[..., Array]  # of the columns of X
    noise: Callable[..., Array | float]  # scale of the noise, of the columns of X
    relative: bool = False  # whether the scale is in standard deviations of the mean
    tails: float | None = None  # degrees of freedom of Student's t; None is the normal law


def constant(scale: float) -> Callable[..., float]:
    """Noise of one scale everywhere."""
    return lambda *columns: scale


def friedman1(a: Array, b: Array, c: Array, d: Array, e: Array, *rest: Array) -> Array:
    """Five features that matter, and five that do not."""
    return 10 * sin(pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e


def friedman2(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Impedance of a circuit."""
    return sqrt(a**2 + (b * c - 1 / (b * d)) ** 2)


def friedman3(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Phase angle of the same circuit."""
    return np.arctan((b * c - 1 / (b * d)) / a)


def borehole(
    rw: Array, r: Array, Tu: Array, Hu: Array, Tl: Array, Hl: Array, L: Array, Kw: Array
) -> Array:
    """Flow of water through a borehole, in m³ a year."""
    spread = log(r / rw)
    return 2 * pi * Tu * (Hu - Hl) / (spread + 2 * L * Tu / (rw**2 * Kw) + spread * Tu / Tl)


def piston(M: Array, S: Array, V0: Array, k: Array, P0: Array, Ta: Array, T0: Array) -> Array:
    """Time of one cycle of a piston, in seconds."""
    A = P0 * S + 19.62 * M - k * V0 / S
    V = S / (2 * k) * (sqrt(A**2 + 4 * k * P0 * V0 / T0 * Ta) - A)
    return 2 * pi * sqrt(M / (k + S**2 * P0 * V0 / T0 * Ta / V**2))


def robot_arm(*columns: Array) -> Array:
    """Distance of the hand from the shoulder: four angles, then four lengths."""
    turns, lengths = np.cumsum(columns[:4], axis=0), np.asarray(columns[4:])
    return np.hypot((lengths * cos(turns)).sum(axis=0), (lengths * sin(turns)).sum(axis=0))


def wing_weight(*columns: Array) -> Array:
    """Weight of the wing of a light aircraft, in pounds; the sweep is in degrees."""
    Sw, Wfw, A, sweep, q, taper, tc, Nz, Wdg, Wp = columns
    tilt = cos(np.deg2rad(sweep))
    size = 0.036 * Sw**0.758 * Wfw**0.0035 * (A / tilt**2) ** 0.6 * q**0.006 * taper**0.04
    return size * (100 * tc / tilt) ** -0.3 * (Nz * Wdg) ** 0.49 + Sw * Wp


def steps(a: Array, b: Array, c: Array, *rest: Array) -> Array:
    """Piecewise constant in three features of six."""
    return 2.0 * (a > 0.5) + 3.0 * ((b > 0.3) & (c > 0.6)) - 1.0 * (c < 0.2)


def smooth(a: Array, b: Array, *rest: Array) -> Array:
    """Smooth in two features of six."""
    return a + sin(pi * b)


def linear(*columns: Array) -> Array:
    """Weights 1, 1/2, 1/3, …."""
    return sum(column / k for k, column in enumerate(columns, 1))  # type: ignore[return-value]


TENTH = constant(0.1)
CIRCUIT = ((0.0, 100.0), (40 * pi, 560 * pi), (0.0, 1.0), (1.0, 11.0))
UNIT = (0.0, 1.0)
FORMULAS: dict[str, Formula] = {
    "friedman1": Formula("Friedman 1", (UNIT,) * 10, friedman1, constant(1.0)),
    "friedman2": Formula("Friedman 2", CIRCUIT, friedman2, constant(125.0)),
    "friedman3": Formula("Friedman 3", CIRCUIT, friedman3, TENTH),
    "borehole": Formula(
        "borehole",
        (
            *((0.05, 0.15), (100.0, 50_000.0), (63_070.0, 115_600.0), (990.0, 1110.0)),
            *((63.1, 116.0), (700.0, 820.0), (1120.0, 1680.0), (9855.0, 12_045.0)),
        ),
        borehole,
        TENTH,
        relative=True,
    ),
    "piston": Formula(
        "piston",
        (
            *((30.0, 60.0), (0.005, 0.02), (0.002, 0.01), (1000.0, 5000.0)),
            *((90_000.0, 110_000.0), (290.0, 296.0), (340.0, 360.0)),
        ),
        piston,
        TENTH,
        relative=True,
    ),
    "robot_arm": Formula(
        "robot arm", ((0.0, 2 * pi),) * 4 + (UNIT,) * 4, robot_arm, TENTH, relative=True
    ),
    "wing_weight": Formula(
        "wing weight",
        (
            *((150.0, 200.0), (220.0, 300.0), (6.0, 10.0), (-10.0, 10.0), (16.0, 45.0)),
            *((0.5, 1.0), (0.08, 0.18), (2.5, 6.0), (1700.0, 2500.0), (0.025, 0.08)),
        ),
        wing_weight,
        TENTH,
        relative=True,
    ),
    "steps": Formula("steps", (UNIT,) * 6, steps, TENTH, relative=True),
    "heteroscedastic": Formula(
        "heteroscedastic", (UNIT,) * 6, smooth, lambda *columns: 0.1 * exp(2 * columns[-1])
    ),
    "heavy_tails": Formula("heavy tails", ((-1.0, 1.0),) * 6, linear, constant(0.3), tails=3.0),
}


def draw_formula(name: str, seed: int = 0, rows: int = ROWS) -> DataSet:
    """Draw X, then the noise: y has the formula's mean.

    Parameters
    ----------
    name
        A key of ``FORMULAS``.
    seed
        Of numpy's ``default_rng``.
    rows
        Number of rows.

    """
    formula = FORMULAS[name]
    rng = np.random.default_rng(seed)
    low, high = np.transpose(formula.ranges)
    X = rng.uniform(low, high, (rows, len(low)))
    mean = formula.mean(*X.T)
    scale = formula.noise(*X.T) * (mean.std() if formula.relative else 1.0)
    noise = rng.normal(size=rows) if formula.tails is None else rng.standard_t(formula.tails, rows)
    names = tuple(f"x{k}" for k in range(1, len(low) + 1))
    y = read_only(mean + scale * noise)
    return DataSet(name, read_only(X), y, names, "formula + noise", None, formula.title)


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
