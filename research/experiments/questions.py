"""What users ask, on real data and beside peers: rows, tables and figures.

NGBoost, CatBoost and crepes take part if they are installed; rows of those that are not are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold

import lazyknife as lk
from lazyknife.compare import PROCESS
from lazyknife.plots import plot_intervals, save_figure, style

from ..pages import RESULTS, fill_file, markdown
from ..study.trial import load
from . import several
from .shared import ALPHA, keep

LEVELS = np.arange(1, 20) / 20
SETS = {"diabetes": 200, "wage": 200, "bikeshare": 200}
TRIALS = {"distributions": 2, "diabetes": 10, "communities": 8, "wage": 4}
TILT = 0.825  # of Prinster et al. (2022) on Communities and Crime
Rows = Iterator[dict[str, Any]]


def default() -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(alpha=ALPHA, random_state=0, device="cpu")


def parts(name: str, n: int, trial: int, most: int = 500) -> tuple[np.ndarray, ...]:
    """Training rows and new ones, y in units of its standard deviation."""
    data = load(name, None, 0)
    order = np.random.default_rng([trial, 7]).permutation(len(data.y))
    X, y = data.X[order], (data.y / data.y.std())[order]
    return X[:n], y[:n], X[n : n + most], y[n : n + most]


def gaussian_process(X: Any, y: Any) -> Any:
    return clone(PROCESS).set_params(maternprocess__random_state=0).fit(X, y)


def by_gaussian_process(X: Any, y: Any, new: Any) -> Any:
    mean, error = gaussian_process(X, y).predict(new, return_std=True)
    return mean[:, None] + error[:, None] * norm.ppf(LEVELS)


def by_folds(X: Any, y: Any, new: Any) -> Any:
    """CV+ of a Gaussian process: the values of ten models plus their errors."""
    values = []
    for kept, left in KFold(10, shuffle=True, random_state=0).split(X):
        model = gaussian_process(X[kept], y[kept])
        values.append(model.predict(new)[:, None] + (y[left] - model.predict(X[left])))
    return np.quantile(np.concatenate(values, axis=1), LEVELS, axis=1).T


def by_ngboost(X: Any, y: Any, new: Any) -> Any:
    from ngboost import NGBRegressor

    found = NGBRegressor(verbose=False, random_state=0).fit(X, y).pred_dist(new)
    return np.stack([found.ppf(level) for level in LEVELS], axis=1)


def by_catboost(X: Any, y: Any, new: Any) -> Any:
    from catboost import CatBoostRegressor

    loss = "MultiQuantile:alpha=" + ",".join(f"{level:.2f}" for level in LEVELS)
    terms = {"verbose": False, "random_seed": 0, "thread_count": 1, "allow_writing_files": False}
    return np.sort(CatBoostRegressor(loss_function=loss, **terms).fit(X, y).predict(new), axis=1)


def by_crepes(X: Any, y: Any, new: Any) -> Any:
    """A conformal predictive system from errors of trees that have not seen a row."""
    from crepes import WrapRegressor

    model = WrapRegressor(RandomForestRegressor(500, oob_score=True, random_state=0))
    model.fit(X, y)
    model.calibrate(X, y, oob=True, cps=True)
    return model.predict_percentiles(new, higher_percentiles=list(100 * LEVELS))


def by_lazyknife(X: Any, y: Any, new: Any) -> Any:
    return default().fit(X, y).predict_distribution(new).quantile(LEVELS.tolist())


METHODS: dict[str, Callable[..., Any]] = {
    "lazyknife": by_lazyknife,
    "CV+, Gaussian process": by_folds,
    "Gaussian process": by_gaussian_process,
    "NGBoost": by_ngboost,
    "CatBoost, quantiles": by_catboost,
    "crepes, forest": by_crepes,
}


def distributions(methods: list[str]) -> Rows:
    """CRPS, as the mean of twice the quantile loss, and the quantile at .9 as an upper limit."""
    at = len(LEVELS) - 2
    for name, n in SETS.items():
        for trial in range(TRIALS["distributions"]):
            X, y, new, truth = parts(name, n, trial)
            for method in methods:
                over = truth[:, None] - METHODS[method](X, y, new)
                loss = np.maximum(LEVELS * over, (LEVELS - 1) * over)
                terms = {"score": 2 * loss.mean(), "loss": loss[:, at].mean()}
                coverage = (over[:, at] <= 0).mean()
                yield row("distributions", name, n, trial, method, coverage=coverage, **terms)


def row(question: str, data: str, n: int, trial: int, method: str, **measured: Any) -> Any:
    names = ("group", "coverage", "width", "finite", "score", "loss")
    head = {"question": question, "data": data, "n": n, "trial": trial, "method": method}
    return head | {name: measured.get(name, np.nan) for name in names}


def labels(name: str, X: Any) -> Any:
    """Groups of rows: the sexes, or the five levels of education."""
    if name == "diabetes":
        return np.where(X[:, 1] == 1, "sex 1", "sex 2")
    names = load("wage", None, 0).feature_names
    held = X[:, [k for k, each in enumerate(names) if each.startswith("education")]]
    return np.array(["no degree", *EDUCATION])[
        np.where(held.any(axis=1), held.argmax(axis=1) + 1, 0)
    ]


EDUCATION = ("high school", "some college", "college", "advanced")


def groups() -> Rows:
    """Intervals of one model, those with groups, and those of a model for each group."""
    for name, n in (("diabetes", 120), ("wage", 500)):
        for trial in range(TRIALS[name]):
            X, y, new, truth = parts(name, n, trial, 2000)
            known, asked = labels(name, X), labels(name, new)
            model = default().fit(X, y, groups=known)
            apart = np.empty((2, len(new)))
            for label in np.unique(known):
                alone, those = default().fit(X[known == label], y[known == label]), asked == label
                apart[:, those] = alone.predict_interval(new[those]).to_numpy().T
            for method, (lower, upper) in {
                "without groups": tuple(model.predict_interval(new)),
                "groups": tuple(model.predict_interval(new, groups=asked)),
                "a fit for each": tuple(apart),
            }.items():
                for label in np.unique(asked):
                    those = asked == label
                    inside = ((lower <= truth) & (truth <= upper))[those].mean()
                    terms = {"coverage": inside, "width": (upper - lower)[those].mean()}
                    yield row("groups", name, n, trial, method, group=label, **terms)


def ratio_of(name: str, X: Any) -> Callable[[Any], Any]:
    """Tilts along two principal components as by Prinster et al., or to advanced degrees."""
    if name == "communities":
        turned = PCA(2).fit(X)
        return lambda rows: np.exp(turned.transform(rows) @ [-TILT, TILT])
    return lambda rows: np.where(labels(name, rows) == "advanced", 12.0, 1.0)


def shifts() -> Rows:
    """Training rows as they are, new ones drawn by a ratio of densities."""
    for name, n in (("communities", 200), ("wage", 500)):
        for trial in range(TRIALS[name]):
            data, rng = load(name, None, 0), np.random.default_rng([trial, 9])
            order = rng.permutation(len(data.y))
            old, rest = order[:n], order[n:]
            ratio = ratio_of(name, data.X[old])
            chances = ratio(data.X[rest])
            new = rng.choice(rest, len(rest) // 2, p=chances / chances.sum())
            model = default().fit(data.X[old], data.y[old])
            for method, weights in {"none": None, "known": ratio, "estimate": "estimate"}.items():
                found = model.predict_interval(data.X[new], weights=weights)
                terms = {"coverage": found.covers(data.y[new]).mean()}
                terms |= {
                    "width": np.median(found.width),
                    "finite": np.isfinite(found.width).mean(),
                }
                yield row("shift", name, n, trial, method, **terms)


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of docs/evidence.md."""
    every = rows[rows["question"] == "distributions"]
    spread = every.groupby(["method", "data"])[["score", "coverage", "loss"]].mean()
    lines = []
    for method in [each for each in METHODS if each in spread.index]:
        part = spread.loc[method]
        scores = [f"{part.loc[name, 'score']:.3f}" for name in SETS]
        lines.append([method, *scores, *(f"{part[of].mean():.3f}" for of in ("coverage", "loss"))])
    heads = [f"{name}, n = {n}" for name, n in SETS.items()]
    last = ["share of y up to the quantile at .9", "its loss"]
    found = {"questions_distributions": markdown(["method", *heads, *last], lines)}
    every = rows[rows["question"] == "groups"]
    by = every.groupby(["data", "n", "method", "group"], sort=False)[["coverage", "width"]].mean()
    lines = [
        [f"{data}, n = {n}", method, f"{part['coverage'].min():.3f}", f"{part['width'].mean():.3f}"]
        for (data, n, method), part in by.groupby(level=[0, 1, 2], sort=False)
    ]
    heads = ["data", "intervals", "coverage of the worst group", "width, mean of groups"]
    found["questions_groups"] = markdown(heads, lines)
    every = rows[rows["question"] == "shift"]
    by = every.groupby(["data", "n", "method"], sort=False)[["coverage", "width", "finite"]].mean()
    lines = [
        [f"{data}, n = {n}", method, *(f"{value:.3f}" for value in part)]
        for (data, n, method), part in zip(by.index, by.to_numpy(), strict=True)
    ]
    heads = ["data", "weights", "coverage", "median width", "finite"]
    return found | {"questions_shift": markdown(heads, lines)} | several.tables(rows)


