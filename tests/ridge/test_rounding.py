"""Rounding never makes a certificate false: bounds and whole fits against refits in 60 digits."""

import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import lazyknife as lk
import reference
from lazyknife.choosing.per_model import CYCLES, TIE
from lazyknife.choosing.space import RIDGES, STEP
from lazyknife.networks import mlp
from lazyknife.ridge.convex import without_each
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.leave_one_out import leave_one_out
from lazyknife.ridge.problem import typical_size
from lazyknife.ridge.rounding import GAMMA, rounding_of
from lazyknife.ridge.system import OwnRidges
from lazyknife.tangent import Tangent, linearise
from machines import MACHINE, here
from reference import Array
from systems import FORMS, own_ridges, problem, system

mpmath.mp.dps = 60
Matrix = Any  # mpmath's
Ends = tuple[Any, Any]  # so are they


# Refits in extended precision.


def features(module: nn.Module, X: Array, last: bool = False) -> Matrix:
    """Jacobian rows of a linear model or of one hidden layer, in 60 digits.

    ``last`` takes those of the last layer alone.
    """
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    weights = [mpmath.matrix(layer.weight.double().tolist()) for layer in layers]
    biases = [mpmath.matrix(layer.bias.double().tolist()) for layer in layers]
    rows = []
    for x in X.tolist():
        x = mpmath.matrix(x)
        if len(layers) == 1:
            rows.append([*x, mpmath.mpf(1)])
            continue
        hidden = weights[0] * x + biases[0]
        active = [h > 0 for h in hidden]
        seen = [h if on else mpmath.mpf(0) for h, on in zip(hidden, active, strict=True)]
        signals = [weights[1][0, k] if on else mpmath.mpf(0) for k, on in enumerate(active)]
        first = [] if last else [s * v for s in signals for v in [*x, mpmath.mpf(1)]]
        rows.append([*first, *seen, mpmath.mpf(1)])
    return mpmath.matrix(rows)


@dataclass(frozen=True)
class Kernel:
    """Kernels of all rows, the last being new, in 60 digits, and numbers that count as given."""

    K: Matrix
    outputs: list[Any]  # as the network computes them
    y: list[Any]
    targets: list[Any]  # y − outputs, of training rows as float64 rounds it

    def bordered(self, rows: list[int], ridge: Any) -> Matrix:
        """K + λI of some rows, with a border of ones."""
        m = len(rows)
        G = mpmath.ones(m + 1, m + 1)
        G[m, m] = 0
        for a, i in enumerate(rows):
            for c, k in enumerate(rows):
                G[a, c] = self.K[i, k] + (ridge if a == c else 0)
        return G

    def fit(self, rows: list[int], ridge: Any) -> list[Any]:
        """Dual coefficients of a ridge with an intercept, which is the last."""
        targets = [self.targets[i] for i in rows]
        return list(mpmath.lu_solve(self.bordered(rows, ridge), mpmath.matrix([*targets, 0])))

    def predict(self, solution: list[Any], rows: list[int], at: int) -> Any:
        moved = sum(self.K[at, i] * c for i, c in zip(rows, solution, strict=False))
        return self.outputs[at] + moved + solution[-1]

    def minus_log_likelihood(self, rows: list[int], ridge: Any) -> Any:
        """−2 log restricted likelihood over its degrees of freedom, up to a constant."""
        m, solution = len(rows), self.fit(rows, ridge)
        quadratic = sum(self.targets[i] * c for i, c in zip(rows, solution, strict=False))
        logs = mpmath.log(-mpmath.det(self.bordered(rows, ridge)))
        return mpmath.log(quadratic / (m - 1)) + logs / (m - 1)

    def chosen(self, rows: list[int], unit: float) -> Any:
        """The λ of a model on its own rows: the best start, then moves that gain enough."""
        gain, exponent, best = mpmath.log(len(rows)) / len(rows), 0, mpmath.inf

        def better(offers: list[int], least: Any) -> tuple[int, Any] | None:
            found, limit = None, best - least
            for k in offers:
                value = self.minus_log_likelihood(rows, mpmath.mpf(unit) * mpmath.mpf(2) ** k)
                if value < limit - mpmath.mpf(TIE):
                    found, limit = (k, value), value
            return found

        exponent, best = better(list(RIDGES), 0) or (exponent, best)
        for _ in range(2 * CYCLES):
            exponent, best = better([exponent - STEP, exponent + STEP], gain) or (exponent, best)
        return mpmath.mpf(unit) * mpmath.mpf(2) ** exponent


