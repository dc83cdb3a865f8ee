"""The search of all models at once against one search after another, each on its own rows."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyknife.choosing.likelihood import leave_one_out_values
from lazyknife.choosing.per_model import (
    CYCLES,
    TIE,
    ModelSearch,
    PointValues,
    SearchResult,
    choose_ridges,
    coordinate_search,
)
from lazyknife.choosing.space import (
    RIDGES,
    CandidateKernels,
    Exponents,
    Grid,
    GridPoint,
    weights_of,
)
from lazyknife.data.own_scaling import FeatureScale, unscaled
from lazyknife.networks import wide
from lazyknife.tangent import WideTangent
from machines import MACHINE, here
from reference import Array, assert_close
from systems import chosen_ridges, problem

NETWORKS = (wide("gaussian"), wide("laplace", 0.7), wide("anova_laplace", squash=True))


def data(seed: int, n: int, features: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    return X, np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=n)


def searching(X: Array, y: Array, folds: Sequence[Tensor] | None = None) -> PointValues:
    kernels = CandidateKernels(NETWORKS, [1.0] * len(NETWORKS), [here(X)], [False] * X.shape[1])
    return PointValues(kernels, here(y), True, MACHINE, folds)


def walked(search: PointValues, columns: Sequence[int], gain: float | None = None) -> SearchResult:
    return coordinate_search(search, [ModelSearch(0, column) for column in columns], gain=gain)


def all_models(X: Array, y: Array, folds: Sequence[Tensor] | None = None) -> SearchResult:
    """Every leave-one-out model, or those without a fold, and, last, the full one."""
    return walked(searching(X, y, folds), range(1 + (len(y) if folds is None else len(folds))))


# The slow twin: one model, its own rows, one point after another, nothing shared.


@dataclass
class Alone:
    """One model's search on its own rows."""

    X: Array
    y: Array

    def value(self, point: GridPoint) -> float:
        network, features = NETWORKS[point.network], self.X.shape[1]
        weights = torch.tensor(weights_of(network, point.weights, features), dtype=torch.float64)
        tangent = WideTangent(network, weights, unscaled(1, features)[0])
        kernel = tangent.gram(tangent.features(torch.from_numpy(self.X))).numpy()
        n = len(self.y)
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = kernel + 2.0**point.ridge * np.eye(n)
        system[n, n] = 0.0
        dual = np.linalg.solve(system, np.append(self.y, 0.0))[:n]
        return float(np.log(self.y @ dual / (n - 1)) + np.linalg.slogdet(system)[1] / (n - 1))

    def better(self, point: GridPoint | None, moves: Iterable[GridPoint], gain: float) -> GridPoint:
        best = math.inf if point is None else self.value(point) - gain
        for move in moves:
            found = self.value(move)
            if found < best - TIE:
                point, best = move, found
        assert point is not None
        return point

    def end(self) -> GridPoint:
        features, gain = self.X.shape[1], math.log(len(self.y)) / len(self.y)
        grid = Grid([True] * 3, [network.scale is not None for network in NETWORKS], features)
        point = self.better(None, grid.starts(), 0.0)
        for _ in range(CYCLES):
            before = point
            for f in range(features):
                point = self.better(point, list(grid.feature_moves(point, f)), gain)
            for _ in range(2):
                point = self.better(point, list(grid.common_moves(point)), gain)
            if point == before:
                break
        return point


@pytest.mark.parametrize(
    ("seed", "n", "features", "folds"), [(0, 8, 2, 8), (1, 11, 2, 11), (2, 9, 3, 9), (4, 12, 2, 3)]
)
def test_every_model_ends_where_a_search_on_its_own_rows_ends(
    seed: int, n: int, features: int, folds: int
) -> None:
    X, y = data(seed, n, features)
    sets = [torch.arange(k, n, folds) for k in range(folds)]
    found = all_models(X, y, None if folds == n else sets)
    own = [Alone(np.delete(X, rows, axis=0), np.delete(y, rows)) for rows in [*sets, []]]
    expected = [model.end() for model in own]
    assert not found.doubtful.any()
    assert found.points == expected
    values = [model.value(point) for model, point in zip(own, expected, strict=True)]
    assert_close(found.values, np.array(values), 1e-9)
    for k in range(3):
        starts = Grid([True] * 3, [False, True, False], features).starts()
        best = min(own[0].value(point) for point in starts if point.network == k)
        assert found.starting[0, k] == pytest.approx(best, abs=1e-9)
    assert len(set(expected)) > 1 or folds < n  # all models would not do with one choice


