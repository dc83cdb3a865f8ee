"""What several experiments use: split conformal by hand, measures, rows and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import nn

import lazyknife as lk
from lazyknife.files import write_whole
from lazyknife.intervals import kappa

from ..pages import markdown

ALPHA = 0.1
Row = dict[str, Any]


class Conformal:
    """Split conformal around a network that stays as it is: all labelled rows calibrate it."""

    def __init__(self, network: nn.Module, alpha: float = ALPHA) -> None:
        self.network, self.alpha = network, alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        n = len(y)
        rank = kappa(self.alpha, n)
        self.radius = np.sort(np.abs(y - self.predict(X)))[n - rank] if rank else np.inf
        self.certified = 1 - rank / (n + 1)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            outputs = self.network(torch.as_tensor(X, dtype=torch.float32))
        return outputs[:, 0].double().numpy()

    def predict_interval(self, X: np.ndarray) -> lk.Intervals:
        point = self.predict(X)
        return lk.Intervals(point, point - self.radius, point + self.radius, self.alpha)


def lazy(network: Any, seed: int, **settings: Any) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(
        network=network, base=lk.Public(), alpha=ALPHA, random_state=seed, **settings
    )


def trained(kind: Any, network: Any, seed: int, **settings: Any) -> Any:
    return kind(network=network, alpha=ALPHA, random_state=seed, **settings)


def measure(
    model: Any,
    X: Any,
    y: np.ndarray,
    X_new: Any,
    y_new: np.ndarray,
    clock: Callable[[], float] = time.perf_counter,
    **without_labels: Any,
) -> Row:
    """Fit, predict, and compare with the truth."""
    started = clock()
    intervals = model.fit(X, y, **without_labels).predict_interval(X_new)
    seconds = clock() - started
    certificate = getattr(model, "certificate_", None)
    return {
        "coverage": lk.coverage(y_new, intervals).value,
        "width": lk.mean_width(intervals).value,
        "score": lk.interval_score(y_new, intervals).value,
        "seconds": seconds,
        "certified": model.certified if certificate is None else certificate.coverage,
    }


def keep(rows: pd.DataFrame, path: Path, digits: str = "%.6g") -> pd.DataFrame:
    """Write rows to a file, and return what a reader of the file finds."""
    write_whole(path, rows.to_csv(index=False, float_format=digits))
    return pd.read_csv(path)


def means(rows: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Means and standard errors of the columns, in the order of the rows."""
    grouped = rows.groupby(by, sort=False)[columns]
    return grouped.mean().join(grouped.sem().add_suffix("_se")).reset_index()


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each method: means, standard errors, the median time and the certificate."""
    table = means(rows, ["method"], ["coverage", "width", "score"]).set_index("method", drop=False)
    grouped = rows.groupby("method", sort=False)
    return table.assign(seconds=grouped["seconds"].median(), certified=grouped["certified"].first())


def plus_minus(line: Any, column: str, digits: int) -> str:
    return f"{line[column]:.{digits}f} ± {line[column + '_se']:.{digits}f}"


def ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def methods_table(rows: pd.DataFrame, unit: str, digits: int) -> str:
    """One line a method; times in those of the method ``unit``."""
    table = summary(rows)
    columns = ("method", "coverage", "width", "interval score", f"time ÷ {unit}", "certified")
    lines = [
        (
            line["method"],
            plus_minus(line, "coverage", 3),
            plus_minus(line, "width", digits),
            plus_minus(line, "score", digits),
            ratio(line["seconds"] / table.loc[unit, "seconds"]),
            f"{line['certified']:.3f}",
        )
        for line in table.to_dict("records")
    ]
    return markdown(columns, lines)
