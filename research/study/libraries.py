"""Other libraries' intervals, one function each: from rows, a level and a seed to three arrays.

Each is used as its documentation shows it. Settings are chosen on the training rows alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lazyknife.data.rows import take
from lazyknife.intervals import kappa
from lazyknife.records import Array

from .own import FitPredict
from .peers import LEAF, Three, seeded

Model = Callable[[float | None, int], Any]  # of a quantile, or the mean, and a seed
Scheme = Callable[..., Three]
FOLDS = 10
WIDTH, STEPS = 50, 500  # hidden units, as in Tailor et al.; steps of Adam
DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def library(name: str) -> Any:
    """Import one of the peers."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is missing: pip install 'lazyknife[peers]'") from error


def laplace() -> Any:
    """laplace-torch; it loads torchvision, which may have been built for another torch.

    Then the two operators are declared that torchvision registers as it is loaded.
    """
    try:
        return library("laplace")
    except RuntimeError:
        for name in ("nms", "qnms"):
            DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library("laplace")


def crossed(
    X: Any, y: Array, X_new: Any, alpha: float, seed: int, *, model: Model, quantiles: bool
) -> Three:
    """CV+ around means, or around quantiles (cross-conformal quantile regression)."""
    lower, upper = np.empty((2, len(y), len(X_new)))  # κ is counted over training rows
    ends = (alpha / 2, 1 - alpha / 2) if quantiles else (None,)
    for learn, left in KFold(FOLDS, shuffle=True, random_state=seed).split(y):
        models = [model(level, seed).fit(take(X, learn), y[learn]) for level in ends]
        low, high = (models[k].predict(take(X, left)) for k in (0, -1))
        errors = np.maximum(low - y[left], y[left] - high)[:, None]
        lower[left] = models[0].predict(X_new) - errors
        upper[left] = models[-1].predict(X_new) + errors
    point = model(0.5 if quantiles else None, seed).fit(X, y).predict(X_new)
    rank = kappa(alpha, len(y))
    if rank == 0:
        return point, np.full(len(X_new), -np.inf), np.full(len(X_new), np.inf)
    return (
        point,
        np.partition(lower, rank - 1, axis=0)[rank - 1],
        np.partition(upper, -rank, axis=0)[-rank],
    )


def calibrated(
    X: Any, y: Array, X_new: Any, alpha: float, seed: int, *, model: Model, quantiles: bool = True
) -> Three:
    """Conformalised quantile regression: half of the rows calibrate."""
    learn, kept = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed)
    found = [model(q, seed).fit(take(X, learn), y[learn]) for q in (alpha / 2, 0.5, 1 - alpha / 2)]
    low, _, high = (one.predict(take(X, kept)) for one in found)
    rank, errors = kappa(alpha, len(kept)), np.maximum(low - y[kept], y[kept] - high)
    radius = np.sort(errors)[-rank] if rank else np.inf
    low, point, high = (one.predict(X_new) for one in found)
    return point, low - radius, high + radius


def native(
    X: Any, y: Array, X_new: Any, alpha: float, seed: int, *, scheme: Scheme, quantiles: bool
) -> Three:
    """LightGBM with its own handling of categories and gaps, as its documentation shows it."""
    whole = pd.concat([X, X_new], ignore_index=True)
    texts = {name: "category" for name in whole if not pd.api.types.is_numeric_dtype(whole[name])}
    whole = whole.astype(texts)
    rows, new = whole.iloc[: len(X)], whole.iloc[len(X) :]
    return scheme(rows, y, new, alpha, seed, model=_lightgbm, quantiles=quantiles)


cross_quantile = partial(crossed, model=lambda level, seed: _quantile(level, seed), quantiles=True)


