"""The lazy step: which form it takes, what it refuses, and what rounding costs it."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import lazyknife as lk
import reference
from lazyknife.choosing.per_model import choose_ridges
from lazyknife.compute import LEAST_BUDGET, NotEnoughMemory
from lazyknife.estimators.fit_network import KERNELS, LazyStep
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.intervals.models import SMALL_SHARE, rounding_share
from lazyknife.networks import mlp
from lazyknife.records import Base
from lazyknife.ridge.leave_one_out import leave_rows
from lazyknife.ridge.problem import Problem, typical_size
from lazyknife.ridge.readout import READOUTS
from lazyknife.ridge.system import RidgeModels
from lazyknife.tangent import Dual, Primal, Sketch, linearise
from machines import MACHINE, here
from reference import assert_close
from rows import linear

pytestmark = pytest.mark.filterwarnings("ignore:the moved networks are far")  # of small ridges
WEIGHTS = 11  # of the small network
RIDGES: list[float | str] = [0.5, "auto"]


def small() -> nn.Module:
    torch.manual_seed(0)
    return mlp((2,), "tanh")(3)


def large() -> nn.Module:
    torch.manual_seed(0)
    return mlp((20,), "tanh")(3)


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    X, y = linear(n, seed=seed)
    return MACHINE.put(torch.from_numpy(X)), MACHINE.put(torch.from_numpy(y))


NEW = data(6, seed=1)[0]


def solve(step: LazyStep, module: nn.Module, n: int) -> Any:
    X, y = data(n)
    return step.models(linearise(module, X, machine=MACHINE), X, y)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize(("n", "form"), [(WEIGHTS, Dual), (WEIGHTS + 1, Primal)])
def test_fewer_weights_than_rows_are_solved_in_the_primal_form(
    n: int, form: type, ridge: float | str, readout: str
) -> None:
    assert type(solve(LazyStep(ridge, readout=readout), small(), n).basis) is form


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("dimension", [5, 30])
def test_sketched_models_equal_refits_on_the_sketched_rows(
    dimension: int, ridge: float | str, intercept: bool
) -> None:
    X, y = data(12)
    models = solve(LazyStep(ridge, intercept, features=Sketch(dimension), seed=4), large(), 12)
    basis = models.basis
    (outputs, Z), (new_outputs, Z_new) = (
        tuple(part.cpu().numpy() for part in basis.at(rows)[:2]) for rows in (X, NEW)
    )
    r, ridges = y.cpu().numpy() - outputs, models.models.ridges.tolist()
    if ridge == "auto":
        unit, columns = typical_size(basis.tangent, X, 4), [*range(13)]
        own = choose_ridges(here(Z @ Z.T), here(r), intercept, unit, columns, None, MACHINE)
        assert_close(models.models.ridges, own.values, 1e-12)
    twin = reference.refits(Z, r, ridges, intercept)
    expected = new_outputs[:, None] + Z_new @ twin.moves.T + twin.intercepts
    own = np.einsum("ik,ik->i", Z, twin.moves[:-1]) + twin.intercepts[:-1]
    point, each = models.scaled(NEW)[:2]
    assert Z.shape == (12, dimension)
    assert_close(each, expected[:, :-1], 1e-8)
    assert_close(point, expected[:, -1], 1e-8)
    assert_close(models.residuals, r - own, 1e-8)


SQUARE, NARROW = 100 * 100, Sketch(19)
FOLDS: dict[str, Any] = {"construction": "cv+", "features": NARROW}
AUTO, DIMENSIONS = LazyStep("auto"), "fewer dimensions"
# Settings, weights, how many numbers are counted for 100 rows, and a remedy.
MEMORY: dict[str, tuple[LazyStep, int, int, str]] = {
    "kernel": (LazyStep(1.0), 100, SQUARE, "parameters='last', or fewer rows"),
    "kernel and models": (AUTO, 1000, (2 + KERNELS) * SQUARE, "features=Sketch(4096)"),
    "primal": (LazyStep(1.0), 99, SQUARE + 3 * 99**2, DIMENSIONS),
    "primal and models": (AUTO, 99, (2 + KERNELS) * SQUARE + 3 * 99**2, DIMENSIONS),
    "sketch": (LazyStep(1.0, features=NARROW), 1000, 2000 + 3 * 19**2, DIMENSIONS),
    "sketch and models": (
        *(LazyStep("auto", features=NARROW), 10),
        *(4000 + 3 * 19**2 + KERNELS * SQUARE, DIMENSIONS),
    ),
    "sketch and folds": (LazyStep(1.0, **FOLDS), 10, 2000 + 8 * 19**2, DIMENSIONS),
    "many folds": (LazyStep(1.0, **FOLDS, folds=50), 10, 4000 + 8 * 19**2, DIMENSIONS),
}
Free = Callable[[int], None]


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    """Set the bytes that the machine believes to be free."""
    return lambda count: monkeypatch.setattr("lazyknife.compute.free_memory", lambda _: count)


@pytest.mark.parametrize("name", MEMORY)
def test_what_does_not_fit_is_refused_with_the_bytes_it_needs(name: str, free: Free) -> None:
    (step, weights, numbers, remedy), machine = MEMORY[name], replace(MACHINE, budget=500)
    needed = 8 * numbers
    free(needed + 500)
    step.check_fits(100, weights, machine)
    free(needed + 499)
    with pytest.raises(NotEnoughMemory, match=f"needs {needed:,} bytes") as caught:
        step.check_fits(100, weights, machine)
    for words in ("memory_budget=500", f"{needed + 499:,} are free", remedy):
        assert words in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert ("a number for ridge" in str(caught.value)) == (step.ridge == "auto")


def measured_peak(run: Callable[[], object]) -> int:
    """The most bytes that torch held on the processor at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        kept = run()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    del kept
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return max(itertools.accumulate(changes))


