"""The studies that have a name: the paper's figures and table, and those that it lacks."""

from __future__ import annotations

import math
from dataclasses import replace

from .grid import Grid, Setting, Study, vary
from .methods import CERTIFYING, DEFAULT, PEERS, VARIANTS
from .sets import make_frame_grids, make_grids

PAPER_METHODS = ("jackknife+", "lazy_finetune", "lazy_dp")
RAW_AND_SYMLOG = (None, "symlog")
EPSILONS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
READOUTS = ("network", "tangent")
BASES = ("lazy_dp", "lazy_public", "lazy_split", "lazy_finetune", "lazyknife")
# Real data in units that a network can take.
TAMED = Setting(transform="symlog", n_test=5000)
REAL = ("blog_feedback", "meps", "communities")
SIMULATIONS = ("simulated_p16", "simulated_p100")


def _figure(name: str, title: str, data: str, setting: Setting = Setting()) -> Study:  # noqa: B008, frozen
    """One figure of the paper; real data raw, as the paper has them, and tamed by symlog."""
    real = data in REAL
    settings = vary(setting, transform=RAW_AND_SYMLOG) if real else (setting,)
    return Study(name, title, (Grid((data,), PAPER_METHODS, settings),))


LONGER = Setting(epochs=20)
SINGLE = Setting(epochs=2, batch_size=1)

PAPER: dict[str, Study] = {
    study.name: study
    for study in (
        _figure("fig2a", "Figure 2a: simulation, p = 16", "simulated_p16"),
        _figure("fig2b", "Figure 2b: simulation, p = 100", "simulated_p100"),
        _figure("fig3a", "Figure 3a: BlogFeedback", "blog_feedback"),
        _figure("fig3b", "Figure 3b: MEPS", "meps"),
        _figure("fig4", "Figure 4: simulation, p = 100, 20 epochs", "simulated_p100", LONGER),
        _figure("fig5a", "Figure 5a: BlogFeedback, 20 epochs", "blog_feedback", LONGER),
        _figure("fig5b", "Figure 5b: MEPS, 20 epochs", "meps", LONGER),
        _figure("fig6a", "Figure 6a: BlogFeedback, batches of one row", "blog_feedback", SINGLE),
        _figure("fig6b", "Figure 6b: MEPS, batches of one row", "meps", SINGLE),
        Study(
            "table1",
            "Table 1: what is guaranteed, and what it costs",
            (Grid(SIMULATIONS, ("naive", "jackknife", *PAPER_METHODS)),),
        ),
    )
}

TANGENT = Setting(readout="tangent")
OTHERS = ("jackknife+", "cv+", "split_conformal", *PEERS)
CHOICES = ("lazyknife", "lazyknife_public", *VARIANTS, *OTHERS)
FEW_AND_MORE = vary(Setting(n_test=2000, intercept=True), n=(100, 400))
ONE, PRIVATE = ("simulated_p16",), ("lazy_dp",)
MANY_ROWS = vary(TANGENT, n=(2000,), epsilon=EPSILONS)
PRIVACY = (
    Grid(ONE, PRIVATE, (*vary(epsilon=EPSILONS, readout=READOUTS), *MANY_ROWS)),
    Grid(ONE, ("lazy_finetune", "lazy_public"), (Setting(), TANGENT, *vary(TANGENT, n=(2000,)))),
)
SEVERAL = ("lazy_dp", "lazyknife", "cv+", "split_conformal")
SIZES = (
    Grid(ONE, SEVERAL, vary(TANGENT, n=(50, 100, 200, 500, 1000, 2000))),
    Grid(ONE, ("jackknife+",), vary(TANGENT, n=(50, 100, 200))),
)
PENALTIES = (
    Grid(ONE, PRIVATE, vary(readout=READOUTS, ridge=RIDGES)),
    Grid(("meps",), PRIVATE, vary(TAMED, readout=READOUTS, ridge=RIDGES)),
)
BEYOND: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "epsilon",
            "Coverage and width against the base's privacy",
            PRIVACY,
            figure="curves",
            across="epsilon",
        ),
        Study(
            "rows",
            "Coverage and width against the number of training rows",
            SIZES,
            figure="curves",
            across="n",
        ),
        Study(
            "ridge",
            "Coverage and width against the ridge λ",
            PENALTIES,
            figure="curves",
            across="ridge",
        ),
        Study(
            "readout",
            "The moved network against its linearisation",
            (
                Grid(SIMULATIONS, PRIVATE, vary(readout=READOUTS)),
                Grid(REAL, PRIVATE, vary(TAMED, transform=RAW_AND_SYMLOG, readout=READOUTS)),
            ),
        ),
        Study(
            "bases",
            "DP-SGD against public and split bases",
            (
                Grid(SIMULATIONS, BASES, (TANGENT,)),
                Grid(REAL, BASES, vary(TAMED, readout=("tangent",))),
            ),
        ),
        Study(
            "choices",
            "Every construction, kind of widths and network, and what others offer",
            (
                Grid(SIMULATIONS, CHOICES, FEW_AND_MORE),
                Grid(REAL, CHOICES, tuple(replace(s, transform="symlog") for s in FEW_AND_MORE)),
            ),
            trials=5,
            figure="scores",
        ),
        Study(
            "tables",
            "The default and strong peers on many kinds of tables",
            make_grids(),
            figure="sets",
        ),
        Study(
            "frames",
            "Frames with text, gaps, counts and skew, beside boosting with its own categories",
            make_frame_grids(),
            figure="sets",
        ),
    )
}

TEN_FOLD = vary(Setting(n=455, split="ten_fold"), alpha=(0.1, 0.05, 0.01))
UNSHIFTED = (Setting(n=200, split="jaws"),)
MINMAX, FULL = CERTIFYING
PUBLISHED = Study(
    "published",
    "Against published numbers",
    (
        Grid(("boston",), (DEFAULT, FULL), TEN_FOLD),
        Grid(
            ("boston",),
            (
                *("mapie_split_boosting5", "mapie_quantile_gradient", "mapie_cv_extratrees"),
                *("online_ridge", "crepes_forest", "puncc_adaptive", "laplace_network"),
            ),
            TEN_FOLD[:1],
        ),
        Grid(("airfoil",), ("jackknife_forest",), UNSHIFTED, trials=3),
        Grid(
            ("airfoil", "wine", "communities"),
            (DEFAULT, *CERTIFYING, "online_ridge"),
            UNSHIFTED,
            trials=3,
        ),
        Grid(("boston",), (MINMAX,), TEN_FOLD),
        Grid(("boston",), ("cross_quantile",), TEN_FOLD[:1]),
    ),
    figure="published",
    trials=10,
)
STUDIES: dict[str, Study] = {**PAPER, **BEYOND, PUBLISHED.name: PUBLISHED}
COLLECTIONS: dict[str, tuple[str, ...]] = {
    "paper": tuple(PAPER),
    "beyond": tuple(BEYOND),
    "all": tuple(STUDIES),
}


def named(name: str) -> tuple[Study, ...]:
    """Return the study of this name, or the studies of a collection."""
    if name in STUDIES:
        return (STUDIES[name],)
    if name in COLLECTIONS:
        return tuple(STUDIES[member] for member in COLLECTIONS[name])
    choices = ", ".join([*STUDIES, *COLLECTIONS])
    raise ValueError(f"no study {name!r}: choose from {choices}")
