"""The central equality: everything the lazy step hands on, against explicit refits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from reference import Array, assert_close
from tangents import NETWORKS, network, rows
from zoo import Net, shared_activation

TWINS = {"network": reference.network_predictions, "tangent": reference.tangent_predictions}
SEEDS = st.integers(0, 10**6)
pytestmark = pytest.mark.filterwarnings("ignore:the moved networks are far")


def check(
    module: nn.Module,
    X: Tensor,
    new: Tensor,
    step: LazyStep,
    budget: int = 2**30,
    seed: int = 0,
    refits: Callable[..., reference.Refits] = reference.refits,
) -> None:
    """Predictions, residuals and jackknife+ ends of all models equal those of refits."""
    rng, n = np.random.default_rng(seed), len(X)
    y = rng.normal(size=n)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    models = step.models(tangent, X, torch.from_numpy(y))

    r = y - reference.outputs(module, X)
    ridges = models.models.ridges.tolist()
    twin = refits(reference.jacobian(module, X), r, ridges, step.intercept)
    at_new, at_rows = (TWINS[step.readout](module, twin, each) for each in (new, X))
    residuals = y - at_rows[:, :-1].diagonal()

    point, each = models.scaled(new)[:2]
    scale = np.abs(y).max()
    assert_near(each, at_new[:, :-1], scale)
    assert_near(point, at_new[:, -1], scale)
    assert_near(models.residuals, residuals, scale)
    assert_near(models.training_residuals, y - at_rows[:, -1], scale)
    rank = int(rng.integers(1, n + 1))
    _, lower, upper = CONSTRUCTIONS["plus"].ends(models, new, [rank])
    below, above = at_new[:, :-1] - np.abs(residuals), at_new[:, :-1] + np.abs(residuals)
    known = bool(torch.isfinite(models.scores).all())
    check_end(-lower[:, 0], -np.sort(below)[:, rank - 1], scale, known)
    check_end(upper[:, 0], np.sort(above)[:, n - rank], scale, known)


def check_end(actual: Tensor, expected: Array, scale: float, known: bool) -> None:
    """Upper ends are not below the exact ones, and above them by rounding only if all is known."""
    found = actual.cpu().numpy()
    size = np.abs(expected).max() + scale
    assert (found >= expected - 1e-12 * size).all()
    if known:
        assert (found <= expected + 1e-3 * size).all()


def assert_near(actual: Tensor, expected: Array, scale: float) -> None:
    """Within 1e-8 of the largest expected number, or of the targets."""
    assert_close(np.append(actual.cpu().numpy(), scale), np.append(expected, scale), 1e-8)


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
    seed=SEEDS,
    data=st.data(),
)
def test_the_lazy_step_equals_explicit_refits(
    readout: str,
    ridges: st.SearchStrategy[float | str],
    name: str,
    n: int,
    intercept: bool,
    budget: int,
    seed: int,
    data: st.DataObject,
) -> None:
    drawn = data.draw(ridges)
    step = LazyStep(drawn if drawn == "auto" else 10.0**drawn, intercept, readout)
    check(*network(name, n), step, max(budget, 3_000) if drawn == "auto" else budget, seed)


def with_a_larger_ridge(
    J: Array, r: Array, ridges: list[float], intercept: bool
) -> reference.Refits:
    return reference.refits(J, r, [ridge * (1 + 1e-6) for ridge in ridges], intercept)


def test_the_check_sees_a_model_that_is_slightly_off() -> None:
    case = *network("bare linear layer", 9), LazyStep(1.0)
    check(*case)
    with pytest.raises(AssertionError, match="error"):
        check(*case, refits=with_a_larger_ridge)


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
def test_networks_at_the_edges(make: Callable[[], nn.Module], step: LazyStep, n: int) -> None:
    torch.manual_seed(0)
    check(make(), rows(n, 3), rows(3, 3, seed=1), step)
