"""What the leave-one-out models choose on three tables, and what their choices change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.base import clone

import lazyknife as lk
from lazyknife.choosing.record import ChosenSettings
from lazyknife.plots import save_figure, style
from lazyknife.plots.figures import bare, font_size, legend_on_top, log_ticks
from lazyknife.records import Array

from ..curves import COLOURS
from ..datasets import DataSet, load
from .shared import ALPHA, keep

TABLES = ("bikeshare", "auto", "college")
LABELLED, NEW, SHOWN = 100, 200, 40
DEFAULT = lk.LazyJackknifeRegressor(alpha=ALPHA, random_state=0)
ONE_NETWORK = lk.LazyJackknifeRegressor(
    network=lk.mlp((64, 64), skip=True), scaling="standardize", alpha=ALPHA, random_state=0
)
COLOUR = {"one network": COLOURS[1], "default": COLOURS[0]}  # in the order drawn


class Rows(NamedTuple):
    """Frames in long form; each field is also the name of its file."""

    networks: pd.DataFrame  # table, network, models: how many leave-one-out models chose it
    weights: pd.DataFrame  # table, feature, weight: the median over models; left_out: by how many
    intervals: pd.DataFrame  # table, method, row, y, point, lower, upper; y in its sd


def run(tables: Sequence[DataSet]) -> Rows:
    """Fit both estimators on each table."""
    parts = [run_table(data) for data in tables]
    return Rows(*(pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True)))


def run_table(data: DataSet) -> Rows:
    X, y = data.X, (data.y - data.y.mean()) / data.y.std()
    order = np.random.default_rng(0).permutation(len(y))
    train, new, others = np.split(order, [LABELLED, LABELLED + NEW])
    default = clone(DEFAULT).fit(X[train], y[train])
    unlabelled = without(X[others], X[train])
    one = clone(ONE_NETWORK).fit(X[train], y[train], X_unlabeled=unlabelled)
    models = dict(zip(COLOUR, (one, default), strict=True))
    intervals = [
        interval_rows(method, model.predict_interval(X[new]), y[new])
        for method, model in models.items()
    ]
    parts = *choice_rows(default.choice_, data.feature_names), pd.concat(intervals)
    for part in parts:
        part.insert(0, "table", data.name)
    return Rows(*parts)


def choice_rows(
    choice: ChosenSettings, features: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Models for each network; for each feature its median weight, and models without it."""
    networks = {"network": choice.counts.keys(), "models": choice.counts.values()}
    weights = choice.weights[:-1]  # the last one is the full-data model's
    medians = {"weight": np.median(weights, axis=0), "left_out": (weights == 0).sum(axis=0)}
    return pd.DataFrame(networks), pd.DataFrame({"feature": features, **medians})


def without(X: Array, seen: Array) -> Array:
    """Rows of X that do not coincide with any row of ``seen``."""
    known = {row.tobytes() for row in seen}
    return X[[row.tobytes() not in known for row in X]]


def interval_rows(method: str, intervals: lk.Intervals, y: Array) -> pd.DataFrame:
    ends = {"point": intervals.point, "lower": intervals.lower, "upper": intervals.upper}
    return pd.DataFrame({"method": method, "row": np.arange(len(y)), "y": y, **ends})


def summarise(intervals: pd.DataFrame) -> pd.DataFrame:
    """Mean width, coverage and interval score of each method on each table."""
    grouped = intervals.groupby(["table", "method"], sort=False)
    return grouped.apply(measures, include_groups=False)


def measures(rows: pd.DataFrame) -> pd.Series:
    y, *ends = (rows[c].to_numpy() for c in ("y", "point", "lower", "upper"))
    found = lk.Intervals(*ends, ALPHA)
    score = lk.interval_score(y, found).value
    return pd.Series(
        {
            "width": lk.mean_width(found).value,
            "coverage": lk.coverage(y, found).value,
            "score": score,
        }
    )


def draw(rows: Rows) -> Figure:
    """Two panels for each table: what models chose, and intervals."""
    summary = summarise(rows.intervals)
    names = rows.networks["table"].unique()
    with style(1.1):
        figure = Figure(figsize=(9, 3.6 * len(names)), layout="constrained")
        axes = figure.subplots(len(names), 2, width_ratios=[1, 1.7], squeeze=False)
        for name, (left, right) in zip(names, axes, strict=True):
            networks, weights, intervals = (part[part["table"] == name] for part in rows)
            draw_weights(weights, limits(rows.weights["weight"]), left)
            draw_intervals(intervals, right)
            left.set_title(f"{name}\n{chosen(networks)}")
            right.set_title("\n".join(described(m, summary.loc[name, m]) for m in COLOUR))
        legend_on_top(axes[0, 1])
    return figure


def chosen(networks: pd.DataFrame) -> str:
    """Which networks the models of a table chose."""
    used = networks[networks["models"] > 0]
    return ", ".join(
        f"{n} models: {name}" for name, n in zip(used["network"], used["models"], strict=True)
    )


def described(method: str, line: pd.Series) -> str:
    values = f"coverage {line['coverage']:.3f}, score {line['score']:.2f}"
    return f"{method}: width {line['width']:.2f}, {values}"


def draw_weights(part: pd.DataFrame, ends: tuple[float, float], ax: Axes) -> None:
    """Medians on a logarithmic scale; in words, how many models leave a feature out."""
    bare(ax)
    ax.set_xscale("log")
    used = part["weight"].clip(lower=ends[0])
    bars = ax.barh(part["feature"], used - ends[0], left=ends[0], color=COLOUR["default"])
    notes = [f"left out by {count}" if count else "" for count in part["left_out"]]
    ax.bar_label(bars, notes, padding=2, fontsize=font_size("ytick.label"))
    ax.invert_yaxis()
    ax.set(xlabel="median weight (no bar: 0)", xlim=ends)
    log_ticks(ax.xaxis, *ends)


def limits(weights: pd.Series) -> tuple[float, float]:
    """Ends of the scale of weights, the same for all tables."""
    positive = weights[weights > 0]
    return positive.min() / 2, positive.max() * 2


def draw_intervals(part: pd.DataFrame, ax: Axes) -> None:
    """The first rows, sorted by the prediction of the default."""
    bare(ax)
    part = part[part["row"] < SHOWN].set_index("row")
    order = part.loc[part["method"] == "default", "point"].sort_values().index
    place = np.arange(len(order))
    for (method, colour), shift in zip(COLOUR.items(), (-0.18, 0.18), strict=True):
        ends = part[part["method"] == method].loc[order]
        lines: dict[str, Any] = {"color": colour, "lw": 2.2, "label": method}
        ax.vlines(place + shift, ends["lower"], ends["upper"], **lines)
    ax.plot(place, ends["y"], ".", color="black", ms=4, label="y")
    ax.set(xlabel=f"{len(order)} new rows, sorted by the default's prediction", ylabel="y (sd)")
    ax.set_xticks([])


def write(rows: Rows, docs: Path) -> None:
    """Write the rows and, from what a reader of the files finds, the figure."""
    folder = docs / "choosing"
    kept = {name: keep(part, folder / f"{name}.csv") for name, part in rows._asdict().items()}
    save_figure(draw(Rows(**kept)), folder / "choosing.svg")


def main(docs: Path) -> None:
    write(run([load(name) for name in TABLES]), docs)