def split() -> tuple[lk.LazyJackknifeRegressor, np.ndarray, np.ndarray]:
    """The default fitted to patients, others, and how their disease went on, in sd."""
    X, y, new, truth = parts("diabetes", 200, 0)
    return default().fit(X, y), new, truth


def one_sided(rows: pd.DataFrame, ax: Any) -> None:
    model, new, y = split()
    plot_intervals(model.predict_interval(new, side="upper"), y, ax=ax)


def distribution(rows: pd.DataFrame, ax: Any) -> None:
    model, new, y = split()
    model.predict_distribution(new).plot(y, ax=ax)


def by_group(rows: pd.DataFrame, ax: Any) -> None:
    """Coverage of wages by education, with one order statistic for all and with one for each."""
    wages = rows[(rows["question"] == "groups") & (rows["data"] == "wage")]
    shares = wages.pivot_table(index="group", columns="method", values="coverage")
    shares = shares.loc[["no degree", *EDUCATION], ["without groups", "groups"]]
    side_by_side(shares, "level of education", ax)


def shifted(rows: pd.DataFrame, ax: Any) -> None:
    """Coverage of new rows that are drawn by another distribution of features."""
    shares = rows[rows["question"] == "shift"].pivot_table(
        index="data", columns="method", values="coverage"
    )
    names = {"none": "no weights", "estimate": "estimated", "known": "known"}
    side_by_side(shares[list(names)].rename(columns=names), "", ax)


