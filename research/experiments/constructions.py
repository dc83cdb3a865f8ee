"""What certificates of 1 − alpha cost: plus, plus at alpha/2, full, minmax, split conformal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lazyknife as lk

from ..datasets import TABLES, load
from ..pages import fill_file, markdown
from .shared import ALPHA, keep

DRAWS = {100: 4, 400: 1}  # by the number of rows
NEW_ROWS, FEWEST = 300, 100  # new rows, at most and at least
TITLES = {
    "plus": '`"plus"`',
    "plus, alpha/2": '`"plus"` at alpha/2',
    "full": '`"full"`',
    "minmax": '`"minmax"`',
    "split": '`"split"`',
}


def run_table(data: str, n: int, draw: int = 0) -> Iterator[dict[str, Any]]:
    """A row for each method: one table, n of its rows to train on."""
    whole, rng = load(data), np.random.default_rng([draw, n])
    order = rng.permutation(len(whole.y))[: n + NEW_ROWS]
    (X, X_new), (y, y_new) = (np.split(part[order], [n]) for part in (whole.X, whole.y))
    if len(y_new) < FEWEST:
        return
    for name in TITLES:
        construction, _, half = name.partition(", ")
        alpha = ALPHA / 2 if half else ALPHA
        terms: dict[str, Any] = {"alpha": alpha, "random_state": draw}
        model = lk.LazyJackknifeRegressor(construction=construction, **terms)
        start = time.process_time()
        found = model.fit(X, y).predict_interval(X_new)
        seconds = time.process_time() - start
        beyond = np.maximum(np.maximum(found.lower - y_new, y_new - found.upper), 0)
        spread = y_new.std()
        yield {
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
    """All tables and numbers of rows, one after another."""
    every = (
        (data, n, draw) for n, count in DRAWS.items() for draw in range(count) for data in TABLES
    )
    return pd.DataFrame(row for each in every for row in run_table(*each))


def table(rows: pd.DataFrame) -> str:
    """A line for each method and number of rows; score and time are ratios to plus."""
    keys = ["data", "n", "draw"]
    plus = rows[rows["method"] == "plus"].set_index(keys)
    own = rows.set_index(keys)
    ratios = {name: (own[name] / plus[name]).to_numpy() for name in ("width", "score", "seconds")}
    rows = rows.assign(**{f"{name}_ratio": values for name, values in ratios.items()})
    lines = []
    for n, part in rows.groupby("n"):
        for name, title in TITLES.items():
            each = part[part["method"] == name]
            mean = np.exp(np.log(each[["width_ratio", "score_ratio"]]).mean())
            times = each["seconds_ratio"]
            lines.append(
                (
                    f"{n}, {len(each)} fits",
                    title,
                    f"{each['certified'].mean():.3f}",
                    f"{each['coverage'].mean():.3f}",
                    f"{mean['width_ratio']:.2f}",
                    f"{mean['score_ratio']:.2f}",
                    f"{times.median():.2g} ({times.min():.2g} to {times.max():.2g})",
                )
            )
    heads = ("rows", "method", "certified", "coverage", "width", "interval score", "time")
    return markdown(heads, lines)


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and the table."""
    rows = keep(rows, docs / "trade" / "constructions.csv")
    fill_file(docs / "settings.md", {"constructions": table(rows)})


def main(docs: Path) -> None:
    write(run(), docs)
