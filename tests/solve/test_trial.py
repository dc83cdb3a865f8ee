"""Networks tried on rows that had no part in choosing them: errors of explicit ridges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor

from lazyknife.networks import wide
from lazyknife.solve.ascent import Climb
from lazyknife.solve.trial import TIMES, trial, tried

COUNT = 60


def rows_of(seed: int) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(100, 2))
    y = 3 + np.sin(2 * X[:, 0]) + 0.3 * generator.normal(size=100)
    return torch.from_numpy(X), torch.from_numpy(y)


def explicit(weights: tuple[float, ...], ridge: float, X: Tensor, y: Tensor) -> float:
    """Error on the last rows of a ridge with scikit-learn's Gaussian kernel."""
    scaled = X.numpy() * np.array(weights)
    old, new, targets = scaled[:COUNT], scaled[COUNT:], y.numpy()
    center = targets[:COUNT].mean()
    K = RBF(1.0)(old) + ridge * np.eye(COUNT)
    found = center + RBF(1.0)(new, old) @ np.linalg.solve(K, targets[:COUNT] - center)
    return float(np.square(targets[COUNT:] - found).mean())


@pytest.mark.parametrize("ridge", [1e-4, 0.1])
@pytest.mark.parametrize("fixed", [True, False])
def test_errors_are_those_of_explicit_ridges(ridge: float, fixed: bool) -> None:
    X, y = rows_of(0)
    climb = Climb((1.0, 0.5), ridge, 0.0, 1)
    found = trial(wide("gaussian"), climb, X, y, (False, False), COUNT, fixed)
    ridges = [ridge * times for times in (TIMES[:1] if fixed else TIMES)]
    errors = [explicit(climb.weights, each, X, y) for each in ridges]
    assert found.error == pytest.approx(min(errors), rel=1e-8)
    assert found.ridge == pytest.approx(ridges[int(np.argmin(errors))])


def test_the_network_with_the_smallest_error_is_chosen_whatever_its_likelihood() -> None:
    X, y = rows_of(1)
    networks = (wide("gaussian"), wide("gaussian"))
    right, wrong = Climb((1.0, 0.1), 0.1, 9.0, 1), Climb((0.0, 1.0), 0.1, -9.0, 1)
    best, climbs = tried(networks, (wrong, right), X, y, (False, False), COUNT)
    assert best == 1
    assert [climb.weights for climb in climbs] == [wrong.weights, right.weights]
    assert climbs[1].ridge == trial(networks[1], right, X, y, (False, False), COUNT).ridge
