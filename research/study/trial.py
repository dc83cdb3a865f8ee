"""One trial: draw or split the data, fit, predict, measure."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import explained_variance_score

from lazyknife import compare
from lazyknife.certificate import paper_bound
from lazyknife.cli.files import versions
from lazyknife.estimators.mapie import Conformalized
from lazyknife.estimators.refits import Refits
from lazyknife.estimators.shared import IntervalRegressor
from lazyknife.networks import like, outputs

from .. import datasets
from .grid import SETTING_FIELDS, Trial
from .methods import METHODS, StandardisedRegressor

MEASURES = (
    *("coverage", "width", "score", "r2", "base_r2", "fit_seconds", "predict_seconds"),
    *("certified", "paper_bound", "models_trained"),
)
COLUMNS = ("data", "method", *SETTING_FIELDS, "trial", *MEASURES, "error", "seed", "versions")
SIMULATED = "simulated_p"
Rows = NDArray[np.float64]


def run_trial(trial: Trial) -> dict[str, Any]:
    """Return one row: the trial, what was measured, or the error that stopped it."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | trial.key
    row |= {"seed": trial.number, "versions": versions_line()}
    try:
        with compare.one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row |= measure(trial)
    except Exception as error:
        row["error"] = compare.one_line(error)
    return row


def measure(trial: Trial) -> dict[str, float]:
    """Fit, predict and measure; return the values of ``MEASURES``."""
    model = METHODS[trial.method](trial.setting).set_params(random_state=trial.number)
    X, y, X_test, y_test = split(trial)
    compare.warm_up(trial.method, model, X, y)
    X_pool = None
    if isinstance(model, StandardisedRegressor):
        X_pool, model.outside = X_test, outside(trial)
    measures = compare.measure(model, X, y, X_test, y_test, X_pool)
    bases = {"base_r2": math.nan, "paper_bound": math.nan}
    if hasattr(model, "base_"):
        # Theorem 1 with the stability that suits it best, η = 0.
        dependence = model.base_.dependence
        bound = math.nan if dependence is None else paper_bound(model.alpha, dependence, 0.0)
        bases = {"base_r2": base_r2(model, X_test, y_test), "paper_bound": bound}
    return measures | bases | {"models_trained": models_trained(model)}


def split(trial: Trial) -> tuple[Rows, Rows, Rows, Rows]:
    """Training and test rows; the same for all methods of one number."""
    data, (train, test, _) = cut(trial)
    y = data.y / data.y.std() if trial.setting.y_in_sd else data.y
    return data.X[train], y[train], data.X[test], y[test]


def outside(trial: Trial) -> Rows | None:
    """Features of the rows that are neither for training nor for testing, if there are any."""
    data, (*_, others) = cut(trial)
    return data.X[others] if len(others) else None


def cut(trial: Trial) -> tuple[datasets.DataSet, list[NDArray[np.intp]]]:
    """The data set, and its training, test and other rows."""
    setting = trial.setting
    data = load(trial.data, setting.transform, trial.number)
    if len(data.y) <= setting.n:
        raise ValueError(f"n={setting.n}: {trial.data} has only {len(data.y)} rows")
    rows = np.random.default_rng([trial.number, 1]).permutation(len(data.y))
    n_test = len(rows) if setting.n_test is None else setting.n_test
    return data, np.split(rows, [setting.n, setting.n + n_test])


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
    public = not hasattr(model, "base_") or model.base_.details["method"] == "public"
    return 0 if public else 1


def versions_line() -> str:
    """Return what runs, in one line."""
    return "; ".join(f"{name} {number}" for name, number in versions().items())
