"""Coverage where every model searches, with a search made to overfit, and mutants to be caught.

Everything is put together from the functions of the library, so that a mutant is an argument. Each
repetition has several new rows. Seeds are fixed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import lazyknife as lk
from bets import coverages_refute
from lazyknife.choosing.per_model import ModelSearch, PointValues, coordinate_search, grouped
from lazyknife.choosing.space import CandidateKernels, GridPoint, weights_of
from lazyknife.data.own_scaling import FeatureScales, own_scales, unscaled, without
from lazyknife.networks import wide
from lazyknife.tangent import WideTangent
from machines import MACHINE, here
from reference import Array

# Frames and grid points, of the models and last of the full one.
Ends = Sequence[tuple[int, GridPoint]]
Mutant = Callable[[Ends], Ends]


def certified(construction: str, rank: int, n: int) -> float:
    """1 − κ/(n + 1) for minmax, 1 − (2κ − 1)/(n + 1) for plus."""
    return 1 - {"plus": 2 * rank - 1, "minmax": rank}[construction] / (n + 1)


def searched(
    X: Array,
    y: Array,
    networks: Sequence[wide],
    frames: FeatureScales,
    gain: float,
    relevance: bool,
    full_alone: bool = False,
) -> Ends:
    """Where all models end, each in its frame; or the full one alone."""
    rows = [here(frames[k].apply(torch.from_numpy(X)).numpy()) for k in range(len(frames))]
    kernels = CandidateKernels(networks, [1.0] * len(networks), rows, frames[0].nominal)
    searches = [ModelSearch(frame, j) for j, frame in enumerate(frames.of.tolist())]
    searches = searches[-1:] if full_alone else searches
    values = PointValues(kernels, here(y), True, MACHINE)
    points = coordinate_search(values, searches, relevance, gain=gain).points
    return [(search.frame, point) for search, point in zip(searches, points, strict=True)]


def models(
    X: Array, y: Array, new: Array, networks: Sequence[wide], frames: FeatureScales, ends: Ends
) -> tuple[Array, Array]:
    """Sizes of left-out residuals, (n,), and predictions of the models at new rows, (m, n)."""
    n = len(y)
    sizes, predictions = np.empty(n), np.empty((len(new), n))
    for (frame, place), members in grouped(ends[:-1]).items():
        network = networks[place.network]
        weights = here(np.array(weights_of(network, place.weights, X.shape[1])))
        tangent = WideTangent(network, weights, frames[frame]).on(MACHINE)
        rows, others = (tangent.features(here(part)) for part in (X, new))
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = tangent.gram(rows).cpu().numpy() + 2.0**place.ridge * np.eye(n)
        system[n, n] = 0.0
        inverse = np.linalg.inv(system)
        coefficients = inverse @ np.append(y, 0.0)
        errors = coefficients[:n] / np.diag(inverse)[:n]
        sides = np.column_stack([tangent.kernel(others, rows).cpu().numpy(), np.ones(len(new))])
        each = (sides @ coefficients)[:, None] - sides @ inverse[:, :n] * errors
        sizes[members], predictions[:, members] = np.abs(errors[members]), each[:, members]
    return sizes, predictions


def coverage(sizes: Array, predictions: Array, truth: Array, construction: str, rank: int) -> float:
    """Share of the new rows that an interval covers."""
    if construction == "plus":
        lower = np.sort(predictions - sizes, axis=1)[:, rank - 1]
        upper = np.sort(predictions + sizes, axis=1)[:, -rank]
    else:
        size = np.sort(sizes)[-rank]
        lower, upper = predictions.min(axis=1) - size, predictions.max(axis=1) + size
    return float(np.mean((lower <= truth) & (truth <= upper)))


def test_the_models_are_those_of_their_own_rows() -> None:
    """The parts above against explicit refits."""
    rng = np.random.default_rng(0)
    X, y, new = rng.normal(size=(7, 2)), rng.normal(size=7), rng.normal(size=(3, 2))
    frames, place = unscaled(8, 2), GridPoint(0, (0, 1), -3)
    sizes, predictions = models(X, y, new, [wide("gaussian")], frames, [(0, place)] * 8)
    weights = np.array(weights_of(wide("gaussian"), place.weights, 2))
    process = GaussianProcessRegressor(RBF(1 / weights), alpha=1 / 8, optimizer=None)
    for j in range(7):
        own, labels = np.delete(X, j, axis=0), np.delete(y, j)
        ones = process.fit(own, np.ones(6)).predict(np.vstack([new, X[j]]))
        dual = np.linalg.solve(
            RBF(1 / weights)(own) + np.eye(6) / 8, np.column_stack([labels, np.ones(6)])
        )
        mean = dual[:, 0].sum() / dual[:, 1].sum()
        expected = process.fit(own, labels).predict(np.vstack([new, X[j]])) + mean * (1 - ones)
        np.testing.assert_allclose(predictions[:, j], expected[:3], atol=1e-9)
        assert sizes[j] == pytest.approx(abs(y[j] - expected[3]), abs=1e-9)


# A search that overfits: labels are coins, nearly as many features as rows, no minimum gain.

N, NEW = 20, 25
BOUNDS = [("plus", 1), ("plus", 2), ("minmax", 1), ("minmax", 2), ("minmax", 4)]


def right(ends: Ends) -> Ends:
    return ends


def ranked_on_all_rows(ends: Ends) -> Ends:
    """Every model takes the place of the full one."""
    return [ends[-1]] * (N + 1)


@cache
def overfitted(mutants: tuple[Mutant, ...], repetitions: int) -> dict[tuple[Any, ...], list[float]]:
    """Coverage of each repetition by mutant, construction and rank."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    networks, frames = [wide("gaussian")], unscaled(N + 1, 14)
    alone = mutants == (ranked_on_all_rows,)
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(N + NEW, 14)), rng.choice([-1.0, 1.0], size=N + NEW)
        ends = searched(X[:N], y[:N], networks, frames, 0.0, relevance=True, full_alone=alone)
        for mutant in mutants:
            read = models(X[:N], y[:N], X[N:], networks, frames, mutant(ends))
            for bound in BOUNDS:
                found[mutant, *bound].append(coverage(*read, y[N:], *bound))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("construction", "rank"), BOUNDS)
