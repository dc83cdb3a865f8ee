"""Factors of widths that every model chooses, against one model after another."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazyknife.choosing.shape import (
    Errors,
    Factors,
    QuantileShape,
    choose_factors,
    errors_of,
    fit_shape,
)
from lazyknife.data.own_scaling import FeatureScale
from lazyknife.networks import wide
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.system import joined
from lazyknife.tangent import WideTangent
from machines import MACHINE, here
from reference import Array, assert_close
from widths import OwnFactors, names_in_order

ALPHA = 0.2
CENTER, SCALE = np.array([0.5, -1.0]), np.array([2.0, 0.5])
FRAME = FeatureScale(here(CENTER), here(SCALE), (False,) * len(CENTER))


def frame(network: wide) -> WideTangent:
    weights = np.full(2, network.scale / np.sqrt(2))
    return WideTangent(network, here(weights), FRAME, MACHINE)


def problem(seed: int, n: int, kind: str) -> tuple[Array, Array, Array, Array, Array]:
    """X, y, sizes (n, n), predictions (n, n) and of the left-out rows (n,)."""
    rng = np.random.default_rng(seed)
    X = CENTER + SCALE * rng.normal(size=(n, 2))
    predicted = rng.normal(size=(n, 1)) + 0.1 * rng.normal(size=(n, n))
    y = predicted.mean(axis=1) + 0.5 * rng.normal(size=n)
    around = {
        "equal": np.ones((n, 1)),
        "local": np.where(X[:, :1] > CENTER[0], 8.0, 1.0),
        "level": np.exp(predicted),
    }[kind]
    sizes = np.abs(rng.normal(size=(n, n)) * 0.3 + 1) * around
    np.fill_diagonal(sizes, 0.0)
    return X, y, sizes, predicted, np.diag(predicted).copy()


def choices(
    X: Array, y: Array, sizes: Array, predicted: Array, own: Array, together: bool = False
) -> Factors:
    """In two groups of models, in an order of their own, or in one of all of them."""
    order = np.random.default_rng(0).permutation(len(y))
    groups = []
    for each in np.array_split(order, 2):
        parts = (each, sizes[:, each], predicted[:, each], own[each], np.full(len(each), 1e-13))
        groups.append(Errors(*map(here, parts)))
    groups = [joined(groups, -1)] if together else groups
    count = len(groups)
    return choose_factors(here(X), [here(y)] * count, groups, [frame] * count, ALPHA)


def alone(j: int, X: Array, y: Array, sizes: Array, predicted: Array) -> OwnFactors:
    kept = np.arange(len(y)) != j
    return OwnFactors(X[kept], y[kept], sizes[kept, j], predicted[kept, j], SCALE)


@pytest.mark.parametrize("kind", ["equal", "local", "level"])
@given(seed=st.integers(0, 10**6), n=st.sampled_from([4, 9, 24]), together=st.booleans())
@settings(max_examples=10, deadline=None)
def test_every_model_chooses_on_its_own_rows(kind: str, seed: int, n: int, together: bool) -> None:
    X, y, sizes, predicted, own = problem(seed, n, kind)
    found = choices(X, y, sizes, predicted, own, together)
    rng = np.random.default_rng(seed)
    new, each = CENTER + 2 * SCALE * rng.normal(size=(3, 2)), 2 * rng.normal(size=(3, n))
    factors = found.at(here(new), here(each)).cpu().numpy()
    names = names_in_order()
    for j in range(n):
        model = alone(j, X, y, sizes, predicted)
        k = model.chosen
        shift = model.shift(ALPHA)
        assert found.names[j] == names[k] + ", shifted" * (shift != 0)
        assert float(found.shift[j]) == pytest.approx(shift, rel=1e-9)
        expected = [model.at(k, x, each[i, j]) for i, x in enumerate(new)]
        assert_close(factors[:, j], np.array(expected), 1e-9)
        assert float(found.own[j]) == pytest.approx(model.at(k, X[j], own[j]), rel=1e-9)
    assert not found.doubtful.any()


def test_errors_of_0_leave_the_widths_alone() -> None:
    X, y, sizes, predicted, own = problem(0, 8, "equal")
    found = choices(X, y, 0 * sizes, predicted, own)
    assert set(found.names) == {"leverage"}
    assert (found.own == 1).all()


def test_choices_within_rounding_are_doubtful_and_one_model_does_not_touch_the_others() -> None:
    X, y, sizes, predicted, own = problem(0, 8, "local")
    noise = here(np.where(np.arange(8) == 3, 1.0, 1e-13))
    errors = Errors(here(np.arange(8)), here(sizes), here(predicted), here(own), noise)
    found = choose_factors(here(X), [here(y)], [errors], [frame], ALPHA)
    assert found.doubtful.tolist() == [j == 3 for j in range(8)]
    other = sizes.copy()
    other[:, 3] *= np.arange(8)
    errors = errors._replace(sizes=here(other))
    changed = choose_factors(here(X), [here(y)], [errors], [frame], ALPHA)
    for j in set(range(8)) - {3}:
        assert found.names[j] == changed.names[j]
        assert found.own[j] == changed.own[j]
        assert found.shift[j] == changed.shift[j]


def skewed(n: int) -> tuple[Array, Array, Array, Array, Array]:
    """Errors with a long tail above, near those of all models and with one of the rows far out."""
    rng = np.random.default_rng(0)
    X, predicted = CENTER + SCALE * rng.normal(size=(n, 2)), np.zeros((n, n))
    y = rng.exponential(size=n) - 0.5
    sizes = np.abs(y[:, None]) * (1 + 0.05 * rng.random((n, n)))
    np.fill_diagonal(sizes, 0.0)
    return X, y, sizes, predicted, np.zeros(n)


@pytest.mark.parametrize("n", [60, 400])
def test_intervals_are_shifted_where_errors_are_skewed(n: int) -> None:
    """Mutants: the shift of another model, and one from the quantiles of all rows, differ."""
    X, y, sizes, predicted, own = skewed(n)
    found = choices(X, y, sizes, predicted, own).shift.cpu().numpy()
    assert (found > 0.5).all()
    some = range(0, n, 20)
    expected = np.array([alone(j, X, y, sizes, predicted).shift(ALPHA) for j in some])
    assert_close(found[some], expected, 1e-9)
    assert np.abs(np.roll(found, 1)[some] - expected).max() > 1e-4
    whole = [np.append(alone(j, X, y, sizes, predicted).sizes, np.abs(y[j])) for j in some]
    signs = np.array([np.append(np.sign(np.delete(y, j)), np.sign(y[j])) for j in some])
    all_rows = np.sort(np.array(whole) * signs, axis=1)
    rank = int(ALPHA / 2 * n)
    assert np.abs((all_rows[:, rank] + all_rows[:, -1 - rank]) / 2 - expected).max() > 1e-4
    mirrored = choices(X, -y, sizes, predicted, own).shift.cpu().numpy()
    assert_close(mirrored, -found, 1e-12)


# Errors with two rows left out, against refits without the two.

N, RIDGE = 12, 0.05
OUTPUTS = np.linspace(-1, 1, N)  # of the network before the lazy step


def kernel_and_targets(seed: int) -> tuple[Array, Array]:
    """A kernel and targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    gaps = np.square(X[:, None] - X).sum(axis=2)
    return np.exp(-gaps / 2), np.sin(X[:, 0]) + 0.3 * rng.normal(size=N)