SKETCH = Sketch(60)
TERMS: dict[str, dict[str, Any]] = {
    "constant": {},
    "leverage": {"widths": "leverage"},
    "full": {"construction": "full"},
    "cv+": {"construction": "cv+"},
    "primal": {"features": SKETCH},
    "primal, cv+": {"construction": "cv+", "features": SKETCH},
}
OPTIONS: dict[str, LazyStep] = {
    f"{name}, {ridge}": LazyStep(ridge, **terms)
    for name, terms in TERMS.items()
    for ridge in RIDGES
    if (name, ridge) != ("full", "auto")  # chosen elsewhere, together with new rows
}
OPTIONS["huber"] = LazyStep(0.5, loss=lk.Huber())


@pytest.mark.skipif(MACHINE.device.type != "cpu", reason="what the processor holds is measured")
@pytest.mark.parametrize(
    "option",
    [
        pytest.param(option, marks=() if option.startswith("primal") else pytest.mark.slow)
        for option in OPTIONS
    ],
)
def test_a_fit_takes_no_more_than_was_counted(option: str, free: Free) -> None:
    step, primal = OPTIONS[option], option.startswith("primal")
    n, budget = (3000, 400_000) if primal else (320, 200_000)
    # Vectors of n, features of n rows, and numbers for each row and λ are not counted.
    uncounted = 8 * n * 40 if primal else 0.5 * 8 * n * n
    X, y = data(n)
    module, machine = lk.mlp((80,))(3), replace(MACHINE, budget=budget)
    peak = measured_peak(lambda: step.models(linearise(module, X, "all", machine), X, y))
    free(0)
    with pytest.raises(NotEnoughMemory) as caught:
        step.check_fits(n, sum(p.numel() for p in module.parameters()), machine)
    (counted,) = re.findall(r"needs ([\d,]+) bytes", str(caught.value))
    assert peak < int(counted.replace(",", "")) + budget + uncounted


@dataclass(frozen=True)
class NeverLearns(lk.Public):
    def learn(self, task: Any) -> Base:
        raise AssertionError("the base was learnt")


@pytest.mark.parametrize("ridge", RIDGES)
def test_the_estimator_refuses_before_the_base_is_learnt(ridge: float | str, free: Free) -> None:
    terms: dict[str, Any] = {"device": MACHINE.device, "memory_budget": LEAST_BUDGET}
    terms |= {"ridge": ridge, "widths": "constant"}
    model = lk.LazyJackknifeRegressor(large(), NeverLearns(), **terms)
    needed = 50 * 50 * 8 * (2 + KERNELS if ridge == "auto" else 1)
    free(needed + LEAST_BUDGET - 1)
    with pytest.raises(NotEnoughMemory, match=f"{needed:,} bytes"):
        model.fit(*linear(50))
    free(needed + LEAST_BUDGET)
    with pytest.raises(AssertionError, match="the base was learnt"):
        model.fit(*linear(50))
    free(LEAST_BUDGET + 1000)  # the weights that move and the rows that are left count
    with pytest.raises(NotEnoughMemory, match="21 features of 60 rows"):
        model.set_params(parameters="last").fit(*linear(60))
    with pytest.raises(NotEnoughMemory, match="kernel of 30 rows"):
        model.set_params(base=lk.Split(0.5), parameters="all").fit(*linear(60))


