"""What certificates of 1 − alpha cost: plus, plus at alpha/2, full, minmax, split conformal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lazyknife as lk
from lazyknife.compute import side_by_side

from ..datasets import TABLES
from ..pages import fill_file, markdown
from ..study.sets import REPORTING, rows_of
from ..study.trial import load
from .shared import ALPHA, keep

DRAWS = {100: 27, 400: 12, 4000: 4}  # by the number of rows
DATA = (*TABLES, *REPORTING)
NEW_ROWS, FEWEST = 300, 100  # new rows, at most and at least
TITLES = {
    "plus": '`"plus"`',
    "plus, alpha/2": '`"plus"` at alpha/2',
    "full": '`"full"`',
    "minmax": '`"minmax"`',
    "split": '`"split"`',
}


def cells() -> list[tuple[str, int, int, str]]:
    """Data, rows, draw, method: those that leave new rows enough; the longest first."""
    return [
        (data, n, draw, name)
        for n, count in reversed(DRAWS.items())
        for data in DATA
        if rows_of(data) >= n + FEWEST
        for draw in range(count)
        for name in TITLES
    ]


def run_cell(data: str, n: int, draw: int, name: str) -> dict[str, Any]:
    """One method on n rows of one set, the same for all methods of a draw."""
    whole, rng = load(data, None, draw), np.random.default_rng([draw, n])
    order = rng.permutation(len(whole.y))[: n + NEW_ROWS]
    (X, X_new), (y, y_new) = (np.split(part[order], [n]) for part in (whole.X, whole.y))
    construction, _, half = name.partition(", ")
    alpha = ALPHA / 2 if half else ALPHA
    terms: dict[str, Any] = {"alpha": alpha, "random_state": draw}
    model = lk.LazyJackknifeRegressor(construction=construction, **terms)
    start = time.process_time()
    found = model.fit(X, y).predict_interval(X_new)
    seconds = time.process_time() - start
    beyond = np.maximum(np.maximum(found.lower - y_new, y_new - found.upper), 0)
    spread = y_new.std()
    return {
        "data": data,
        "n": n,
        "draw": draw,
        "method": name,
        "new_rows": len(y_new),
        "certified": model.certificate_.coverage,
        "coverage": found.covers(y_new).mean(),
        "width": found.width.mean() / spread,
        "score": (found.width + 2 / ALPHA * beyond).mean() / spread,
        "seconds": seconds,
    }


def run() -> pd.DataFrame:
    """All cells, each on one thread."""
    rows = pd.DataFrame(side_by_side(run_cell, cells(), jobs=-1))
    return rows.sort_values(["n", "data", "draw", "method"], ignore_index=True)


def table(rows: pd.DataFrame) -> str:
    """A line for each method and number of rows; width, score and time are ratios to plus."""
    keys = ["data", "n", "draw"]
    measures = ["width", "score", "seconds"]
    plus = rows.loc[rows["method"] == "plus", [*keys, *measures]]
    rows = rows.merge(plus, on=keys, suffixes=("", "_plus"), validate="many_to_one")
    for name in measures:
        rows[f"{name}_ratio"] = rows[name] / rows[f"{name}_plus"]
    lines = []
    for n, part in rows.groupby("n"):
        for name, title in TITLES.items():
            each = part[part["method"] == name]
            ratio = [_mean_ratio(each[column]) for column in ("width_ratio", "score_ratio")]
            times = each["seconds_ratio"]
            lines.append(
                (
                    f"{n:,}, {len(each)} fits",
                    title,
                    f"{each['certified'].mean():.3f}",
                    f"{each['coverage'].mean():.3f}",
                    *ratio,
                    f"{times.median():.2g} ({times.min():.2g} to {times.max():.2g})",
                )
            )
    heads = ("rows", "method", "certified", "coverage", "width", "interval score", "time")
    return markdown(heads, lines)


def _mean_ratio(ratios: pd.Series) -> str:
    """Geometric mean and its standard error, and how many are infinite."""
    finite = np.log(ratios[np.isfinite(ratios)])
    mean, infinite = np.exp(finite.mean()), len(ratios) - len(finite)
    return f"{mean:.3f} ± {mean * finite.sem():.3f}" + f", {infinite} infinite" * (infinite > 0)


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and the table."""
    rows = keep(rows, docs / "trade" / "constructions.csv")
    fill_file(docs / "settings.md", {"constructions": table(rows)})


def main(docs: Path) -> None:
    write(run(), docs)
