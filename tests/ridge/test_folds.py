"""Models without a fold against refits with the fold really deleted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import lazyknife as lk
import reference
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.networks import mlp
from lazyknife.ridge.folds import draw_folds, leave_folds_out, refits_folds
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.rounding import GAMMA, rounding_of
from lazyknife.ridge.system import RidgeModels
from lazyknife.tangent import Dual, Primal, linearise
from machines import MACHINE, here
from reference import Array, assert_close
from rows import linear
from systems import FORMS, assert_within, dual_models, own_ridges, problem, system

WAYS = [*FORMS, "refitted"]  # the last: features, a factor for each fold
GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it


def without_folds(
    form: str, J: Array, r: Array, ridges: Sequence[float], intercept: bool, folds: list[Tensor]
) -> RidgeModels:
    """Models whose λ are those given, in turn."""
    own = own_ridges(ridges, here(np.zeros(len(folds))))
    refit = form == "refitted"
    equations = system("primal" if refit else form, J, r, intercept, MACHINE)
    return leave_folds_out(equations, own, folds, refit=refit)


def check(
    form: str, J: Array, r: Array, ridges: Sequence[float], intercept: bool, folds: list[Tensor]
) -> RidgeModels:
    models = without_folds(form, J, r, ridges, intercept, folds)
    scale = 1e-8 * np.abs(r).max()
    columns = torch.cat([models.columns, models.full[:, None]], dim=1).cpu().numpy()
    moves = J.T @ columns if form == "dual" else columns
    assert models.columns.shape[1] == len(folds)
    assert models.model_of is not None
    for k, fold in enumerate([*folds, torch.arange(0)]):
        rows = fold.numpy()
        kept = np.setdiff1d(np.arange(len(r)), rows)
        ridge = ridges[k % len(ridges)]
        move, b = reference.ridge_fit(J[kept], r[kept], ridge, intercept)
        assert float(models.ridges[k]) == ridge
        assert_within(moves[:, k], move, scale)
        assert_within(models.intercepts[k], np.array(b), scale)
        if k < len(folds):
            assert (models.model_of[rows] == k).all()
            assert_within(models.residuals.cpu()[rows], (r - J @ move - b)[rows], scale)
        else:
            assert_within(models.training_residuals, r - J @ move - b, scale)
    return models


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    n=st.integers(3, 16),
    size=st.integers(1, 20),
    folds=st.integers(2, 16),
    auto=st.booleans(),
    intercept=st.booleans(),
    form=st.sampled_from(WAYS),
    seed=st.integers(0, 10**6),
)
def test_every_model_equals_the_refit_without_its_fold(
    n: int, size: int, folds: int, auto: bool, intercept: bool, form: str, seed: int
) -> None:
    J, r, _ = problem(n, size, seed)
    parts = draw_folds(n, min(folds, n), seed)
    check(form, J, r, GRID if auto else [0.5], intercept, parts)


@pytest.mark.parametrize("form", WAYS)
def test_folds_of_any_size_and_order(form: str) -> None:
    J, r, _ = problem(13, 6, seed=1)
    parts = [[12, 0, 5, 7, 3], [1], [11, 2], [10, 9, 8, 6, 4]]
    check(form, J, r, GRID, True, [torch.tensor(part) for part in parts])


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(6, 120),
    size=st.integers(1, 30),
    folds=st.integers(2, 12),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_a_factor_for_each_fold_gives_the_models_of_the_inverse(
    n: int, size: int, folds: int, intercept: bool, seed: int
) -> None:
    J, r, _ = problem(n, size, seed)
    parts, grid = draw_folds(n, min(folds, n - 3), seed), np.logspace(-3, 5, 20).tolist()
    found, twin = (without_folds(form, J, r, grid, intercept, parts) for form in WAYS[1:])
    assert torch.equal(found.ridges, twin.ridges)
    for name in ("columns", "full", "intercepts", "residuals", "training_residuals"):
        assert_close(getattr(found, name), getattr(twin, name), 1e-9)
    assert found.model_of is not None
    assert torch.equal(found.model_of, twin.model_of)


def test_residuals_of_folds_are_within_their_rounding_bounds() -> None:
    """A fold with an outlier in x and y: subtracting its rows costs digits, which bounds cover."""
    J, r, _ = problem(40, 5, seed=4)
    parts = draw_folds(40, 4, seed=0)
    J[parts[0][0]] *= 1e6
    r[parts[0][0]] *= 1e6
    models = without_folds("refitted", J, r, [1.0], True, parts)
    rounding = rounding_of(models, GAMMA, float(np.abs(r).max()))
    for fold in parts:
        kept = np.setdiff1d(np.arange(40), fold.numpy())
        move, b = reference.ridge_fit(J[kept], r[kept], 1.0, True)
        off = np.abs((r - J @ move - b)[fold.numpy()] - models.residuals.cpu().numpy()[fold])
        assert (off <= 2 * rounding.own.cpu().numpy()[fold]).all()


def test_many_small_folds_use_the_inverse_and_large_ones_a_factor() -> None:
    assert refits_folds(100_000, 512, 10)
    assert not refits_folds(5_000, 512, 5_000)
    assert not refits_folds(5_000, 4_096, 10)


def test_folds_are_a_partition_with_sizes_that_differ_by_one_at_most() -> None:
    for n, folds in ((10, 3), (10, 10), (17, 4), (5, 2)):
        parts = draw_folds(n, folds, seed=n)
        assert torch.cat(parts).sort().values.tolist() == list(range(n))
        sizes = [len(part) for part in parts]
        assert len(sizes) == folds
        assert max(sizes) - min(sizes) <= (n % folds > 0)
    first, again, other = (torch.cat(draw_folds(40, 4, seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, torch.arange(40))  # rows in order may be sorted by something


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", WAYS)
@pytest.mark.parametrize("ridges", [[0.5], GRID], ids=["fixed", "auto"])
def test_as_many_folds_as_rows_is_leave_one_out(
    ridges: list[float], form: str, intercept: bool
) -> None:
    J, r, new = problem(12, 7, seed=2)
    parts = draw_folds(12, 12, seed=0)
    models = without_folds(form, J, r, ridges, intercept, parts)
    assert models.model_of is not None
    order = torch.cat([models.model_of.cpu(), torch.tensor([12])])
    twin = dual_models(here(J @ J.T), here(r), models.ridges[order], intercept, MACHINE)
    rows = here(new @ J.T if form == "dual" else new)
    found = (rows @ models.columns)[:, models.model_of]
    assert_close(found, here(new @ J.T) @ twin.columns, 1e-8)
    assert_close(models.residuals, twin.residuals, 1e-8)
    assert_within(models.intercepts[order], twin.intercepts.cpu().numpy(), 1e-8)
    assert torch.equal(models.ridges.cpu()[order], twin.ridges.cpu())


@pytest.mark.parametrize("value", [-2.0, 100.0, 1e6])
@pytest.mark.parametrize("form", WAYS)
def test_a_folds_own_targets_change_nothing_about_its_model(form: str, value: float) -> None:
    J, r, _ = problem(15, 8, seed=3)
    parts = draw_folds(15, 4, seed=1)
    before = without_folds(form, J, r, GRID, True, parts)
    for k, part in enumerate(parts):
        changed = r.copy()
        changed[part.numpy()] += value * np.arange(1, 1 + len(part))
        after = without_folds(form, J, changed, GRID, True, parts)
        assert after.ridges[k] == before.ridges[k]
        tolerance = 1e-9 * max(1.0, abs(value))
        assert_close(after.columns[:, k], before.columns[:, k], tolerance)
        assert_close(after.intercepts[k], before.intercepts[k], tolerance)
        for other in range(len(parts)):  # while the other models do change
            if other != k:
                gap = (after.columns - before.columns)[:, other].abs().max()
                assert gap > 1e-6 * before.columns[:, other].abs().max()


def plus_ends(
    predictions: Array, margins: Array, alpha: Fraction
) -> tuple[list[float], list[float]]:
    lower = [reference.lower_quantile((f - margins).tolist(), alpha) for f in predictions]
    upper = [reference.upper_quantile((f + margins).tolist(), alpha) for f in predictions]
    return lower, upper


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("ridge", [2.0, "auto"])
@pytest.mark.parametrize(("n", "folds", "widths"), [(14, 4, (5,)), (20, 5, (2,))])
def test_the_estimator_equals_refits_without_each_fold(
    n: int, folds: int, widths: tuple[int, ...], ridge: float | str, readout: str
) -> None:
    X, y = linear(n)
    new = torch.from_numpy(linear(5, seed=1)[0])
    model = lk.LazyJackknifeRegressor(
        mlp(widths, "tanh"),
        lk.Public(),
        construction="cv+",
        folds=folds,
        readout=readout,
        alpha=0.25,
        scaling=None,
        device=MACHINE.device,
        random_state=0,
    ).set_params(ridge=ridge)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the moved networks are far")
        model.fit(X, y)
    module = model.base_.module.double()
    rows, form = torch.from_numpy(X), Primal if n == 20 else Dual
    if not hasattr(model, "choice_"):
        assert type(model.loo_.basis) is form
    J, base = reference.jacobian(module, rows), reference.outputs(module, rows)
    seed = model.seeds_.lazy
    predictions, margins = np.empty((5, n)), np.empty(n)
    expected = {
        "network": reference.network_predictions,
        "tangent": reference.tangent_predictions,
    }[readout]
    for k, fold in enumerate(draw_folds(n, folds, seed)):
        out = fold.numpy()
        kept = np.setdiff1d(np.arange(n), out)
        r = (y - base)[kept]
        move, b = reference.ridge_fit(J[kept], r, float(model.ridge_[k]), True)
        fit = reference.Refits(move[None], np.array([b]))
        predictions[:, out] = expected(module, fit, new)
        margins[out] = np.abs(y[out] - expected(module, fit, rows[out])[:, 0])
    found = model.predict_interval(new.numpy())
    lower, upper = plus_ends(predictions, margins, Fraction(1, 4))
    np.testing.assert_allclose(found.lower, lower, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.upper, upper, rtol=1e-6, atol=1e-6)
    assert model.ridge_.shape == (folds + 1,)
    assert model.certificate_.coverage is not None


def test_the_lazy_step_with_blocks_of_one() -> None:
    torch.manual_seed(0)
    module = mlp((5,), "tanh")(3)
    X, y = (MACHINE.put(torch.from_numpy(part)) for part in linear(14))
    step = LazyStep(2.0, construction="cv+", folds=4, seed=3)
    whole = step.models(linearise(module, X, machine=MACHINE), X, y).scaled(X).each
    machine = replace(MACHINE, budget=1)
    loo = step.models(linearise(module, X, machine=machine), X, y)
    assert_close(loo.scaled(X).each, whole, 1e-9)


def test_more_folds_than_rows_are_refused() -> None:
    X, y = linear(8)
    model = lk.LazyJackknifeRegressor(base=lk.Public(), construction="cv+", folds=9)
    with pytest.raises(ValueError, match="folds=9 is more than the 8 rows: give at most 8"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="folds=1: give at least 2"):
        model.set_params(folds=1).fit(X, y)
