"""Data for the tests: the paper's simulation, and real files where they can be found."""

import os
from pathlib import Path

import numpy as np
import pytest
from research import datasets

FOLDERS = [
    os.environ.get("LAZYKNIFE_DATA"),
    Path(__file__).parents[2] / "shared" / "data",
]


def simulated(p: int, seed: int, n_total: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """X ~ N(0, 5·I), Y = √relu(Xβ) + N(0, .5) (variances), β ~ Beta(1, 2.5)."""
    drawn = datasets.simulated(p, n_total, seed)
    return drawn.X, drawn.y


def linear(n: int, p: int = 3, seed: int = 0, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """A small linear problem for tests that are not about accuracy."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ np.linspace(1, -1, p) + noise * rng.normal(size=n)


def mixed(n: int = 70) -> tuple[np.ndarray, np.ndarray, list[bool]]:
    """Three numbers, one with gaps, and a category, with a target; and which are categories."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    X[::5, 1] = np.nan
    X[:, 3] = rng.integers(3, size=n)
    y = np.sin(2 * X[:, 0]) + np.nan_to_num(X[:, 1]) + (X[:, 3] == 1) + 0.1 * X[:, 2]
    return X, y + 0.1 * rng.normal(size=n), [False, False, False, True]


def real_file(name: str) -> Path:
    """Path of a real data file; skips the test where there is none."""
    for folder in FOLDERS:
        if folder is not None and (Path(folder) / name).is_file():
            return Path(folder) / name
    pytest.skip(f"{name} not found: set LAZYKNIFE_DATA to the folder that holds it")
