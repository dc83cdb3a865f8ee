"""Both readouts against explicit refits, the network's weights physically moved."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import reference
from lazyknife.records import LeaveOneOut
from lazyknife.ridge.dual import DualSystem
from lazyknife.ridge.leave_one_out import draw_folds, leave_folds_out, leave_one_out
from lazyknife.ridge.primal import PrimalSystem
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.system import RidgeModels
from lazyknife.tangent import Basis, Dual, Primal, linearise
from machines import MACHINE
from reference import assert_close
from systems import FORMS, own_ridges
from tangents import network

TWINS = {
    "network": reference.network_predictions,
    "tangent": reference.tangent_predictions,
}
# With frozen weights, with explicit Jacobian rows, and with a branch for each row.
NETWORKS = ["bare linear layer", "dense", "only a bias", "prelu", "control flow on values"]


def data(n: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(n)
    X, new = rng.normal(size=(n, 3)), rng.normal(size=(5, 3))
    y = 2 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(new)


def fitted(
    readout: str,
    module: nn.Module,
    n: int,
    form: str,
    ridge: float | Sequence[float],
    intercept: bool,
    folds: Sequence[Tensor] | None,
    budget: int,
) -> tuple[LeaveOneOut, RidgeModels]:
    machine = replace(MACHINE, budget=budget)
    X, y = map(machine.put, data(n)[:2])
    tangent = linearise(module, X, machine=machine)
    features = tangent.features(X)
    basis: Basis = Dual(tangent, features)
    if form == "primal":
        basis = Primal(tangent, sum(p.numel() for p in tangent.moved.values()))
        rows = basis.at(X).coordinates
        rows = torch.nn.functional.pad(rows, (0, int(intercept)), value=1.0)
        system: Any = PrimalSystem(rows, y - features.outputs, intercept, machine)
    else:
        system = DualSystem(tangent.gram(features), y - features.outputs, intercept, machine)
    own = own_ridges(ridge, y if folds is None else y[: len(folds)])
    models = leave_one_out(system, own) if folds is None else leave_folds_out(system, own, folds)
    return READOUTS[readout](basis, models).evaluated(X, y), models


@pytest.mark.filterwarnings("ignore:the moved networks are far")  # of a steep network
@pytest.mark.parametrize(
    ("ridge", "intercept", "folds"),
    [(0.5, True, 0), (0.5, False, 0), ([0.1, 1.0, 10.0], True, 0), ([0.1, 1.0, 10.0], True, 4)],
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("readout", READOUTS)
def test_readout_equals_explicit_refits(
    readout: str, name: str, form: str, ridge: float | list[float], intercept: bool, folds: int
) -> None:
    n = 25 if name == "bare linear layer" else 9  # more rows than weights, and fewer
    module, (X, y, new) = network(name)[0], data(n)
    parts = draw_folds(n, folds, seed=1) if folds else None
    model_of = np.arange(n)  # of each row
    for k, part in enumerate(parts or ()):
        model_of[part] = k
    expected = None
    for budget in (1, MACHINE.budget):
        loo, models = fitted(readout, module, n, form, ridge, intercept, parts, budget)
        if expected is None:
            r = y.numpy() - reference.outputs(module, X)
            J, ridges = reference.jacobian(module, X), models.ridges.tolist()
            left_out = None if parts is None else [part.numpy() for part in parts]
            twin = reference.refits(J, r, ridges, intercept, left_out)
            expected, at_training = (TWINS[readout](module, twin, rows) for rows in (new, X))
        point, each = loo.scaled(new)[:2]
        assert_close(each, expected[:, model_of])
        assert_close(point, expected[:, -1])
        assert_close(loo.point(new), expected[:, -1])
        assert_close(loo.residuals, y.numpy() - at_training[np.arange(n), model_of])
        assert_close(loo.training_residuals, y.numpy() - at_training[:, -1])
