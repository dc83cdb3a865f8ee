"""The tables of studies on the pages of docs/, made from the studies' rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import pages
from ..pages import markdown
from .catalogue import PAPER, STUDIES
from .libraries import NATIVE
from .methods import CERTIFYING, DEFAULT, STRONG
from .rows import read_rows
from .sets import part_of
from .show import heading, in_words, labels, summarise
from .verdict import Verdict, verdicts

if TYPE_CHECKING:
    import pandas as pd

NONE = "–"
Lines = list[tuple[str, ...]]
Table = tuple[tuple[str, ...], Lines]  # heads and lines


def fill(page: str, folder: Path) -> str:
    """Return the page with the tables of studies made anew from the rows in a folder.

    Their names are keys of ``SPECIAL`` or names of studies; others are left as they are.
    """
    names = [name for name in pages.marked(page) if name in {*SPECIAL, *STUDIES}]
    return pages.fill(page, {name: make_table(name, folder) for name in names})


def make_table(name: str, folder: Path) -> str:
    """Return a named table."""
    if name in SPECIAL:
        return SPECIAL[name](folder)
    return markdown(*summary_lines(read_rows(folder / f"{name}.csv")))


def summary_lines(rows: pd.DataFrame) -> Table:
    """Means and standard errors of every combination."""
    summary = summarise(rows)
    varied = [c for c in ("n", "epsilon", "ridge") if summary[c].nunique() > 1]
    lines = []
    for row, label in zip(summary.to_dict("records"), labels(summary, summary), strict=True):
        settings = [v if isinstance(v, str) else f"{v:g}" for v in (row[c] for c in varied)]
        lines.append(
            (
                heading(row["data"], row["transform"]),
                label,
                *(text.replace("inf", "∞") for text in settings),
                *(_plus_minus(row, column) for column in ("coverage", "width", "score")),
                f"{row['seconds']:.2g}",
                _certified(row),
            )
        )
    measures = ("coverage", "width", "interval score", "seconds", "certified")
    return ("data", "method", *varied, *measures), lines


def _plus_minus(row: Mapping[str, Any], column: str) -> str:
    return f"{row[column]:.3g} ± {row[f'{column}_se']:.2g}"


def _certified(row: Mapping[str, Any], none: str = "none") -> str:
    return none if math.isnan(row["certified"]) else f"{row['certified']:.3f}"


# The paper


def paper_rows(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the rows of all of the paper's studies."""
    return {name: read_rows(folder / f"{name}.csv") for name in PAPER}


def verdict_table(found: Sequence[Verdict]) -> str:
    """One line a claim, and how many are reproduced."""
    lines = [
        (f"{number}", f"**{v.mark}**", v.claim, f"holds in {v.count}: {v.rule}", v.source)
        for number, v in enumerate(found, start=1)
    ]
    marks = [v.mark for v in found]
    sentence = (
        f"Of {len(marks)} claims {marks.count('reproduced')} are reproduced, "
        f"{marks.count('partly')} hold in part and {marks.count('not reproduced')} do not hold.\n"
    )
    heads = ("", "verdict", "claim", "measured", "where the paper says it")
    return f"{markdown(heads, lines)}\n{sentence}"


def table1(rows: pd.DataFrame) -> str:
    """What the paper's Table 1 compares, as measured."""
    lines = []
    for data, part in summarise(rows).groupby("data", sort=False):
        unit = float(part.loc[part["method"] == "naive", "seconds"].iloc[0])
        for row in part.to_dict("records"):
            lines.append(
                (
                    heading(str(data), None),
                    row["method"],
                    _certified(row),
                    _plus_minus(row, "coverage"),
                    f"{row['models_trained']:.0f}",
                    f"{row['fit_seconds'] / unit:.1f}",
                    f"{row['predict_seconds'] / unit:.1f}",
                )
            )
    measured = ("certified", "coverage", "networks trained", "fit ÷ naive", "predict ÷ naive")
    return markdown(("data", "method", *measured), lines)


# Choices: many methods on the same rows. Trials of one number have the same rows, so scores are
# compared trial by trial.

ONE_NETWORK = "lazyknife_public"  # what the estimator uses where models do not choose
CELL = ["data", "transform", "n"]


def paired(part: pd.DataFrame, method: str, other: str) -> tuple[float, float]:
    """Mean ratio of two methods' scores over the trials, and its standard error."""
    scores = part.pivot_table(index="trial", columns="method", values="score")
    ratios = scores[method] / scores[other]
    return float(ratios.mean()), float(ratios.sem())


# Many kinds of tables. A mean is over the sets that all methods of its column have; scores are in
# standard deviations of y.

