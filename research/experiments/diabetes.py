"""Several methods on scikit-learn's diabetes data, five folds with 200 training rows each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife.compare import named_method, summarise_folds
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.plots import plot_intervals, plot_methods, save_figure, style

from .shared import keep

ALPHA, ROWS = 0.1, 200
NETWORK_METHODS = (
    *("naive", "jackknife+", "cv+", "split_conformal"),
    *("lazy_finetune", "lazy_dp"),
)
# All but the last share a network and a scaling; the last is the default, on raw features.
METHODS: dict[str, IntervalRegressor] = {
    name: named_method(name, {"alpha": ALPHA, "scaling": "standardize"}) for name in NETWORK_METHODS
} | {"lazyknife": lk.LazyJackknifeRegressor(alpha=ALPHA, device="cpu")}


# What the figure calls them, for readers who do not know the methods.
TITLES = {
    "naive": "one network, uncorrected",
    "jackknife+": "jackknife+, 200 networks",
    "cv+": "CV+, 10 networks",
    "split_conformal": "split conformal",
    "lazy_finetune": "DP-Lazy PI, not private",
    "lazy_dp": "DP-Lazy PI (the paper)",
    "lazyknife": "lazyknife's default",
}
UNIT = 100  # a fixed unit, so that the target of networks is of order one


def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X, y / UNIT


def new_rows() -> tuple[lk.Intervals, np.ndarray]:
    """Intervals for the rows that are not used for training, and their targets, in its unit."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:ROWS], order[ROWS:]
    model = lk.LazyJackknifeRegressor(alpha=ALPHA, random_state=0)
    return model.fit(X[train], y[train]).predict_interval(X[new]), y[new]


def draw(rows: pd.DataFrame) -> Figure:
    """Intervals of the default estimator, and coverage and width of all methods."""
    summary = summarise_folds(rows)
    names = [TITLES[method] for method in summary["method"]]
    intervals, y = new_rows()
    with style(1.3):
        figure = Figure(figsize=(9, 6.6), layout="constrained")
        panels = figure.subplot_mosaic([["intervals"] * 2, ["coverage", "width"]])
        plot_intervals(intervals, y, label="disease progression", ax=panels["intervals"])
        for column, target, unit in (("coverage", 1 - ALPHA, 1), ("width", None, UNIT)):
            values, errors = unit * summary[column], unit * summary[f"{column}_se"]
            label, ax = f"{column}, mean of 5 folds", panels[column]
            best = TITLES["lazyknife"]
            plot_methods(names, values, errors, label=label, target=target, best=best, ax=ax)
        covered = f"{100 * np.mean(intervals.covers(y)):.0f} %"
        told = f"90 % intervals for {len(y)} new patients: {covered} contain the true value"
        panels["intervals"].set_title(told)
        panels["intervals"].set_xlabel("patients, sorted by prediction")
        panels["coverage"].set_title("aim: the dotted line")
        panels["width"].set_title("narrower is better")
        panels["width"].set_yticklabels([])
    return figure


def main(docs: Path) -> None:
    rows = lk.compare_methods(*data(), METHODS, alpha=ALPHA, train_rows=ROWS, jobs=1, verbose=True)
    rows = keep(rows, docs / "demo" / "demo.csv")
    save_figure(draw(rows), docs / "demo" / "demo.png")