def exact_plus(kernel: Kernel, n: int, ridge: float | None, unit: float, rank: int) -> Ends:
    """Ends of jackknife+ for row n, from n explicit refits; each chooses λ if none is given."""
    lows, highs = [], []
    for j in range(n):
        rows = [i for i in range(n) if i != j]
        solution = kernel.fit(rows, ridge or kernel.chosen(rows, unit))
        residual = abs(kernel.y[j] - kernel.predict(solution, rows, j))
        value = kernel.predict(solution, rows, n)
        lows.append(value - residual)
        highs.append(value + residual)
    return sorted(lows)[rank - 1], sorted(highs)[n - rank]


def exact_full(kernel: Kernel, n: int, ridge: float, rank: int) -> Ends:
    """Ends of full conformal for row n at a fixed λ: roots of each row's score against the new."""
    rows = list(range(n + 1))
    at = []
    for y in (mpmath.mpf(0), mpmath.mpf(1)):  # dual coefficients are linear in the candidate
        targets = [*kernel.targets[:n], y - kernel.outputs[n]]
        solution = replace(kernel, targets=targets).fit(rows, ridge)
        at.append(solution[: n + 1])
    slopes = [b - a for a, b in zip(*at, strict=True)]
    inverse = kernel.bordered(rows, ridge) ** -1
    root = [mpmath.sqrt(inverse[i, i]) for i in rows]
    lows, highs = [], []
    for i in range(n):
        ends = []
        for sign in (1, -1):  # c_i/√d_i = ± c_new/√d_new
            slope = slopes[i] / root[i] - sign * slopes[n] / root[n]
            ends.append(-(at[0][i] / root[i] - sign * at[0][n] / root[n]) / slope)
        lows.append(min(ends))
        highs.append(max(ends))
    return sorted(lows)[rank - 1], sorted(highs)[n - rank]


# Bounds on models.


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(4, 8),
    size=st.integers(1, 10),
    spread=st.integers(0, 6),
    share=st.floats(-12, 0),
    kind=st.sampled_from(["plain", "offset", "outlier", "twins"]),
    seed=st.integers(0, 10**6),
)
def test_models_are_within_their_bounds(
    form: str, n: int, size: int, spread: int, share: float, kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-spread / 2, spread / 2, size)
    J, new = (rng.normal(size=(m, size)) * scales for m in (n, 2))
    if kind == "offset":
        J, new = J + 10 * scales, new + 10 * scales
    if kind == "outlier":
        J[0] *= 1e4
    if kind == "twins":
        J[1] = J[0]
    r, ridge = rng.normal(size=n), float(np.square(J).sum() * 10.0**share)
    try:
        found = leave_one_out(system(form, J, r, True), own_ridges(ridge, here(r)))
    except ValueError:
        assert form == "primal"
        return  # refused
    coordinates = here(new @ J.T if form == "dual" else new)
    values = (coordinates @ found.columns + found.intercepts[:-1]).cpu().tolist()
    size_of_y = float(np.abs(r).max() + found.intercepts.abs().max())
    rounding = rounding_of(found, GAMMA, size_of_y)
    rows = mpmath.matrix(np.vstack([J, new]).tolist())
    y = [*map(mpmath.mpf, r.tolist()), 0, 0]
    kernel = Kernel(rows * rows.T, [mpmath.mpf(0)] * (n + 2), y, y)
    for j in np.flatnonzero(~rounding.undetermined.cpu().numpy()):
        others = [i for i in range(n) if i != j]
        solution = kernel.fit(others, ridge)
        residual = kernel.y[j] - kernel.predict(solution, others, j)
        assert abs(float(found.residuals[j]) - residual) <= float(rounding.own[j])
        for m in range(2):
            norm = torch.tensor([float(np.square(new[m]).sum())], dtype=torch.float64)
            slack = float(rounding.slack(norm, torch.tensor([values[m][j]])))
            assert abs(values[m][j] - kernel.predict(solution, others, n + m)) <= slack


# Whole fits: no certificate, or the ends of refits in extended precision within the slack.


class Case(NamedTuple):
    """A table that rounding finds hard."""

    X: Array
    y: Array
    x: Array
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n, p = draw(st.integers(6, 8)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n + 1, p))
    if draw(st.booleans()):
        rows = rows.round()  # ties and duplicates
    exponents = [draw(st.sampled_from([-12, -6, -3, 0, 0, 3, 6, 12])) for _ in range(p)]
    offset = draw(st.sampled_from([0.0, 0.0, 1.0, 100.0]))
    X = (rows + offset) * 10.0 ** np.array(exponents)
    y = rows[:, 0] + 0.3 * rng.normal(size=n + 1)
    kind = draw(st.sampled_from(["plain", "rounded", "constant", "outlier", "shifted"]))
    y = {
        "plain": y,
        "rounded": y.round(),
        "constant": np.ones(n + 1),
        "outlier": np.where(np.arange(n + 1) == 0, 1e6, y),
        "shifted": 1e7 + 1e-3 * y,
    }[kind]
    y = y * 10.0 ** draw(st.sampled_from([-12, 0, 0, 0, 12]))
    return Case(X[:n], y[:n], X[n:], seed % 7)