def refit(kernel: Array, y: Array, gone: list[int], intercept: bool) -> tuple[Array, Array]:
    """Predictions, and their leverage widths, at the rows left out."""
    kept = np.setdiff1d(np.arange(N), gone)
    system = np.ones((len(kept) + 1, len(kept) + 1))
    system[:-1, :-1], system[-1, -1] = kernel[np.ix_(kept, kept)] + RIDGE * np.eye(len(kept)), 0.0
    border = np.ones((len(kept) + 1, len(gone)))
    border[:-1] = kernel[np.ix_(kept, gone)]
    if not intercept:
        system, border = system[:-1, :-1], border[:-1]
    weights = np.linalg.solve(system, border)
    open_part = kernel[gone, gone] + RIDGE - (weights * border).sum(axis=0)
    moved = weights[: len(kept)].T @ (y - OUTPUTS)[kept]
    return OUTPUTS[gone] + moved, np.sqrt(open_part)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("huge", [None, 1e6, 1e12, 1e200])
def test_a_huge_target_costs_the_model_without_it_no_digits(
    intercept: bool, huge: float | None
) -> None:
    kernel, y = kernel_and_targets(1)
    y[4] = y[4] if huge is None else huge
    members = [7, 4, 0]
    system = DualSystem(here(kernel), here(y - OUTPUTS), intercept, MACHINE)
    found = errors_of(system, system.solve(RIDGE), here(OUTPUTS), here(np.array(members)))
    assert (found.noise < 1e-9).all()
    assert found.members.tolist() == members
    for k, j in enumerate(members):
        expected, sizes = np.empty(N), np.zeros(N)
        for i in set(range(N)) - {j}:
            predicted, width = refit(kernel, y, [i, j], intercept)
            expected[i], sizes[i] = predicted[0], abs(y[i] - predicted[0]) / width[0]
        kept = np.arange(N) != j
        largest = np.abs(expected[kept]).max()
        got = found.sizes[:, k].cpu().numpy()
        np.testing.assert_allclose(got, sizes, rtol=0, atol=1e-10 * sizes.mean())
        got = found.predicted[kept, k].cpu().numpy()
        np.testing.assert_allclose(got, expected[kept], rtol=0, atol=1e-10 * largest)
        own = refit(kernel, y, [j], intercept)[0][0]
        assert float(found.own[k]) == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("others", [0.0, 0.1, 1e6])
def test_where_the_others_are_equal_there_are_no_errors(others: float) -> None:
    """Not even by rounding, which would choose a factor."""
    kernel, y = kernel_and_targets(1)
    y[:], y[4] = others, others + 1e9
    system = DualSystem(here(kernel), here(y), True, MACHINE)
    found = errors_of(system, system.solve(RIDGE), here(OUTPUTS), here(np.array([4])))
    assert (found.sizes == 0).all()
    assert (found.noise < 1e-9).all()


