"""Choices on rows set aside: weights and λ by gradients, networks by errors on other rows."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor

from lazyknife.choosing.likelihood import leave_one_out_values
from lazyknife.choosing.shared import (
    TIMES,
    Holdout,
    KernelFit,
    NetworkFits,
    fit_kernel_weights,
    fit_networks,
    select_by_validation,
    validated,
)
from lazyknife.data.own_scaling import FeatureScale
from lazyknife.networks import CANDIDATES, KINDS, wide
from lazyknife.tangent.wide import WideTangent
from machines import here
from rows import mixed

NUMBERS = [False] * 4


def table() -> tuple[Tensor, Tensor, list[bool]]:
    """More rows than a tile has."""
    X, y, nominal = mixed()
    return here(X), here(y), nominal


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
    network: wide, end: KernelFit, X: Tensor, y: Tensor, nominal: list[bool], intercept: bool
) -> float:
    """Criterion of the full model."""
    kernel = kernel_at(network, end.weights, X, nominal)
    found = leave_one_out_values(kernel[None], X.new_tensor([end.ridge]), y[None], intercept)
    return float(found.values[0, -1])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "network",
    [*map(wide, KINDS), wide("gaussian", squash=True), wide("laplace", scale=2.0)],
    ids=str,
)
def test_the_value_is_the_evidence_of_the_full_model(network: wide, intercept: bool) -> None:
    X, y, nominal = table()
    end = fit_kernel_weights(network, Holdout(X, y, nominal, intercept), evaluations=10)
    expected = full_value(network, end, X, y, nominal, intercept)
    np.testing.assert_allclose(end.value, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("network", CANDIDATES[:4], ids=str)
def test_features_that_matter_are_found(network: wide) -> None:
    X, y = six(200)
    end = fit_kernel_weights(network, Holdout(X, y, [False] * 12))
    first = fit_kernel_weights(network, Holdout(X, y, [False] * 12), evaluations=1)
    assert end.value < first.value - 0.5
    assert min(end.weights[:3]) > 2 * max(end.weights[3:])
    assert sum(weight == 0 for weight in end.weights) >= 5


def test_a_later_start_goes_on_and_revives_features() -> None:
    X, y = six(200)
    lost = KernelFit((0.5, 0.5, *[0.0] * 10), 0.1, 0.0, 0)
    end = fit_kernel_weights(wide("gaussian"), Holdout(X, y, [False] * 12), start=lost)
    assert end.weights[2] > 0.02


def test_the_scale_of_y_changes_the_value_alone() -> None:
    X, y, nominal = table()
    end, other = (
        fit_kernel_weights(wide("laplace"), Holdout(X, 2.0**k * y, nominal)) for k in (0, 10)
    )
    assert end[:2] == other[:2]
    np.testing.assert_allclose(other.value, end.value + 20 * math.log(2), rtol=1e-9)


@pytest.mark.parametrize("ridge", [None, 0.2])
def test_one_common_weight(ridge: float | None) -> None:
    X, y, nominal = table()
    rows = Holdout(X, y, nominal, ridge=ridge)
    end = fit_kernel_weights(wide("gaussian"), rows._replace(relevance=False))
    assert len(set(end.weights)) == 1
    worse = [end._replace(weights=tuple(f * w for w in end.weights)) for f in (0.7, 1.4)]
    values = [full_value(wide("gaussian"), each, X, y, nominal, True) for each in worse]
    assert min(values) > end.value
    assert fit_kernel_weights(wide("gaussian"), rows).value < end.value


@pytest.mark.parametrize("network", [wide("gaussian"), wide("relu"), wide("laplace", 3.0)], ids=str)
def test_a_given_ridge_and_a_given_scale_are_kept(network: wide) -> None:
    X, y, nominal = table()
    end = fit_kernel_weights(network, Holdout(X, y, nominal, ridge=0.7), evaluations=5)
    assert end.ridge == 0.7
    assert (end.weights == (1.5,) * 4) == (network.scale == 3.0)


@pytest.mark.parametrize(
    ("case", "network"),
    [
        *product(
            ["equal rows", "constant column", "constant y", "two rows"],
            [*CANDIDATES, wide("relu")],
        ),
        ("no features", wide("gaussian")),
    ],
    ids=str,
)
def test_degenerate_rows_do_not_fail(case: str, network: wide) -> None:
    X, y = six(2 if case == "two rows" else 30, 4)
    if case == "equal rows":
        X[5:] = X[0]
    elif case == "constant column":
        X[:, 1] = 3.0
    elif case == "constant y":
        y[:] = 7.0
    elif case == "no features":
        X = X[:, :0]
    for intercept in (True, False):
        rows = Holdout(X, y, NUMBERS[: X.shape[1]], intercept)
        end = fit_kernel_weights(network, rows, evaluations=15)
        assert len(end.weights) == X.shape[1]
        assert all(math.isfinite(number) for number in (*end.weights, end.ridge, end.value))
        if case == "constant column" and network.kind != "relu":
            assert end.weights[1] == 0


def test_the_best_of_all_networks_goes_on_with_more_rows() -> None:
    X, y = six(150, 6)
    networks = [wide("laplace", scale=0.01), wide("gaussian"), wide("relu"), wide("matern52")]
    rows = Holdout(X, y, [False] * 6)
    best, ends, gaps = fit_networks(networks, rows, (60, 150))
    assert best in (1, 3)
    few = fit_kernel_weights(networks[0], rows.first(60))
    assert ends[0].value == pytest.approx(few.value, rel=1e-12)
    assert ends[0].weights == pytest.approx(few.weights, rel=1e-9)
    values = [
        fit_kernel_weights(network, rows.first(60), evaluations=15).value for network in networks
    ]
    np.testing.assert_allclose(gaps, 30 * (np.array(values) - min(values)), rtol=1e-9)
    expected = full_value(networks[best], ends[best], X, y, [False] * 6, True)
    np.testing.assert_allclose(ends[best].value, expected, rtol=1e-8, atol=1e-8)


def test_fewer_rows_than_the_first_part_are_one_stage() -> None:
    X, y = six(40, 4)
    best, ends, gaps = fit_networks(CANDIDATES[:2], Holdout(X, y, NUMBERS))
    assert ends[best].value == min(end.value for end in ends)
    assert gaps[best] == 0 < max(gaps)


# Networks tried on rows that had no part in choosing them: errors of explicit ridges.

COUNT = 60


def rows_of(seed: int) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(100, 2))
    y = 3 + np.sin(2 * X[:, 0]) + 0.3 * generator.normal(size=100)
    return torch.from_numpy(X), torch.from_numpy(y)


def explicit(
    weights: tuple[float, ...], ridge: float, X: Tensor, y: Tensor, intercept: bool
) -> float:
    """Error on the last rows of a ridge with scikit-learn's Gaussian kernel."""
    scaled = X.numpy() * np.array(weights)
    old, new, targets = scaled[:COUNT], scaled[COUNT:], y.numpy()
    center = targets[:COUNT].mean() if intercept else 0.0
    K = RBF(1.0)(old) + ridge * np.eye(COUNT)
    found = center + RBF(1.0)(new, old) @ np.linalg.solve(K, targets[:COUNT] - center)
    return float(np.square(targets[COUNT:] - found).mean())