# λ of one kernel.


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_every_model_chooses_its_ridge_as_without_its_rows(
    seed: int, folds: int | None, intercept: bool
) -> None:
    J, r, _ = problem(15, 5, seed)
    r[2] += 20.0
    sets = np.arange(15)[:, None] if folds is None else np.array_split(np.arange(15), folds)
    parts, models = None if folds is None else [here(rows) for rows in sets], len(sets)
    columns = [*range(models + 1), 0, models]
    found = choose_ridges(here(J @ J.T), here(r), intercept, 1.0, columns, parts, MACHINE)
    for k, rows in enumerate(sets):
        kept = np.delete(np.arange(15), rows)
        alone = chosen_ridges(here(J[kept] @ J[kept].T), here(r[kept]), intercept)
        assert found.values[k] == alone.values[-1] or found.doubtful[k]
    assert found.values[models + 1 :].tolist() == found.values[[0, models]].tolist()
    assert not found.doubtful.all()


# Ties, doubts and failures, with kernels made for the purpose.


def made(kernels: Sequence[Array]) -> CandidateKernels:
    """Networks without weights whose kernels are given."""
    n = len(kernels[0])
    given = [lambda _, K=K: (here(K), here(np.zeros(n))) for K in kernels]  # type: ignore[misc]
    return CandidateKernels(given, [1.0] * len(kernels), [here(np.zeros((n, 0)))], [])


def among(kernels: Sequence[Array], y: Array, gain: float = 0.0) -> SearchResult:
    n = len(y)
    search = PointValues(made(kernels), here(y), True, MACHINE)
    return coordinate_search(search, [ModelSearch(0, j) for j in range(n + 1)], gain=gain)


def gaussian(X: Array) -> Array:
    return np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / 2)


def test_exact_ties_go_to_the_earlier_network_and_are_not_doubtful() -> None:
    X, y = data(0, 10, 2)
    kernel = gaussian(X)
    order = np.random.default_rng(0).permutation(2)  # the same sum in another order of features
    found = among([kernel, gaussian(X[:, order]), kernel], y)
    assert {point.network for point in found.points} == {0}
    assert not found.doubtful.any()


def values_at(kernel: Array, y: Array, ridge: float) -> Array:
    return leave_one_out_values(
        here(kernel[None]), here(np.array([ridge])), here(y[None]), True
    ).values[0]


def test_a_margin_within_rounding_is_doubtful() -> None:
    """The evidence of a second kernel is just TIE better for one model: it may win, or not."""
    X, y = data(0, 10, 2)
    kernel, other = gaussian(X), gaussian(0.97 * X)
    model = 3
    ridge = min((2.0**k for k in RIDGES), key=lambda ridge: values_at(kernel, y, ridge)[model])

    def gap(share: float) -> float:
        mixed = (1 - share) * kernel + share * other
        values = [values_at(K, y, ridge)[model] for K in (kernel, mixed)]
        return float(values[1] - values[0] + TIE)

    low, high = sorted((-0.2, 0.2), key=gap)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    mixed = (1 - low) * kernel + low * other
    found = among([kernel, mixed], y)
    assert found.doubtful[model]
    assert not found.doubtful.all()


def test_candidates_that_are_not_positive_definite() -> None:
    X, y = data(0, 6, 2)
    good, bad = gaussian(X), -1e6 * gaussian(X)
    for kernels, best in (([good, bad], 0), ([bad, good], 1)):
        assert {point.network for point in among(kernels, y).points} == {best}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="no candidate gives every leave-one-out"):
            among([bad], y)