# Eliminating the intercept costs digits of rows that hardly differ.
LARGE_BESIDE_SMALL = Case(
    X=1e-12 * np.array([[0, 0, 2], [0, -1e18, 2], [0, 3e18, 1], [-2, 0, -2], [1, 0, 0], [0, 0, 2]]),
    y=1e-12 * np.array([0.11, -0.21, -0.13, -1.87, 1.09, 0.53]),
    x=np.array([[1e-12, -1e6, 0.0]]),
    seed=5,
)


def fitted(case: Case, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings |= {"scaling": None, "device": MACHINE.device, "random_state": case.seed}
        return lk.LazyJackknifeRegressor(alpha=0.3, **settings).fit(case.X, case.y)


def tangent_of(model: Any, case: Case) -> Tangent:
    rows = torch.from_numpy(case.X)
    return linearise(model.base_.module, rows, model.parameters, MACHINE)


def extended(model: Any, case: Case) -> Kernel:
    rows_of_all = np.vstack([case.X, case.x])
    rows = features(model.base_.module, rows_of_all, model.parameters == "last")
    given = tangent_of(model, case).features(torch.from_numpy(rows_of_all)).outputs.cpu().numpy()
    y = np.append(case.y, 0.0)
    return Kernel(rows * rows.T, *([*map(mpmath.mpf, each)] for each in (given, y, y - given)))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    case=cases(),
    construction=st.sampled_from(["plus", "full"]),
    widths=st.sampled_from([(), (3,)]),
    parameters=st.sampled_from(["all", "last"]),  # few features, in which λ may be lost
    ridge=st.sampled_from([1e-3, 1.0, 1e3, "auto"]),
)
@example(LARGE_BESIDE_SMALL, "plus", (3,), "all", 1e-3)
def test_a_certificate_holds_for_refits_in_extended_precision(
    case: Case, construction: str, widths: tuple[int, ...], parameters: str, ridge: float | str
) -> None:
    if construction == "full" and ridge == "auto":
        ridge = 10.0
    terms = {"construction": construction, "ridge": ridge, "parameters": parameters}
    score = None if construction == "full" else "constant"
    try:
        model = fitted(case, network=mlp(widths), widths=score, **terms)
    except ValueError:
        return  # refused: the kernels are not positive definite in float64
    if model.certificate_.coverage is None:
        return
    result = model.predict_interval(case.x)
    kernel, n = extended(model, case), len(case.y)
    rank = reference.rank(Fraction(3, 10), n)
    if construction == "full":
        low, high = exact_full(kernel, n, float(ridge), rank)
    else:
        own = None if isinstance(ridge, str) else ridge
        low, high = exact_plus(kernel, n, own, unit_of(model, case), rank)
    # The interval holds the exact one, and is wider by no more than what may be rounding.
    assert result.lower[0] <= low
    assert result.upper[0] >= high
    if np.isfinite(result.width[0]):
        sizes = [float(abs(value)) for value in (*kernel.y, *kernel.outputs)]
        slack = 0.5 * float(high - low) + 1e-9 * max(sizes)
        far = float(np.square(case.x).sum() / np.square(case.X).sum(axis=1).max())
        if far < 4:
            assert result.lower[0] >= low - slack
            assert result.upper[0] <= high + slack


def test_coefficients_sum_to_zero_beside_an_intercept_of_another_size() -> None:
    K = here(LARGE_BESIDE_SMALL.X @ LARGE_BESIDE_SMALL.X.T + 1)
    equations = DualSystem(K, here(LARGE_BESIDE_SMALL.X[:, 1]), True, MACHINE)
    solved = equations.solve(1e-3)
    for found in (solved, equations.again(solved, equations.targets)):
        assert found.dual.sum().abs() <= GAMMA * found.dual.abs().sum()


def unit_of(model: Any, case: Case) -> float:
    rows = torch.from_numpy(case.X)
    return typical_size(tangent_of(model, case), rows, model.seeds_.lazy)


def test_sums_without_each_never_hold_what_they_leave_out() -> None:
    values = torch.tensor([1.0, 1e300, 2.0, 4.0], dtype=torch.float64)
    assert without_each(values)[1] == 7.0


def test_nothing_is_known_of_models_whose_choice_rounding_may_have_decided() -> None:
    J, r, _ = problem(6, 3, seed=0)
    own = OwnRidges(here(np.full(7, 0.5)), here(np.arange(6) == 2).double())
    models = leave_one_out(DualSystem(here(J @ J.T), here(r), True, MACHINE), own)
    found = rounding_of(models, GAMMA, 1.0)
    assert torch.isinf(found.own).tolist() == [row == 2 for row in range(6)]
