"""Clusters, outputs, classes, planted errors and plans on real data, beside peers: rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import lazyknife as lk

from ..pages import markdown
from ..study.trial import load
from .shared import ALPHA

Rows = Iterator[dict[str, Any]]
Row = Callable[..., dict[str, Any]]
DAYS = {40: 2}  # clusters of bike rentals, and trials
OUTPUTS = {
    "diabetes": (200, ("s6", "bp")),
    "auto": (150, ("horsepower", "weight")),
    "college": (300, ("PhD", "Expend")),
}
CLASSES = {
    "wine": (load_wine, 60),
    "cancer": (load_breast_cancer, 100),
    "digits": (load_digits, 200),
}
PLANTED = {"diabetes": 200, "auto": 200, "hitters": 200}
TRIALS = {"outputs": 2, "classes": 1, "errors": 2, "plan": 1}
LEVEL = 0.05  # of classes
SHARE, SHIFT = 0.05, 2.0  # of rows whose y is wrong, by so many standard deviations
PLANS = (100, 200, 400, 800)  # rows; of the data that have twice as many and 150 more
PLANNED = ("wage", "bikeshare", "computers", "diamonds", "housing", "college", "auto", "carseats")
PLANNED += ("hitters", "diabetes")


def drawn(name: str, trial: int, kind: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows in a random order, y in units of its standard deviation, and names of columns."""
    data = load(name, None, 0)
    order = np.random.default_rng([trial, kind]).permutation(len(data.y))
    return data.X[order], (data.y / data.y.std())[order], list(data.feature_names)


def default(alpha: float = ALPHA) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(alpha=alpha, random_state=0, device="cpu")


def clusters(row: Row) -> Rows:
    """Bike rentals of new days, from models of some days; days count alike."""
    for count, trials in DAYS.items():
        for trial in range(trials):
            X, y, names = drawn("bikeshare", trial, 21)
            day = X[:, names.index("day")].astype(int)
            days = np.random.default_rng([trial, 22]).permutation(np.unique(day))
            old, new = np.isin(day, days[:count]), np.isin(day, days[-100:])
            truth, weights = y[new], 1 / np.bincount(day[new])[day[new]]
            ends = {
                "clusters": default()
                .fit(X[old], y[old], clusters=day[old])
                .predict_interval(X[new]),
                "single rows": default().fit(X[old], y[old]).predict_interval(X[new]),
            }
            found = {name: tuple(result) for name, result in ends.items()}
            for name, model in {
                "split by cluster, ridge": default(),
                "split by cluster, boosting": HistGradientBoostingRegressor(random_state=0),
            }.items():
                found[name] = split_by_cluster(model, X[old], y[old], day[old], X[new])
            for name, (lower, upper) in found.items():
                inside = (lower <= truth) & (truth <= upper)
                terms = {"coverage": np.average(inside, weights=weights)}
                yield row(
                    "clusters",
                    "bikeshare",
                    count,
                    trial,
                    name,
                    **terms,
                    width=np.average(upper - lower, weights=weights),
                )


def split_by_cluster(model: Any, X: Any, y: Any, labels: Any, new: Any) -> tuple[Any, Any]:
    """Learn from half the clusters; an order statistic of the others' errors, which count alike."""
    names = np.unique(labels)
    learn = np.isin(labels, names[::2])
    errors = np.abs(y[~learn] - model.fit(X[learn], y[learn]).predict(X[~learn]))
    sizes, order = np.bincount(labels[~learn])[labels[~learn]], errors.argsort()
    mass = (1 / sizes)[order].cumsum() / (len(names[1::2]) + 1)
    margin = errors[order][min(np.searchsorted(mass, 1 - ALPHA - 1e-12), len(mass) - 1)]
    point = model.predict(new)
    return point - margin, point + margin


