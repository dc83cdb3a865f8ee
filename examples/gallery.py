"""The plots of lazyknife.plots, one figure each, on small data: ``python examples/gallery.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife.plots import (
    Curve,
    Panel,
    plot_band,
    plot_comparison,
    plot_coverage_by_bin,
    plot_guarantees,
    plot_intervals,
    save_figure,
    style,
)

ALPHA = 0.1


def diabetes() -> tuple[lk.Intervals, np.ndarray]:
    """Intervals for new rows of scikit-learn's diabetes data, and the truth."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    y = y / 100  # a fixed unit
    rows = np.random.default_rng(0).permutation(len(y))
    train, new = rows[:200], rows[200:]
    model = lk.LazyJackknifeRegressor(scaling="standardize", alpha=ALPHA, random_state=0)
    return model.fit(X[train], y[train], X_pool=X[new]).predict_interval(X[new]), y[new]


def sorted_intervals() -> Figure:
    figure, ax = blank()
    plot_intervals(*diabetes(), ax=ax)
    return figure


def coverage_by_width() -> Figure:
    figure, ax = blank()
    intervals, y = diabetes()
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
    figure, ax = blank()
    curves = [
        Curve(
            f"ghost point, {name}", epsilons, [certified(name, e) for e in epsilons], None, "bound"
        )
        for name in ("plus", "minmax")
    ]
    paper = [certified("plus", e, "paper") for e in epsilons]
    curves.append(Curve("the paper's theorem, η = 0", epsilons, paper, None, "bound"))
    plot_guarantees(curves, xlabel="ε of the base (n = 1,000, α = .1)", log_x=True, ax=ax)
    return figure


def certified(construction: str, epsilon: float, bound: str = "ghost_point") -> float:
    base = lk.DPSGD(epsilon=epsilon)
    certificate = lk.certify(n=1000, alpha=ALPHA, construction=construction, base=base, eta=0.0)
    return certificate.bounds[bound]


def comparison() -> Figure:
    """Coverage, time and width of three methods, from the rows of a study."""
    from research.study import read_rows, summarise

    summary = summarise(read_rows(Path(__file__).parents[1] / "results" / "fig2a.csv"))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/gallery"))
    folder: Path = parser.parse_args().output
    for draw in GALLERY:
        with style():
            save_figure(draw(), folder / f"{draw.__name__}.svg")


if __name__ == "__main__":
    main()
