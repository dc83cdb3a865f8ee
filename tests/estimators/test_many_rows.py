"""Sketches of more rows than choices look at: chosen ridges, folds and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lazyknife as lk
import reference
from lazyknife.choosing.rows import COMPARED
from lazyknife.intervals import kappa
from lazyknife.solve.folds import draw_folds
from machines import MACHINE
from reference import Array, assert_close
from rows import linear

N = COMPARED + 300


def fitted(X: Array, y: Array, **settings: Any) -> lk.LazyJackknifeRegressor:
    given: dict[str, Any] = {"features": lk.Sketch(16), "random_state": 0, "device": MACHINE.device}
    return lk.LazyJackknifeRegressor(**(given | settings)).fit(X, y)


def features(model: lk.LazyJackknifeRegressor, X: Array) -> tuple[Array, Array]:
    """Outputs and sketched features of rows as the models see them."""
    rows = model.loo_.basis.at(MACHINE.put(torch.from_numpy(X)))
    return rows.outputs.cpu().numpy(), rows.coordinates.cpu().numpy()


def test_a_rows_target_does_not_influence_the_ridge_and_model_without_it() -> None:
    X, y = linear(N)
    before = fitted(X, y)
    others = False
    for j, value in ((7, 1e6), (N - 1, -50.0)):
        changed = y.copy()
        changed[j] = value
        after = fitted(X, changed)
        assert after.ridge_[j] == before.ridge_[j]
        own, twin = (model.loo_.models.columns[:, j] for model in (after, before))
        assert_close(own, twin, 1e-8)
        others |= bool((after.ridge_ != before.ridge_).any())
    assert others


def test_models_of_a_sketch_equal_refits_at_their_ridges() -> None:
    X, y = linear(N)
    model = fitted(X, y)
    outputs, J = features(model, X)
    for j in (0, 5, N):
        kept = np.arange(N) != j
        move, b = reference.ridge_fit(J[kept], (y - outputs)[kept], model.ridge_[j], True)
        columns, intercepts = model.loo_.models.columns, model.loo_.models.intercepts
        assert_close(columns[:, j] if j < N else model.loo_.models.full, move, 1e-9)
        assert_close(intercepts[j], np.array(b), 1e-9)
    rank = kappa(0.1, N)  # coins choose the rows that choose λ
    assert model.certificate_.coverage == pytest.approx(1 - 2 * rank / (N + 2))
    assert fitted(X, y, ridge=1.0).certificate_.coverage == 1 - (2 * rank - 1) / (N + 1)


@pytest.mark.parametrize("ridge", [1.0, "auto"])
def test_folds_of_a_sketch_equal_refits(ridge: float | str) -> None:
    X, y = linear(N)
    model = fitted(X, y, construction="cv+", folds=5, ridge=ridge)
    assert model.certificate_.coverage is not None
    outputs, J = features(model, X)
    for k, fold in enumerate(draw_folds(N, 5, model.seeds_.lazy)):
        kept = np.setdiff1d(np.arange(N), fold.numpy())
        move, b = reference.ridge_fit(J[kept], (y - outputs)[kept], model.ridge_[k], True)
        assert_close(model.loo_.models.columns[:, k], move, 1e-9)
        residuals = (y - outputs - J @ move - b)[fold.numpy()]
        assert_close(model.loo_.residuals[fold], residuals, 1e-8)


def test_a_sketch_of_few_rows_is_small() -> None:
    X, y = linear(20)
    model = fitted(X, y, features=lk.Sketch(), ridge=1.0)
    assert model.loo_.basis.size == 4
    assert model.features == lk.Sketch()
    assert len(model.predict_interval(X).lower) == 20
