"""One trial: draw or split the data, fit, predict, measure."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import explained_variance_score, r2_score
from threadpoolctl import threadpool_limits

from lazyknife.base import privacy
from lazyknife.certificate import paper_bound
from lazyknife.estimators.refits import Refits
from lazyknife.estimators.shared import IntervalRegressor
from lazyknife.metrics import coverage, interval_score, mean_width
from lazyknife.networks import like, outputs

from .. import datasets
from .grid import SETTING_FIELDS, Setting, Trial
from .methods import METHODS
from .peers import Conformalized

MEASURES = (
    "coverage",
    "width",
    "score",
    "r2",
    "base_r2",
    "fit_seconds",
    "predict_seconds",
    "certified",
    "paper_bound",
    "models_trained",
)
COLUMNS = ("data", "method", *SETTING_FIELDS, "trial", *MEASURES, "error", "seed", "versions")
SIMULATED = "simulated_p"
Rows = NDArray[np.float64]


def run_trial(trial: Trial) -> dict[str, Any]:
    """Return one row: the trial, what was measured, or the error that stopped it."""
    row: dict[str, Any] = {
        **trial.key,
        "seed": trial.number,
        "versions": versions_line(),
        "error": "",
    }
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row |= measure(trial)
    except Exception as error:
        row["error"] = " ".join(f"{type(error).__name__}: {error}".split())
    return {column: row.get(column, "") for column in COLUMNS}


def measure(trial: Trial) -> dict[str, Any]:
    """Fit, predict and measure."""
    model = METHODS[trial.method](trial.setting).set_params(random_state=trial.number)
    X, y, X_test, y_test = split(trial)
    warm_up(trial.method)
    forget_accounts()
    return measure_model(model, X, y, X_test, y_test)


def measure_model(
    model: IntervalRegressor,
    X: Rows,
    y: Rows,
    X_test: Rows,
    y_test: Rows,
    X_pool: Rows | None = None,
) -> dict[str, Any]:
    """Fit a model, predict the test rows, and return the values of ``MEASURES``."""
    started = time.perf_counter()
    model.fit(X, y, X_pool=X_pool)
    fitted = time.perf_counter()
    intervals = model.predict_interval(X_test)
    ended = time.perf_counter()
    base = getattr(model, "base_", None)
    dependence = None if base is None else base.dependence
    certified = model.certificate_.coverage
    return {
        "coverage": coverage(y_test, intervals).value,
        "width": mean_width(intervals),
        "score": interval_score(y_test, intervals),
        "r2": float(r2_score(y_test, intervals.point)),
        "base_r2": "" if base is None else base_r2(model, X_test, y_test),
        "fit_seconds": fitted - started,
        "predict_seconds": ended - fitted,
        "certified": "" if certified is None else certified,
        # Theorem 1 with the stability that suits it best, η = 0.
        "paper_bound": "" if dependence is None else paper_bound(model.alpha, dependence, 0.0),
        "models_trained": models_trained(model),
    }


def split(trial: Trial) -> tuple[Rows, Rows, Rows, Rows]:
    """Training and test rows; the same for all methods of one number."""
    setting = trial.setting
    data = load(trial.data, setting.transform, trial.number)
    rest = len(data.y) - setting.n
    if rest < 1:
        raise ValueError(f"n={setting.n}: {trial.data} has only {len(data.y)} rows")
    rows = np.random.default_rng([trial.number, 1]).permutation(len(data.y))
    train, test = rows[: setting.n], rows[setting.n :][: setting.n_test]
    return data.X[train], data.y[train], data.X[test], data.y[test]


def load(name: str, transform: str | None, seed: int) -> datasets.DataSet:
    """Draw a simulation, ``"simulated_p16"``, or read a real data set."""
    if name.startswith(SIMULATED):
        if transform is not None:
            raise ValueError(f"transform={transform!r}: simulated data have none")
        return datasets.simulated(int(name.removeprefix(SIMULATED)), seed=seed)
    return datasets.load(name, transform)


def base_r2(model: IntervalRegressor, X: Rows, y: Rows) -> float:
    """Share of the variance of y that the base alone explains, up to a constant."""
    module = model.base_.module
    with torch.no_grad():
        predicted = outputs(module, like(torch.from_numpy(model.scaling_(X)), module))
    return float(explained_variance_score(y, predicted.double().cpu().numpy()))


def models_trained(model: IntervalRegressor) -> int:
    """Return how many networks, or models of a peer, the fit trained."""
    if isinstance(model.loo_, Conformalized):
        return model.loo_.trained
    if isinstance(model.loo_, Refits):
        ensembles = (model.loo_.full, model.loo_.models)
        return sum(len(e.offsets) for e in ensembles if e is not None)
    return 0 if model.base_.details["method"] == "public" else 1


@cache
def warm_up(method: str) -> None:
    """Fit once on a few rows: the first fit of a process pays for loading libraries."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    METHODS[method](Setting(epochs=1)).set_params(random_state=0).fit(X, y).predict_interval(X)


def forget_accounts() -> None:
    """Empty the accountant's caches: every trial pays for its own accounting."""
    for cached in (privacy.calibrate, privacy.dpsgd_curve, privacy._distribution):
        cached.cache_clear()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run every trial on one thread, so that times compare whatever the number of jobs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):  # scikit-learn's own threads
            yield
    finally:
        torch.set_num_threads(before)


@cache
def versions() -> dict[str, str]:
    """Return what runs, by name."""
    packages = ("lazyknife", "torch", "numpy", "opacus")
    return {name: version(name) for name in packages} | {"python": platform.python_version()}


def versions_line() -> str:
    """Return what runs, in one line."""
    return "; ".join(f"{name} {number}" for name, number in versions().items())