METHODS = (DEFAULT, *STRONG, *NATIVE)
ALPHA = 0.1
README = {
    DEFAULT: "`LazyJackknifeRegressor()`, raw columns",
    "mapie_cv_gp": "CV+ around a Gaussian process with a length scale for each feature (MAPIE)",
    "mapie_cv_extratrees": "CV+ around extra trees (MAPIE)",
    "mapie_cv_boosting5": "CV+ around gradient boosting (MAPIE)",
    "mapie_cv_forest": "CV+ around a random forest (MAPIE)",
}


def by_set(rows: pd.DataFrame, measure: str) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """Part, n, and a frame of means over trials: a line for each set, a column for each method."""
    rows = rows.assign(
        part=rows["data"].map(part_of),
        set=[heading(*pair) for pair in zip(rows["data"], rows["transform"], strict=True)],
    )
    for (n, name), part in rows.groupby(["n", "part"]):
        found = part.pivot_table(index="set", columns="method", values=measure, sort=False)
        yield str(name), int(n), found[[method for method in METHODS if method in found]]


def against_lines(rows: pd.DataFrame, sets: str = "reporting") -> Table:
    """The default's score over that of each other method, and on how many sets it is better.

    By default only on the sets that had no part in choosing the default.
    """
    methods = [method for method in METHODS if method in {*rows["method"]} - {DEFAULT}]
    heads, lines = ["method"], [[method] for method in methods]
    for name, n, found in by_set(rows, "score"):
        if name != sets:
            continue
        heads.append(f"n = {n:,}")
        for line in lines:
            if not {DEFAULT, line[0]} <= {*found}:
                line.append(NONE)
                continue
            ratios = (found[DEFAULT] / found[line[0]]).dropna()
            wins = f"{(ratios < 1).sum()}/{len(ratios)}"
            line.append(f"{ratios.mean():.2f} ± {ratios.sem():.2f}, {wins}")
    return tuple(heads), [tuple(line) for line in lines]


def set_lines(rows: pd.DataFrame, sets: str = "reporting") -> Table:
    """The default's score on each of these sets, and its ratio to the best peer's."""
    cells: dict[str, dict[int, str]] = {}
    for name, n, found in by_set(rows, "score"):
        if name != sets:
            continue
        for title, scores in found.reindex(columns=[*METHODS]).iterrows():
            own, peers = scores[DEFAULT], scores.drop(DEFAULT).min()
            text = NONE if own != own else f"{own:.3g} ({own / peers:.2f})"
            cells.setdefault(str(title), {})[n] = text
    sizes = sorted({n for found in cells.values() for n in found})
    lines = [(title, *(found.get(n, NONE) for n in sizes)) for title, found in cells.items()]
    return ("set", *(f"n = {n:,}" for n in sizes)), lines


def behind_sentence(rows: pd.DataFrame, margin: float = 0.02) -> str:
    """Name the sets on which the default is further than this behind the best peer."""
    cells: dict[str, list[str]] = {}
    count = 0
    for _, n, found in by_set(rows, "score"):
        for title, scores in found[found[DEFAULT].notna()].iterrows():
            ratio = scores[DEFAULT] / scores.drop(DEFAULT).min()
            count += 1
            if ratio > 1 + margin:
                cells.setdefault(str(title), []).append(f"{ratio:.2f} at {n:,}")
    behind = sum(map(len, cells.values()))
    listed = "; ".join(f"{title} ({', '.join(each)})" for title, each in cells.items())
    return (
        f"In {count - behind} of {count} cells (a set and n) the default is ahead of the best "
        f"peer, chosen with hindsight, or at most {margin:.0%} behind. In the others: "
        f"{listed or 'none'}.\n"
    )


def level_lines(rows: pd.DataFrame) -> Table:
    """On frames, at each level: the default's score over each other's, and its own coverage."""
    heads: tuple[str, ...] = ()
    lines: Lines = []
    for alpha, part in sorted(rows.groupby("alpha"), reverse=True):
        aim = f"{1 - float(alpha):.0%}"
        (_, *sizes), found = against_lines(part, "frames")
        heads = ("aim", "method", *sizes)
        own = part[part["method"] == DEFAULT].groupby("n")["coverage"].mean()
        lines += [(aim, *line) for line in found]
        lines.append((aim, "coverage of the default", *(f"{share:.3f}" for share in own)))
    return heads, lines


def readme_lines(rows: pd.DataFrame) -> Table:
    """Mean scores on the sets that had no part in choosing the default."""
    found = {n: part.dropna() for name, n, part in by_set(rows, "score") if name == "reporting"}
    found = {n: part for n, part in found.items() if {*README} <= {*part}}
    heads = ("mean interval score, alpha = .1", *(f"n = {n:,}" for n in found))
    lines = [
        (words, *(f"{part[method].mean():.2f}" for part in found.values()))
        for method, words in README.items()
    ]
    return heads, lines


