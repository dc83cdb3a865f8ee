"""Do rows without labels narrow the intervals? 100 labelled rows, up to 50,000 without labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

import lazyknife as lk
from lazyknife.base import Public
from lazyknife.plots import plot_methods, save_figure, style

from ..datasets import load
from .autoencoding import Autoencoded
from .shared import ALPHA, keep, means, measure

SPLITS, LABELLED = 15, 100
FIRST = 100  # seed of the first split; objectives were compared on splits 0 to 9
MEASURES = ("coverage", "width", "score", "seconds", "certified")


PLAIN = lk.mlp((64, 64))


def denoising(features: int) -> nn.Module:
    """The usual network; while it is trained, it sees only 80 % of each row's features."""
    return nn.Sequential(nn.Dropout(0.2), *PLAIN(features))


SHARED: dict[str, Any] = {"network": PLAIN, "alpha": ALPHA, "widths": "constant", "device": "cpu"}
# Every method gets the same rows; the first is what the others are measured against.
METHODS: dict[str, dict[str, Any]] = {
    "random start": {"base": Public()},
    "random start, standardized": {"base": Public(), "scaling": "standardize"},
    "random start, last layer": {"base": Public(), "parameters": "last"},
    "autoencode": {"base": Autoencoded()},
    "autoencode, standardized": {"base": Autoencoded(), "scaling": "standardize"},
    "autoencode, last layer": {"base": Autoencoded(), "parameters": "last"},
    "autoencode, denoising": {"base": Autoencoded(), "network": denoising},
    "linear part, random start": {"base": Public(), "network": lk.mlp((64, 64), skip=True)},
    "linear part, autoencode": {"base": Autoencoded(), "network": lk.mlp((64, 64), skip=True)},
}


class Case(NamedTuple):
    """Rows to split: ``LABELLED`` with labels, ``new`` to predict, the rest without labels.

    With ``new`` None all the rest is to be predicted, and is the pool.
    """

    title: str
    rows: Callable[[], tuple[np.ndarray, np.ndarray]]
    new: int | None

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices of labelled rows, rows to predict and rows without labels."""
        order = np.random.default_rng(seed).permutation(len(self.rows()[1]))
        end = len(order) if self.new is None else LABELLED + self.new
        return order[:LABELLED], order[LABELLED:end], order[end:]


def real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A real data set, its features brought to a common order of size by a fixed map."""
    data = load(name, "symlog")
    return data.X, data.y


CASES = (
    Case("BlogFeedback", partial(real, "blog_feedback"), new=2297),
    Case("MEPS 2016, panel 21", partial(real, "meps_2016_panel21"), new=2000),
    Case("Communities and Crime", partial(real, "communities"), new=None),
)


def run(cases: Sequence[Case], splits: int) -> pd.DataFrame:
    """One row for each data set, split and method."""
    return pd.DataFrame(
        {"data": case.title, "method": name, "split": seed, "unlabelled": count, **measured}
        for case in cases
        for seed in range(FIRST, FIRST + splits)
        for name, count, measured in run_split(case, seed)
    )


def run_split(case: Case, seed: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    X, y = case.rows()
    labelled, new, others = case.split(seed)
    without = {"X_unlabeled": X[others]} if len(others) else {"X_pool": X[new]}
    count = len(next(iter(without.values())))
    for name, settings in METHODS.items():
        model = lk.LazyJackknifeRegressor(**SHARED | settings, random_state=seed)
        rows = X[labelled], y[labelled], X[new], y[new]
        yield name, count, measure(model, *rows, clock=time.process_time, **without)


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the splits, in the rows' order.

    ``gain`` is by how many per cent a score is below the first method's on the same split.
    """
    first = rows[rows["method"] == next(iter(METHODS))].set_index(["data", "split"])["score"]
    paired = first.loc[list(zip(rows["data"], rows["split"], strict=True))].to_numpy()
    rows = rows.assign(gain=100 * (1 - rows["score"] / paired))
    return means(rows, ["data", "unlabelled", "method"], [*MEASURES, "gain"])


def draw(rows: pd.DataFrame) -> Figure:
    """How much better the others' scores are, a panel for each data set."""
    summary = summarise(rows)
    titles = summary["data"].unique()
    with style():
        figure = Figure(figsize=(9, 2.6), layout="constrained")
        axes = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
        for ax, title in zip(axes, titles, strict=True):
            part = summary[summary["data"] == title].iloc[1:]
            plot_methods(
                part["method"].tolist(),
                part["gain"],
                part["gain_se"],
                label="better than a random start by (%)",
                target=0.0,
                ax=ax,
            )
            ax.set_title(title)
    return figure


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and the figure."""
    rows = keep(rows, docs / "unlabelled" / "rows.csv")
    save_figure(draw(rows), docs / "unlabelled" / "score.svg")


def main(docs: Path) -> None:
    torch.set_num_threads(1)  # times of one thread
    write(run(CASES, SPLITS), docs)