# Quantile curves learnt on rows set aside.


def left_out(n: int, kind: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, levels and errors of which the spread, the middle or nothing depends on the row."""
    rng = np.random.default_rng(seed)
    X, levels = rng.normal(size=(n, 2)), rng.normal(size=n)
    e = {
        "equal": rng.normal(size=n),
        "spread": np.exp(X[:, 0]) * rng.normal(size=n),
        "skewed": np.exp(levels) * rng.exponential(size=n),
        "middle": 3 * np.sign(X[:, 1]) + 0.3 * rng.normal(size=n),
    }[kind]
    return here(X), here(levels), here(e)


def shape_of(X: Tensor, levels: Tensor, errors: Tensor, **more: Any) -> QuantileShape | None:
    terms = {"alpha": 0.1, "seed": 0, "machine": MACHINE} | more
    return fit_shape(X, levels, errors, **terms)


@pytest.mark.parametrize("kind", ["spread", "skewed", "middle"])
@pytest.mark.parametrize("n", [400, 4000])
def test_curves_are_found_where_errors_follow_the_row_or_its_level(kind: str, n: int) -> None:
    shape = shape_of(*left_out(n, kind))
    assert shape is not None
    X, levels, errors = left_out(2000, kind, seed=1)
    shift, scale, error = shape.at(X, levels, 1e-12 + 0 * levels)
    inside = ((errors - shift).abs() <= scale).double().mean()
    assert 0.8 < float(inside) < 0.95
    assert bool((scale >= shape.floor).all() and torch.isfinite(error).all())
    if kind == "spread":
        assert float(scale[X[:, 0] > 1].mean() / scale[X[:, 0] < -1].mean()) > 3
        assert float(shift.abs().mean()) < 0.3
    if kind == "skewed":
        assert float((shift > 0).double().mean()) > 0.9


def test_constant_widths_stay_where_curves_gain_nothing() -> None:
    assert shape_of(*left_out(600, "equal")) is None
    X, levels, errors = left_out(600, "spread")
    for few in (slice(0, 100), slice(0, 2)):
        assert shape_of(X[few], levels[few], errors[few]) is None
    assert shape_of(X, levels, 0 * errors) is None
    assert shape_of(X, levels, torch.where(errors > 2, torch.inf, errors)) is None


@pytest.mark.parametrize("power", [-300, -40, 40, 300])
def test_shapes_follow_the_unit_of_y(power: int) -> None:
    X, levels, errors = left_out(400, "skewed")
    unit, none = 2.0**power, torch.zeros_like(levels)
    shape, other = shape_of(X, levels, errors), shape_of(X, unit * levels, unit * errors)
    assert shape is not None
    assert other is not None
    for one, its in zip(shape.at(X, levels, none), other.at(X, unit * levels, none), strict=True):
        assert torch.allclose(its, unit * one, rtol=1e-9, atol=0)


def test_levels_that_rounding_moves_give_the_same_trees() -> None:
    X, levels, errors = left_out(600, "skewed")
    levels = (3 * levels).round() / 7  # many are equal but for rounding
    rng = np.random.default_rng(0)
    moved = levels * (1 + 1e-14 * here(rng.normal(size=600)))
    shape, other = shape_of(X, levels, errors), shape_of(X, moved, errors)
    assert shape is not None
    assert other is not None
    for one, its in ((shape.low, other.low), (shape.high, other.high)):
        assert all(map(torch.equal, one.cuts, its.cuts))
        assert torch.equal(one.values, its.values)
    assert bool(torch.isfinite(shape.at(X, moved, 1e-12 + 0 * levels).error).all())


@pytest.mark.parametrize("doubt", [1.0, 0.0])
def test_levels_that_rounding_may_move_across_a_cut_are_doubtful(doubt: float) -> None:
    """The bound on c and h holds for every level within the error; a mutant has no doubts."""
    X, levels, errors = left_out(400, "skewed")
    shape = shape_of(X, levels, errors)
    assert shape is not None
    cuts = torch.cat([each.cuts_of(2) for each in (shape.low, shape.high)])
    assert len(cuts) > 20
    near = torch.cat([cuts, cuts + 1e-13, cuts - 1e-13, cuts + 1e-9, levels])
    rows = here(np.zeros((len(near), 2)))
    found = shape.at(rows, near, doubt * 1e-12 + 0 * near)
    worst = 0.0
    for step in (-1e-12, 1e-12):
        other = shape.at(rows, near + step, 0 * near)
        moved = torch.maximum(other.shift - found.shift, other.scale - found.scale).abs()
        worst = max(worst, float(torch.where(moved > 0, moved / found.error, 0.0).max()))
    assert (worst <= 1) == (doubt == 1)
    if doubt:
        assert bool(torch.isinf(found.error[: 3 * len(cuts)]).all())
        assert bool(torch.isfinite(found.error[3 * len(cuts) :]).all())
