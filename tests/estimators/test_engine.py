"""The central equality: everything the lazy step hands on, against explicit refits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import reference
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.ridge.readout import READOUTS
from lazyknife.tangent import linearise
from machines import MACHINE
from reference import assert_close
from tangents import NETWORKS, network, rows
from zoo import Net, shared_activation

TWINS = {"network": reference.network_predictions, "tangent": reference.tangent_predictions}
pytestmark = pytest.mark.filterwarnings("ignore:the moved networks are far")


def check(
    module: nn.Module,
    X: Tensor,
    new: Tensor,
    step: LazyStep,
    budget: int = 2**30,
    seed: int = 0,
    off: float = 0.0,
) -> None:
    """Predictions, residuals and jackknife+ ends of all models equal those of refits."""
    rng, n = np.random.default_rng(seed), len(X)
    y = rng.normal(size=n)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    models = step.models(tangent, X, torch.from_numpy(y))
    ridges = [ridge * (1 + off) for ridge in models.models.ridges.tolist()]
    r, jacobian = y - reference.outputs(module, X), reference.jacobian(module, X)
    twin = reference.refits(jacobian, r, ridges, step.intercept)
    at_new, at_rows = (TWINS[step.readout](module, twin, each) for each in (new, X))
    each, residuals = at_new[:, :-1], y - at_rows[:, :-1].diagonal()
    found, scale = models.scaled(new), np.abs(y).max()
    for actual, expected in (
        (found.each, each),
        (found.point, at_new[:, -1]),
        (models.residuals, residuals),
        (models.training_residuals, y - at_rows[:, -1]),
    ):  # within 1e-8 of the largest expected number, or of the targets
        assert_close(np.append(actual.cpu().numpy(), scale), np.append(expected, scale), 1e-8)
    rank = int(rng.integers(1, n + 1))
    _, lower, upper = CONSTRUCTIONS["plus"].ends(models, new, [rank])
    for end, values in ((-lower, np.abs(residuals) - each), (upper, each + np.abs(residuals))):
        exact = np.sort(values)[:, n - rank]
        size, over = np.abs(exact).max() + scale, end[:, 0].cpu().numpy() - exact
        assert (over >= -1e-12 * size).all()  # never below, and above by rounding only
        assert (over <= 1e-3 * size).all() or not torch.isfinite(models.scores).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:An output with one or more")  # torch's own, of PReLU in vmap
@pytest.mark.parametrize(
    ("readout", "ridges"),
    [*((readout, st.floats(-1, 3)) for readout in READOUTS), ("tangent", st.just("auto"))],
    ids=[*READOUTS, "a ridge for each model"],
)
@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(NETWORKS)),
    n=st.integers(3, 12),
    intercept=st.booleans(),
    budget=st.sampled_from([1, 300, 3_000, 30_000, 2**30]),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_the_lazy_step_equals_explicit_refits(
    readout: str, ridges: Any, name: str, n: int, intercept: bool, budget: int, seed: int, data: Any
) -> None:
    drawn = data.draw(ridges)
    step = LazyStep(drawn if drawn == "auto" else 10.0**drawn, intercept, readout)
    check(*network(name, n), step, max(budget, 3_000) if drawn == "auto" else budget, seed)


def gain() -> nn.Module:
    """A number without axes among the parameters."""
    parts = {"gain": nn.Parameter(torch.tensor(2.0)), "head": nn.Linear(3, 1)}
    return Net(lambda net, x: net.head(net.gain * x), **parts)


def silent_near_zero() -> nn.Module:
    """A network whose units are all dead at the synthetic rows that scale the grid of λ."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1, bias=False))
    nn.init.constant_(module[0].bias, -100.0)
    return module


@pytest.mark.parametrize(
    ("make", "step", "n"),
    [
        *((gain, LazyStep(1.0, readout=readout), n) for readout in READOUTS for n in (4, 12)),
        (shared_activation, LazyStep(1.0, readout="network"), 6),
        (silent_near_zero, LazyStep("auto"), 6),
    ],
)
def test_networks_at_the_edges_and_models_slightly_off(
    make: Callable[[], nn.Module], step: LazyStep, n: int
) -> None:
    torch.manual_seed(0)
    module, X, new = make(), rows(n, 3), rows(3, 3, seed=1)
    check(module, X, new, step)
    if make is gain:
        with pytest.raises(AssertionError, match="error"):
            check(module, X, new, step, off=1e-5)