# Numbers that papers report, beside those of the same data, splits and levels here.

TAILOR, PRINSTER = "Tailor et al. 2025", "Prinster et al. 2022"


class Reported(NamedTuple):
    """What a paper reports of a method at 90 %."""

    source: str
    data: str
    method: str
    coverage: float
    width: float


REPORTED = (
    Reported(TAILOR, "boston", "Gauss-Newton full conformal, studentised", 0.905, 9.15),
    Reported(TAILOR, "boston", "split conformal", 0.896, 10.63),
    Reported(TAILOR, "boston", "conformalised quantile regression", 0.901, 11.69),
    # Means over trials 0, 1 and 2 of the file of results in the authors' repository without shift.
    Reported(PRINSTER, "airfoil", "jackknife+ of forests", 0.930, 12.33),
    Reported(PRINSTER, "airfoil", "jackknife-minmax of forests", 0.983, 16.59),
    Reported(PRINSTER, "airfoil", "CV+ of forests", 0.932, 12.63),
    Reported(PRINSTER, "airfoil", "split conformal, forest", 0.881, 13.20),
)


def reported(data: str) -> list[Reported]:
    """Return what papers report for a data set."""
    return [found for found in REPORTED if found.data == data]


def boston_lines(rows: pd.DataFrame) -> Table:
    """Coverage and width of each method at each level."""
    lines: Lines = [
        (each.method, each.source, f"{each.coverage:.3f}, {each.width:.4g}", NONE, NONE, NONE)
        for each in reported("boston")
    ]
    own = summarise(rows[rows["data"] == "boston"])
    levels = sorted(own["alpha"].unique(), reverse=True)
    for method, part in own.groupby("method", sort=False):
        found = {row["alpha"]: row for row in part.to_dict("records")}
        cells = [
            f"{row['coverage']:.3f}, {row['width']:#.3g} ± {row['width_se']:.1g}" if row else NONE
            for row in map(found.get, levels)
        ]
        certified = _certified(found[levels[0]], NONE)
        lines.append((in_words(str(method)), "here", *cells, certified))
    heads = [f"{100 * (1 - level):.0f} %: coverage, width" for level in levels]
    return ("method", "from", *heads, "certified at 90 %"), lines


def boston_sentence(rows: pd.DataFrame) -> str:
    """Say how the default and its exact full conformal form stand at 90 %."""
    at = rows[(rows["data"] == "boston") & (rows["alpha"] == rows["alpha"].max())]
    means = at.groupby("method", sort=False)[["coverage", "width", "score", "certified"]].mean()
    full = next(name for name in CERTIFYING if name.endswith("full"))
    others = means.drop([DEFAULT, *CERTIFYING])
    narrowest, best = others["width"].idxmin(), others["score"].idxmin()
    theirs = min(each.width for each in reported("boston"))
    own, exact = means.loc[DEFAULT], means.loc[full]
    return (
        f"At 90 % the default's mean width is {own['width']:.2f}, {own['width'] / theirs:.2f} of "
        f"the narrowest published one ({theirs:.2f}), at coverage {own['coverage']:.3f}. "
        f"Full conformal prediction that certifies {exact['certified']:.3f} has width "
        f"{exact['width']:.2f} at coverage {exact['coverage']:.3f}. The narrowest peer run here is "
        f"{in_words(str(narrowest))} ({others['width'].min():.2f}); by the interval score, which "
        f"counts misses too, the best peer is {in_words(str(best))} ({others['score'].min():.1f}, "
        f"the default {own['score']:.1f}).\n"
    )


def _from(study: str, make: Callable[[pd.DataFrame], str | Table]) -> Callable[[Path], str]:
    """A text, or a table as Markdown, from the rows of a study."""

    def made(folder: Path) -> str:
        found = make(read_rows(folder / f"{study}.csv"))
        return found if isinstance(found, str) else markdown(*found)

    return made


SPECIAL: dict[str, Callable[[Path], str]] = {
    "verdicts": lambda folder: verdict_table(verdicts(paper_rows(folder))),
    "table1": _from("table1", table1),
    "published_verdict": _from("published", boston_sentence),
    "published_boston": _from("published", boston_lines),
    "readme": _from("tables", readme_lines),
    "tables_against": _from("tables", against_lines),
    "tables_sets": _from("tables", set_lines),
    "tables_behind": _from("tables", behind_sentence),
    "frames_sets": _from("frames", lambda rows: set_lines(rows[rows["alpha"] == ALPHA], "frames")),
    "frames_against": _from("frames", level_lines),
}
