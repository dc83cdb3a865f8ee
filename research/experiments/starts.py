"""How far mean widths move between seeds on the same rows, by number of random starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import lazyknife as lk

from ..datasets import DataSet, load
from ..pages import fill_file, markdown
from .shared import ALPHA, keep

TABLES = ("auto", "bikeshare", "hitters")
LABELLED, NEW, SEEDS = 100, 200, 5
STARTS = (1, 4, 8, 16, 32)
DEFAULT = "default"
NETWORK = lk.mlp((64, 64), skip=True)


def run(tables: Sequence[DataSet], starts: Sequence[int] = STARTS) -> pd.DataFrame:
    """Mean widths: table, method (the default, or a number of starts), seed, width."""
    rows = []
    for data in tables:
        X, y = data.X, (data.y - data.y.mean()) / data.y.std()
        order = np.random.default_rng(0).permutation(len(y))
        train, new = order[:LABELLED], order[LABELLED : LABELLED + NEW]
        for seed in range(SEEDS):
            for method, model in models(seed, starts).items():
                result = model.fit(X[train], y[train], X_pool=X[new]).predict_interval(X[new])
                width = lk.mean_width(result).value
                rows.append({"table": data.name, "method": method, "seed": seed, "width": width})
    return pd.DataFrame(rows)


def models(seed: int, starts: Sequence[int]) -> dict[str, lk.LazyJackknifeRegressor]:
    """The default, and one network with each number of starts."""
    common = {"alpha": ALPHA, "random_state": seed, "device": "cpu"}
    one = {"network": NETWORK, "scaling": "standardize", **common}
    return {DEFAULT: lk.LazyJackknifeRegressor(**common)} | {
        str(count): lk.LazyJackknifeRegressor(n_starts=count, **one) for count in starts
    }


def moves(rows: pd.DataFrame) -> pd.DataFrame:
    """(Largest − smallest mean width) ÷ mean over seeds: a line a table, a column a method."""
    width = rows.groupby(["table", "method"], sort=False)["width"]
    return ((width.max() - width.min()) / width.mean()).unstack(sort=False)


def table(rows: pd.DataFrame) -> str:
    """Return the moves in percent, as a table of a page."""
    found = moves(rows)
    columns = ["table", *(name if name == DEFAULT else f"n_starts={name}" for name in found)]
    lines = [
        (str(name), *(f"{100 * move:.1f} %" for move in line)) for name, line in found.iterrows()
    ]
    return markdown(columns, lines)


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and, from what a reader of the file finds, the table of the guide."""
    kept = keep(rows.astype({"method": str}), docs / "starts" / "widths.csv")
    fill_file(docs / "default.md", {"starts": table(kept.astype({"method": str}))})


def main(docs: Path) -> None:
    write(run([load(name) for name in TABLES]), docs)
