"""When does private learning pay? Intervals of equal certificate around private and public bases.

A base that learns narrows the intervals; the privacy that it spends must be paid for by a smaller
alpha. Networks, step sizes and batches were chosen on trials 1 and 2, which are not among those
that are run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import lazyknife as lk
from lazyknife.plots import save_figure, style
from lazyknife.records import Array

from ..curves import Curve, plot_curves
from ..datasets import load
from ..study.trial import base_r2
from .shared import keep

FEATURES, NOISE = 30, 0.2
FIRST_TRIAL = 101  # the seed of the first one, for the rows as for the models
WANTED = (0.8, 0.9)  # coverages to certify
NEW_ROWS = 1200
EPOCHS, BATCHES = 30, 20  # of private training, and how many of its batches are n rows
# A fixed centre and unit of y for each real set.
UNITS = {
    "bikeshare": (4.5, 1.3),
    "computers": (2200.0, 580.0),
    "meps_2016_panel21": (1.3, 1.1),
}
TITLES = {
    "one": "one direction",
    "two": "two directions",
    "bikeshare": "bikeshare",
    "computers": "computers",
    "meps_2016_panel21": "MEPS 2016 panel 21",
}
STEP = 0.3  # on the real sets


class Case(NamedTuple):
    """A data set, training rows, trials, and the ε of the private bases."""

    data: str
    n: int
    trials: int
    epsilons: tuple[float, ...]


FEW, MANY = (0.2, 0.5, 1.0), (0.1, 0.2, 0.5)  # more rows learn with a smaller ε
CASES = (
    Case("one", 3000, 5, FEW),
    Case("one", 10_000, 4, MANY),
    Case("one", 30_000, 2, MANY[:1]),
    Case("two", 3000, 3, FEW),
    Case("two", 10_000, 3, MANY),
    Case("bikeshare", 3000, 4, FEW),
    Case("bikeshare", 6500, 5, MANY),
    Case("computers", 5000, 3, MANY),
    Case("meps_2016_panel21", 3000, 3, FEW),
)


def rows_of(case: Case, trial: int, new: int = NEW_ROWS) -> tuple[Array, Array, Array, Array]:
    """Training and new rows."""
    rng = np.random.default_rng([trial, case.n])
    if case.data in UNITS:
        whole, (centre, unit) = load(case.data), UNITS[case.data]
        order = rng.permutation(len(whole.y))[: case.n + new]
        X, y = whole.X[order], (whole.y[order] - centre) / unit
    else:
        X = rng.normal(size=(case.n + new, FEATURES))
        first, second = (X @ np.linalg.qr(rng.normal(size=(FEATURES, 2)))[0]).T
        one = np.tanh(4 * first) + 0.7 * np.cos(3 * first)
        mean = one if case.data == "one" else np.tanh(4 * first) + np.abs(second)
        y = mean + NOISE * rng.normal(size=len(X))
    return X[: case.n], y[: case.n], X[case.n :], y[case.n :]


def models(case: Case) -> dict[str, lk.LazyJackknifeRegressor]:
    """The library's default, and one network around bases of several kinds."""
    real = case.data in UNITS
    own: dict[str, Any] = {
        "network": lk.mlp((32, 32), "tanh" if real else "relu"),
        "scaling": "standardize" if real else None,
    }
    terms = {"epochs": EPOCHS, "batch_size": case.n // BATCHES, "lr": STEP if real else None}
    bases: dict[str, lk.BaseMethod] = {"split": lk.Split(), "public": lk.Public()}
    bases |= {f"ε = {e:g}": lk.DPSGD(epsilon=e, **terms) for e in case.epsilons}
    if case.data == "bikeshare":
        automatic = lk.DPSGD(epsilon=0.5, **terms | {"lr": None})
        bases["ε = 0.5, automatic step"] = automatic
    around = {k: lk.LazyJackknifeRegressor(base=base, **own) for k, base in bases.items()}
    return {"default": lk.LazyJackknifeRegressor(base=lk.Public()), **around}


def run_trial(case: Case, trial: int, new: int = NEW_ROWS) -> Iterator[dict[str, Any]]:
    """One row for each model and each coverage to certify."""
    X, y, X_new, y_new = rows_of(case, trial, new)
    free: list[float] = []  # the public base's alphas
    for name, model in models(case).items():
        model.set_params(random_state=trial)
        model.fit(X, y, X_pool=X_new if model.scaling == "standardize" else None)
        given = {"n": case.n, "base": model.base, "network": model.network}
        paid = [float(lk.plan(coverage=c, **given).alpha or np.nan) for c in WANTED]
        free = free if isinstance(model.base, lk.DPSGD) else paid
        levels = list(dict.fromkeys((*paid, *free)))
        found = model.predict_interval(X_new, alpha=levels)
        width = dict(zip(levels, found.width.mean(axis=0).tolist(), strict=True))
        covered = dict(zip(levels, found.covers(y_new).mean(axis=0).tolist(), strict=True))
        beyond = np.maximum(found.lower - y_new[:, None], y_new[:, None] - found.upper)
        missed = dict(zip(levels, np.maximum(beyond, 0).mean(axis=0).tolist(), strict=True))
        learnt = np.nan if name == "default" else base_r2(model, X_new, y_new)
        for wanted, alpha, public in zip(WANTED, paid, free, strict=True):
            yield {
                "data": case.data,
                "n": case.n,
                "base": name,
                "trial": trial,
                "wanted": wanted,
                "alpha": alpha,
                "certified": model.certify(alpha).coverage,
                "coverage": covered[alpha],
                "width": width[alpha],
                "score": width[alpha] + 4 / (1 - wanted) * missed[alpha],
                "unpaid": width[public],
                "base_r2": learnt,
            }


def run(cases: Sequence[Case] = CASES, new: int = NEW_ROWS) -> pd.DataFrame:
    """All trials, one after another."""
    return pd.DataFrame(
        row
        for case in cases
        for trial in range(FIRST_TRIAL, FIRST_TRIAL + case.trials)
        for row in run_trial(case, trial, new)
    )


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over the trials.

    ``against_public`` and so on are by how many per cent a width is below theirs in the same trial.
    """
    key = ["data", "n", "trial", "wanted"]
    places = list(rows[key].itertuples(index=False, name=None))
    for other in ("public", "default", "split"):
        theirs = rows[rows["base"] == other].set_index(key)["width"].loc[places].to_numpy()
        rows = rows.assign(**{f"against_{other}": 100 * (1 - rows["width"] / theirs)})
    grouped = rows.groupby(["data", "n", "wanted", "base"], sort=False)
    means = grouped.mean(numeric_only=True).drop(columns="trial")
    errors = grouped.sem(numeric_only=True).drop(columns="trial").add_suffix("_se")
    return means.join(errors).assign(trials=grouped.size()).reset_index()


def draw(rows: pd.DataFrame) -> Figure:
    """Width over the public base's and over the default's against ε, a curve for each case."""
    summary = summarise(rows)
    own = summary[(summary["wanted"] == WANTED[0]) & summary["base"].str.match(r"ε = [\d.]+$")]
    with style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        for other, ax in zip(("public", "default"), figure.subplots(1, 2), strict=True):
            curves = [
                Curve(
                    f"{TITLES[str(data)]}, n = {n:,}",
                    part["base"].str.removeprefix("ε = ").astype(float).tolist(),
                    (1 - part[f"against_{other}"] / 100).tolist(),
                    (part[f"against_{other}_se"] / 100).tolist(),
                )
                for (data, n), part in own.groupby(["data", "n"], sort=False)
            ]
            label = f"width ÷ {other}"
            plot_curves(curves, xlabel="ε", ylabel=label, log_x=True, log_y=True, target=1.0, ax=ax)
    return figure


def write(rows: pd.DataFrame, docs: Path) -> None:
    """Write the rows and the figure."""
    rows = keep(rows, docs / "trade" / "rows.csv")
    save_figure(draw(rows), docs / "trade" / "trade.svg")


def main(docs: Path) -> None:
    write(run(), docs)
