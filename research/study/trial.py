"""One trial: draw or split the data, fit, predict, measure."""

from __future__ import annotations

import math
import platform
import re
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import explained_variance_score
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from lazyknife import compare
from lazyknife.base import privacy
from lazyknife.certificate import paper_bound
from lazyknife.data.rows import take
from lazyknife.errors import one_line
from lazyknife.estimators.base import IntervalRegressor
from lazyknife.estimators.baselines import Refits
from lazyknife.estimators.mapie import FOLDS, MapieRegressor
from lazyknife.networks import like, outputs

from .. import datasets
from .grid import SETTING_FIELDS, Setting, Trial
from .methods import METHODS
from .own import Own, make_data, make_model

MEASURES = (
    *("coverage", "width", "score", "r2", "base_r2", "fit_seconds", "predict_seconds"),
    *("certified", "paper_bound", "models_trained"),
)
COLUMNS = (
    *("data", "method", *SETTING_FIELDS, "trial", *MEASURES, "error", "seed", "versions"),
    *("commit", "code"),
)
SIMULATED = "simulated_p"
Rows = NDArray[np.float64]
Row = dict[str, Any]
Parts = tuple[NDArray[np.intp], NDArray[np.intp]]  # training rows, test rows
NOTHING = Own()


def run_trials(trials: Sequence[Trial], own: Own = NOTHING) -> list[Row]:
    """Return the rows of trials that differ in their level alone: one fit, where that suffices."""
    together = len(trials) > 1 and shares_fit(model_of(trials[0], own))
    parts = [tuple(trials)] if together else [(trial,) for trial in trials]
    return [row for part in parts for row in _run(part, own)]


def run_trial(trial: Trial, own: Own = NOTHING) -> Row:
    """Return one row: the trial, what was measured, or the error that stopped it."""
    return _run((trial,), own)[0]


def _run(trials: Sequence[Trial], own: Own) -> list[Row]:
    same = dict.fromkeys(COLUMNS, "") | {"seed": trials[0].number, "versions": versions_line()}
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: list[dict[str, Any]] = measure(trials, own)
    except Exception as error:
        found = [{"error": one_line(f"{type(error).__name__}: {error}")}] * len(trials)
    return [same | trial.key | each for trial, each in zip(trials, found, strict=True)]


def measure(trials: Sequence[Trial], own: Own = NOTHING) -> list[dict[str, Any]]:
    """Fit, predict and measure at each level; return the values of ``MEASURES``."""
    first = trials[0]
    model = model_of(first, own).set_params(random_state=first.number)
    X, y, X_test, y_test = split(first, own)
    compare.warm_up(first.method, model, X, y)
    forget_accounts()
    measured = [compare.measure(model, X, y, X_test, y_test)]
    for trial in trials[1:]:
        started, alpha = time.perf_counter(), trial.setting.alpha
        intervals = model.predict_interval(X_test, alpha=alpha)
        seconds = {"predict_seconds": time.perf_counter() - started}
        found = compare.measures_of(y_test, intervals, model.certify(alpha).coverage)
        measured.append(measured[0] | found | seconds)
    rest = base_measures(model, X_test, y_test) | {"models_trained": models_trained(model)}
    return [found | rest for found in measured]


def forget_accounts() -> None:
    """Empty the caches of the privacy accounting, so that every fit pays for its own."""
    for cached in vars(privacy).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def model_of(trial: Trial, own: Own) -> Any:
    """Return the trial's unfitted estimator."""
    if trial.method in own.methods:
        return make_model(own.methods[trial.method], trial.setting)
    return METHODS[trial.method](trial.setting)


def shares_fit(model: Any) -> bool:
    """Whether a fitted model gives intervals at any level; MAPIE is fitted for one."""
    return isinstance(model, IntervalRegressor) and not isinstance(model, MapieRegressor)


def base_measures(model: Any, X_test: Rows, y_test: Rows) -> dict[str, float]:
    """What the base of a lazy jackknife explains, and the paper's bound."""
    if not hasattr(model, "base_"):
        return {"base_r2": math.nan, "paper_bound": math.nan}
    # Theorem 1 with the stability that suits it best, η = 0.
    dependence = model.base_.dependence
    bound = math.nan if dependence is None else paper_bound(model.alpha, dependence, 0.0)
    return {"base_r2": base_r2(model, X_test, y_test), "paper_bound": bound}


