"""Several targets of the same rows, by explicit refits."""

from typing import Any

import numpy as np
import torch

import lazyknife as lk
from lazyknife.choosing.candidates import wide_tangent
from lazyknife.data.own_scaling import unscaled


def laplace(X: Any, Z: Any) -> Any:
    """The kernel of ``wide("laplace", 1.0)`` without scaling."""
    tangent = wide_tangent(lk.wide("laplace", 1.0), unscaled(1, X.shape[1])[0])
    new, old = (tangent.features(torch.from_numpy(rows)) for rows in (X, Z))
    found = tangent.kernel(new, old).numpy()
    return found if X is not Z else found * (1 - np.eye(len(X))) + np.eye(len(X))


def refit(X: Any, Y: Any, new: Any, ridge: float) -> Any:
    """Values of a ridge with an intercept, for every column of Y, at new rows."""
    n = len(X)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = laplace(X, X) + ridge * np.eye(n)
    system[n, n] = 0.0
    solved = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return laplace(new, X) @ solved[:n] + solved[n]
