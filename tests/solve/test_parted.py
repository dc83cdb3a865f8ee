"""λ chosen by errors on a part of the rows, and by bounds, against refits and all errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from lazyknife.solve.bounds import Bounds, bounds_of_all, bounds_without, terms_of
from lazyknife.solve.choose import TIE, Contest, choose, leave_one_out
from lazyknife.solve.part import COMPARED, SEED_SALT, draw_part
from lazyknife.solve.parted import (
    PART_TIE,
    Part,
    leave_one_out_parted,
    part_of,
    screened,
    solvable,
    spectrum_of,
)
from lazyknife.solve.primal import PrimalSystem
from lazyknife.solve.ridge import RidgeModels
from lazyknife.solve.screen import Screen, decide
from lazyknife.solve.spectrum import Spectrum
from machines import MACHINE, here
from reference import Array, assert_close
from systems import problem, system

GRID = [100.0, 0.01, 1.0, 0.1, 10.0]  # in no order: the choice must not depend on it


def wild(n: int, size: int, seed: int) -> tuple[Array, Array]:
    """Features of different scales, far from 0, sometimes with an outlier or hardly any noise."""
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(n, size)) * 10 ** rng.uniform(-2, 2, size if seed % 2 else 1)
    J += 10 * rng.normal() * (seed % 3 == 0)
    r = J @ rng.normal(size=size) * (seed % 5 > 0) + 10 ** rng.uniform(-6, 1) * rng.normal(size=n)
    r[0] += 1e4 * (seed % 4 == 0)
    return J, r


def primal(J: Array, r: Array, intercept: bool) -> PrimalSystem:
    found = system("primal", J, r, intercept, MACHINE)
    assert isinstance(found, PrimalSystem)
    return found


def some_rows(n: int, seed: int) -> Tensor:
    """About half of the rows, three at least."""
    coins = torch.rand(n, generator=torch.Generator().manual_seed(seed))
    coins[:3] = 0.0
    return (coins < 0.5).nonzero()[:, 0].to(MACHINE.device)


def grid_for(J: Array, points: int) -> list[float]:
    scale = np.square(J).sum(axis=1).mean()
    return [float(ridge) for ridge in scale * np.logspace(-4, 6, points)]


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(6, 12),
    size=st.integers(1, 6),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_every_model_chooses_as_refits_do_on_its_own_rows_of_the_part(
    n: int, size: int, intercept: bool, seed: int
) -> None:
    J, r, _ = problem(n, size, seed)
    part = some_rows(n, seed)
    models = leave_one_out_parted(primal(J, r, intercept), GRID, Part(part, TIE))
    chosen = reference.chosen_ridges(J, r, GRID, intercept, part.tolist())
    assert models.ridges.tolist() == chosen
    twin = reference.refits(J, r, chosen, intercept)
    assert_close(models.columns, twin.moves.T[:, :-1], 1e-10)
    assert_close(models.full, twin.moves[-1], 1e-10)
    assert_close(models.intercepts, twin.intercepts, 1e-9)
    residuals = (r[:, None] - J @ twin.moves.T - twin.intercepts)[:, :-1].diagonal()
    assert_close(models.residuals, residuals, 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(3, 150),
    size=st.integers(1, 40),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_with_all_rows_it_is_the_choice_by_the_errors_of_all_pairs(
    n: int, size: int, intercept: bool, seed: int
) -> None:
    J, r = wild(n, size, seed)
    grid = grid_for(J, 20)
    twin = leave_one_out(primal(J, r, intercept), grid)
    system = primal(J, r, intercept)
    models = leave_one_out_parted(system, grid, part_of(system, seed))
    sure = (twin.sensitivity.doubtful + models.sensitivity.doubtful) == 0
    assert torch.equal(models.ridges[:-1][sure], twin.ridges[:-1][sure])
    same = models.ridges == twin.ridges
    assert_close(models.residuals[same[:-1]], twin.residuals[same[:-1]], 1e-7)
    if same.all():
        for name in ("columns", "intercepts", "full", "training_residuals"):
            assert_close(getattr(models, name), getattr(twin, name), 1e-6)


def all_errors(J: Tensor, r: Tensor, ridge: float, intercept: bool, part: Tensor) -> Tensor:
    """C_j of the models without each row, and last of the full one, in float64."""
    penalty = torch.full_like(J[0], ridge)
    penalty[J.shape[1] - intercept :] = 0.0
    hat = J @ torch.linalg.solve(J.T @ J + penalty.diag(), J.T)
    kept, left = 1 - hat.diagonal(), r - hat @ r
    pairs = left[part, None] + hat[part] * (left / kept)
    pairs /= kept[part, None] - hat[part].square() / kept
    pairs[torch.arange(len(part)), part] = 0.0
    own = (left / kept)[part]
    return torch.cat([pairs.square().sum(dim=0), own.square().sum()[None]])


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(6, 300),
    size=st.integers(1, 30),
    intercept=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold_also_in_float32(
    n: int, size: int, intercept: bool, single: bool, seed: int
) -> None:
    """In float32 rounding is large enough for the bounds on it to be tested."""
    J, r = wild(n, min(size, n - 1), seed)
    machine = MACHINE.of_type(torch.float32 if single else torch.float64)
    rows = np.hstack([J, np.ones((n, 1))])[:, : J.shape[1] + intercept]
    tensors = (machine.put(torch.from_numpy(each)) for each in (rows, r))
    system, part = PrimalSystem(*tensors, intercept, machine), some_rows(n, seed)
    grid = system.gram.new_tensor(grid_for(J, 6)[2 * single :])
    moments, square = system.centred @ system.rows, system.centred.square().sum()
    spectrum = Spectrum.of(system.gram, moments, square, grid, intercept)
    seen = spectrum.at(system.rows[part], system.centred[part])
    screen = Screen.of(spectrum, part, seen, TIE, 2**20)
    every, models = spectrum.at(system.rows, system.centred), torch.arange(n, device=part.device)
    terms = terms_of(spectrum, screen.part, every, torch.isin(models, part))
    first, whole = bounds_without(screen.part, terms), bounds_of_all(spectrum, screen.part)
    for k, ridge in enumerate(spectrum.ridges.tolist()):
        given = (system.rows.double(), system.centred.double(), ridge, intercept, part)
        errors = all_errors(*given)
        ways = [way(k, models, every.only(k)) for way in (screen._sharper, screen._exact)]
        for bounds in (Bounds(first.lower[:, k, None], first.upper[:, k, None]), *ways):
            assert (bounds.lower[:, 0] <= errors[:-1] * (1 + 1e-9)).all()
            assert (bounds.upper[:, 0] >= errors[:-1] * (1 - 1e-9)).all()
        assert whole.lower[0, k] <= errors[-1] * (1 + 1e-9)
        assert whole.upper[0, k] >= errors[-1] * (1 - 1e-9)


def test_with_many_rows_bounds_decide_and_are_sharp() -> None:
    J, r, _ = problem(3000, 12, seed=0)
    system, part = primal(J, r, True), some_rows(3000, 0)
    contest = Contest(torch.ones(3001, dtype=torch.float64, device=part.device), 1e9)
    grid = grid_for(J, 20)
    found = screened(system, grid, solvable(contest, grid, system.is_definite), Part(part, TIE))
    assert found.sure.all()
    spectrum = spectrum_of(system, grid)
    seen = spectrum.at(system.rows[part], system.centred[part])
    screen = Screen.of(spectrum, part, seen, TIE, 2**20)
    every, models = spectrum.at(system.rows, system.centred), torch.arange(3000, device=part.device)
    widths = []
    for way in (screen._sharper, screen._exact):
        bounds = way(9, models, every.only(9))
        widths.append(float(((bounds.upper - bounds.lower) / bounds.upper).max()))
    assert widths[0] < 1e-5
    assert widths[1] < 1e-9


@dataclass(frozen=True)
class Given:
    """Errors at one λ, as a candidate of ``choose``."""

    errors: Tensor
    change: float = 0.0


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), tie=st.sampled_from([1e-6, 1e-2]))
def test_decisions_by_bounds_are_those_of_the_contest(seed: int, tie: float) -> None:
    rng = np.random.default_rng(seed)
    ridges = [float(k + 1) for k in range(8)]
    steps = rng.choice([0.0, tie / 2, tie, 2 * tie, 0.3], size=(40, 8)) * rng.uniform(0.9, 1.1, 8)
    errors = torch.from_numpy(1 + steps * rng.choice([-1, 1], size=(40, 8))).clamp(min=0.1)
    admitted = torch.from_numpy(rng.random((40, 8)) < 0.8)
    admitted[:, -1] = True
    width = torch.from_numpy(tie * 10.0 ** rng.uniform(-3, 2, (40, 8)) * rng.random((40, 8)))
    found = decide(Bounds(errors - width, errors + width), admitted, tie)

    class Masked(Contest):
        def admits(self, ridge: float) -> Tensor:
            return admitted[:, int(ridge) - 1]

    def held(entered: Tensor) -> Tensor:
        best = torch.zeros(40, dtype=torch.long)

        def keep(given: Given, better: Tensor) -> None:
            place = int((errors == given.errors[:, None]).all(dim=0).nonzero()[0, 0])
            best[better] = place

        nonlocal admitted
        before, admitted = admitted, entered
        contest = Masked(torch.ones(40, dtype=torch.float64), 8.0, tie)
        choose(contest, ridges, lambda ridge: Given(errors[:, int(ridge) - 1]), keep)
        admitted = before
        return best

    expected = held(admitted)
    assert torch.equal(found.winner[found.sure], expected[found.sure])
    undecided = ~found.sure
    entered = torch.where(undecided[:, None], found.open, admitted)
    assert torch.equal(held(entered), expected)


@pytest.mark.parametrize("value", [1e3, -1e9])
def test_a_rows_target_has_no_influence_on_the_model_without_it(value: float) -> None:
    J, r, _ = problem(60, 6, seed=1)
    part = Part(some_rows(60, 1), PART_TIE)
    before = leave_one_out_parted(primal(J, r, True), GRID, part)
    others = False
    for j in (
        int(part.rows[-1]),
        int((~torch.isin(torch.arange(60), part.rows.cpu())).nonzero()[0]),
    ):
        changed = r.copy()
        changed[j] += value
        after = leave_one_out_parted(primal(J, changed, True), GRID, part)
        assert after.ridges[j] == before.ridges[j]
        assert_close(after.columns[:, j], before.columns[:, j], 1e-13 * abs(value) + 1e-10)
        others |= bool((after.ridges != before.ridges).any())
    assert others  # while other models do change their minds


def test_the_part_is_drawn_by_coins_and_not_by_data() -> None:
    assert torch.equal(draw_part(COMPARED, 0, COMPARED), torch.arange(COMPARED))
    sizes = [len(draw_part(10**4, seed, COMPARED)) for seed in range(100)]
    assert len(set(sizes)) > 10
    # The mean of 100 sizes has a standard deviation of 4: six of them, one false alarm in 10^9.
    assert abs(np.mean(sizes) - COMPARED) < 24
    assert not torch.equal(draw_part(10**4, 3, 400), draw_part(10**4, 3 ^ SEED_SALT, 400))
    J, r, _ = problem(COMPARED + 1, 2, seed=0)
    few, many = (primal(J[:n], r[:n], True) for n in (COMPARED, COMPARED + 1))
    assert part_of(few, 0).tie == TIE
    assert part_of(many, 0).tie == PART_TIE
    assert torch.equal(part_of(many, 5).rows, part_of(primal(J, r + J[:, 0], True), 5).rows)


def test_rows_in_float32_are_screened_in_float64() -> None:
    J, r, _ = problem(500, 8, seed=3)
    machine = MACHINE.of_type(torch.float32)
    rows, targets = (machine.put(torch.from_numpy(each)) for each in (J, r))
    single = PrimalSystem(rows, targets, False, machine)
    double = PrimalSystem(rows.double(), targets.double(), False, MACHINE)
    kept = torch.arange(100, device=MACHINE.device)
    for ours, theirs in ((None, None), (single.left(kept), double.left(kept))):
        found, twin = spectrum_of(single, GRID, ours), spectrum_of(double, GRID, theirs)
        assert_close(found.inverse, twin.inverse, 1e-12)
        assert_close(found.size, twin.size, 1e-12)
        seen, other = (each.at(rows, targets) for each in (found, twin))
        assert_close(seen.leverages, other.leverages, 1e-12)
        assert_close(seen.errors, other.errors, 1e-12)


def models_of(J: Array, r: Array, budget: int) -> RidgeModels:
    machine = type(MACHINE)(**{**vars(MACHINE), "budget": budget})
    found = PrimalSystem(here(J), here(r), False, machine)
    return leave_one_out_parted(found, GRID, Part(some_rows(len(r), 2), TIE))


def test_blocks_change_nothing() -> None:
    J, r, _ = problem(40, 30, seed=2)
    whole, single = models_of(J, r, 2**30), models_of(J, r, 1)
    assert torch.equal(whole.ridges, single.ridges)
    assert_close(single.columns, whole.columns, 1e-10)
