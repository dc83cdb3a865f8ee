"""The figure of a study, drawn from its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyknife.plots import Panel, plot_comparison, style

from ..curves import Curve, plot_curves
from .choices import draw_scores
from .grid import Study
from .kinds import draw_sets
from .published import draw_published
from .show import blank, heading, labels
from .summary import summarise
from .words import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WIDE_SPREAD = 20.0  # widths that differ by more are drawn on a logarithmic axis
AXES = {"epsilon": "ε of the base", "n": "training rows n", "ridge": "ridge λ"}


def draw(study: Study, rows: pd.DataFrame) -> Figure:
    """Return the study's figure."""
    with style():
        return FIGURES[study.figure](study, rows)


def draw_comparison(study: Study, rows: pd.DataFrame) -> Figure:
    """Coverage, time and width of every method: one line of panels for each data set."""
    summary = summarise(rows)
    groups = list(summary.groupby(["data", "transform", "n"], sort=False, dropna=False))
    figure, axes = blank(len(groups), 3, width=10 / 3, height=2.9)
    for line, (group, part) in zip(axes, groups, strict=True):
        plot_comparison(labels(summary, part, in_words), panels(part), line)
        line[0].set_title(heading(*group[:2]), loc="left")
    figure.suptitle(study.title)
    return figure


def panels(part: pd.DataFrame) -> list[Panel]:
    """Return the three panels of the paper's figures."""
    target = 1 - 2 * float(part["alpha"].iloc[0])  # the paper's, what jackknife+ guarantees
    label = f"{100 * target:.0f} %, 1 − 2α"
    widths = part["width"][np.isfinite(part["width"])]
    return [
        _panel(part, "coverage", "coverage", target=target, target_label=label),
        _panel(part, "seconds", "time (s)", log=True),
        _panel(part, "width", "width", log=bool(widths.max() > WIDE_SPREAD * widths.min())),
    ]


def draw_curves(study: Study, rows: pd.DataFrame) -> Figure:
    """Coverage, width and the base's R² along one setting: a line of panels for each data set."""
    summary = summarise(rows)
    by = ["data", "transform"] if study.across == "n" else ["data", "transform", "n"]
    groups = list(summary.groupby(by, sort=False, dropna=False))
    measures = [("coverage", "coverage"), ("width", "width")]
    if study.across == "epsilon":
        measures.append(("base_r2", "variance that the base explains"))
    figure, axes = blank(len(groups), len(measures), width=4.4, height=3.2)
    for line, (group, part) in zip(axes, groups, strict=True):
        for ax, (measure, ylabel) in zip(line, measures, strict=True):
            curves = measured_curves(study, summary, part, measure)
            if measure == "coverage":
                curves += bound_curves(study, part)
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
        line[0].set_title(heading(*group[:2]) + size, loc="left")
    figure.suptitle(study.title)
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


def bound_curves(study: Study, part: pd.DataFrame) -> list[Curve]:
    """Return what is certified along ε, and what the paper's theorem would give at its best."""
    if study.across != "epsilon":
        return []
    private = part[part["method"] == "lazy_dp"].drop_duplicates("epsilon")
    x = private["epsilon"].tolist()
    named = {"certified": "certified", "the paper's bound, η = 0": "paper_bound"}
    return [
        Curve(label, x, private[column].fillna(0.0).tolist(), None, "bound")
        for label, column in named.items()
    ]


def _panel(part: pd.DataFrame, column: str, label: str, **options: Any) -> Panel:
    return Panel(label, part[column].tolist(), part[f"{column}_se"].tolist(), **options)


FIGURES: dict[str, Callable[[Study, pd.DataFrame], Figure]] = {
    "comparison": draw_comparison,
    "curves": draw_curves,
    "scores": draw_scores,
    "sets": draw_sets,
    "published": draw_published,
}
