"""Put certified intervals on a network trained on one population, for rows of another.

Communities and Crime, and MEPS panel 21, by census region: a network is trained on three regions
and meets the fourth with 150 labelled rows of it. All methods see the same 150 rows, and are judged
on other rows of that region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.preprocessing import StandardScaler
from torch import nn

import lazyknife as lk
from lazyknife.compute import track
from lazyknife.plots import plot_methods, save_figure, style

from ..datasets import DATASETS, load
from ..datasets.files import locate
from ..pages import fill_file, markdown
from .shared import ALPHA, Conformal, Row, keep, lazy, measure, methods_table, summary, trained

ROWS, TEST_ROWS, DRAWS = 150, 2000, 20
NETWORK = lk.mlp((64, 64))
FINE_STEP = 1e-4  # to train a network further; the usual 1e-3 is among the methods too

# The census bureau's regions, in the order of the survey's codes, by the states' FIPS codes.
REGIONS: dict[str, tuple[int, ...]] = {
    "Northeast": (9, 23, 25, 33, 34, 36, 42, 44, 50),
    "Midwest": (17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55),
    "South": (1, 5, 10, 11, 12, 13, 21, 22, 24, 28, 37, 40, 45, 47, 48, 51, 54),
    "West": (2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56),
}


class Population(NamedTuple):
    """Rows with the region that each belongs to."""

    title: str
    X: np.ndarray
    y: np.ndarray
    region: np.ndarray


def communities() -> Population:
    """Communities and Crime; a community's region is that of its state."""
    data, path = load("communities"), locate(DATASETS["communities"])
    header = None if path.suffix == ".data" else 0
    states = pd.read_csv(path, header=header, usecols=[0]).to_numpy()[:, 0]
    region_of = {state: name for name, members in REGIONS.items() for state in members}
    return Population(
        "Communities", data.X, data.y, np.array([region_of[state] for state in states])
    )


def meps() -> Population:
    """MEPS panel 21; the region's dummies are no features here."""
    data = load("meps_2016_panel21")
    columns = [data.feature_names.index(f"REGION={k}") for k in range(1, 5)]
    region = np.array(list(REGIONS))[data.X[:, columns].argmax(axis=1)]
    return Population("MEPS panel 21", np.delete(data.X, columns, axis=1), data.y, region)


def pretrain(X: np.ndarray, y: np.ndarray, epochs: int = 20) -> nn.Module:
    """Train a network as anybody would; epochs and decay were chosen on rows of the source."""
    inputs, target = (torch.as_tensor(values, dtype=torch.float32) for values in (X, y))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = NETWORK(X.shape[1])
        nn.init.constant_(network[-1].bias, target.mean().item())
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1.0)
        for _ in range(epochs):
            for batch in torch.randperm(len(X)).split(32):
                optimizer.zero_grad()
                (network(inputs[batch])[:, 0] - target[batch]).square().mean().backward()
                optimizer.step()
    return network.eval()


Methods = dict[str, Callable[[nn.Module, int], Any]]

SPLIT, CV = lk.SplitConformalRegressor, lk.CVPlusRegressor
# A network that is trained further predicts y itself, not its deviation from the mean of the new
# rows: no intercept.
FURTHER: dict[str, Any] = {"lr": FINE_STEP, "fit_intercept": False}

# From the pretrained network and a seed to an estimator.
METHODS: Methods = {
    "as it is, conformal": lambda network, seed: Conformal(network),
    "split, from scratch": lambda network, seed: trained(SPLIT, NETWORK, seed),
    "CV+, from scratch": lambda network, seed: trained(CV, NETWORK, seed),
    "split, trained further": lambda network, seed: trained(SPLIT, network, seed, **FURTHER),
    "CV+, trained further": lambda network, seed: trained(CV, network, seed, **FURTHER),
    "CV+, trained further, lr 1e-3": lambda network, seed: trained(
        CV, network, seed, fit_intercept=False
    ),
    "lazyknife, random start": lambda network, seed: lazy(NETWORK, seed),
    "lazyknife, all": lambda network, seed: lazy(network, seed),
    "lazyknife, last": lambda network, seed: lazy(network, seed, parameters="last"),
    "lazyknife, all, minmax": lambda network, seed: lazy(network, seed, construction="minmax"),
    "lazyknife, all, absolute": lambda network, seed: lazy(network, seed, widths="constant"),
}


