"""Several methods on scikit-learn's diabetes data, five folds with 200 training rows each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife.compare import named_method, summarise_folds
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.plots import plot_intervals, plot_methods, save_figure, style

from ..pages import fill_file, markdown
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


def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X, y / 100  # a fixed unit, so that the target is of order one


def new_rows() -> tuple[lk.Intervals, np.ndarray]:
    """Intervals for the rows that are not used for training, and their targets."""
    X, y = data()
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:ROWS], order[ROWS:]
    model = lk.LazyJackknifeRegressor(alpha=ALPHA, random_state=0)
    return model.fit(X[train], y[train]).predict_interval(X[new]), y[new]


def table(rows: pd.DataFrame) -> str:
    """A line for each method, with times relative to the first one's."""
    summary = summarise_folds(rows)
    unit = summary["seconds"].iloc[0]
    columns = ("method", "coverage", "width", "interval score", "time ÷ naive", "certified")
    return markdown(columns, [table_line(line, unit) for line in summary.to_dict("records")])


def table_line(line: dict[str, Any], unit: float) -> tuple[str, ...]:
    digits = {"coverage": 3, "width": 2, "score": 2}
    shown = (f"{line[c]:.{d}f} ± {line[f'{c}_se']:.{d}f}" for c, d in digits.items())
    certified = "none" if np.isnan(line["certified"]) else f"{line['certified']:.3f}"
    return line["method"], *shown, f"{line['seconds'] / unit:.1f}", certified


def draw(rows: pd.DataFrame) -> Figure:
    """Intervals of the default estimator, and coverage and width of all methods."""
    summary = summarise_folds(rows)
    with style(1.2):
        figure = Figure(figsize=(8, 6.2), layout="constrained")
        panels = figure.subplot_mosaic([["intervals"] * 2, ["coverage", "width"]])
        plot_intervals(*new_rows(), ax=panels["intervals"])
        for column, target in (("coverage", 1 - ALPHA), ("width", None)):
            values, errors = summary[column], summary[f"{column}_se"]
            names, ax = summary["method"].tolist(), panels[column]
            plot_methods(names, values, errors, label=column, target=target, ax=ax)
        panels["intervals"].set_title("lazyknife: intervals for new rows")
        panels["coverage"].set_title("aim: the dotted line")
        panels["width"].set_title("narrower is better")
        panels["width"].set_yticklabels([])
    return figure


def main(docs: Path) -> None:
    rows = lk.compare_methods(*data(), METHODS, alpha=ALPHA, train_rows=ROWS, jobs=1, verbose=True)
    rows = keep(rows, docs / "demo" / "demo.csv")
    save_figure(draw(rows), docs / "demo" / "demo.png")
    fill_file(docs / "comparison.md", {"demo": table(rows)})