def outputs(row: Row) -> Rows:
    """Boxes of three outputs, and intervals for each at a third of the level."""
    for name, (n, others) in OUTPUTS.items():
        for trial in range(TRIALS["outputs"]):
            X, y, names = drawn(name, trial, 23)
            places = [names.index(each) for each in others]
            Y = np.column_stack([y, X[:, places] / X[:, places].std(axis=0)])
            X = np.delete(X, places, axis=1)
            boxes = default().fit(X[:n], Y[:n]).predict_box(X[n:])
            each = [
                default(ALPHA / Y.shape[1]).fit(X[:n], target[:n]).predict_interval(X[n:])
                for target in Y.T
            ]
            lower, upper = (
                np.stack([getattr(one, end) for one in each], axis=1) for end in ("lower", "upper")
            )
            for method, ends in {
                "boxes": (boxes.lower, boxes.upper),
                "an interval for each": (lower, upper),
            }.items():
                inside = ((ends[0] <= Y[n:]) & (Y[n:] <= ends[1])).all(axis=1)
                width = np.exp(np.log(ends[1] - ends[0]).mean())
                yield row("outputs", name, n, trial, method, coverage=inside.mean(), width=width)


def classes(row: Row) -> Rows:
    """Sets of classes, and those of MAPIE with three classifiers, from the same rows."""
    from mapie.classification import CrossConformalClassifier

    peers = {
        "MAPIE, logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "MAPIE, SVC": make_pipeline(StandardScaler(), SVC(probability=True, random_state=0)),
        "MAPIE, forest": RandomForestClassifier(random_state=0),
    }
    for name, (read, n) in CLASSES.items():
        for trial in range(TRIALS["classes"]):
            X, y = read(return_X_y=True)
            order = np.random.default_rng([trial, 24]).permutation(len(y))
            X, y, new, truth = X[order[:n]], y[order[:n]], X[order[n:]][:300], y[order[n:]][:300]
            found = {}
            for construction in ("plus", "full"):
                model = lk.LazyJackknifeClassifier(
                    network=lk.wide(), construction=construction, alpha=LEVEL, random_state=0
                )
                found[f"lazyknife, {construction}"] = model.fit(X, y).predict_set(new)
            for method, model in peers.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    cross = CrossConformalClassifier(model, confidence_level=1 - LEVEL, cv=10)
                    _, sets = cross.fit_conformalize(X, y).predict_set(new)
                found[method] = sets[:, :, 0]
            for method, sets in found.items():
                inside = sets[np.arange(len(truth)), truth].mean()
                sizes = sets.sum(axis=1)
                terms = {"coverage": inside, "width": sizes.mean(), "finite": (sizes == 1).mean()}
                yield row("classes", name, n, trial, method, **terms)


def errors(row: Row) -> Rows:
    """Of y that are wrong, the share among as many rows that look most unusual."""
    for name, n in PLANTED.items():
        for trial in range(TRIALS["errors"]):
            X, y, _ = drawn(name, trial, 25)
            X, y = X[:n], y[:n].copy()
            rng = np.random.default_rng([trial, 26])
            wrong = rng.choice(n, int(SHARE * n), replace=False)
            y[wrong] += SHIFT * rng.choice([-1, 1], len(wrong))
            ranked = {"influence": default().fit(X, y).influence().row}
            forest = {"n_estimators": 100, "random_state": 0}
            for method, model in {
                "left-out errors, forest": RandomForestRegressor(**forest),
                "left-out errors, boosting": HistGradientBoostingRegressor(random_state=0),
            }.items():
                left = np.abs(y - cross_val_predict(model, X, y, cv=10))
                ranked[method] = left.argsort()[::-1]
            for method, order in ranked.items():
                share = np.isin(order[: len(wrong)], wrong).mean()
                yield row("errors", name, n, trial, method, score=share)


def plans(row: Row) -> Rows:
    """Whether the mean width with two and four times the rows lies within what was planned."""
    for n in PLANS:
        for name in PLANNED:
            X, y, _ = drawn(name, 0, 11)
            sizes = [rows for rows in (2 * n, 4 * n) if rows + 150 <= len(y)]
            curve = default().plan(X[:n], y[:n]) if sizes else None
            for rows in sizes:
                found = default().fit(X[:rows], y[:rows]).predict_interval(X[rows:][:500])
                yield planned(row, name, n, rows, curve, found.width.mean())


