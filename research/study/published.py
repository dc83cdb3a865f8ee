"""Numbers that papers report, beside those of the same data, splits and levels here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyknife.plots import plot_methods

from .choices import Lines
from .grid import Study
from .methods import CERTIFYING, DEFAULT
from .show import blank, heading
from .summary import summarise
from .words import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TAILOR, PRINSTER = "Tailor et al. 2025", "Prinster et al. 2022"
HERE, NONE = "here", "–"


class Reported(NamedTuple):
    """What a paper reports of a method."""

    source: str
    data: str
    method: str
    coverage: float
    width: float
    shifted: bool = False  # whether the test rows are of another distribution
    alpha: float = 0.1


REPORTED = (
    Reported(TAILOR, "boston", "Gauss-Newton full conformal, studentised", 0.905, 9.15),
    Reported(TAILOR, "boston", "split conformal", 0.896, 10.63),
    Reported(TAILOR, "boston", "conformalised quantile regression", 0.901, 11.69),
    # Means over trials 0, 1 and 2 of the file of results in the authors' repository without shift.
    Reported(PRINSTER, "airfoil", "jackknife+ of forests", 0.930, 12.33),
    Reported(PRINSTER, "airfoil", "jackknife-minmax of forests", 0.983, 16.59),
    Reported(PRINSTER, "airfoil", "CV+ of forests", 0.932, 12.63),
    Reported(PRINSTER, "airfoil", "split conformal, forest", 0.881, 13.20),
    Reported(PRINSTER, "airfoil", "jackknife+", 0.873, 14.95, shifted=True),
    Reported(PRINSTER, "wine", "jackknife+", 0.895, 2.72, shifted=True),
    Reported(PRINSTER, "communities", "jackknife+", 0.849, 0.598, shifted=True),
)


def reported(data: str, shifted: bool = False) -> list[Reported]:
    """Return what papers report for a data set."""
    return [found for found in REPORTED if (found.data, found.shifted) == (data, shifted)]


def boston_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: coverage and width of each method at each level."""
    lines: Lines = [
        (each.method, each.source, f"{each.coverage:.3f}, {each.width:.4g}", NONE, NONE, NONE)
        for each in reported("boston")
    ]
    own = summarise(rows[rows["data"] == "boston"])
    levels = sorted(own["alpha"].unique(), reverse=True)
    for method, part in own.groupby("method", sort=False):
        found = part.set_index("alpha")
        cells = [_cell(found, level) for level in levels]
        certified = found["certified"].get(levels[0])
        shown = NONE if certified != certified else f"{certified:.3f}"
        lines.append((in_words(str(method)), HERE, *cells, shown))
    heads = [f"{100 * (1 - level):.0f} %: coverage, width" for level in levels]
    return ("method", "from", *heads, "certified at 90 %"), lines


def boston_sentence(rows: pd.DataFrame) -> str:
    """Say how the default and its exact full conformal form stand at 90 %."""
    at = rows[(rows["data"] == "boston") & (rows["alpha"] == REPORTED[0].alpha)]
    means = at.groupby("method", sort=False)[["coverage", "width", "score", "certified"]].mean()
    full = next(name for name in CERTIFYING if name.endswith("full"))
    others = means.drop([DEFAULT, *CERTIFYING])
    narrowest, best = others["width"].idxmin(), others["score"].idxmin()
    theirs = min(reported("boston"), key=lambda each: each.width)
    own, exact = means.loc[DEFAULT], means.loc[full]
    share = own["width"] / theirs.width
    return (
        f"At 90 % the default's mean width is {own['width']:.2f}, {share:.2f} of the "
        f"narrowest published one ({theirs.width:.2f}), at coverage {own['coverage']:.3f}. "
        f"Full conformal prediction that certifies {exact['certified']:.3f} has width "
        f"{exact['width']:.2f} at coverage {exact['coverage']:.3f}. The narrowest peer run here is "
        f"{in_words(str(narrowest))} ({others['width'].min():.2f}); by the interval score, which "
        f"counts misses too, the best peer is {in_words(str(best))} ({others['score'].min():.1f}, "
        f"the default {own['score']:.1f}).\n"
    )


def _cell(found: pd.DataFrame, level: float) -> str:
    if level not in found.index:
        return NONE
    row = found.loc[level]
    return f"{row['coverage']:.3f}, {row['width']:#.3g} ± {row['width_se']:.1g}"


def draw_published(study: Study, rows: pd.DataFrame) -> Figure:
    """Widths at 90 %, a panel for each data set; published ones without error bars."""
    every = summarise(rows[rows["alpha"] == rows["alpha"].max()])
    parts = list(every.groupby("data", sort=False))
    most = max(len(part) + len(reported(str(data))) for data, part in parts)
    lines = (len(parts) + 1) // 2
    figure, axes = blank(lines, 2, width=5.2, height=0.24 * most + 0.9)
    for ax, (data, part) in zip(axes.flat, parts, strict=False):
        theirs = reported(str(data))
        names = [f"{each.method} ({each.source})" for each in theirs]
        names += map(in_words, part["method"])
        widths = [*(each.width for each in theirs), *part["width"]]
        errors = [*(0.0 for _ in theirs), *part["width_se"]]
        plot_methods(names, widths, errors, label="mean width at 90 %", ax=ax)
        ax.set_title(heading(str(data), None), loc="left")
    for ax in list(axes.flat)[len(parts) :]:
        ax.remove()
    figure.suptitle(study.title)
    return figure
