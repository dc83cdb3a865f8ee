"""Infinitely wide networks in the place of linearised ones, and their kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel
from torch import Tensor

from lazyknife.data.own_scaling import FeatureScale, unscaled
from lazyknife.networks import KINDS, wide
from lazyknife.tangent import Landmarks, WideTangent
from machines import MACHINE, here
from reference import Array, assert_close

CENTER, SCALE = np.array([1.0, -2.0, 0.5]), np.array([2.0, 0.5, 4.0])
WEIGHTS = np.array([0.5, 1.0, 2.0])
FRAME = FeatureScale(here(CENTER), here(SCALE), (False,) * len(CENTER))


def rows(seed: int, n: int) -> Tensor:
    return here(CENTER + SCALE * np.random.default_rng(seed).normal(size=(n, 3)))


def tangent_of(network: wide, tile: int | None = None) -> WideTangent:
    machine = MACHINE if tile is None else replace(MACHINE, budget=16 * tile)
    return WideTangent(network, here(WEIGHTS), FRAME, machine)


def user_kernel(left: Tensor, right: Tensor) -> Tensor:
    return torch.exp(-(left[:, None] - right[None]).square().sum(dim=2) / 2)


NETWORKS = [wide(kind, squash=squash) for kind in KINDS for squash in (False, True)]
NETWORKS += [wide(user_kernel), wide(gp.Matern(nu=1.5) + 0.5 * gp.DotProduct())]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_blocks_grams_and_norms_equal_the_whole_kernel(network: wide) -> None:
    X, other = rows(0, 23), rows(1, 17)
    whole, tiled = tangent_of(network), tangent_of(network, tile=4 * 8 * 5 * 3)
    left, right = whole.features(X), whole.features(other)
    kernel = whole.kernel(left, right)
    assert_close(tiled.kernel(left, right), kernel, 1e-12)
    gram = whole.gram(left)
    assert torch.equal(gram, gram.T)
    assert_close(gram, whole.kernel(left, left), 1e-7)
    assert_close(whole.norms(left), gram.diagonal(), 1e-6)
    assert not left.outputs.any()
    assert len(left.outputs) == 23


@pytest.mark.parametrize(
    ("kind", "weights"), [("gaussian", WEIGHTS), (user_kernel, 1.0), (gp.RBF(), 1.0)]
)
def test_rows_are_scaled_first_and_kernels_of_users_see_no_weights(
    kind: Any, weights: Array | float
) -> None:
    X, other, tangent = rows(0, 6), rows(1, 5), tangent_of(wide(kind))
    expected: Array = gp.RBF(SCALE / weights)(X.cpu().numpy(), other.cpu().numpy())
    assert_close(tangent.kernel(tangent.features(X), tangent.features(other)), expected, 1e-12)


def test_a_kernel_of_a_wrong_shape_is_refused() -> None:
    tangent = tangent_of(wide(lambda left, right: left @ left.T))
    with pytest.raises(ValueError, match=r"returned shape \(3, 3\) for 3 and 4 rows"):
        tangent.kernel(tangent.features(rows(0, 3)), tangent.features(rows(1, 4)))


def test_relu_is_as_accurate_as_bounds_on_rounding_assume() -> None:
    X, ones = here(np.random.default_rng(0).normal(size=(40, 9))), here(np.ones(9))
    tangent = WideTangent(wide("relu"), ones / 3, unscaled(1, len(ones))[0], MACHINE)
    rows = tangent.features(X)
    assert_close(tangent.gram(rows).diagonal(), tangent.norms(rows), 1e-13)


# Landmark features: the part of a kernel that the landmarks see.


torch.manual_seed(0)
POINTS = torch.randn(30, 3, dtype=torch.float64)


def unscaled_tangent(kind: str) -> WideTangent:
    weights = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    return WideTangent(wide(kind), weights, unscaled(1, 3)[0])


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "anova_laplace", "relu"])
def test_products_of_features_are_the_kernel_through_the_landmarks(kind: str) -> None:
    tangent, Z = unscaled_tangent(kind), POINTS[:8]
    basis = Landmarks.of(tangent, Z)
    outputs, rows, norms = basis.at(POINTS)
    blocks = [tangent.kernel(tangent.features(each), tangent.features(Z)) for each in (POINTS, Z)]
    expected = blocks[0] @ torch.linalg.pinv(blocks[1], rtol=1e-9) @ blocks[0].T
    torch.testing.assert_close(rows @ rows.T, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(norms, rows.square().sum(dim=1))
    assert not outputs.any()


def test_at_landmarks_the_kernel_is_exact_and_equal_landmarks_count_once() -> None:
    tangent = unscaled_tangent("laplace")
    kernel = tangent.gram(tangent.features(POINTS[:8]))
    for Z in (POINTS[:8], torch.cat([POINTS[:8], POINTS[:8]])):
        basis = Landmarks.of(tangent, Z)
        assert basis.size == 8
        rows = basis.at(POINTS[:8]).coordinates
        torch.testing.assert_close(rows @ rows.T, kernel, rtol=1e-9, atol=1e-9)


# Kernels against formulas of their own.


def normal(seed: int, n: int, features: int) -> Array:
    return np.random.default_rng(seed).normal(size=(n, features))


def of_kind(
    name: str, weights: Array, left: Array, right: Array, nominal: tuple[int, ...] = ()
) -> Array:
    """Kernel of a kind at unscaled rows, shape (m, n)."""
    codes = [f in nominal for f in range(len(weights))]
    kind, X, other = KINDS[name], torch.from_numpy(left), torch.from_numpy(right)
    given = torch.from_numpy(weights)
    return kind.kernel(given, X, other, codes).numpy()


def anova(one: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """The mean over all sets of features, weighted by their products, of products of kernels."""

    def kernel(weights: Array, left: Array, right: Array) -> Array:
        found = np.zeros((len(left), len(right)))
        for bits in range(2 ** len(weights)):
            part, mass = np.ones_like(found), 1.0
            for f, weight in enumerate(weights):
                if bits >> f & 1:
                    part *= one(np.subtract.outer(left[:, f], right[:, f]))
                    mass *= weight
            found += mass * part
        return found / np.prod(1 + weights)

    return kernel


def of_sklearn(make: Callable[[Array], gp.Kernel]) -> Callable[[Array, Array, Array], Array]:
    return lambda weights, left, right: make(1 / weights)(left, right)


FORMULAS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "gaussian": of_sklearn(gp.RBF),
    "laplace": lambda weights, left, right: laplacian_kernel(left * weights, right * weights, 1),
    "matern32": of_sklearn(lambda scale: gp.Matern(scale, nu=1.5)),
    "matern52": of_sklearn(lambda scale: gp.Matern(scale, nu=2.5)),
    "anova_gaussian": anova(lambda gap: np.exp(-(gap**2) / 2)),
    "anova_laplace": anova(lambda gap: np.exp(-np.abs(gap))),
}


def test_every_kind_has_a_formula() -> None:
    assert {*FORMULAS, "relu"} == set(KINDS)


@pytest.mark.parametrize("name", FORMULAS)
@given(seed=st.integers(0, 10**6), features=st.integers(1, 4))
@settings(max_examples=10)
def test_kernels_equal_their_formulas(name: str, seed: int, features: int) -> None:
    left, right = normal(seed, 5, features), normal(seed + 1, 4, features)
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, size=features)
    found = of_kind(name, weights, left, right)
    np.testing.assert_allclose(found, FORMULAS[name](weights, left, right), rtol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_kernels_are_positive_definite_and_have_their_norms(name: str) -> None:
    X, weights = 2 * normal(0, 30, 3), np.array([0.3, 1.0, 2.0])
    found, kind = of_kind(name, weights, X, X), KINDS[name]
    norms = kind.norms(torch.from_numpy(weights), torch.from_numpy(X), [False] * X.shape[1])
    assert_close(np.diag(found), norms, 1e-6)  # acos loses half of the digits at an angle of 0
    assert_close(found, found.T, 1e-12)
    assert np.linalg.eigvalsh(found).min() > 0


@pytest.mark.parametrize("name", KINDS)
def test_a_weight_of_0_leaves_a_feature_out(name: str) -> None:
    X, other = normal(0, 6, 3), normal(1, 5, 3)
    weights = np.array([0.5, 0.0, 2.0])
    expected = of_kind(name, weights[[0, 2]], X[:, [0, 2]], other[:, [0, 2]])
    assert_close(of_kind(name, weights, X, other), expected, 1e-12)


def finite_tangent_kernel(X: Array, width: int, seed: int) -> Array:
    """Tangent kernel of a ReLU network with two hidden layers, in the NTK's parametrisation."""
    rng = np.random.default_rng(seed)
    inputs = np.column_stack([X, np.ones(len(X))])
    gain = np.sqrt(2 / width)
    first, second = rng.normal(size=(inputs.shape[1], width)), rng.normal(size=(width, width))
    last = rng.normal(size=width)
    below = inputs @ first
    hidden = gain * np.maximum(below, 0)
    above = hidden @ second
    outer = gain * (above > 0) * last  # ∂f/∂above
    inner = gain * (below > 0) * (outer @ second.T)  # ∂f/∂below
    top = gain * np.maximum(above, 0)
    found = top @ top.T + (outer @ outer.T) * (hidden @ hidden.T)
    return found + (inner @ inner.T) * (inputs @ inputs.T)


