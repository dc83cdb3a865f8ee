"""Choices on a part of the rows: no leak, coverage with mutants, and the edges of the settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from lazyknife import LazyJackknifeRegressor
from lazyknife.choosing.candidates import Candidate
from lazyknife.choosing.shape import STRETCH
from lazyknife.compute import Machine
from lazyknife.estimators.fit_shared import PartedStep, part_of
from lazyknife.intervals import find_construction
from lazyknife.intervals.streamed import StreamedModels
from lazyknife.networks import wide

N = 80
NETWORKS = (wide("laplace"), wide("gaussian"))
LAPLACE = wide("laplace", scale=2.0)


def rows_of(kind: str, n: int, p: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows and targets whose noise varies, has heavy tails or is discrete."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, p))
    noise: NDArray[np.float64] = {
        "varying": np.exp(1.5 * X[:, 1]) * generator.normal(size=n),
        "heavy": generator.standard_t(1.5, size=n),
        "discrete": generator.integers(0, 3, size=n).astype(float),
    }[kind]
    return torch.from_numpy(X), torch.from_numpy(np.sin(2 * X[:, 0]) + noise + 5.0)


def step_of(networks: tuple[wide, ...] = NETWORKS, **settings: Any) -> PartedStep:
    candidates = [Candidate(str(network), network) for network in networks]
    terms: dict[str, Any] = {"ridge": None, "intercept": True, "scaled": True, "seed": 3}
    terms |= {"nominal": None, "widths": "auto", "relevance": True}
    return PartedStep(candidates, machine=Machine(budget=2**28), **terms | settings)


def rest_of(loo: StreamedModels, X: Tensor) -> list[int]:
    """Which rows are left out."""
    return [int((row == X).all(dim=1).nonzero()[0, 0]) for row in loo.out.rows]


# What becomes of a row: columns, or y, and their value.
CHANGES: dict[str, tuple[Any, float]] = {
    "y": ("y", 1e6),
    "-y": ("y", -1e6),
    "row": (slice(0, 3), 1e9),
    "category": (3, 7.0),
    "gap": (1, torch.nan),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"widths": "constant"}, {"ridge": 0.1}, {"intercept": False}, {"relevance": False}],
)
def test_a_row_moves_nothing_of_the_model_without_it(settings: Any, change: str) -> None:
    X, y = rows_of("varying", N, 4, seed=0)
    X[:, 3] = (X[:, 3] > 0).double()
    step, new = step_of(nominal=(False,) * 3 + (True,), **settings), rows_of("varying", 12, 4, 1)[0]
    before, choice = step.models(X, y)
    k, (place, value) = 7, CHANGES[change]
    row = rest_of(before, X)[k]
    if place == "y":
        y[row] = value
    else:
        X[row, place] = value
    after, other = step.models(X, y)
    assert choice == other
    found, again = before.scaled(new), after.scaled(new)
    limit = after.rounding.slack(after.full_at(new).roots.square(), torch.ones(12)).max()
    assert torch.allclose(found.each[:, k], again.each[:, k], rtol=1e-9, atol=min(1e-6, limit))
    assert torch.allclose(found.scales, again.scales, rtol=1e-12)
    others = torch.arange(len(before.residuals)) != k
    first, second = (each.out.own.expand(len(others))[others] for each in (before, after))
    assert torch.equal(first, second)
    assert torch.equal(before.passes.basis.whiten, after.passes.basis.whiten)


def test_the_part_depends_on_the_number_of_rows_alone() -> None:
    step = step_of((LAPLACE,), ridge=1.0, widths="constant")
    tables = [rows_of(kind, N, 2, seed=len(kind)) for kind in ("varying", "heavy")]
    first, second = (rest_of(step.models(X, y)[0], X) for X, y in tables)
    assert first == second
    assert len(first) == N - part_of(N)


def test_a_given_ridge_is_not_that_of_the_noise() -> None:
    X, y = rows_of("varying", 300, 2, seed=0)
    loo = step_of((wide("gaussian"),), ridge=1e-6).models(X, y)[0]
    assert loo.passes.amount is not None
    assert loo.solved.ridge == 1e-6
    assert float(loo.passes.amount.coefficients.abs().max()) < 1e3
    kernel = loo.passes.amount.tangent.kernel(
        loo.passes.amount.tangent.features(X), loo.passes.amount.points
    )
    terms = kernel.abs() @ loo.passes.amount.coefficients.abs()
    assert loo.passes.amount.error >= STRETCH
    assert loo.passes.amount.error >= torch.finfo(torch.float64).eps * float(terms.max())


@pytest.mark.parametrize("factor", [1.0, 1e2, 1e4, 1e9, 1e150])
def test_the_noise_of_rows_far_away_is_that_of_some_row(factor: float) -> None:
    X, y = rows_of("varying", 300, 2, seed=0)
    loo = step_of((wide("relu"),)).models(X, y)[0]
    assert loo.passes.amount is not None
    new = factor * rows_of("varying", 20, 2, seed=1)[0]
    sizes = loo.passes.amount(new).log()
    low, high = loo.passes.amount.limits
    assert bool((sizes >= low - 1e-9).all() and (sizes <= high + 1e-9).all())
    for construction in ("plus", "minmax"):
        _, lower, upper = find_construction(construction).ends(loo, new, [1, 5, 0])
        assert not bool((lower.isnan() | upper.isnan()).any())
        assert bool((lower[:, :2] <= upper[:, :2]).all())


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"networks": (wide("laplace"), wide("relu"))},
        {"networks": (wide("gaussian", scale=0.5, squash=True),)},
        {"ridge": 1e4},
        {"intercept": False, "relevance": False, "scaled": False},
        {"widths": "constant"},
    ],
)
@pytest.mark.parametrize("edge", ["constant y", "constant X", "equal rows", "three values", "wild"])
def test_edges_give_ordered_ends(edge: str, settings: Any) -> None:
    X, y = rows_of("varying", N, 3, seed=5)
    y = {"constant y": torch.full_like(y, 3.0), "three values": y.sign() + 1}.get(edge, y)
    X = {"constant X": torch.ones_like(X), "equal rows": X[:4].repeat(N // 4, 1)}.get(edge, X)
    if edge == "wild":
        X[11], y[23] = 1e5 * X[11], 1e9
    loo, choice = step_of(**settings).models(X, y)
    assert choice.rows == N - part_of(N)
    new = torch.cat([X[:4], rows_of("varying", 6, 3, seed=6)[0], 1e6 * X[:2]])
    for construction in ("plus", "minmax", "jackknife", "naive"):
        point, lower, upper = find_construction(construction).ends(loo, new, [1, 4, 20])
        assert bool(torch.isfinite(point).all())
        assert not bool((lower.isnan() | upper.isnan()).any())
        assert bool((lower <= upper)[:, :2].all())


def test_a_nearly_noiseless_table_keeps_its_certificate() -> None:
    X = torch.rand(1200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(3 * X[:, 0]) * X[:, 1] + X @ torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    model = LazyJackknifeRegressor(network=wide("gaussian"), random_state=0).fit(X, y)
    assert model.rounding_ < 0.05
    assert model.certificate_.coverage is not None
