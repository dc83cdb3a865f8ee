"""When does private learning pay? Width at a certified coverage, for each base.

A base that learns narrows the intervals; the privacy that it spends must be paid for by a smaller
alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import lazyknife as lk
from lazyknife.plots import save_figure, style

from ..curves import Curve, plot_curves
from ..datasets import load, simulated
from ..study.trial import base_r2
from .shared import keep

SIZES = {1000: 10, 10_000: 5}  # training rows, and trials with so many
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
LEVELS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # coverages to certify
WANTED = (0.8, 0.9)
NEW_ROWS = 2000
TITLES = {"simulated_p16": "simulation, p = 16", "blog_feedback": "BlogFeedback, symlog"}
DATA = tuple(TITLES)
CONSTRUCTION = "full"  # certifies 1 − α − τ; jackknife+ has to pay 2α

Bases = Callable[[int], dict[str, lk.BaseMethod]]


def bases(n: int) -> dict[str, lk.BaseMethod]:
    """A public start, and private ones with the large batches that suit them."""
    private = {
        f"DP-SGD, ε = {epsilon:g}": lk.DPSGD(epsilon=epsilon, epochs=20, batch_size=n // 20)
        for epsilon in EPSILONS
    }
    return {"public": lk.Public(), **private}


def rows_of(
    data: str, n: int, trial: int, new: int = NEW_ROWS
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and new rows."""
    if data == "simulated_p16":
        whole = simulated(16, n_total=n + new, seed=trial)
    else:
        whole = load(data, "symlog")
    order = np.random.default_rng([trial, n]).permutation(len(whole.y))
    train, test = order[:n], order[n : n + new]
    return whole.X[train], whole.y[train], whole.X[test], whole.y[test]


def run_trial(
    data: str, n: int, trial: int, bases: Bases, new: int, levels: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """One row for each base and each coverage that it can certify."""
    X, y, X_new, y_new = rows_of(data, n, trial, new)
    for name, base in bases(n).items():
        model = lk.LazyJackknifeRegressor(
            network=lk.mlp((64, 64), skip=True),
            base=base,
            construction=CONSTRUCTION,
            random_state=trial,
        ).fit(X, y)
        learnt = base_r2(model, X_new, y_new)
        plans = {c: lk.plan(n=n, coverage=c, construction=CONSTRUCTION, base=base) for c in levels}
        found = {c: plan for c, plan in plans.items() if plan.alpha is not None}
        if not found:
            continue
        alphas = [plan.alpha for plan in found.values()]
        intervals = model.predict_interval(X_new, alpha=alphas)
        for k, (coverage, plan) in enumerate(found.items()):
            yield {
                "data": data,
                "n": n,
                "base": name,
                "trial": trial,
                "certified": coverage,
                "alpha": plan.alpha,
                "coverage": intervals.covers(y_new)[:, k].mean(),
                "width": intervals.width[:, k].mean(),
                "base_r2": learnt,
            }


def run(
    data: Sequence[str],
    sizes: dict[int, int],
    bases: Bases = bases,
    new: int = NEW_ROWS,
    levels: Sequence[float] = LEVELS,
) -> pd.DataFrame:
    """All trials, one after another."""
    return pd.DataFrame(
        row
        for name in data
        for n, trials in sizes.items()
        for trial in range(trials)
        for row in run_trial(name, n, trial, bases, new, levels)
    )


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the trials.

    ``saved`` is by how many per cent a width is below the public start's in the same trial.
    """
    key = ["data", "n", "trial", "certified"]
    public = rows[rows["base"] == "public"].set_index(key)["width"]
    paired = public.loc[list(rows[key].itertuples(index=False, name=None))].to_numpy()
    rows = rows.assign(saved=100 * (1 - rows["width"] / paired))
    by = ["data", "n", "base", "certified", "alpha"]
    grouped = rows.groupby(by, sort=False)[["coverage", "width", "saved", "base_r2"]]
    return grouped.mean().join(grouped.sem().add_suffix("_se")).reset_index()


def draw(rows: pd.DataFrame) -> Figure:
    """Width against certified coverage, a panel for each data set and number of rows."""
    summary = summarise(rows)
    panels = list(summary.groupby(["data", "n"], sort=False))
    with style():
        figure = Figure(figsize=(9, 3.4 * ((len(panels) + 1) // 2)), layout="constrained")
        axes = figure.subplots((len(panels) + 1) // 2, 2, squeeze=False).flat
        for ax, ((data, n), part) in zip(axes, panels, strict=False):
            curves = [
                Curve(str(base), own["certified"].tolist(), own["width"].tolist())
                for base, own in part.groupby("base", sort=False)
            ]
            plot_curves(curves, xlabel="certified coverage", ylabel="mean width", ax=ax)
            ax.set_title(f"{TITLES[data]}, n = {n:,}", loc="left")
    return figure


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and the figure."""
    rows = keep(rows, docs / "trade" / "rows.csv")
    save_figure(draw(rows), docs / "trade" / "trade.svg")


def main(docs: Path) -> None:
    write(run(DATA, SIZES), docs)
