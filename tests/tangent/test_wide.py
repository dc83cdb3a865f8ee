"""Infinitely wide networks in the place of linearised ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import kernels as gp
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