def test_relu_is_the_limit_of_finite_networks() -> None:
    X, weights = normal(3, 6, 3), np.array([0.5, 1.0, 1.5])
    found = np.mean([finite_tangent_kernel(X * weights, 1024, seed) for seed in range(4)], axis=0)
    np.testing.assert_allclose(found / 3, of_kind("relu", weights, X, X), rtol=0.15)
    assert_close(found / 3, of_kind("relu", weights, X, X), 0.06)


def test_squashed_inputs_are_compressed_with_their_signs() -> None:
    X = torch.tensor([[0.0, 1.0, -3.0]])
    expected = [[0.0, np.log(3.0), -np.log(7.0)]]
    assert_close(wide("laplace", squash=True).prepared(X.double()), np.array(expected), 1e-14)
    assert wide("laplace").prepared(X) is X


def product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.T


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "rbf"}, "gaussian"),
        ({"kind": product, "scale": 2.0}, "own scale"),
        ({"kind": "laplace", "scale": 0.0}, "scale"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wide(**settings)  # type: ignore[arg-type]


def test_names() -> None:
    assert str(wide("laplace", squash=True)) == "laplace squashed"
    assert str(wide(product)) == "product"
    assert str(wide(gp.RBF())) == "RBF"


def spread(X: Array, power: int) -> Array:
    """Rows of a number with gaps and a category, as numbers: value, mark of a gap, categories."""
    number, code = X[:, 0], X[:, 1]
    category = np.equal.outer(code, np.arange(5.0)) * 0.5 ** (1 / power)
    return np.column_stack([np.nan_to_num(number), np.isnan(number), category])


@pytest.mark.parametrize("name", KINDS)
def test_gaps_and_categories_are_directions_of_their_own(name: str) -> None:
    rng = np.random.default_rng(3)
    left, right = (np.column_stack([rng.normal(size=n), rng.integers(0, 5, n)]) for n in (7, 6))
    left[2, 0] = right[4, 0] = right[5, 0] = np.nan
    weights = np.array([0.7, 1.3])
    power = getattr(KINDS[name], "single", KINDS[name]).power
    wider = np.repeat(weights, [2, 5])
    found = of_kind(name, weights, left, right, nominal=(1,))
    if not name.startswith("anova"):
        assert_close(found, of_kind(name, wider, spread(left, power), spread(right, power)))
    both = np.vstack([left, right])
    whole = of_kind(name, weights, both, both, nominal=(1,))
    assert_close(whole[:7, 7:], found)
    assert np.linalg.eigvalsh(whole).min() > -1e-12
    relabelled = np.column_stack([both[:, 0], (3 * both[:, 1] + 1) % 5])
    assert_close(whole, of_kind(name, weights, relabelled, relabelled, nominal=(1,)))