def side_by_side(shares: pd.DataFrame, xlabel: str, ax: Any) -> None:
    """Shares side by side, and the level that intervals aim at."""
    step = 0.45 / len(shares.columns)
    for k, (name, column) in enumerate(shares.items()):
        places = np.arange(len(column)) + step * (k - (len(shares.columns) - 1) / 2)
        ax.plot(places, column, "o", ms=8, label=name)
    ax.axhline(1 - ALPHA, color="black", lw=1, ls="--", label="aim")
    ax.set(xlabel=xlabel, ylabel="coverage", ylim=(0.78, 1.0), xlim=(-0.6, len(shares) - 0.4))
    ax.set_xticks(range(len(shares)), shares.index)
    ax.legend(frameon=False, ncols=4, loc="upper center")


def draw(rows: pd.DataFrame, folder: Path) -> None:
    """The figures of the pages that say how to ask."""
    pictures = {each.__name__: each for each in (one_sided, distribution, by_group, shifted)}
    for name, picture in (pictures | several.PICTURES).items():
        with style():
            figure = Figure(figsize=(6, 3.4), layout="constrained")
            picture(rows, figure.subplots())
            save_figure(figure, folder / f"{name}.svg")


def main(docs: Path) -> None:
    path = RESULTS / "questions.csv"
    needs = {"NGBoost": "ngboost", "CatBoost, quantiles": "catboost", "crepes, forest": "crepes"}
    absent = [name for name, module in needs.items() if find_spec(module) is None]
    made = [*distributions([each for each in METHODS if each not in absent]), *groups(), *shifts()]
    made += [each for ask in several.QUESTIONS.values() for each in ask(row)]
    rows = pd.DataFrame(made)
    if path.exists():
        before = pd.read_csv(path)
        rows = pd.concat([rows, before[before["method"].isin(absent)]])
    rows = keep(rows, path)
    fill_file(docs / "evidence.md", tables(rows))
    draw(rows, docs / "questions")