def adapt(
    population: Population, target: str, draws: int, epochs: int = 20, methods: Methods = METHODS
) -> Iterator[Row]:
    """Train on the other regions, then run all methods on random labelled rows of the target."""
    inside = population.region == target
    # The source's statistics: the labelled and the new rows have no part in them.
    scaler = StandardScaler().fit(population.X[~inside])
    network = pretrain(scaler.transform(population.X[~inside]), population.y[~inside], epochs)
    X, y = scaler.transform(population.X[inside]), population.y[inside]
    for number in range(draws):
        rows = np.random.default_rng(number).permutation(len(y))
        train, test = rows[:ROWS], rows[ROWS : ROWS + TEST_ROWS]
        for name, make in methods.items():
            where = {
                "data": population.title,
                "target_transform": target,
                "draw": number,
                "method": name,
            }
            yield where | measure(make(network, number), X[train], y[train], X[test], y[test])


def run(populations: Iterable[Population], targets: Iterable[str], draws: int) -> pd.DataFrame:
    """Rows of all targets; the first fit of a process is slower, and is not counted."""
    targets, rows = list(targets), []
    for population in populations:
        next(adapt(population, targets[0], 1, epochs=1))
        for target in targets:
            jobs = adapt(population, target, draws)
            title = f"{population.title}, {target}"
            rows += track(jobs, title, draws * len(METHODS), True)
    return pd.DataFrame(rows)


# The columns of the table over all regions, by a short name.
COMPARED = {
    "as it is": "as it is, conformal",
    "CV+, from scratch": "CV+, from scratch",
    "CV+, trained further": "CV+, trained further",
    "lazyknife, random start": "lazyknife, random start",
    "lazyknife, all": "lazyknife, all",
    "lazyknife, last": "lazyknife, last",
    "lazyknife, minmax": "lazyknife, all, minmax",
    "lazyknife, absolute": "lazyknife, all, absolute",
}


def differences(rows: pd.DataFrame, method: str, other: str) -> pd.DataFrame:
    """Score of a method less that of another on the same draw: mean and standard error."""
    scores = rows.pivot_table("score", ["data", "target_transform", "draw"], "method")
    less = (scores[method] - scores[other]).groupby(["data", "target_transform"], sort=False)
    return less.agg(["mean", "sem"])


def regions_table(rows: pd.DataFrame) -> str:
    """Interval scores of the main methods for every target, the least in bold."""
    means = rows.pivot_table("score", ["data", "target_transform"], "method", sort=False)
    gain = differences(rows, "lazyknife, all", "as it is, conformal")
    tuned = differences(rows, "lazyknife, all", "CV+, trained further")
    lines = []
    for place in means.index:
        scores = means.loc[place, list(COMPARED.values())]
        cells = [f"{score:.3f}" for score in scores]
        cells = [f"**{cell}**" if float(cell) == round(scores.min(), 3) else cell for cell in cells]
        signs = [f"{d.loc[place, 'mean']:+.3f} ± {d.loc[place, 'sem']:.3f}" for d in (gain, tuned)]
        lines.append((*place, *cells, *signs))
    gaps = ("all less as it is", "all less CV+, trained further")
    return markdown(("data", "new region", *COMPARED, *gaps), lines)


def draw(rows: pd.DataFrame) -> Figure:
    """Coverage and interval score of all methods, a line of panels for each data set."""
    titles = list(dict.fromkeys(rows["data"]))
    with style():
        figure = Figure(figsize=(7, 2.3 * len(titles)), layout="constrained")
        axes = figure.subplots(len(titles), 2, squeeze=False)
        for line, title in zip(axes, titles, strict=True):
            table = summary(rows[rows["data"] == title])
            names = list(table["method"])
            for ax, column, goal in zip(
                line, ("coverage", "score"), (1 - ALPHA, None), strict=True
            ):
                label = "interval score (lower is better)" if goal is None else column
                plot_methods(
                    names, table[column], table[f"{column}_se"], label=label, target=goal, ax=ax
                )
            line[0].set_title(title)
            line[1].set_yticklabels([])
    return figure


def page_tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of the page, by the names of their marks."""
    south, unit = rows[rows["target_transform"] == "South"], "CV+, from scratch"
    return {
        "pretrained": methods_table(south[south["data"] == "Communities"], unit, 3),
        "pretrained-meps": methods_table(south[south["data"] == "MEPS panel 21"], unit, 2),
        "regions": regions_table(rows),
    }


def main(docs: Path) -> None:
    torch.set_num_threads(1)
    folder = docs / "pretrained"
    rows = keep(run((communities(), meps()), REGIONS, DRAWS), folder / "rows.csv", "%.6f")
    save_figure(draw(rows[rows["target_transform"] == "South"]), folder / "pretrained.svg")
    fill_file(docs / "pretrained.md", page_tables(rows))
