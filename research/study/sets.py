"""Many kinds of tables: which data sets, in which part, with how many rows and which methods."""

from __future__ import annotations

from collections.abc import Mapping

from .. import datasets
from ..datasets.formulas import ROWS
from .grid import Grid, Setting, vary
from .methods import DEFAULT, NATIVE, STRONG

LEAST_TEST = 100
UNITS = Setting(n_test=1000, intercept=True, y_in_sd=True)
# Features under symlog, as in the study of the choices.
TAMED = ("blog_feedback", "meps", "communities")
MANY_FEATURES = ("simulated_p100", *TAMED)
SETS = (*datasets.TABLES, "diabetes", *datasets.FORMULAS, "simulated_p16", *MANY_FEATURES)
GAUSSIAN = "mapie_cv_gp"  # not with many features: a length scale for each is costly
QUICK = (DEFAULT, *(name for name in STRONG if name not in (GAUSSIAN, "mapie_cv_forest")))
# Methods for each number of training rows.
SIZES: Mapping[int, tuple[str, ...]] = {
    50: (DEFAULT, *STRONG),
    100: (DEFAULT, *STRONG),
    400: (DEFAULT, *STRONG),
    1000: QUICK,
    2000: QUICK,
    4000: QUICK,
}
TRIALS = 4
FRAME_SIZES = (100, 400, 1000, 4000, 20_000)
FRAME_UNITS = Setting(n_test=2000, intercept=True, y_in_sd=True)
LEVELS = (0.1, 0.05)


# Sets that had no part when settings were compared; all others had one.
REPORTING = ("diabetes", "friedman2", "friedman3", "piston", "robot_arm", "wing_weight")
PARTS = {name: "reporting" if name in REPORTING else "choosing" for name in SETS}


def part_of(data: str) -> str:
    """Return which sets a set, as rows name it, belongs to."""
    if data in datasets.FRAMES:
        return "frames"
    return PARTS["meps" if data.startswith("meps") else data]


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
    for n, methods in SIZES.items():
        large = [name for name in SETS if rows_of(name) >= n + LEAST_TEST]
        for name in large:
            transform = "symlog" if name in TAMED else None
            costly = (GAUSSIAN, DEFAULT) if n >= 2000 and name in TAMED else (GAUSSIAN,)
            own = tuple(m for m in methods if m not in costly or name not in MANY_FEATURES)
            grids.append(Grid((name,), own, vary(UNITS, n=(n,), transform=(transform,)), TRIALS))
    return tuple(grids)


def make_frame_grids() -> tuple[Grid, ...]:
    """Frames with text, gaps and counts, at two levels, beside boosting that takes them as such."""
    return tuple(
        Grid((name,), (DEFAULT, *NATIVE), vary(FRAME_UNITS, n=(n,), alpha=LEVELS), TRIALS)
        for n in FRAME_SIZES
        for name, entry in datasets.FRAMES.items()
        if entry.rows >= n + LEAST_TEST
    )