def test_a_search_that_overfits_covers(construction: str, rank: int) -> None:
    found = overfitted((right,), 12)[right, construction, rank]
    assert not coverages_refute(found, certified(construction, rank, N))


@pytest.mark.slow
@pytest.mark.parametrize(("construction", "rank"), [("plus", 1), ("plus", 2), ("minmax", 2)])
def test_a_search_on_all_rows_is_caught(construction: str, rank: int) -> None:
    found = overfitted((ranked_on_all_rows,), 100)[ranked_on_all_rows, construction, rank]
    assert coverages_refute(found, certified(construction, rank, N))


# Scales. Each row is large in a column where nearly all others are 0: a scale that knows of the
# left-out row makes it look harmless, but it does not know the new row.


def one_hot(rng: np.random.Generator, n: int, features: int) -> Array:
    X = np.zeros((n, features))
    X[np.arange(n), rng.integers(0, features, size=n)] = 1e4
    X[:, :2] = rng.normal(size=(n, 2))
    return X


def own(frames: FeatureScales) -> FeatureScales:
    return frames


def of_all_rows(frames: FeatureScales) -> FeatureScales:
    """Every model is scaled by all rows."""
    return replace(frames, of=torch.full_like(frames.of, int(frames.of[-1])))


def scaled_coverage(mutant: Callable[[FeatureScales], FeatureScales]) -> list[float]:
    found, networks = [], [wide("relu", 1.0)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = one_hot(rng, N + NEW, 100), rng.normal(size=N + NEW)
        y += X[:, 0]
        sets = [*torch.arange(N)[:, None], torch.arange(0)]
        frames = mutant(own_scales(without(torch.from_numpy(X[:N]), sets)))
        ends = searched(X[:N], y[:N], networks, frames, gain=0.1, relevance=False)
        read = models(X[:N], y[:N], X[N:], networks, frames, ends)
        found.append(coverage(*read, y[N:], "plus", 1))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "caught"), [(own, False), (of_all_rows, True)])
def test_scaling_by_all_rows_is_caught(
    mutant: Callable[[FeatureScales], FeatureScales], caught: bool
) -> None:
    assert coverages_refute(scaled_coverage(mutant), certified("plus", 1, N)) == caught


# The estimator.


@pytest.mark.slow
def test_the_estimator_covers() -> None:
    found, level = [], 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = one_hot(rng, N + NEW, 5) + rng.standard_t(2, size=(N + NEW, 5))
        y = np.sign(X[:, 0]) + np.exp(rng.normal(size=N + NEW))
        network = [wide("laplace"), wide("anova_gaussian", squash=True)]
        model = lk.LazyJackknifeRegressor(network, alpha=0.05, random_state=seed)
        model.fit(X[:N], y[:N])
        found.append(float(np.mean(model.predict_interval(X[N:]).covers(y[N:]))))
        level = model.certificate_.coverage
    assert level == pytest.approx(certified("plus", 1, N))
    assert not coverages_refute(found, level)
