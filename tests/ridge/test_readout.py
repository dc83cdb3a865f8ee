"""Both readouts against explicit refits, the network's weights physically moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import reference
from lazyknife.compute import Machine
from lazyknife.networks import mlp
from lazyknife.records import LeaveOneOut
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.system import RidgeModels
from lazyknife.tangent import Basis, Dual, Primal, Tangent, linearise
from machines import MACHINE
from reference import assert_close
from systems import dual_models, primal_models

TWINS = {
    "network": reference.network_predictions,
    "tangent": reference.tangent_predictions,
}


def half_frozen() -> nn.Module:
    module = mlp((4, 3), "tanh")(3)
    module[0].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    return module


class LooksAtValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = [self.first(row) for row in x]
        return torch.stack([self.up(h) if h.sum() > 0 else self.down(h).tanh() for h in hidden])


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: mlp(())(3),
    "mlp": lambda: mlp((6, 5), "silu")(3),
    "half frozen": half_frozen,
    "prelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 1), nn.Flatten(0)),
    "control flow on values": LooksAtValues,
}
RIDGES = {"fixed": 0.5, "auto": torch.tensor([0.1, 1.0, 10.0])}


def data(n: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(n)
    X, new = rng.normal(size=(n, 3)), rng.normal(size=(5, 3))
    y = 2 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(new)


def in_the_dual_form(
    tangent: Tangent, X: Tensor, y: Tensor, ridge: str, intercept: bool
) -> tuple[Basis, RidgeModels]:
    features = tangent.features(X)
    targets = y - features.outputs
    models = dual_models(tangent.gram(features), targets, RIDGES[ridge], intercept, tangent.machine)
    return Dual(tangent, features), models


def in_the_primal_form(
    tangent: Tangent, X: Tensor, y: Tensor, ridge: str, intercept: bool
) -> tuple[Basis, RidgeModels]:
    basis = Primal(tangent, sum(p.numel() for p in tangent.moved.values()))
    outputs, rows = basis.at(X)[:2]
    if intercept:
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
    return basis, primal_models(rows, y - outputs, RIDGES[ridge], intercept, tangent.machine)


FORMS = {"dual": in_the_dual_form, "primal": in_the_primal_form}


def fitted(
    readout: str,
    network: str,
    n: int,
    ridge: str,
    intercept: bool,
    machine: Machine = MACHINE,
    form: str = "dual",
) -> tuple[LeaveOneOut, RidgeModels, nn.Module]:
    torch.manual_seed(0)
    module, (X, y, _) = NETWORKS[network](), data(n)
    X, y = machine.put(X), machine.put(y)
    tangent = linearise(module, X, machine=machine)
    basis, models = FORMS[form](tangent, X, y, ridge, intercept)
    return READOUTS[readout](basis, models).evaluated(X, y), models, module


def check(
    readout: str,
    network: str,
    n: int,
    ridge: str,
    intercept: bool,
    machine: Machine = MACHINE,
    form: str = "dual",
) -> None:
    loo, models, module = fitted(readout, network, n, ridge, intercept, machine, form)
    X, y, new = data(n)
    r = y.numpy() - reference.outputs(module, X)
    twin = reference.refits(reference.jacobian(module, X), r, models.ridges.tolist(), intercept)
    expected = TWINS[readout](module, twin, new)
    at_training = TWINS[readout](module, twin, X)

    point, each = loo.scaled(new)[:2]
    assert_close(each, expected[:, :-1])
    assert_close(point, expected[:, -1])
    assert_close(loo.point(new), expected[:, -1])
    assert_close(loo.residuals, y.numpy() - at_training[:, :-1].diagonal())
    assert_close(loo.training_residuals, y.numpy() - at_training[:, -1])


def test_every_readout_has_a_twin() -> None:
    assert TWINS.keys() == READOUTS.keys()


@pytest.mark.filterwarnings("ignore:the moved networks are far")  # of a steep network
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("readout", READOUTS)
def test_readout_equals_explicit_refits(readout: str, network: str, intercept: bool) -> None:
    check(readout, network, 9, "fixed", intercept)


@pytest.mark.parametrize("readout", READOUTS)
def test_readout_with_more_rows_than_weights(readout: str) -> None:
    check(readout, "linear", 25, "fixed", True)


@pytest.mark.parametrize("network", ["mlp", "prelu"])
@pytest.mark.parametrize("readout", READOUTS)
def test_readout_with_a_ridge_for_each_model(readout: str, network: str) -> None:
    check(readout, network, 9, "auto", True)


@pytest.mark.parametrize("budget", [1, MACHINE.budget])
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize(("network", "n"), [("linear", 25), ("half frozen", 30), ("prelu", 9)])
@pytest.mark.parametrize("readout", READOUTS)
def test_readout_in_the_primal_form(
    readout: str, network: str, n: int, ridge: str, budget: int
) -> None:
    machine = replace(MACHINE, budget=budget)
    for intercept in (False, True):
        check(readout, network, n, ridge, intercept, machine, "primal")


@pytest.mark.parametrize("budget", [1, 3000])
@pytest.mark.parametrize("network", ["mlp", "prelu", "control flow on values"])
@pytest.mark.parametrize("readout", READOUTS)
def test_tiny_blocks_change_nothing(readout: str, network: str, budget: int) -> None:
    check(readout, network, 9, "fixed", True, replace(MACHINE, budget=budget))


def test_the_two_readouts_agree_for_a_linear_network_only() -> None:
    _, _, new = data(9)
    for network, same in (("linear", True), ("mlp", False)):
        loos = [fitted(name, network, 9, "fixed", True)[0] for name in READOUTS]
        first, second = (loo.scaled(new).each for loo in loos)
        assert torch.allclose(first, second, rtol=1e-10) == same