def planned(row: Row, name: str, n: int, rows: int, curve: Any, width: float) -> dict[str, Any]:
    """Whether a width lies in the range, the middle guess's error, and the range, both relative."""
    low, middle, high = curve.width(rows)
    terms = {"coverage": float(low <= width <= high), "width": width}
    terms |= {"score": abs(np.log(width / middle)), "loss": (high - low) / width}
    return row("plan", name, n, 0, f"{rows // n} times as many rows", **terms)


QUESTIONS: dict[str, Callable[[Row], Rows]] = {
    "clusters": clusters,
    "outputs": outputs,
    "classes": classes,
    "errors": errors,
    "plan": plans,
}


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of docs/evidence.md, one for each question."""
    shown = {
        "clusters": (["coverage", "width"], "clusters"),
        "outputs": (["coverage", "width"], "n"),
        "classes": (["coverage", "width", "finite"], "n"),
        "errors": (["score"], "n"),
    }
    heads = {"score": "share found", "finite": "share of single classes", "width": "mean width"}
    found = {}
    for question, (columns, size) in shown.items():
        own = rows[rows["question"] == question]
        by = own.groupby(["data", "n", "method"], sort=False)[columns].mean()
        lines = [
            [
                f"{data}, {n} {size}" if size != "n" else f"{data}, n = {n}",
                method,
                *(f"{value:.3f}" for value in part),
            ]
            for (data, n, method), part in zip(by.index, by.to_numpy(), strict=True)
        ]
        names = heads | ({"width": "mean size"} if question == "classes" else {})
        found[f"questions_{question}"] = markdown(
            ["data", "method", *(names.get(each, each) for each in columns)], lines
        )
    own = rows[rows["question"] == "plan"]
    by = own.groupby(["n", "method"], sort=False)[["coverage", "score", "loss"]]
    counts, means = by.size(), by.mean()
    lines = [
        [f"{n}, {method}", f"{int(counts[n, method])}", *(f"{value:.2f}" for value in part)]
        for (n, method), part in zip(means.index, means.to_numpy(), strict=True)
    ]
    names = ["rows", "data", "share inside", "error of the middle", "range over width"]
    return found | {"questions_plan": markdown(names, lines)}


def against(rows: pd.DataFrame, question: str, ax: Axes, aim: float, unit: str) -> None:
    """Coverage against width, a marker for each method; data have their name at the first."""
    own = rows[rows["question"] == question]
    by = own.groupby(["method", "data", "n"], sort=False)[["coverage", "width"]].mean()
    for k, (method, part) in enumerate(by.groupby(level=0, sort=False)):
        ax.plot(part["width"], part["coverage"], "os^Dv"[k], ms=7, label=method)
        names = part.index.get_level_values("data")
        for name, place in zip(names, part[["width", "coverage"]].to_numpy(), strict=True):
            if k == 0 and len(names) > 1:
                ax.annotate(name, place, (4, 5), textcoords="offset points", fontsize="small")
    ax.axhline(aim, color="black", lw=1, ls="--", label="aim")
    ax.set(xlabel=unit, ylabel="coverage")
    ax.legend(frameon=False, fontsize="small")


def cluster_picture(rows: pd.DataFrame, ax: Axes) -> None:
    against(rows, "clusters", ax, 1 - ALPHA, "mean width, standard deviations of y")


def output_picture(rows: pd.DataFrame, ax: Axes) -> None:
    against(rows, "outputs", ax, 1 - ALPHA, "geometric mean of widths, standard deviations")


def class_picture(rows: pd.DataFrame, ax: Axes) -> None:
    against(rows, "classes", ax, 1 - LEVEL, "mean number of classes in a set")


def error_picture(rows: pd.DataFrame, ax: Axes) -> None:
    """The share of planted errors that is found, by data set and method."""
    own = rows[rows["question"] == "errors"]
    shares = own.pivot_table(index="data", columns="method", values="score", sort=False)
    for k, (method, column) in enumerate(shares.items()):
        ax.plot(np.arange(len(column)) + 0.12 * (k - 1), column, "os^"[k], ms=7, label=method)
    ax.set_xticks(range(len(shares)), shares.index)
    ax.set(ylabel="share of errors among the first", ylim=(0, 1.25))
    ax.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)


PICTURES = {
    "clusters": cluster_picture,
    "outputs": output_picture,
    "classes": class_picture,
    "errors": error_picture,
}
