"""Both readouts against explicit refits, the network's weights physically moved."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyknife as lk
import reference
from lazyknife.compute import Machine
from lazyknife.networks import mlp
from lazyknife.records import LeaveOneOut
from lazyknife.ridge.leave_one_out import draw_folds
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.system import RidgeModels
from lazyknife.tangent import Dual, Primal, linearise
from machines import MACHINE
from reference import assert_close
from rows import linear
from systems import FORMS, dual_models, primal_models
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
    readout: str, module: nn.Module, n: int, form: str, machine: Machine, *terms: Any
) -> tuple[LeaveOneOut, RidgeModels]:
    """Models with a ridge and an intercept or not, which are the terms."""
    X, y = map(machine.put, data(n)[:2])
    tangent = linearise(module, X, machine=machine)
    if form == "dual":
        features = tangent.features(X)
        basis = Dual(tangent, features)
        models = dual_models(tangent.gram(features), y - features.outputs, *terms, machine)
    else:
        basis = Primal(tangent, sum(p.numel() for p in tangent.moved.values()))
        outputs, rows = basis.at(X)[:2]
        if terms[1]:
            rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        models = primal_models(rows, y - outputs, *terms, machine)
    return READOUTS[readout](basis, models).evaluated(X, y), models


def test_every_readout_has_a_twin() -> None:
    assert TWINS.keys() == READOUTS.keys()


@pytest.mark.filterwarnings("ignore:the moved networks are far")  # of a steep network
@pytest.mark.parametrize(
    ("ridge", "intercept"), [(0.5, True), (0.5, False), (torch.tensor([0.1, 1.0, 10.0]), True)]
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("readout", READOUTS)
def test_readout_equals_explicit_refits(
    readout: str, name: str, form: str, ridge: float | Tensor, intercept: bool
) -> None:
    n = 25 if name == "bare linear layer" else 9  # more rows than weights, and fewer
    module, (X, y, new) = network(name)[0], data(n)
    expected = None
    for budget in (1, MACHINE.budget):
        machine = replace(MACHINE, budget=budget)
        loo, models = fitted(readout, module, n, form, machine, ridge, intercept)
        if expected is None:
            r = y.numpy() - reference.outputs(module, X)
            J, ridges = reference.jacobian(module, X), models.ridges.tolist()
            twin = reference.refits(J, r, ridges, intercept)
            expected, at_training = (TWINS[readout](module, twin, rows) for rows in (new, X))
        point, each = loo.scaled(new)[:2]
        assert_close(each, expected[:, :-1])
        assert_close(point, expected[:, -1])
        assert_close(loo.point(new), expected[:, -1])
        assert_close(loo.residuals, y.numpy() - at_training[:, :-1].diagonal())
        assert_close(loo.training_residuals, y.numpy() - at_training[:, -1])


def test_the_two_readouts_agree_for_a_linear_network_only() -> None:
    """And nothing warns of networks that are far from the linearised ones."""
    new = data(9)[2]
    for name, same in (("bare linear layer", True), ("dense", False)):
        module = network(name)[0]
        loos = [fitted(each, module, 9, "dual", MACHINE, 0.5, True)[0] for each in READOUTS]
        first, second = (loo.scaled(new).each for loo in loos)
        assert torch.allclose(first, second, rtol=1e-10) == same


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("ridge", [2.0, "auto"])
@pytest.mark.parametrize(("n", "folds", "widths"), [(14, 4, (5,)), (20, 5, (2,))])
def test_the_estimator_equals_refits_without_each_fold(
    n: int, folds: int, widths: tuple[int, ...], ridge: float | str, readout: str
) -> None:
    X, y = linear(n)
    rows, new = torch.from_numpy(X), torch.from_numpy(linear(5, seed=1)[0])
    terms = {"construction": "cv+", "folds": folds, "readout": readout, "scaling": None}
    model = lk.LazyJackknifeRegressor(
        mlp(widths, "tanh"), ridge=ridge, alpha=0.25, device=MACHINE.device, random_state=0, **terms
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the moved networks are far")
        found = model.fit(X, y).predict_interval(new.numpy())
    module = model.base_.module.double()
    if not hasattr(model, "choice_"):
        assert type(model.loo_.basis) is (Primal if n == 20 else Dual)
    J, base = reference.jacobian(module, rows), reference.outputs(module, rows)
    predictions, margins = np.empty((5, n)), np.empty(n)
    for k, fold in enumerate(draw_folds(n, folds, model.seeds_.lazy)):
        out = fold.numpy()
        kept = np.setdiff1d(np.arange(n), out)
        move, b = reference.ridge_fit(J[kept], (y - base)[kept], float(model.ridge_[k]), True)
        fit = reference.Refits(move[None], np.array([b]))
        predictions[:, out] = TWINS[readout](module, fit, new)
        margins[out] = np.abs(y[out] - TWINS[readout](module, fit, rows[out])[:, 0])
    for ends, sign, quantile in (
        (found.lower, -1, reference.lower_quantile),
        (found.upper, 1, reference.upper_quantile),
    ):
        expected = [quantile((f + sign * margins).tolist(), Fraction(1, 4)) for f in predictions]
        np.testing.assert_allclose(ends, expected, rtol=1e-6, atol=1e-6)
    assert model.ridge_.shape == (folds + 1,)
    assert model.certificate_.coverage is not None