def random(count: int, setting: Setting, number: int) -> Parts:
    """Draw n rows at random, and as many test rows as the setting asks for."""
    rows = np.random.default_rng([number, 1]).permutation(count)
    last = None if setting.n_test is None else setting.n + setting.n_test
    return rows[: setting.n], rows[setting.n : last]


def ten_fold(count: int, setting: Setting, number: int) -> Parts:
    """Fold ``number`` of ten, as in the code of Tailor et al. with their first seed.

    The setting's n is the smallest training part; some folds leave one row more.
    """
    folds = KFold(10, shuffle=True, random_state=1)
    return list(folds.split(np.arange(count)))[number]


def jaws(count: int, setting: Setting, number: int) -> Parts:
    """Draw n rows by numpy's old generator, test on the rest: as the code of Prinster et al."""
    train = np.random.RandomState(number).choice(count, setting.n, replace=False)
    return train, np.setdiff1d(np.arange(count), train)


SPLITS: dict[str, Callable[[int, Setting, int], Parts]] = {
    "random": random,
    "ten_fold": ten_fold,
    "jaws": jaws,
}


def split(trial: Trial, own: Own = NOTHING) -> tuple[Rows, Rows, Rows, Rows]:
    """Training and test rows; the same for all methods of one number."""
    setting = trial.setting
    if trial.data in own.data:
        data = make_data(trial.data, own.data[trial.data], trial.number)
    else:
        data = load(trial.data, setting.transform, trial.number)
    if len(data.y) <= setting.n:
        raise ValueError(f"n={setting.n}: {trial.data} has only {len(data.y)} rows")
    train, test = SPLITS[setting.split](len(data.y), setting, trial.number)
    y = data.y / data.y.std() if setting.y_in_sd else data.y
    return take(data.X, train), y[train], take(data.X, test), y[test]


def load(name: str, transform: str | None, seed: int) -> datasets.DataSet:
    """Draw a simulation, ``"simulated_p16"`` or ``"friedman1"``, or read a real data set."""
    if name.startswith(SIMULATED):
        if transform is not None:
            raise ValueError(f"transform={transform!r}: simulated data have none")
        return datasets.simulated(int(name.removeprefix(SIMULATED)), seed=seed)
    if name in datasets.FORMULAS:
        return datasets.draw_formula(name, seed)
    if name == "diabetes":
        return datasets.diabetes()
    return datasets.load(name, transform)


def is_known(name: str) -> bool:
    """Whether ``load`` knows a data set of this name."""
    known = {*datasets.DATASETS, *datasets.FORMULAS, "diabetes", "meps"}
    return name in known or re.fullmatch(SIMULATED + r"[1-9]\d{0,3}", name) is not None


def base_r2(model: IntervalRegressor, X: Rows, y: Rows) -> float:
    """Share of the variance of y that the base alone explains, up to a constant."""
    module = model.base_.module
    with torch.no_grad():
        predicted = outputs(module, like(torch.from_numpy(model.scaling_(X)), module))
    return float(explained_variance_score(y, predicted.double().cpu().numpy()))


def models_trained(model: Any) -> float:
    """Return how many networks, or models of a peer, the fit trained; NaN where unknown."""
    if not isinstance(model, IntervalRegressor):
        return math.nan
    if isinstance(model, MapieRegressor):
        return min(FOLDS, model.n_samples_fit_) + 1
    if isinstance(model.loo_, Refits):
        ensembles = (model.loo_.full, model.loo_.models)
        return sum(len(e.offsets) for e in ensembles if e is not None)
    public = not hasattr(model, "base_") or model.base_.details["method"] == "public"
    return 0 if public else 1


def versions_line() -> str:
    """Return what runs, in one line."""
    packages = ("lazyknife", "torch", "numpy")
    found = {name: version(name) for name in packages} | {"python": platform.python_version()}
    return "; ".join(f"{name} {number}" for name, number in found.items())
