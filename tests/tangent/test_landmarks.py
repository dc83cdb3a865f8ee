"""Landmark features: the part of a kernel that the landmarks see."""

from __future__ import annotations

import pytest
import torch

from lazyknife.data.own_scaling import unscaled
from lazyknife.networks import wide
from lazyknife.tangent import Landmarks, WideTangent

torch.manual_seed(0)
X = torch.randn(30, 3, dtype=torch.float64)


def tangent_of(kind: str) -> WideTangent:
    weights = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    return WideTangent(wide(kind), weights, unscaled(1, 3)[0])


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "anova_laplace", "relu"])
def test_products_of_features_are_the_kernel_through_the_landmarks(kind: str) -> None:
    tangent, Z = tangent_of(kind), X[:8]
    basis = Landmarks.of(tangent, Z)
    outputs, rows, norms = basis.at(X)
    blocks = [tangent.kernel(tangent.features(each), tangent.features(Z)) for each in (X, Z)]
    expected = blocks[0] @ torch.linalg.pinv(blocks[1], rtol=1e-9) @ blocks[0].T
    torch.testing.assert_close(rows @ rows.T, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(norms, rows.square().sum(dim=1))
    assert not outputs.any()


def test_at_landmarks_the_kernel_is_exact_and_equal_landmarks_count_once() -> None:
    tangent = tangent_of("laplace")
    kernel = tangent.gram(tangent.features(X[:8]))
    for Z in (X[:8], torch.cat([X[:8], X[:8]])):
        basis = Landmarks.of(tangent, Z)
        assert basis.size == 8
        rows = basis.at(X[:8]).coordinates
        torch.testing.assert_close(rows @ rows.T, kernel, rtol=1e-9, atol=1e-9)
