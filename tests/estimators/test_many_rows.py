"""Sketches of more rows than choices look at: chosen ridges, folds and sizes."""

from typing import Any

import numpy as np
import pytest
import torch

import lazyknife as lk
import reference
from lazyknife.choosing.rows import rows_apart
from lazyknife.intervals import kappa
from lazyknife.ridge.leave_one_out import draw_folds
from machines import MACHINE
from reference import Array, assert_close
from rows import linear

N = 2300


def fitted(X: Array, y: Array, **settings: Any) -> lk.LazyJackknifeRegressor:
    given: dict[str, Any] = {"features": lk.Sketch(16), "random_state": 0, "device": MACHINE.device}
    return lk.LazyJackknifeRegressor(**(given | settings)).fit(X, y)


def features(model: lk.LazyJackknifeRegressor, X: Array) -> tuple[Array, Array]:
    """Outputs and sketched features of rows as the models see them."""
    rows = model.loo_.basis.at(MACHINE.put(torch.from_numpy(X)))
    return rows.outputs.cpu().numpy(), rows.coordinates.cpu().numpy()


def ordered(model: lk.LazyJackknifeRegressor) -> tuple[Array, int]:
    """Rows as the models have them, those set aside last, and how many are left out."""
    rest, apart = rows_apart(N, model.seeds_.lazy)
    return torch.cat([rest, apart]).numpy(), len(rest)


def test_a_rows_target_does_not_influence_the_ridge_and_model_without_it() -> None:
    X, y = linear(N)
    before = fitted(X, y)
    order, left = ordered(before)
    for j, value in ((7, 1e6), (left - 1, -50.0)):
        changed = y.copy()
        changed[order[j]] = value
        after = fitted(X, changed)
        assert (after.ridge_ == before.ridge_).all()
        own, twin = (model.loo_.models.columns[:, j] for model in (after, before))
        assert_close(own, twin, 1e-8)
    changed = y.copy()
    changed[order[left:]] += 5 * np.sin(99 * np.arange(N - left))
    assert (fitted(X, changed).ridge_ != before.ridge_).all()  # rows set aside choose


@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize("construction", ["plus", "cv+"])
def test_models_of_a_sketch_equal_refits_at_their_ridges(
    construction: str, ridge: float | str
) -> None:
    X, y = linear(N)
    model = fitted(X, y, construction=construction, folds=5, ridge=ridge)
    order, left = ordered(model) if ridge == "auto" else (np.arange(N), N)
    outputs, J = features(model, X[order])
    r, loo = y[order] - outputs, model.loo_
    folds = [fold.numpy() for fold in draw_folds(left, 5, model.seeds_.lazy)]
    gone = folds if construction == "cv+" else [np.array([j]) for j in range(6)]
    for k, out in enumerate(gone):
        kept = np.setdiff1d(np.arange(N), out)
        move, b = reference.ridge_fit(J[kept], r[kept], float(model.ridge_[k]), True)
        assert_close(loo.models.columns[:, k], move, 1e-9)
        assert_close(loo.models.intercepts[k], np.array(b), 1e-9)
        assert_close(loo.residuals[out], (r - J @ move - b)[out], 1e-8)
    if construction == "plus":
        move, _ = reference.ridge_fit(J, r, float(model.ridge_[-1]), True)
        assert_close(loo.models.full, move, 1e-9)
        bound = 1 - (2 * kappa(0.1, left) - 1) / (left + 1)
        assert model.certificate_.coverage == bound
    assert model.certificate_.coverage is not None
