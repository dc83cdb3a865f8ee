"""λ of every model around one network, by the restricted likelihood of its own rows.

The same search as among several networks (search.py), with λ as the only thing to choose: from
exponents of a unit that looks at no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..compute import Machine
from ..tangent import Basis, Dual
from .kernels import CandidateKernels
from .part import toll
from .search import Search, Walker, walk


@dataclass(frozen=True)
class OwnRidges:
    """What the models chose.

    Attributes
    ----------
    values
        λ of each model, and last of the full one, shape (models + 1,).
    doubtful
        1 where rounding may have decided, else 0, shape (models,).

    """

    values: Tensor
    doubtful: Tensor


def kernel_of(basis: Basis, X: Tensor) -> tuple[Tensor, Tensor]:
    """K, (n, n), and f(X; θ0), (n,), of the rows that a basis was made for."""
    if isinstance(basis, Dual):
        return basis.tangent.gram(basis.features), basis.features.outputs
    outputs, rows, _ = basis.at(X)
    return rows @ rows.T, outputs


def choose_ridges(
    kernel: Tensor,
    targets: Tensor,
    intercept: bool,
    unit: float,
    left_out: Sequence[int],
    folds: Sequence[Tensor] | None,
    machine: Machine,
) -> OwnRidges:
    """Let every model choose its λ.

    Parameters
    ----------
    kernel, targets
        K and y − f(X; θ0) of the rows that choose, shapes (n, n) and (n,).
    intercept
        Whether there is an intercept.
    unit
        λ of exponent 0, a function of no data.
    left_out
        For each model, and last the full one, which of the n rows, or folds, it does not know; n,
        or the number of folds, if it knows all of them.
    folds
        Rows that are left out together; None: each row in turn.
    machine
        Where to compute.

    """
    rows = len(targets)

    def given(_: int) -> tuple[Tensor, Tensor]:
        return kernel, torch.zeros_like(targets)

    kernels = CandidateKernels([given], [unit], [kernel], ())
    distinct = [Walker(0, column) for column in dict.fromkeys(left_out)]
    tolls = np.array([toll(rows, folds, walker.left_out) for walker in distinct])
    search = Search(kernels, targets, intercept, machine, folds)
    found = walk(search, distinct, tolls, relevance=False)
    place = {walker.left_out: k for k, walker in enumerate(distinct)}
    numbers = [place[column] for column in left_out]
    exponents = [float(found.places[k].ridge) for k in numbers]
    values = unit * torch.tensor(exponents, dtype=torch.float64, device=targets.device).exp2()
    doubtful = targets.new_tensor(found.doubtful[numbers[:-1]].astype(float))
    return OwnRidges(values, doubtful)
