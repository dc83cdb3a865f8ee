"""The gradient search for weights and λ: slopes, values, and what it finds."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyknife.data.own_scaling import FeatureScale
from lazyknife.networks import CANDIDATES, KINDS, wide
from lazyknife.solve.ascent import Climb, climb, climb_all
from lazyknife.solve.evidence import evidence
from lazyknife.solve.hill import Hill, height
from lazyknife.solve.profile import profile
from lazyknife.tangent.wide import WideTangent
from machines import here

SMOOTH = [name for name, kind in KINDS.items() if kind.has_slopes]
NUMBERS = [False] * 4


def table(rows: int = 70) -> tuple[Tensor, Tensor, list[bool]]:
    """Two numbers, one with gaps, a category, and a target; more rows than a tile has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4))
    X[::5, 1] = np.nan
    X[:, 3] = rng.integers(3, size=rows)
    y = np.sin(2 * X[:, 0]) + np.nan_to_num(X[:, 1]) + (X[:, 3] == 1) + 0.1 * X[:, 2]
    return here(X), here(y + 0.1 * rng.normal(size=rows)), [False, False, False, True]


def six(rows: int, features: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A function of three of the features, with noise of 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    return here(X), here(np.sin(X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=rows))


def kernel_at(network: wide, weights: tuple[float, ...], X: Tensor, nominal: list[bool]) -> Tensor:
    scale = torch.ones_like(X[0])
    frame = FeatureScale(torch.zeros_like(scale), scale, tuple(nominal))
    tangent = WideTangent(network, X.new_tensor(weights), frame)
    features = tangent.features(X)
    return tangent.gram(features)


def full_value(
    network: wide, end: Climb, X: Tensor, y: Tensor, nominal: list[bool], intercept: bool
) -> float:
    """Evidence of the full model."""
    kernel = kernel_at(network, end.weights, X, nominal)
    found = evidence(kernel[None], X.new_tensor([end.ridge]), y[None], intercept)
    return float(found.values[0, -1])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("relevance", [True, False])
@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_equal_differences(name: str, relevance: bool, intercept: bool) -> None:
    X, y, nominal = table()
    hill = Hill(KINDS[name], X, y, nominal, intercept, relevance, None)
    place = hill.join(np.array([0.5, 0.4, 0.7, 0.3]), 0.2)
    found, step = hill.look(place)[1], 1e-5
    for k in range(len(place)):
        ends = [
            hill.look(place + sign * step * (np.arange(len(place)) == k))[0] for sign in (1, -1)
        ]
        np.testing.assert_allclose(found[k], (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-9)


def test_a_given_ridge_has_no_slope() -> None:
    X, y, nominal = table()
    free, given = (Hill(KINDS["laplace"], X, y, nominal, True, True, r) for r in (None, 0.2))
    place = free.join(np.full(4, 0.5), 0.2)
    (value, gradient), (same, fewer) = free.look(place), given.look(place[:-1])
    assert value == same
    np.testing.assert_array_equal(gradient[:-1], fewer)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "network",
    [*map(wide, KINDS), wide("gaussian", squash=True), wide("laplace", scale=2.0)],
    ids=str,
)
def test_the_value_is_the_evidence_of_the_full_model(network: wide, intercept: bool) -> None:
    X, y, nominal = table()
    end = climb(network, X, y, nominal, intercept, evaluations=10)
    expected = full_value(network, end, X, y, nominal, intercept)
    np.testing.assert_allclose(end.value, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("network", CANDIDATES[:4], ids=str)
def test_features_that_matter_are_found(network: wide) -> None:
    X, y = six(200)
    end = climb(network, X, y, [False] * 12)
    first = climb(network, X, y, [False] * 12, evaluations=1)
    assert end.value < first.value - 0.5
    assert min(end.weights[:3]) > 2 * max(end.weights[3:])
    assert sum(weight == 0 for weight in end.weights) >= 5


def test_weights_of_0_change_no_prediction() -> None:
    """Against weights for which an ascent leaves a feature out of its sums."""
    (X, y), (others, _), network = six(200), six(50, seed=1), wide("gaussian")
    end = climb(network, X, y, [False] * 12, ridge=0.01)
    assert 0.0 in end.weights
    found = []
    for weights in (end.weights, tuple(max(w, 3e-4) for w in end.weights)):
        kernel = kernel_at(network, weights, torch.cat([X, others]), [False] * 12)
        system = kernel[:200, :200] + end.ridge * torch.eye(200).to(kernel)
        found.append(kernel[200:, :200] @ torch.linalg.solve(system, y))
    assert float((found[0] - found[1]).abs().max()) < 1e-3


def test_more_evaluations_are_never_worse() -> None:
    X, y = six(120)
    ends = [climb(wide("laplace"), X, y, [False] * 12, evaluations=k) for k in (1, 5, 15, 40)]
    assert all(later.value <= sooner.value + 2e-3 for sooner, later in pairwise(ends))
    assert all(end.evaluations <= 65 for end in ends)
    assert ends[3] == climb(wide("laplace"), X, y, [False] * 12, evaluations=40)


def test_a_later_start_goes_on_and_revives_features() -> None:
    X, y = six(200)
    lost = Climb((0.5, 0.5, *[0.0] * 10), 0.1, 0.0, 0)
    end = climb(wide("gaussian"), X, y, [False] * 12, start=lost)
    assert end.weights[2] > 0.02


def test_the_scale_of_y_changes_the_value_alone() -> None:
    X, y, nominal = table()
    end, other = (climb(wide("laplace"), X, 2.0**k * y, nominal) for k in (0, 10))
    assert end[:2] == other[:2]
    np.testing.assert_allclose(other.value, end.value + 20 * math.log(2), rtol=1e-9)


def test_without_features_there_is_only_a_ridge() -> None:
    X, y = six(20)
    for relevance in (True, False):
        end = climb(wide("gaussian"), X[:, :0], y, [], relevance=relevance)
        assert end.weights == ()
        assert math.isfinite(end.value)


def test_one_common_weight() -> None:
    X, y, nominal = table()
    end = climb(wide("gaussian"), X, y, nominal, relevance=False)
    assert len(set(end.weights)) == 1
    worse = [end._replace(weights=tuple(f * w for w in end.weights)) for f in (0.7, 1.4)]
    values = [full_value(wide("gaussian"), each, X, y, nominal, True) for each in worse]
    assert min(values) > end.value
    assert climb(wide("gaussian"), X, y, nominal).value < end.value


@pytest.mark.parametrize("network", [wide("gaussian"), wide("relu"), wide("laplace", 1.5)], ids=str)
def test_a_given_ridge_is_kept(network: wide) -> None:
    X, y, nominal = table()
    assert climb(network, X, y, nominal, ridge=0.7, evaluations=5).ridge == 0.7


def test_a_given_scale_is_kept() -> None:
    X, y, nominal = table()
    assert climb(wide("laplace", 3.0), X, y, nominal).weights == (1.5,) * 4


def test_a_kernel_function_has_weights_of_1() -> None:
    X, y = six(60)
    end = climb(wide(lambda a, b: 5 * torch.exp(-torch.cdist(a, b) / 5)), X, y, [False] * 12)
    assert end.weights == (1.0,) * 12
    assert 4e-6 < end.ridge < 6e3


@pytest.mark.parametrize("intercept", [True, False])
def test_a_profile_equals_the_criterion_of_each_ridge(intercept: bool) -> None:
    X, y, nominal = table()
    kernel, ridges = kernel_at(wide("relu"), (0.5,) * 4, X, nominal), [0.01, 0.3, 5.0]
    found = profile(kernel, X.new_tensor(ridges), y, intercept)
    expected = [height(kernel, ridge, y, intercept).value for ridge in ridges]
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-9)


def test_kernels_that_are_not_positive_definite_are_infinite() -> None:
    bad, y = -torch.eye(3).double(), torch.arange(3.0).double()
    assert height(bad, 0.5, y, True).value == math.inf
    assert profile(bad, y.new_tensor([0.5, 2.0]), y, True).isfinite().tolist() == [False, True]
    assert profile(bad * math.nan, y[:1], y, True).tolist() == [math.inf]


@pytest.mark.parametrize("network", [*CANDIDATES, wide("relu")], ids=str)
@pytest.mark.parametrize("case", ["equal rows", "constant column", "constant y", "two rows"])
def test_degenerate_rows_do_not_fail(case: str, network: wide) -> None:
    X, y = six(2 if case == "two rows" else 30, 4)
    if case == "equal rows":
        X[5:] = X[0]
    elif case == "constant column":
        X[:, 1] = 3.0
    elif case == "constant y":
        y[:] = 7.0
    for intercept in (True, False):
        end = climb(network, X, y, NUMBERS, intercept, evaluations=15)
        assert len(end.weights) == 4
        assert all(math.isfinite(number) for number in (*end.weights, end.ridge, end.value))
        if case == "constant column" and network.kind != "relu":
            assert end.weights[1] == 0


def test_the_best_of_all_networks_goes_on_with_more_rows() -> None:
    X, y = six(150, 6)
    networks = [wide("laplace", scale=0.01), wide("gaussian"), wide("relu"), wide("matern52")]
    best, ends = climb_all(networks, X, y, [False] * 6, rows=(60, 150))
    assert best in (1, 3)
    few = climb(networks[0], X[:60], y[:60], [False] * 6)
    assert ends[0] == few
    expected = full_value(networks[best], ends[best], X, y, [False] * 6, True)
    np.testing.assert_allclose(ends[best].value, expected, rtol=1e-8, atol=1e-8)


def test_fewer_rows_than_the_first_part_are_one_stage() -> None:
    X, y = six(40, 4)
    best, ends = climb_all(CANDIDATES[:2], X, y, NUMBERS)
    assert ends[best].value == min(end.value for end in ends)
