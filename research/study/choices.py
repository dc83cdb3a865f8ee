"""Many methods on the same data: who has the better intervals, and by how much.

Trials of one number have the same rows, so scores are compared trial by trial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyknife.plots import plot_methods

from .grid import Study
from .show import blank, heading
from .words import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OURS = "lazyknife"  # how the names of the library's methods begin
DEFAULT = "lazyknife_public"  # the estimator's defaults, see METHODS
VALID = 0.88  # mean coverage, for an aim of .9
CELL = ["data", "transform", "n"]
Lines = list[tuple[str, ...]]


def measures_table(rows: pd.DataFrame, measure: str) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: a line for each method, a column for each data set and n."""
    heads, lines = ["method"], [[str(method)] for method in rows["method"].unique()]
    for cell, part in rows.groupby(CELL, sort=False, dropna=False):
        heads.append(title(*cell))
        grouped = part.groupby("method", sort=False)[measure]
        means, errors = grouped.mean(), grouped.sem()
        for line in lines:
            line.append(f"{means[line[0]]:.3g} ± {errors[line[0]]:.1g}")
    return tuple(heads), [tuple(line) for line in lines]


def title(data: str, transform: Any, n: int) -> str:
    """Name a cell for people."""
    return f"{heading(data, transform)}, n = {n}"


def verdict_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: our best method against the best other one, of those that cover enough."""
    lines: Lines = []
    for cell, part in rows.groupby(CELL, sort=False, dropna=False):
        means = part.groupby("method", sort=False)[["score", "coverage"]].mean()
        valid = means[means["coverage"] >= VALID]["score"]
        ours = valid[valid.index.str.startswith(OURS)]
        others = valid[~valid.index.str.startswith(OURS)]
        ratio, error = paired(part, ours.idxmin(), others.idxmin())
        lines.append(
            (
                title(*cell),
                str(ours.idxmin()),
                f"{ours.min():.3g}",
                str(others.idxmin()),
                f"{others.min():.3g}",
                f"{ratio:.3f} ± {error:.3f}",
                f"{means['score'][DEFAULT] / ours.min():.3f}",
            )
        )
    heads = ("data", "our best", "score", "best other", "score", "ratio", "default ÷ our best")
    return heads, lines


def paired(part: pd.DataFrame, method: str, other: str) -> tuple[float, float]:
    """Mean ratio of two methods' scores over the trials, and its standard error."""
    scores = part.pivot_table(index="trial", columns="method", values="score")
    ratios = scores[method] / scores[other]
    return float(ratios.mean()), float(ratios.sem())


def draw_scores(study: Study, rows: pd.DataFrame) -> Figure:
    """Interval scores over the default's, a panel for each data set and n."""
    groups = list(rows.groupby(CELL, sort=False, dropna=False))
    methods = [m for m in rows["method"].unique() if m != DEFAULT]
    figure, axes = blank((len(groups) + 1) // 2, 2, width=5.2, height=0.24 * len(methods) + 0.9)
    for ax, (cell, part) in zip(axes.flat, groups, strict=False):
        found = [paired(part, method, DEFAULT) for method in methods]
        ratios, errors = zip(*found, strict=True)
        names = [in_words(method) for method in methods]
        plot_methods(
            names, ratios, errors, label="interval score ÷ the default's", target=1.0, ax=ax
        )
        ax.set_title(title(*cell), loc="left")
    figure.suptitle(study.title)
    return figure
