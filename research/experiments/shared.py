"""What several experiments use: split conformal by hand, measures, rows and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import lazyknife as lk
from lazyknife.files import write_whole

ALPHA = 0.1
Row = dict[str, Any]


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