def online_ridge(X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Three:
    """online-cp: full conformal prediction of kernel ridge regression, studentised.

    Width of the Gaussian kernel and ridge have the smallest leave-one-out error on the rows.
    """
    scaler, shift, scale = StandardScaler().fit(X), y.mean(), y.std()
    rows, new, target = scaler.transform(X), scaler.transform(X_new), (y - shift) / scale
    kernel, ridge = _kernel_and_ridge(rows, target)
    model = library("online_cp").KernelConformalRidgeRegressor(
        kernel, a=ridge, studentised=True, rnd_state=seed
    )
    model.learn_initial_training_set(rows, target)
    sets = [model.predict(row, epsilon=alpha) for row in new]
    ends = np.array([(found.lower, found.upper) for found in sets])
    return tuple(shift + scale * part for part in (ends.mean(axis=1), *ends.T))  # type: ignore[return-value]


def crepes_forest(X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Three:
    """crepes: a forest calibrated out of bag, its errors divided by those of the neighbours."""
    crepes, extras = library("crepes"), library("crepes.extras")
    forest = seeded("forest", seed).set_params(oob_score=True)
    model = crepes.WrapRegressor(forest)
    model.fit(X, y)
    residuals = y - forest.oob_prediction_
    difficulty = extras.DifficultyEstimator()
    difficulty.fit(X=X, residuals=residuals, scaler=True, oob=True)
    model.calibrate(X, y, de=difficulty, oob=True)
    ends = model.predict_int(X_new, confidence=1 - alpha)
    return model.predict(X_new), ends[:, 0], ends[:, 1]


def puncc_adaptive(X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Three:
    """puncc: locally adaptive split conformal with two forests, half of the rows calibrate."""
    regression, prediction = library("deel.puncc.regression"), library("deel.puncc.api.prediction")
    logging.getLogger("deel").setLevel(logging.WARNING)  # it reports every step
    forests = [seeded("forest", seed + k).set_params(min_samples_leaf=LEAF) for k in (0, 1)]
    model = regression.LocallyAdaptiveCP(prediction.MeanVarPredictor(forests))
    learn, kept = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed)
    model.fit(X_fit=X[learn], y_fit=y[learn], X_calib=X[kept], y_calib=y[kept])
    both, lower, upper = model.predict(X_new, alpha=alpha)
    return both[:, 0], lower, upper


def laplace_network(X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Three:
    """laplace-torch: a trained network, Laplace's method, and the normal law's interval."""
    scaler, shift, scale = StandardScaler().fit(X), y.mean(), y.std()
    rows = torch.from_numpy(scaler.transform(X)).float()
    target = torch.from_numpy((y - shift) / scale).float()[:, None]
    network = _trained(rows, target, seed)
    model = laplace().Laplace(network, "regression", "all", "full")
    model.fit(DataLoader(TensorDataset(rows, target), batch_size=len(rows)))
    _maximise_evidence(model)
    mean, variance = model(torch.from_numpy(scaler.transform(X_new)).float())
    spread = (variance.flatten() + model.sigma_noise.detach() ** 2).sqrt().detach().numpy()
    point = shift + scale * mean.flatten().detach().numpy().astype(float)
    radius = float(norm.isf(alpha / 2)) * scale * spread.astype(float)
    return point, point - radius, point + radius


def jackknife_forest(X: Array, y: Array, X_new: Array, alpha: float, seed: int) -> Three:
    """Jackknife+ of Prinster et al.: n forests of 20 trees that minimise the absolute error."""
    seeds = iter(np.random.default_rng(seed).integers(2**31, size=len(y) + 1).tolist())

    def forest(rows: Array) -> Any:
        trees = RandomForestRegressor(20, criterion="absolute_error", random_state=next(seeds))
        return trees.fit(X[rows], y[rows])

    every, rank = np.arange(len(y)), kappa(alpha, len(y))
    left = [forest(np.delete(every, i)) for i in every]
    errors = [abs(y[i] - model.predict(X[i : i + 1])[0]) for i, model in enumerate(left)]
    predicted = np.array([model.predict(X_new) for model in left])
    radius = np.array(errors)[:, None]
    lower, upper = np.sort(predicted - radius, axis=0), np.sort(predicted + radius, axis=0)
    return forest(every).predict(X_new), lower[rank - 1], upper[-rank]


# Boosting that takes frames with categories and gaps.
NATIVE: dict[str, FitPredict] = {
    "lightgbm_cv": partial(native, scheme=crossed, quantiles=False),
    "lightgbm_cross_quantile": partial(native, scheme=crossed, quantiles=True),
    "lightgbm_quantile": partial(native, scheme=calibrated, quantiles=True),
}
LIBRARIES: dict[str, FitPredict] = {
    "jackknife_forest": jackknife_forest,
    "cross_quantile": cross_quantile,
    "online_ridge": online_ridge,
    "crepes_forest": crepes_forest,
    "puncc_adaptive": puncc_adaptive,
    "laplace_network": laplace_network,
}


def _quantile(level: float | None, seed: int) -> Any:
    return seeded("gradient", seed).set_params(loss="quantile", alpha=level)


def _lightgbm(level: float | None, seed: int) -> Any:
    loss = {} if level is None else {"objective": "quantile", "alpha": level}
    return library("lightgbm").LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1, **loss)


def _kernel_and_ridge(X: Array, y: Array) -> tuple[Any, float]:
    """The Gaussian kernel and the ridge with the smallest leave-one-out error."""
    kernels = library("online_cp.kernels")
    found = []
    for width in np.sqrt(X.shape[1]) * 2.0 ** np.arange(-2, 4):
        kernel = kernels.GaussianKernel(sigma=width)
        values, vectors = np.linalg.eigh(kernel(X))
        for ridge in 10.0 ** np.arange(-4, 2):
            inverse = vectors / (np.maximum(values, 0) + ridge) @ vectors.T
            found.append((np.mean((inverse @ y / np.diag(inverse)) ** 2), width, kernel, ridge))
    return min(found, key=lambda each: each[:2])[2:]  # type: ignore[return-value]


def _trained(X: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
    """A network with one hidden layer, after Adam's steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(X.shape[1], WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(X), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network


def _maximise_evidence(model: Any) -> None:
    """Choose the prior's precision and the noise by the marginal likelihood, as its docs do."""
    logs = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([logs], lr=2e-1)
    for _ in range(40):
        optimizer.zero_grad()
        (-model.log_marginal_likelihood(*logs.exp())).backward()
        optimizer.step()
