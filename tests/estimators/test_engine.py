"""The central equality: everything the lazy step hands on, against explicit refits."""

from __future__ import annotations

import itertools
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
from lazyknife.networks import ACTIVATIONS
from lazyknife.ridge.readout import READOUTS
from lazyknife.tangent import linearise
from machines import MACHINE
from reference import Array, assert_close

TWINS = {
    "network": reference.network_predictions,
    "tangent": reference.tangent_predictions,
}
CODES = 4
BUDGETS = st.sampled_from([1, 300, 3_000, 30_000, 2**30])
Drawn = tuple[nn.Module, tuple[int, ...], bool]  # network, shape of a row, whether of codes


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def tied(size: int, activation: type[nn.Module]) -> list[nn.Module]:
    """Two layers of one weight, each with a bias of its own."""
    first, second = nn.Linear(size, size), nn.Linear(size, size)
    second.weight = first.weight
    return [first, activation(), second, activation()]


def twice(size: int, activation: type[nn.Module]) -> list[nn.Module]:
    """One layer called twice."""
    layer = nn.Linear(size, size)
    return [layer, activation(), layer]


MIDDLES: dict[str, Callable[[int, type[nn.Module]], list[nn.Module]]] = {
    "nothing": lambda size, activation: [],
    "norm": lambda size, activation: [nn.LayerNorm(size)],
    "residual": lambda size, activation: [
        Residual(nn.Sequential(nn.Linear(size, 2), activation(), nn.Linear(2, size)))
    ],
    "prelu": lambda size, activation: [nn.PReLU()],
    "tied": tied,
    "twice": twice,
}


@st.composite
def dense_layers(draw: st.DrawFn, features: int) -> list[nn.Module]:
    """Linear layers and activations with something in the middle, one output."""
    activation = ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))]
    sizes = [features, *draw(st.lists(st.integers(1, 5), max_size=2))]
    layers: list[nn.Module] = []
    for size_in, size_out in itertools.pairwise(sizes):
        layers += [nn.Linear(size_in, size_out, bias=draw(st.booleans())), activation()]
        layers += MIDDLES[draw(st.sampled_from(sorted(MIDDLES)))](size_out, activation)
    return [*layers, nn.Linear(sizes[-1], 1)]


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    """A dense network, a small convolution or a table, some parameters frozen."""
    torch.manual_seed(draw(st.integers(0, 10**6)))
    kind = draw(st.sampled_from(["dense", "dense", "sound", "pictures", "table"]))
    head = [nn.Tanh(), nn.Flatten()]
    if kind == "dense":
        shape: tuple[int, ...] = (draw(st.integers(1, 4)),)
        layers = draw(dense_layers(shape[0]))
    elif kind == "sound":
        shape, groups = (2, 4), draw(st.integers(1, 2))
        layers = [nn.Conv1d(2, 2, 2, groups=groups), nn.GroupNorm(1, 2), *head, nn.Linear(6, 1)]
    elif kind == "pictures":
        shape, stride = (1, 3, 3), draw(st.integers(1, 2))
        conv = nn.Conv2d(1, 2, 2, stride=stride, bias=draw(st.booleans()))
        layers = [conv, *head, nn.Linear(8 if stride == 1 else 2, 1)]
    else:
        shape = (2,)
        layers = [nn.Embedding(CODES, 2), *head, *draw(dense_layers(4))]
    module = nn.Sequential(*layers)
    *others, _ = module.parameters()
    for parameter in others:
        parameter.requires_grad_(draw(st.integers(0, 4)) > 0)
    return module, shape, kind == "table"


def draw_rows(n: int, shape: tuple[int, ...], codes: bool, rng: np.random.Generator) -> Tensor:
    if codes:
        return torch.from_numpy(rng.integers(0, CODES, size=(n, *shape)))
    return torch.from_numpy(rng.normal(size=(n, *shape)))


def check(
    drawn: Drawn,
    step: LazyStep,
    n: int,
    m: int,
    budget: int,
    seed: int,
    refits: Callable[..., reference.Refits] = reference.refits,
) -> None:
    """Predictions, residuals and jackknife+ ends of all models equal those of refits."""
    module, shape, codes = drawn
    rng = np.random.default_rng(seed)
    X, new = (draw_rows(rows, shape, codes, rng) for rows in (n, m))
    y = rng.normal(size=n)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    models = step.models(tangent, X, torch.from_numpy(y))

    r = y - reference.outputs(module, X)
    ridges = models.models.ridges.tolist()
    twin = refits(reference.jacobian(module, X), r, ridges, step.intercept)
    at_new, at_rows = (TWINS[step.readout](module, twin, rows) for rows in (new, X))
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
@pytest.mark.parametrize("readout", READOUTS)
@settings(max_examples=60, deadline=None)
@given(
    drawn=networks(),
    n=st.integers(2, 12),
    m=st.integers(1, 4),
    ridge=st.floats(-1, 3).map(lambda exponent: 10.0**exponent),
    intercept=st.booleans(),
    budget=BUDGETS,
    seed=st.integers(0, 10**6),
)
def test_the_lazy_step_equals_explicit_refits(
    readout: str,
    drawn: Drawn,
    n: int,
    m: int,
    ridge: float,
    intercept: bool,
    budget: int,
    seed: int,
) -> None:
    check(drawn, LazyStep(ridge, intercept, readout), n, m, budget, seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:An output with one or more")
@settings(max_examples=25, deadline=None)
@given(
    drawn=networks(),
    n=st.integers(3, 12),
    intercept=st.booleans(),
    budget=st.sampled_from([3_000, 2**30]),
    seed=st.integers(0, 10**6),
)
def test_so_it_does_with_a_ridge_for_each_model(
    drawn: Drawn, n: int, intercept: bool, budget: int, seed: int
) -> None:
    check(drawn, LazyStep("auto", intercept), n, 3, budget, seed)


def with_a_larger_ridge(
    J: Array, r: Array, ridges: list[float], intercept: bool
) -> reference.Refits:
    return reference.refits(J, r, [ridge * (1 + 1e-6) for ridge in ridges], intercept)


def test_the_check_sees_a_model_that_is_slightly_off() -> None:
    drawn: Drawn = nn.Linear(3, 1), (3,), False
    check(drawn, LazyStep(1.0), 9, 3, 2**30, seed=0)
    with pytest.raises(AssertionError, match="error"):
        check(drawn, LazyStep(1.0), 9, 3, 2**30, seed=0, refits=with_a_larger_ridge)


class Gain(nn.Module):
    """A number without axes among the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.head = nn.Parameter(torch.tensor(2.0)), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gain * x)


def same_activation_twice() -> nn.Module:
    activation = nn.Tanh()
    return nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 1))


def silent_near_zero() -> nn.Module:
    """A network whose units are all dead at the synthetic rows that scale the grid of λ."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1, bias=False))
    nn.init.constant_(module[0].bias, -100.0)
    return module


@pytest.mark.parametrize(
    ("network", "step", "n"),
    [
        *((Gain, LazyStep(1.0, readout=readout), n) for readout in READOUTS for n in (4, 12)),
        (same_activation_twice, LazyStep(1.0, readout="network"), 6),
        (silent_near_zero, LazyStep("auto"), 6),
    ],
)
def test_networks_at_the_edges(network: Callable[[], nn.Module], step: LazyStep, n: int) -> None:
    torch.manual_seed(0)
    check((network(), (3,), False), step, n, 3, 2**30, seed=0)
