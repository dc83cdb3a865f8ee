"""Boosted trees as arrays: exactly those of scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from lazyknife.tangent.trees import Trees, grow
from reference import Array

SETTINGS: list[dict[str, Any]] = [
    {"loss": "quantile", "quantile": 0.05, "max_iter": 30, "max_leaf_nodes": 8},
    {"max_iter": 40, "min_samples_leaf": 3},
    {"max_iter": 3, "max_leaf_nodes": 2},
    {"max_iter": 2, "min_samples_leaf": 10**6},  # no split at all
]


def rows_of(n: int, seed: int) -> tuple[Array, Array]:
    """Numbers with gaps, of any size, with few values, and a column that is nearly empty."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[:, 1] = rng.integers(0, 4, size=n)
    X[:, 2] = np.exp(30 * X[:, 2])
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[5:, 3] = np.nan
    y += np.isnan(X[:, 0])
    return X, y


def strange(X: Array, model: Any) -> Array:
    """Rows that are nothing like those, and some whose values are cuts."""
    rng = np.random.default_rng(1)
    ends = [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, -0.0, 5e-324]
    wild = rng.choice(ends, size=(200, X.shape[1]))
    cuts = X[rng.integers(len(X), size=200)]
    for (tree,) in model._predictors:
        for node in tree.nodes[tree.nodes["is_leaf"] == 0]:
            cuts[rng.integers(200), node["feature_idx"]] = node["num_threshold"]
    return np.concatenate([X, wild, cuts])


@pytest.mark.parametrize("settings", SETTINGS)
def test_predictions_are_exactly_those_of_the_model(settings: dict[str, Any]) -> None:
    X, y = rows_of(600, seed=0)
    model = HistGradientBoostingRegressor(early_stopping=False, **settings).fit(X, y)
    rows, trees = strange(X, model), Trees.of(model)
    found = trees(torch.from_numpy(rows))
    assert np.array_equal(found.numpy(), model.predict(rows))
    alone = [trees(row[None]) for row in torch.from_numpy(rows[::40])]
    assert torch.equal(torch.cat(alone), found[::40])
    assert trees(torch.from_numpy(rows[:0])).shape == (0,)


def test_a_seed_gives_the_same_bits_on_any_number_of_threads() -> None:
    X, y = (torch.from_numpy(each) for each in rows_of(3000, seed=2))
    X[:, 3] = torch.nan  # without any value
    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            found.append(grow(X, y, 2**40 + 3, max_iter=20))
    for other in found[1:]:
        assert torch.equal(other.values, found[0].values)
        assert all(map(torch.equal, other.cuts, found[0].cuts))
        assert all(map(torch.equal, other.left, found[0].left))
