"""The methods side by side on one data set, cross-validated."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lazyknife.compute import track
from lazyknife.data.checks import check_choice, check_positive_int

from .grid import Setting
from .methods import METHODS
from .run import side_by_side
from .trial import MEASURES, Rows, forget_accounts, measure_model, one_thread, warm_up

if TYPE_CHECKING:
    import pandas as pd

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]


def compare_methods(
    X: Rows,
    y: Rows,
    methods: Sequence[str],
    setting: Setting,
    *,
    scaling: Any = "standardize",
    folds: int = 5,
    train_rows: int = 500,
    test_rows: int = 5000,
    seed: int = 0,
    jobs: int = -1,
    progress: bool = False,
) -> pd.DataFrame:
    """Return one row for each method and fold: its ``MEASURES``, or the error that stopped it.

    Parameters
    ----------
    X, y
        Features (rows, p) and target (rows,).
    methods
        Keys of ``METHODS``.
    setting
        Their settings; n and the transform are not read.
    scaling
        Fitted on each fold's training and test rows together, which leaks nothing.
    folds, train_rows, test_rows
        Number of folds, and the most rows of a fold's two parts, drawn at random.
    seed, jobs, progress
        Seed of folds and methods, fits at a time, and whether to show a progress bar.

    """
    import pandas as pd

    for method in methods:
        check_choice("method", method, METHODS)
        METHODS[method](setting)._check_settings()  # once here, not once a fold
    parts = list(enumerate(make_folds(len(y), folds, train_rows, test_rows, seed)))
    tasks = [(name, number, fold) for number, fold in parts for name in methods]

    def arguments() -> Any:
        for name, number, fold in tasks:
            yield (X, y, name, number, fold, setting, scaling, seed)

    results = track(side_by_side(run_fold, arguments(), jobs), "comparing", len(tasks), progress)
    order = {name: place for place, name in enumerate(methods)}
    rows = sorted(results, key=lambda row: (order[row["method"]], row["fold"]))
    return pd.DataFrame(
        rows, columns=["method", "fold", "n", "n_test", *MEASURES, "warning", "error"]
    )


def make_folds(n: int, folds: int, train_rows: int, test_rows: int, seed: int) -> list[Fold]:
    """Cut the rows into folds; of each fold's two parts at most so many rows are taken."""
    check_positive_int("train_rows", train_rows)
    check_positive_int("test_rows", test_rows)
    if not 2 <= folds <= n:
        raise ValueError(f"folds={folds}: give between 2 and the number of rows, {n}")
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(n), folds)
    return [
        (
            rng.permutation(np.concatenate([p for p in parts if p is not part]))[:train_rows],
            part[:test_rows],
        )
        for part in parts
    ]


def run_fold(
    X: Rows,
    y: Rows,
    method: str,
    number: int,
    fold: Fold,
    setting: Setting,
    scaling: Any,
    seed: int,
) -> dict[str, Any]:
    """Fit one method on one fold."""
    train, test = fold
    row: dict[str, Any] = {
        "method": method,
        "fold": number,
        "n": len(train),
        "n_test": len(test),
        "warning": "",
        "error": "",
    }
    try:
        with one_thread(), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("ignore")
            warm_up(method)
            forget_accounts()
            warnings.simplefilter("always", UserWarning)
            model = METHODS[method](setting).set_params(scaling=scaling, random_state=seed + number)
            measures = measure_model(model, X[train], y[train], X[test], y[test], X_pool=X[test])
    except Exception as error:
        return row | {"error": " ".join(f"{type(error).__name__}: {error}".split())}
    row["warning"] = "; ".join(dict.fromkeys(str(warning.message) for warning in warned))
    return row | {name: np.nan if value == "" else value for name, value in measures.items()}


def summarise_folds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard errors over the folds, one row a method, in the rows' order."""
    values = ["coverage", "width", "score", "seconds", "certified"]
    rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    grouped = rows.groupby("method", sort=False)[values]
    with np.errstate(invalid="ignore"):  # an infinite width has a mean, but no spread
        return grouped.mean().join(grouped.sem().add_suffix("_se")).reset_index()
