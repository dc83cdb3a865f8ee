"""Compare ways to put intervals on one network: scikit-learn's diabetes data, 5 random splits."""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_diabetes

import lazyknife as lk
from lazyknife.plots import plot_intervals, plot_methods

mpl.use("Agg")
import matplotlib.pyplot as plt

ALPHA, ROWS, SPLITS = 0.1, 200, 5
# Standardising over training and test rows together is no leak (see X_pool below).
SHARED = {"alpha": ALPHA, "transform": "standardize"}
METHODS = {
    "naive": lambda seed: lk.JackknifeRegressor(construction="naive", random_state=seed, **SHARED),
    "jackknife+": lambda seed: lk.JackknifeRegressor(random_state=seed, **SHARED),
    "CV+": lambda seed: lk.CVPlusRegressor(random_state=seed, **SHARED),
    "split conformal": lambda seed: lk.SplitConformalRegressor(random_state=seed, **SHARED),
    "lazy finetune": lambda seed: lk.DPLazyPI(random_state=seed, **SHARED).set_params(
        base=lk.Plain()
    ),
    "DP-Lazy PI": lambda seed: lk.DPLazyPI(random_state=seed, **SHARED),
    "lazyknife": lambda seed: lk.LazyJackknifeRegressor(random_state=seed, **SHARED),
}
COLUMNS = ("coverage", "width", "score", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/demo"))
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    X, y = load_diabetes(return_X_y=True, scaled=False)
    y = y / 100  # a fixed unit, so that the target is of order one
    trials = run_all(X, y)
    last = trials[list(METHODS)[-1]][-1]

    console = Console()
    console.print(table(trials, len(y)))
    console.print("\nThe last method's certificate:\n", style="bold")
    console.print(str(last["certificate"]), highlight=False)
    write_csv(trials, folder / "demo.csv")
    (folder / "table.md").write_text(markdown(trials))
    draw(trials, last, folder / "demo.png")
    console.print(f"\nWrote demo.csv, demo.png and table.md to {folder}")


def run_all(X: np.ndarray, y: np.ndarray) -> dict[str, list[dict[str, Any]]]:
    """All methods on the same random splits."""
    jobs = [(name, seed) for name in METHODS for seed in range(SPLITS)]
    METHODS["DP-Lazy PI"](0).fit(X[:ROWS], y[:ROWS], X_pool=X[ROWS:])  # warm up
    trials: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    for name, seed in track(jobs, "fitting", console=Console(stderr=True)):
        rows = np.random.default_rng(seed).permutation(len(y))
        train, test = rows[:ROWS], rows[ROWS:]
        started = time.perf_counter()
        model = METHODS[name](seed).fit(X[train], y[train], X_pool=X[test])
        intervals = model.predict_interval(X[test])
        seconds = time.perf_counter() - started
        trials[name].append(
            {
                "split": seed,
                "coverage": lk.coverage(y[test], intervals).value,
                "width": lk.mean_width(intervals),
                "score": lk.interval_score(y[test], intervals),
                "seconds": seconds,
                "certified": model.certificate_.coverage,
                "certificate": model.certificate_,
                "intervals": intervals,
                "truth": y[test],
            }
        )
    return trials


def table(trials: dict[str, list[dict[str, Any]]], total: int) -> Table:
    result = Table(
        title=f"Diabetes, {ROWS} training and {total - ROWS} test rows, alpha = {ALPHA}",
        caption=f"mean ± standard error of {SPLITS} random splits; median time",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("method", "coverage", "width", "score", "time", "certified"):
        result.add_column(column, justify="left" if column == "method" else "right")
    for name, runs in trials.items():
        certified = runs[0]["certified"]
        shares = "{:.3f} ±{:.3f}".format(*mean_and_error(runs, "coverage"))
        cells = [
            "{:.2f} ±{:.2f}".format(*mean_and_error(runs, column)) for column in ("width", "score")
        ]
        seconds = statistics.median(run["seconds"] for run in runs)
        shown = "none" if certified is None else f"{certified:.3f}"
        result.add_row(name, shares, *cells, f"{seconds:.2f} s", shown)
    return result


def markdown(trials: dict[str, list[dict[str, Any]]]) -> str:
    """The same table for a page, with times relative to the first method's."""
    unit = statistics.median(run["seconds"] for run in next(iter(trials.values())))
    lines = [
        "| method | coverage | width | interval score | time ÷ naive | certified coverage |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in trials.items():
        coverage, width, score = (mean_and_error(runs, c) for c in COLUMNS[:3])
        ratio = statistics.median(run["seconds"] for run in runs) / unit
        certified = runs[0]["certified"]
        shown = "none" if certified is None else f"{certified:.3f}"
        lines.append(
            f"| {name} | {coverage[0]:.3f} ± {coverage[1]:.3f} | {width[0]:.2f} ± {width[1]:.2f} "
            f"| {score[0]:.2f} ± {score[1]:.2f} | {ratio:.1f} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def mean_and_error(runs: list[dict[str, Any]], column: str) -> tuple[float, float]:
    values = [run[column] for run in runs]
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def write_csv(trials: dict[str, list[dict[str, Any]]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("method", "split", *COLUMNS, "certified"))
        for name, runs in trials.items():
            for run in runs:
                certified = "" if run["certified"] is None else f"{run['certified']:.6f}"
                figures = (f"{run[column]:.6f}" for column in COLUMNS)
                writer.writerow((name, run["split"], *figures, certified))


def draw(trials: dict[str, list[dict[str, Any]]], last: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), width_ratios=[2, 1, 1], layout="constrained")
    plot_intervals(last["intervals"], last["truth"], ax=axes[0])
    axes[0].set_title(f"{list(METHODS)[-1]}: intervals for {len(last['truth'])} new rows")
    for ax, column, target in zip(axes[1:], ("coverage", "width"), (1 - ALPHA, None), strict=True):
        values, errors = zip(*(mean_and_error(r, column) for r in trials.values()), strict=True)
        plot_methods(list(trials), values, errors, label=column, target=target, ax=ax)
    axes[2].set_yticklabels([])
    axes[1].set_title("aim: the dotted line")
    axes[2].set_title("narrower is better")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
