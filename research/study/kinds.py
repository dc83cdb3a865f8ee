"""Many kinds of tables: means over the sets of each part, every set, and the figure.

A mean is over the sets that all methods of its column have. Scores are in standard
deviations of y.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lazyknife.plots import plot_methods

from .choices import Lines
from .grid import Study
from .methods import BEFORE, DEFAULT, STRONG
from .sets import part_of
from .show import blank, heading
from .words import in_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METHODS = (DEFAULT, BEFORE, *STRONG)
README = {
    DEFAULT: "`LazyJackknifeRegressor()`, raw columns",
    "mapie_cv_gp": "CV+ around a Gaussian process with a length scale for each feature (MAPIE)",
    "mapie_cv_extratrees": "CV+ around extra trees (MAPIE)",
    "mapie_cv_boosting5": "CV+ around gradient boosting (MAPIE)",
    "mapie_cv_forest": "CV+ around a random forest (MAPIE)",
}
NONE = "–"
Part = tuple[str, int, "pd.DataFrame"]


def by_set(rows: pd.DataFrame, measure: str) -> Iterator[Part]:
    """Half, n, and a frame of means over trials: a line for each set, a column for each method."""
    rows = rows.assign(
        part=rows["data"].map(part_of),
        set=[heading(*pair) for pair in zip(rows["data"], rows["transform"], strict=True)],
        seconds=rows["fit_seconds"] + rows["predict_seconds"],
    )
    for (n, name), part in rows.groupby(["n", "part"]):
        found = part.pivot_table(index="set", columns="method", values=measure, sort=False)
        yield str(name), int(n), found[[method for method in METHODS if method in found]]


def mean_lines(rows: pd.DataFrame, measure: str, form: str) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: the mean of each method over the sets, for each part and n."""
    heads, lines = ["method"], [[method] for method in METHODS]
    for name, n, found in by_set(rows, measure):
        shared = found.dropna()
        heads.append(f"n = {n}, {name} ({len(shared)} sets)")
        for line in lines:
            line.append(f"{shared[line[0]].mean():{form}}" if line[0] in shared else NONE)
    return tuple(heads), [tuple(line) for line in lines]


def readme_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: mean scores on the sets that had no part in choosing the default."""
    found = {n: part.dropna() for name, n, part in by_set(rows, "score") if name == "reporting"}
    found = {n: part for n, part in found.items() if {*README} <= {*part}}
    heads = ("mean interval score, alpha = .1", *(f"n = {n:,}" for n in found))
    lines = [
        (words, *(f"{part[method].mean():.2f}" for part in found.values()))
        for method, words in README.items()
    ]
    return heads, lines


def against_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: the default's score over that of each other method, and its wins."""
    heads, lines = ["method"], [[method] for method in METHODS if method != DEFAULT]
    for name, n, found in by_set(rows, "score"):
        heads.append(f"n = {n}, {name}")
        for line in lines:
            line.append(_against(found, line[0]))
    return tuple(heads), [tuple(line) for line in lines]


def _against(found: pd.DataFrame, method: str) -> str:
    if not {DEFAULT, method} <= {*found}:
        return NONE
    ratios = (found[DEFAULT] / found[method]).dropna()
    return (
        f"{ratios.mean():.3f} ± {ratios.sem():.3f}, better in {(ratios < 1).sum()} of {len(ratios)}"
    )


def set_lines(rows: pd.DataFrame) -> tuple[tuple[str, ...], Lines]:
    """Columns and lines: the default's score on each set, and its ratio to the best peer's."""
    cells: dict[str, dict[int, str]] = {}
    for name, n, found in by_set(rows, "score"):
        for title, scores in found.reindex(columns=[*METHODS]).iterrows():
            own, peers = scores[DEFAULT], scores.drop([DEFAULT, BEFORE]).min()
            text = NONE if own != own else f"{own:.3g} ({own / peers:.2f})"
            cells.setdefault(f"{title} ({name})", {})[n] = text
    sizes = sorted({n for found in cells.values() for n in found})
    lines = [(title, *(found.get(n, NONE) for n in sizes)) for title, found in cells.items()]
    return ("set", *(f"n = {n:,}" for n in sizes)), lines


def draw_sets(study: Study, rows: pd.DataFrame) -> Figure:
    """Scores over the best of each set, mean over sets: a panel for each part and n."""
    parts = list(by_set(rows, "score"))
    figure, axes = blank((len(parts) + 1) // 2, 2, width=5.2, height=0.24 * len(METHODS) + 0.9)
    for ax, (name, n, found) in zip(axes.flat, parts, strict=False):
        shared = found.dropna()
        ratios = shared.div(shared.min(axis=1), axis=0)
        label = "interval score ÷ the best of the set"
        names = [in_words(method) for method in ratios]
        plot_methods(names, ratios.mean(), ratios.sem(), label=label, target=1.0, ax=ax)
        ax.set_title(f"{name} sets, n = {n}, {len(shared)} sets", loc="left")
    figure.suptitle(study.title)
    return figure