@pytest.mark.parametrize("ridge", [1e-4, 0.1])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_errors_are_those_of_explicit_ridges(ridge: float, fixed: bool, intercept: bool) -> None:
    X, y = rows_of(0)
    rows = Holdout(X, y, (False, False), intercept, ridge=ridge if fixed else None)
    fit = KernelFit((1.0, 0.5), ridge, 0.0, 1)
    error, chosen = validated(wide("gaussian"), fit, rows, COUNT)
    ridges = [ridge * times for times in (TIMES[:1] if fixed else TIMES)]
    errors = [explicit(fit.weights, each, X, y, intercept) for each in ridges]
    assert error == pytest.approx(min(errors), rel=1e-8)
    assert chosen == pytest.approx(ridges[int(np.argmin(errors))])
    other = explicit(fit.weights, chosen, X, y, not intercept)
    assert abs(error - other) > 1e-3 * error  # the mean of y is 3: centring shows


def test_the_network_with_the_smallest_error_is_chosen_whatever_its_likelihood() -> None:
    X, y = rows_of(1)
    rows, networks = Holdout(X, y, (False, False)), (wide("gaussian"), wide("gaussian"))
    right, wrong = KernelFit((1.0, 0.1), 0.1, 9.0, 1), KernelFit((0.0, 1.0), 0.1, -9.0, 1)
    found = NetworkFits(0, [wrong, right], [0.0, 1.0])
    best, fits, gaps = select_by_validation(networks, found, rows, COUNT)
    assert best == 1
    assert gaps == found.gaps
    assert [fit.weights for fit in fits] == [wrong.weights, right.weights]
    assert fits[1].ridge == validated(networks[1], right, rows, COUNT)[1]


def test_a_kernel_that_cannot_be_factored_is_not_chosen() -> None:
    X, y = rows_of(1)
    bad = wide(lambda a, b: -torch.exp(-torch.cdist(a, b)))
    fit = KernelFit((1.0, 1.0), 1e-3, 0.0, 1)
    rows, found = Holdout(X, y, (False, False), ridge=1e-3), NetworkFits(0, [fit, fit], [0.0, 0.0])
    assert validated(bad, fit, rows, COUNT)[0] == math.inf
    assert select_by_validation((bad, wide("gaussian")), found, rows, COUNT).best == 1
