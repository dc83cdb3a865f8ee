"""Figures of the gallery, one for each kind of plot, on small data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import lazyknife as lk
from lazyknife.plots import (
    Panel,
    plot_band,
    plot_comparison,
    plot_coverage_by_bin,
    plot_intervals,
    save_figure,
    style,
)

from ..curves import Curve, plot_curves
from ..pages import RESULTS
from ..study import read_rows, summarise
from .diabetes import ALPHA, new_rows


def sorted_intervals() -> Figure:
    figure, ax = blank()
    plot_intervals(*new_rows(), ax=ax)
    return figure


def coverage_by_width() -> Figure:
    figure, ax = blank()
    intervals, y = new_rows()
    plot_coverage_by_bin(lk.coverage_by_bin(y, intervals), target=1 - ALPHA, ax=ax)
    return figure


def band() -> Figure:
    """One feature: the band at two levels, the training rows and the true curve."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, 120))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=len(x))
    grid = np.linspace(-3, 3, 300)
    model = lk.LazyJackknifeRegressor(lk.mlp((128, 128), "tanh"), lk.Public(), random_state=0)
    intervals = model.fit(x[:, None], y).predict_interval(grid[:, None], alpha=[0.1, 0.4])
    figure, ax = blank()
    plot_band(grid, intervals, x, y, truth=np.sin(2 * grid), ax=ax)
    return figure


def guarantees() -> Figure:
    """What is certified against ε, for two constructions, and the paper's bound at its best."""
    epsilons = np.geomspace(1e-3, 2, 12).tolist()
    bounds = {
        "ghost point, plus": ("plus", "ghost_point"),
        "ghost point, minmax": ("minmax", "ghost_point"),
        "the paper's theorem, η = 0": ("plus", "paper"),
    }
    curves = [
        Curve(label, epsilons, [certified(e, *which) for e in epsilons], kind="bound")
        for label, which in bounds.items()
    ]
    figure, ax = blank()
    plot_curves(
        curves,
        xlabel="ε of the base (n = 1,000, α = .1)",
        ylabel="certified coverage",
        log_x=True,
        limits=(0.0, 1.02),
        ax=ax,
    )
    return figure


def certified(epsilon: float, construction: str, bound: str) -> float:
    base = lk.DPSGD(epsilon=epsilon)
    certificate = lk.certify(n=1000, alpha=ALPHA, construction=construction, base=base, eta=0.0)
    return certificate.bounds[bound]


def comparison() -> Figure:
    """Coverage, time and width of three methods, from the rows of a study."""
    summary = summarise(read_rows(RESULTS / "fig2a.csv"))
    panels = [
        Panel("coverage", summary["coverage"], summary["coverage_se"], target=0.8),
        Panel("time (s)", summary["seconds"], summary["seconds_se"], log=True),
        Panel("width", summary["width"], summary["width_se"]),
    ]
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    plot_comparison(summary["method"].tolist(), panels, figure.subplots(1, 3))
    return figure


def blank() -> tuple[Figure, object]:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    return figure, figure.subplots()


GALLERY = (sorted_intervals, coverage_by_width, band, guarantees, comparison)


def main(docs: Path) -> None:
    for draw in GALLERY:
        with style():
            save_figure(draw(), docs / "gallery" / f"{draw.__name__}.svg")
