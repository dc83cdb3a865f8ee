"""The figure of a study, drawn from its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyknife.plots import Panel, plot_comparison, plot_methods, style

from ..curves import Curve, plot_curves
from .grid import Study
from .show import heading, in_words, labels, summarise
from .tables import CELL, ONE_NETWORK, by_set, paired, reported

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WIDE_SPREAD = 20.0  # widths that differ by more are drawn on a logarithmic axis
AXES = {"epsilon": "ε of the base", "n": "training rows n", "ridge": "ridge λ"}


def draw(study: Study, rows: pd.DataFrame) -> Figure:
    """Return the study's figure."""
    with style():
        figure = FIGURES[study.figure](study, rows)
        figure.suptitle(study.title)
        return figure


def blank(lines: int, columns: int, *, width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure that no window knows of, and its axes, shape (lines, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False)


def draw_comparison(study: Study, rows: pd.DataFrame) -> Figure:
    """Coverage, time and width of every method: one line of panels for each data set."""
    summary = summarise(rows)
    groups = list(summary.groupby(["data", "transform", "n"], sort=False, dropna=False))
    figure, axes = blank(len(groups), 3, width=10 / 3, height=2.9)
    for line, (group, part) in zip(axes, groups, strict=True):
        plot_comparison(labels(summary, part, in_words), panels(part), line)
        line[0].set_title(heading(*group[:2]), loc="left", pad=16)  # above the target's label
    return figure


def panels(part: pd.DataFrame) -> list[Panel]:
    """Return the three panels of the paper's figures."""

    def panel(column: str, label: str, **options: Any) -> Panel:
        return Panel(label, part[column].tolist(), part[f"{column}_se"].tolist(), **options)

    target = 1 - 2 * float(part["alpha"].iloc[0])  # the paper's, what jackknife+ guarantees
    widths = part["width"][np.isfinite(part["width"])]
    return [
        panel("coverage", "coverage", target=target, target_label=f"{100 * target:.0f} %, 1 − 2α"),
        panel("seconds", "time (s)", log=True),
        panel("width", "width", log=bool(widths.max() > WIDE_SPREAD * widths.min())),
    ]


def draw_curves(study: Study, rows: pd.DataFrame) -> Figure:
    """Coverage, width and the base's R² along one setting: a column of panels for each data set."""
    summary = summarise(rows)
    by = ["data", "transform"] if study.across == "n" else ["data", "transform", "n"]
    groups = list(summary.groupby(by, sort=False, dropna=False))
    measures = {"coverage": "coverage", "width": "width"}
    if study.across == "epsilon":
        measures["base_r2"] = "variance that the base explains"
    figure, axes = blank(len(measures), len(groups), width=4.4, height=3.2)
    for column, (group, part) in zip(axes.T, groups, strict=True):
        for ax, (measure, ylabel) in zip(column, measures.items(), strict=True):
            curves = measured_curves(study, summary, part, measure)
            if measure == "coverage" and study.across == "epsilon":
                curves += bound_curves(part)
            plot_curves(
                curves,
                xlabel=AXES[study.across],
                ylabel=ylabel,
                log_x=True,
                log_y=measure == "width",
                target=1 - float(part["alpha"].iloc[0]) if measure == "coverage" else None,
                target_label="1 − α",
                ax=ax,
            )
        size = "" if study.across == "n" else f", n = {group[2]}"
        column[0].set_title(heading(*group[:2]) + size, loc="left")
    return figure


def measured_curves(
    study: Study, summary: pd.DataFrame, part: pd.DataFrame, measure: str
) -> list[Curve]:
    """One curve a method; a method that has no such setting is a level line across their x."""
    places = part[study.across].astype(float)
    places = places[np.isfinite(places)]
    curves, names = [], labels(summary, part, in_words)
    for label in dict.fromkeys(names):
        own = part[np.array(names) == label]
        if own[measure].isna().all():
            continue
        columns = (study.across, measure, f"{measure}_se")
        x, y, errors = (own[column].astype(float).tolist() for column in columns)
        if study.across == "epsilon" and (own["method"] == "lazy_finetune").all():
            x = [math.inf]  # no privacy at all
        elif len(own) == 1 and len(part) > 1:
            x, y, errors = [places.min(), places.max()], 2 * y, 2 * errors
        curves.append(Curve(label, x, y, errors))
    return curves


def bound_curves(part: pd.DataFrame) -> list[Curve]:
    """Return what is certified along ε, and what the paper's theorem would give at its best."""
    private = part[part["method"] == "lazy_dp"].drop_duplicates("epsilon")
    x = private["epsilon"].tolist()
    named = {"certified": "certified", "the paper's bound, η = 0": "paper_bound"}
    return [
        Curve(label, x, private[column].fillna(0.0).tolist(), kind="bound")
        for label, column in named.items()
    ]


class Methods(NamedTuple):
    """One number for each method, with its standard error, under a title."""

    title: str
    names: Sequence[str]
    values: Any
    errors: Any


def draw_methods(parts: Sequence[Methods], label: str, target: float | None = None) -> Figure:
    """Two panels a line, each with a line for each method."""
    most = max(len(part.names) for part in parts)
    figure, axes = blank((len(parts) + 1) // 2, 2, width=5.2, height=0.24 * most + 0.9)
    for ax, part in zip(axes.flat, parts, strict=False):
        plot_methods(part.names, part.values, part.errors, label=label, target=target, ax=ax)
        ax.set_title(part.title, loc="left")
    for ax in list(axes.flat)[len(parts) :]:
        ax.remove()
    return figure


def draw_scores(study: Study, rows: pd.DataFrame) -> Figure:
    """Interval scores over that of the one network, a panel for each data set and n."""
    methods = [m for m in rows["method"].unique() if m != ONE_NETWORK]
    parts = []
    for (data, transform, n), part in rows.groupby(CELL, sort=False, dropna=False):
        ratios, errors = zip(*(paired(part, m, ONE_NETWORK) for m in methods), strict=True)
        title = f"{heading(data, transform)}, n = {n}"
        parts.append(Methods(title, [in_words(m) for m in methods], ratios, errors))
    return draw_methods(parts, "interval score ÷ that of the one network", 1.0)


def draw_sets(study: Study, rows: pd.DataFrame) -> Figure:
    """Scores over the best of each set, mean over sets: a panel for each part and n."""
    parts = []
    for name, n, found in by_set(rows, "score"):
        shared = found.dropna()
        ratios = shared.div(shared.min(axis=1), axis=0)
        title = f"{name} sets, n = {n}, {len(shared)} sets"
        names = [in_words(method) for method in ratios]
        parts.append(Methods(title, names, ratios.mean(), ratios.sem()))
    return draw_methods(parts, "interval score ÷ the best of the set", 1.0)


def draw_published(study: Study, rows: pd.DataFrame) -> Figure:
    """Widths at 90 %, a panel for each data set; published ones without error bars."""
    parts = []
    every = summarise(rows[rows["alpha"] == rows["alpha"].max()])
    for data, part in every.groupby("data", sort=False):
        theirs = reported(str(data))
        names = [f"{each.method} ({each.source})" for each in theirs]
        names += map(in_words, part["method"])
        widths = [*(each.width for each in theirs), *part["width"]]
        errors = [*(0.0 for _ in theirs), *part["width_se"]]
        parts.append(Methods(heading(str(data), None), names, widths, errors))
    return draw_methods(parts, "mean width at 90 %")


FIGURES: dict[str, Callable[[Study, pd.DataFrame], Figure]] = {
    "comparison": draw_comparison,
    "curves": draw_curves,
    "scores": draw_scores,
    "sets": draw_sets,
    "published": draw_published,
}
