"""Many methods on the same data: who has the better intervals, and by how much.

Trials of one number have the same rows, so scores are compared trial by trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lazyknife.plots import plot_methods

from .grid import Study
from .show import blank, heading
from .words import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OURS = "lazyknife"  # how the names of the library's methods begin
ONE_NETWORK = "lazyknife_public"  # what the estimator uses where models do not choose
VALID = 0.88  # mean coverage, for an aim of .9
CELL = ["data", "transform", "n"]
# Constructions, each with jackknife+ at the same kind of widths.
COSTS = {
    "plus": (ONE_NETWORK, ONE_NETWORK),
    "full": ("lazyknife_full", "lazyknife_leverage"),
    "minmax": ("lazyknife_minmax", ONE_NETWORK),
    "cv+": ("lazyknife_cv+", "lazyknife_absolute"),
}
Lines = list[tuple[str, ...]]


def title(data: str, transform: Any, n: int) -> str:
    """Name a cell for people."""
    return f"{heading(data, transform)}, n = {n}"


def verdict_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: the one network against the best other method that covers enough."""
    heads = ("data", ONE_NETWORK, "best other", "its score", "ratio")
    return heads, [_verdict_line(title(*cell), part) for cell, part in _cells(rows)]


def _verdict_line(cell: str, part: pd.DataFrame) -> tuple[str, ...]:
    means = part.groupby("method", sort=False)[["score", "coverage"]].mean()
    best = best_other(means)
    ratio, error = paired(part, ONE_NETWORK, best)
    scores = (f"{means['score'][method]:.3g}" for method in (ONE_NETWORK, best))
    return cell, next(scores), best, next(scores), f"{ratio:.3f} ± {error:.3f}"


def verdict_sentence(rows: pd.DataFrame) -> str:
    """Say in how many cells the one network is ahead of all others, and how far it is behind."""
    ratios = [float(line[-1].split()[0]) for line in verdict_lines(rows)[1]]
    ahead, worst = sum(ratio < 1 for ratio in ratios), max(ratios)
    behind = f"at most {100 * (worst - 1):.1f} % behind in the others"
    return f"It is ahead of all others in {ahead} of {len(ratios)} cells, and {behind}.\n"


def best_other(means: pd.DataFrame) -> str:
    """Return the method of others that has the lowest mean score, of those that cover enough."""
    valid = means[means["coverage"] >= VALID]["score"]
    return str(valid[~valid.index.str.startswith(OURS)].idxmin())


def _cells(rows: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    return iter(rows.groupby(CELL, sort=False, dropna=False))


def cost_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: what constructions certify, cover, and cost in width, for each n."""
    sizes = sorted(rows["n"].unique())
    words = ("certified", "coverage", "width ÷ plus")
    lines = [
        (f'`"{name}"`', *(cell for n in sizes for cell in _cost(rows[rows["n"] == n], *pair)))
        for name, pair in COSTS.items()
    ]
    return ("construction", *(f"{word}, n = {n}" for n in sizes for word in words)), lines


def _cost(rows: pd.DataFrame, method: str, plus: str) -> tuple[str, str, str]:
    means = rows.groupby(["method", "data"])[["certified", "coverage", "width"]].mean()
    own, widths = means.loc[method], means.loc[method]["width"] / means.loc[plus]["width"]
    return f"{own['certified'].mean():.3f}", f"{own['coverage'].mean():.3f}", f"{widths.mean():.2f}"


def paired(part: pd.DataFrame, method: str, other: str) -> tuple[float, float]:
    """Mean ratio of two methods' scores over the trials, and its standard error."""
    scores = part.pivot_table(index="trial", columns="method", values="score")
    ratios = scores[method] / scores[other]
    return float(ratios.mean()), float(ratios.sem())


def draw_scores(study: Study, rows: pd.DataFrame) -> Figure:
    """Interval scores over that of the one network, a panel for each data set and n."""
    groups = list(_cells(rows))
    methods = [m for m in rows["method"].unique() if m != ONE_NETWORK]
    figure, axes = blank((len(groups) + 1) // 2, 2, width=5.2, height=0.24 * len(methods) + 0.9)
    label = "interval score ÷ that of the one network"
    for ax, (cell, part) in zip(axes.flat, groups, strict=False):
        found = [paired(part, method, ONE_NETWORK) for method in methods]
        ratios, errors = zip(*found, strict=True)
        names = [in_words(method) for method in methods]
        plot_methods(names, ratios, errors, label=label, target=1.0, ax=ax)
        ax.set_title(title(*cell), loc="left")
    figure.suptitle(study.title)
    return figure
