"""Leave-one-out models of other losses, against one explicit refit for each."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.compute import Machine
from lazyknife.losses import SQUARED, Huber, Logistic, Loss, Poisson
from lazyknife.ridge.convex import leave_one_out_newton, working_targets, working_weights
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.system import RidgeModels
from machines import MACHINE, here
from reference import Array, assert_close
from systems import chosen_ridges, dual_models, own_ridges

NAMES = ["squared", "huber", "logistic", "poisson"]


@dataclass(frozen=True)
class Rows:
    """A problem: Jacobian, targets, offsets and the loss."""

    J: Array
    y: Array
    offsets: Array
    loss: Loss

    def without(self, j: int) -> Self:
        kept = np.arange(len(self.y)) != j
        return replace(self, J=self.J[kept], y=self.y[kept], offsets=self.offsets[kept])

    def parts(self, f: Array) -> tuple[Array, Array, Array]:
        """Values, slopes and curvatures of the loss; f has shape (n,) or (n, models)."""
        f, y = torch.from_numpy(f), torch.from_numpy(self.y.reshape(-1, *[1] * (f.ndim - 1)))
        loss = self.loss
        parts = (loss.value(f, y), loss.gradient(f, y), loss.curvature(f, y))
        return tuple(part.expand_as(f).numpy() for part in parts)  # type: ignore[return-value]


def problem(
    name: str, n: int, size: int, seed: int, scale: float = 1.0, noise: float = 1.0
) -> Rows:
    """Random rows; whatever is left out, targets of both kinds stay."""
    rng = np.random.default_rng(seed)
    J, offsets = scale * rng.normal(size=(n, size)), rng.choice([0.0, 1.0]) * rng.normal(size=n)
    signal = J[:, 0]
    if name == "huber":
        delta = float(10 ** rng.uniform(-1, 1))
        y = signal + noise * rng.standard_t(1.2, size=n)
        return Rows(J, y, offsets, Huber(delta))
    if name == "logistic":
        y = (signal + noise * rng.logistic(size=n) > 0).astype(float)
        y[:4] = [0, 0, 1, 1]
        return Rows(J, y, offsets, Logistic())
    if name == "poisson":
        y = rng.poisson(np.exp(np.clip(signal, -5, np.log(1000.0)))).astype(float)
        y[:2] += 1
        return Rows(J, y, offsets, Poisson())
    return Rows(J, signal + rng.normal(size=n), offsets, SQUARED)


def refit(rows: Rows, ridge: float, intercept: bool) -> tuple[Array, float, bool]:
    """Move and intercept of the rows' own model, in the space of the weights, started from zero.

    Newton's method with as much of the identity added as it takes to go down. The last says
    whether the solution is the only one.
    """
    X = np.hstack([rows.J, np.ones((len(rows.y), 1))])[:, : rows.J.shape[1] + intercept]
    penalty = np.full(X.shape[1], ridge)
    penalty[rows.J.shape[1] :] = 0.0

    def at(weights: Array) -> tuple[float, Array, Array]:
        value, slope, curvature = rows.parts(rows.offsets + X @ weights)
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = X.T @ slope + penalty * weights
            return float(value.sum() + penalty @ weights**2 / 2), gradient, curvature

    weights = np.zeros(X.shape[1])
    value, gradient, curvature = at(weights)
    for _ in range(500):
        size = np.abs(X).T @ np.abs(rows.parts(rows.offsets + X @ weights)[1])
        if np.abs(gradient).max() <= 1e-14 * size.max(initial=1e-300):
            break
        hessian = X.T @ (curvature[:, None] * X) + np.diag(penalty)
        for damping in 10.0 ** np.arange(-16, 12):
            more = damping * np.diag(hessian).max() * np.eye(len(weights))
            step = -np.linalg.solve(hessian + more, gradient)
            new = at(weights + step)
            fallen = new[0] < value - 1e-4 * abs(gradient @ step)
            steady = new[0] <= value + 1e-13 * abs(value)
            if fallen or (steady and np.abs(new[1]).max() < np.abs(gradient).max() / 2):
                break
        else:
            break  # rounding allows no more
        weights = weights + step
        value, gradient, curvature = new
    move, rest = weights[: rows.J.shape[1]], weights[rows.J.shape[1] :]
    slopes = np.abs(rows.parts(rows.offsets + X @ weights)[1])
    level = isinstance(rows.loss, Huber) and bool((slopes > 0.9999 * rows.loss.delta).all())
    return move, float(rest.sum()), not (intercept and level)


def fixed(
    rows: Rows,
    ridge: float,
    intercept: bool,
    machine: Machine = MACHINE,
    **steps: int,
) -> RidgeModels:
    kernel, y, offsets = here(rows.J @ rows.J.T), here(rows.y), here(rows.offsets)
    system = DualSystem(kernel, y - offsets, intercept, machine)
    return leave_one_out_newton(system, y, own_ridges(ridge, y), rows.loss, **steps)


def auto(rows: Rows, intercept: bool) -> RidgeModels:
    """Models that chose λ as the lazy step lets them."""
    kernel, y, offsets = here(rows.J @ rows.J.T), here(rows.y), here(rows.offsets)
    found = chosen_ridges(kernel, working_targets(rows.loss, y, offsets), intercept)
    own = replace(found, values=found.values * working_weights(rows.loss, y))
    system = DualSystem(kernel, y - offsets, intercept, MACHINE)
    return leave_one_out_newton(system, y, own, rows.loss)


def check_against_refits(
    models: RidgeModels, rows: Rows, intercept: bool, relative: float = 1e-6
) -> int:
    """Compare every model with its refit, on every row; return how many were comparable."""
    compared, n = 0, len(rows.y)
    columns = torch.cat([models.columns, models.full[:, None]], dim=1).cpu().numpy()
    for j, ridge in enumerate(models.ridges.tolist()):
        move, b, unique = refit(rows.without(j), ridge, intercept)
        if not unique:
            continue
        expected = rows.offsets + rows.J @ move + b
        found = rows.offsets + rows.J @ (rows.J.T @ columns[:, j]) + float(models.intercepts[j])
        scale = 1e-2 + np.abs(expected).max()
        assert np.abs(found - expected).max() <= relative * scale, j
        mean = rows.loss.mean(torch.from_numpy(expected)).numpy()
        error = rows.y - mean
        if j < n:
            found_error = abs(float(models.residuals[j]) - error[j])
            assert found_error <= relative * (1 + scale) * (1 + abs(mean[j]))
        else:
            difference = np.abs(models.training_residuals.cpu().numpy() - error)
            assert (difference <= relative * (1 + scale) * (1 + np.abs(mean))).all()
        compared += 1
    assert (models.columns.diagonal() == 0).all()
    if intercept:
        room = models.unsolved + 1e-9 * (1 + np.abs(columns).max())
        assert np.abs(columns.sum(axis=0)).max() <= room
    return compared


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    n=st.integers(5, 20),
    size=st.integers(1, 30),
    exponent=st.floats(-2, 2),
    scale=st.sampled_from([0.3, 1.0, 3.0]),
    noise=st.sampled_from([0.1, 1.0]),
    intercept=st.booleans(),
    budget=st.sampled_from([1, 20_000, MACHINE.budget]),
    steps=st.sampled_from([{}, {"joint_steps": 1}]),  # far from the full one they are solved alone
    seed=st.integers(0, 10**6),
)
def test_every_model_equals_its_explicit_refit(
    name: str,
    n: int,
    size: int,
    exponent: float,
    scale: float,
    noise: float,
    intercept: bool,
    budget: int,
    steps: dict[str, int],
    seed: int,
) -> None:
    rows = problem(name, n, size, seed, scale, noise)
    machine = replace(MACHINE, budget=budget)
    models = fixed(rows, 10.0**exponent, intercept, machine, **steps)
    assert (models.ridges == 10.0**exponent).all()
    check_against_refits(models, rows, intercept)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [1e-4, 1.0, 1e3])
def test_with_the_squared_loss_it_is_the_ridge(ridge: float, intercept: bool) -> None:
    rows = problem("squared", 25, 40, seed=0)
    found = fixed(rows, ridge, intercept)
    kernel, targets = here(rows.J @ rows.J.T), here(rows.y - rows.offsets)
    expected = dual_models(kernel, targets, ridge, intercept)
    for field in fields(RidgeModels):
        if isinstance(wanted := getattr(expected, field.name), torch.Tensor):
            scale = 1e-3 + float(wanted.abs().max())
            assert float((getattr(found, field.name) - wanted).abs().max()) < 1e-11 * scale


def gradients(models: RidgeModels, rows: Rows, ridge: float) -> tuple[Array, Array]:
    """What is left of the gradient of every model, and its largest slope, each (n,)."""
    columns, K = models.columns.cpu().numpy(), rows.J @ rows.J.T
    f = rows.offsets[:, None] + K @ columns + models.intercepts[:-1].cpu().numpy()
    slopes = rows.parts(f)[1] * (1 - np.eye(len(rows.y)))
    return np.abs(ridge * columns + slopes).max(axis=0), np.abs(slopes).max(axis=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_gradient_is_within_the_stated_tolerance(name: str) -> None:
    rows = problem(name, 40, 60, seed=4)
    deltas = (1e-6, 1e-3, 1e3)  # in another unit than y
    for loss in [Huber(delta) for delta in deltas] if name == "huber" else [rows.loss]:
        rows = replace(rows, loss=loss)
        left, largest = gradients(fixed(rows, 0.3, True), rows, 0.3)
        assert (left <= 1.01e-9 * largest + 1e-11).all()


def test_without_curvature_the_intercept_is_the_median() -> None:
    """Next to no kernel and a tiny δ: of an even number of rows it is the middle of the two.

    All intercepts between them are as good, and the row left out must not decide.
    """
    y = np.array([3.0, -4.0, 11.0, 40.0, -90.0])
    rows = Rows(1e-9 * np.ones((5, 1)), y, np.zeros(5), Huber(1e-3))
    models = fixed(rows, 1.0, True)
    medians = [*(np.median(np.delete(y, j)) for j in range(5)), 3.0]
    np.testing.assert_allclose(models.intercepts.tolist(), medians, atol=1e-6)
    for wild in (-1e5, 7.5, 1e5):
        after = fixed(replace(rows, y=np.append(y[:4], wild)), 1.0, True)
        assert float(after.intercepts[4]) == pytest.approx(float(models.intercepts[4]), abs=1e-9)
    even = replace(rows, J=rows.J[:4], y=y[:4], offsets=np.zeros(4))
    assert float(fixed(even, 1.0, True).intercepts[4]) == pytest.approx(7.0, abs=1e-6)


@pytest.mark.parametrize("offset", [-500.0, -20.0, 0.0, 60.0, 500.0])
def test_poisson_counts_far_from_the_offsets(offset: float) -> None:
    rows = problem("poisson", 12, 5, seed=6)
    rows = replace(rows, y=1000 + rows.y, offsets=rows.offsets + offset)
    models = fixed(rows, 1.0, True)
    if abs(offset) < 100:
        check_against_refits(models, rows, True)
    else:  # an intercept takes it up; the twin could not begin there
        near = fixed(replace(rows, offsets=rows.offsets - offset), 1.0, True)
        assert_close(models.residuals, near.residuals, 1e-7)
        assert_close(models.intercepts + offset, near.intercepts, 1e-7)


# --- λ chosen by the rows -----------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_chosen_models_equal_the_refits_at_their_ridge(name: str, intercept: bool) -> None:
    rows = problem(name, 14, 6, seed=2)
    models = auto(rows, intercept)
    assert check_against_refits(models, rows, intercept) > 7


WILD = {"squared": 1e4, "huber": -1e4, "poisson": 5000.0}


def one_choice_for_all(rows: Rows, intercept: bool) -> RidgeModels:
    """A mutant that leaks: one λ, chosen with the left-out row among the others."""
    return fixed(rows, float(auto(rows, intercept).ridges[-1]), intercept)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fit", [auto, one_choice_for_all])
@pytest.mark.parametrize("name", NAMES)
def test_a_rows_target_never_influences_the_model_without_it(
    name: str, fit: Callable[[Rows, bool], RidgeModels], seed: int
) -> None:
    """Neither λ nor the model itself, when y_j is replaced by something wild."""
    rows = problem(name, 12, 5, seed)
    before = fit(rows, True)
    ridge, model = 0.0, 0.0
    for j in range(12):
        y = rows.y.copy()
        y[j] = 1 - y[j] if name == "logistic" else WILD[name]
        if name == "logistic" and min(y.sum(), (1 - y).sum()) < 2:
            continue
        after = fit(replace(rows, y=y), True)
        change = (after.columns - before.columns)[:, j].cpu().numpy()
        values = rows.J @ (rows.J.T @ change) + float(after.intercepts[j] - before.intercepts[j])
        scale = 1 + float(before.columns.abs().max())
        ridge = max(ridge, abs(float(after.ridges[j] - before.ridges[j])))
        model = max(model, float(np.abs(values).max()), float(np.abs(change).max()) / scale)
    if fit is auto:
        assert ridge == 0.0
        assert model < 1e-6
    else:
        assert min(ridge, model) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_working_targets_and_weights_see_each_row_alone(name: str) -> None:
    rows = problem(name, 9, 3, seed=0)
    y, offsets = here(rows.y), here(rows.offsets)
    targets, weights = working_targets(rows.loss, y, offsets), working_weights(rows.loss, y)
    gradients = rows.parts(rows.offsets)[1]
    assert_close(targets, rows.y - rows.offsets if rows.loss.identity else -gradients)
    kept = [rows.without(j).y for j in range(10)]
    at = here(np.array([(each.sum() + 0.5) / (len(each) + 1) for each in kept]))
    ratio = weights / {"logistic": at * (1 - at), "poisson": at}.get(name, torch.ones_like(at))
    assert ((ratio > 0.7) & (ratio < 1.42)).all()
    assert torch.equal(weights.log2(), weights.log2().round())
    for j in range(9):
        other = y.clone()
        other[j] = 1 - other[j] if name == "logistic" else 1e17
        changed = working_targets(rows.loss, other, offsets) != targets
        assert changed.nonzero()[:, 0].tolist() == [j]
        assert working_weights(rows.loss, other)[j] == weights[j]


# --- what cannot be solved ----------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "rare"), [(Logistic(), 1.0), (Logistic(), 0.0), (Poisson(), 3.0)])
def test_an_intercept_needs_two_rows_of_either_kind(loss: Loss, rare: float) -> None:
    common = 0.0 if isinstance(loss, Poisson) else 1 - rare
    y = np.full(6, common)
    y[2] = rare
    rows = replace(problem("logistic", 6, 3, seed=0), y=y, loss=loss)
    with pytest.raises(ValueError, match=rf"{loss.name}.*no finite intercept.*intercept=False"):
        fixed(rows, 1.0, True)
    with pytest.raises(ValueError, match="no finite intercept"):
        auto(rows, True)
    assert torch.isfinite(fixed(rows, 1.0, False).columns).all()
    y[4] = rare
    assert torch.isfinite(fixed(replace(rows, y=y), 1.0, True).columns).all()


@pytest.mark.parametrize(
    ("offset", "steps", "words"),
    [
        (800.0, {}, r"poisson loss overflows.*reach 800"),
        (0.0, {"alone_steps": 1}, r"poisson loss did not converge at ridge=1.*larger ridge"),
    ],
)
def test_what_cannot_be_solved_says_so(offset: float, steps: dict[str, int], words: str) -> None:
    rows = problem("poisson", 6, 3, seed=0)
    rows = replace(rows, offsets=np.full(6, offset)) if offset else rows
    with pytest.raises(ValueError, match=words):
        fixed(rows, 1.0, True, **steps)


def separable() -> Rows:
    rows = problem("logistic", 16, 6, seed=3)
    return replace(rows, y=(rows.J[:, 0] > np.median(rows.J[:, 0])).astype(float))


@pytest.mark.parametrize(
    ("rows", "ridge", "intercept", "relative"),
    [
        (separable(), 1e-6, True, 1e-5),
        (separable(), 1e-3, True, 1e-5),
        # Counts of 1 around offsets of 0: every slope is 0, and no gradient is small against it.
        (problem("poisson", 5, 11, 5, 1.0, 0.1), 1.0, False, 1e-6),
        # Steps of six times their length once made residuals grow without end here.
        (problem("huber", 5, 1, 1112, 3.0, 0.1), 10**0.5, False, 1e-6),
    ],
    ids=["separable", "separable too", "predicted exactly", "mapped to zero by the kernel"],
)
def test_hard_rows(rows: Rows, ridge: float, intercept: bool, relative: float) -> None:
    compared = check_against_refits(fixed(rows, ridge, intercept), rows, intercept, relative)
    assert compared == len(rows.y) + 1 or isinstance(rows.loss, Huber)