def corrupted(problem: Problem) -> RidgeModels:
    """Models that are off by 5 %."""
    models = leave_rows(problem)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(models.columns.shape, generator=generator).to(models.columns)
    return replace(models, columns=models.columns * (1 + 0.05 * noise))


@pytest.mark.parametrize("n", [30, 200])
@pytest.mark.parametrize("readout", READOUTS)
def test_wrong_models_are_found_by_the_check(readout: str, n: int) -> None:
    step = LazyStep(
        5.0, readout=readout, construction=replace(CONSTRUCTIONS["plus"], solve=corrupted)
    )
    assert rounding_share(solve(step, large(), n), 0.1, 1.0) > SMALL_SHARE
    right = solve(replace(step, construction="plus"), large(), n)
    assert rounding_share(right, 0.1, 1.0) < 1e-6


class Placed(nn.Module):
    """Lets an output depend a little on where its row stands in the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + 1e-6 * torch.arange(len(x), dtype=x.dtype, device=x.device)[:, None])


def test_rounding_that_depends_on_the_place_in_a_batch_is_measured_and_reported() -> None:
    X, y = linear(30)
    settings = {"ridge": 1.0, "random_state": 0, "device": MACHINE.device}
    steady, placed = (
        lk.LazyJackknifeRegressor(nn.Sequential(large(), *more), **settings).fit(X, y)
        for more in ([], [Placed()])
    )
    assert steady.rounding_ < 1e-8
    assert 1e-7 < placed.rounding_ < SMALL_SHARE
    assert placed.certificate_.coverage == steady.certificate_.coverage


@pytest.mark.slow
@pytest.mark.parametrize(("n", "form"), [(40, "kernel"), (60, "features")])
def test_rounding_that_outweighs_the_ridge_is_refused(n: int, form: str) -> None:
    """Rows in a space of five dimensions, far from 0."""
    rng, (_, y) = np.random.default_rng(0), data(n)
    X = here(100 * rng.normal(size=(n, 5)) @ rng.normal(size=(5, 50)))
    module = nn.Linear(50, 1)
    scarce = linearise(module, X, machine=replace(MACHINE, budget=1000))
    with pytest.raises(ValueError, match="plus ridge=1e-14 is not positive definite"):
        LazyStep(1e-14).models(scarce, X, y)
    if form == "kernel":  # with room for its eigenvectors, its positive part is taken
        models = LazyStep(1e-14).models(linearise(module, X, machine=MACHINE), X, y)
        assert torch.isfinite(models.models.columns).all()
        assert rounding_share(models, 0.1, 1.0) > SMALL_SHARE


def test_the_unit_looks_at_the_network_and_its_seed_alone() -> None:
    X, far = data(30)[0], 100 + 50 * data(7, seed=2)[0]
    near, other = (linearise(large(), rows, machine=MACHINE) for rows in (X, far))
    unit = typical_size(near, far, 3)
    assert unit == typical_size(other, X, 3)
    probes = torch.randn(64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    scale = np.square(reference.jacobian(large(), probes)).sum(axis=1).mean()
    assert unit == pytest.approx(scale)
    assert typical_size(near, X, 4) != unit
    for rows, y in ((X, data(30)[1]), (X, 1e3 * data(30)[1] - 7), (3 * X, data(30)[1])):
        ridges = LazyStep("auto", seed=3).models(near, rows, y).models.ridges
        powers = torch.log2(ridges / unit)
        assert_close(powers, powers.round(), 1e-9)
    codes = torch.tensor([[0, 1], [2, 1], [1, 0]])  # which have no scale
    module = nn.Sequential(nn.Embedding(3, 2), nn.Flatten(), nn.Linear(4, 1))
    assert typical_size(linearise(module, codes, machine=MACHINE), codes, 0) == 1.0
