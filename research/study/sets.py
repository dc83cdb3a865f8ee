"""Many kinds of tables: which data sets, in which half, with how many rows and which methods."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .. import datasets
from ..datasets.formulas import ROWS
from .grid import Grid, Setting, vary
from .methods import BEFORE, DEFAULT, STRONG

SEED = 2026  # of the halves
LEAST_TEST = 100
UNITS = Setting(n_test=1000, intercept=True, y_in_sd=True)
# Features under symlog, as in the study of the choices.
TAMED = ("blog_feedback", "meps", "communities")
MANY_FEATURES = ("simulated_p100", *TAMED)
SETS = (*datasets.TABLES, "diabetes", *datasets.FORMULAS, "simulated_p16", *MANY_FEATURES)
GAUSSIAN = "mapie_cv_gp"  # not with many features: a length scale for each is costly
QUICK = (DEFAULT, *(name for name in STRONG if name not in (GAUSSIAN, "mapie_cv_forest")))
# Methods and repetitions for each number of training rows.
SIZES: Mapping[int, tuple[tuple[str, ...], int]] = {
    50: ((DEFAULT, BEFORE, *STRONG), 2),
    100: ((DEFAULT, BEFORE, *STRONG), 3),
    400: ((DEFAULT, BEFORE, *STRONG), 1),
    2000: (QUICK, 1),
}


def halve() -> dict[str, str]:
    """Return the half of each set: "choosing" sets may choose defaults, "reporting" sets judge."""
    order = np.random.default_rng(SEED).permutation(len(SETS))
    return {
        SETS[place]: "choosing" if rank < len(SETS) // 2 else "reporting"
        for rank, place in enumerate(order)
    }


HALVES = halve()


def half(data: str) -> str:
    """Return the half of a set as rows name it."""
    return HALVES["meps" if data.startswith("meps") else data]


def rows_of(data: str) -> int:
    """Return how many rows a set has, at least."""
    known = {**{name: entry.rows for name, entry in datasets.DATASETS.items()}, "diabetes": 442}
    return known.get("meps_2016_panel21" if data == "meps" else data, ROWS)


def make_grids() -> tuple[Grid, ...]:
    """All sets that leave enough test rows; the Gaussian process only with few features.

    With many of both, the library's default takes ten minutes: every distinct scaling of the
    features has kernels of its own.
    """
    grids = []
    for n, (methods, trials) in SIZES.items():
        large = [name for name in SETS if rows_of(name) >= n + LEAST_TEST]
        for name in large:
            transform = "symlog" if name in TAMED else None
            costly = (GAUSSIAN, DEFAULT) if n == 2000 and name in TAMED else (GAUSSIAN,)
            own = tuple(m for m in methods if m not in costly or name not in MANY_FEATURES)
            grids.append(Grid((name,), own, vary(UNITS, n=(n,), transform=(transform,)), trials))
    return tuple(grids)