@pytest.mark.parametrize("first", [0, 1])
def test_a_kernel_that_one_row_makes_indefinite_fails_for_the_other_models_alone(
    first: int,
) -> None:
    """Whether a candidate fails must be decided by a model's own rows, or be in doubt."""
    X, y = data(0, 8, 2)
    bad = gaussian(X)
    bad[2, 2] = -50.0
    kernels = [bad, np.eye(8)] if first == 0 else [np.eye(8), bad]
    found = among(kernels, y)
    kept = np.arange(8) != 2
    alone = among([K[np.ix_(kept, kept)] for K in kernels], y[kept]).points[-1]
    assert alone.network == first
    assert found.points[2] == alone or found.doubtful[2]


# Places and their kernels.


def test_moves_stay_on_the_grid_and_keep_a_feature() -> None:
    grid, point = Grid([True, True, False], [False] * 3, 2), GridPoint(0, (1, None), -2)
    assert list(grid.feature_moves(GridPoint(2, (), 0), 0)) == []
    found = [*grid.feature_moves(point, 0), *grid.feature_moves(point, 1)]
    assert [(move.weights, move.ridge) for move in found] == [
        *(((-1, None), -2), ((3, None), -2), ((1, 0), -2))
    ]
    assert list(grid.common_moves(point)) == [
        *(GridPoint(0, (1, None), ridge) for ridge in (-4, 0)),
        *(GridPoint(0, (scale, None), -2) for scale in (0, 2)),
        GridPoint(1, (1, None), -2),
    ]
    assert list(Grid([True], [True], 2, any_ridge=False).common_moves(point)) == []
    assert len(Grid([True, True, False], [False, True, False], 2).starts()) == 6 * (4 + 1 + 1)
    assert len(Grid([True], [False], 2, any_ridge=False).starts()) == 4


PATH: list[Exponents] = [(0, 0), (0, 2), (0, 4), (0, None), (-2, None), (-2, 0), (-2, None)]


@pytest.mark.parametrize("scale", [1.0, np.array([1.0, 1e6])])  # and columns in unlike units
@pytest.mark.parametrize("kind", ["gaussian", "laplace", "matern52", "anova_laplace", "relu"])
def test_kernels_do_not_depend_on_the_way_that_led_to_them(kind: str, scale: Any) -> None:
    """Reached over other kernels, one weight at a time."""
    X = here(data(0, 9, 2)[0] * scale)
    kernels, fresh = (CandidateKernels([wide(kind)], [1.0], [X], [False] * 2) for _ in range(2))
    for weights in PATH:
        moved = kernels.at(0, [GridPoint(0, weights, 0)])()[0]
    off = moved - fresh.at(0, [GridPoint(0, PATH[-1], 0)])()[0]
    assert float(off.abs().max()) < (1e-7 if kind == "relu" else 1e-12)


def test_kernels_equal_those_of_the_fitted_models() -> None:
    """The kernel that a point is judged by is the kernel that is fitted."""
    X, _ = data(0, 7, 2)
    kernels = CandidateKernels(
        NETWORKS, [1.0, 2.0, 4.0], [here(X), here(3 * X)], [False] * X.shape[1]
    )
    points = [GridPoint(k, (k, -k), -3) for k in range(3)]
    found, ridges, outputs = kernels.at(1, points)()
    assert ridges.tolist() == [1 / 8, 2 / 8, 4 / 8]
    assert not outputs.any()
    for k, network in enumerate(NETWORKS):
        weights = here(np.array(weights_of(network, points[k].weights, 2)))
        thirds = FeatureScale(here(np.zeros(2)), here(np.ones(2)) / 3, (False, False))
        tangent = WideTangent(network, weights, thirds, MACHINE)
        assert_close(found[k], tangent.gram(tangent.features(here(X))), 1e-12)
