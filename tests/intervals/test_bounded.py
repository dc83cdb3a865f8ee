"""Ends from windows of models in primal form, against those from all models."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazyknife import mlp
from lazyknife.compute import Machine
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.intervals.constructions import minmax, plus
from lazyknife.intervals.window import BoundedReadout, Windowed, bounds, window
from lazyknife.networks import build
from lazyknife.ridge.readout import LinearModels
from lazyknife.tangent import Sketch, Tangent, linearise

# A product with fewer columns sums in another order on most processors, so that bits differ.
ROUNDING = 1e-13


def rows_of(n: int, seed: int, ties: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X, noise = (torch.randn(n, size, dtype=torch.float64, generator=generator) for size in (3, 1))
    y = X[:, 0].sin() + 0.5 * noise[:, 0] + 3.0
    if ties:  # rows that occur several times
        X, y = X[torch.arange(n) // 3], y[torch.arange(n) // 3].round()
    return X, y


def tangent_of(X: Tensor, budget: int = 2**24) -> Tangent:
    return linearise(build(mlp((4,)), X, seed=0), X, machine=Machine(budget=budget))


def models_of(X: Tensor, y: Tensor, budget: int = 2**24, **chosen: Any) -> BoundedReadout:
    loo = LazyStep(**{"ridge": 1.0, **chosen}).models(tangent_of(X, budget), X, y)
    assert isinstance(loo, BoundedReadout)
    return loo


def all_of(loo: BoundedReadout) -> LinearModels:
    """The same models without bounds."""
    return LinearModels(*(getattr(loo, each.name) for each in fields(LinearModels)))


def assert_same_ends(loo: BoundedReadout, new: Tensor, ranks: list[int]) -> None:
    for ends in (plus, minmax):
        found, wanted = ends(loo, new, ranks), ends(all_of(loo), new, ranks)
        for one, other in zip(found, wanted, strict=True):
            finite = other[torch.isfinite(other)]
            size = float(finite.abs().max()) if len(finite) else 1.0
            assert torch.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * size)


@pytest.mark.parametrize(
    "chosen",
    [
        {"widths": "leverage"},  # a window assumes that σ(x) is the same for all models
        {"ridge": "auto"},
        {"construction": "cv+"},
        {"readout": "network", "ridge": 1e3},
        {"rows": 40},
    ],
    ids=str,
)
def test_everything_else_looks_at_all_models(chosen: dict[str, Any]) -> None:
    X, y = rows_of({"rows": 200, **chosen}["rows"], seed=1)
    terms = {name: value for name, value in chosen.items() if name != "rows"}
    step = LazyStep(**{"ridge": 1.0, **terms})
    assert not isinstance(step.models(tangent_of(X), X, y), Windowed)


def far_and_near(seed: int) -> Tensor:
    return torch.cat([rows_of(25, seed)[0], 1e3 * rows_of(4, seed)[0], rows_of(1, seed)[0] * 0])


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(120, 300),
    ridge=st.sampled_from([1e-3, 1.0, 50.0]),
    intercept=st.booleans(),
    ties=st.booleans(),
    features=st.sampled_from([{}, {"features": Sketch(6)}]),
    budget=st.sampled_from([2**14, 2**24]),  # the smaller one: rows and columns in parts
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_windows_give_the_ends_of_all_models(
    n: int,
    ridge: float,
    intercept: bool,
    ties: bool,
    features: dict[str, Any],
    budget: int,
    seed: int,
    data: st.DataObject,
) -> None:
    rows = rows_of(n, seed, ties)
    loo = models_of(*rows, budget, ridge=ridge, intercept=intercept, **features)
    ranks = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=6))
    for some in (ranks, ranks[:1]):  # the second time from windows that were kept
        assert_same_ends(loo, far_and_near(seed + 1), some)


def test_conceded_models_have_infinite_ends() -> None:
    loo = models_of(*rows_of(200, seed=6))
    own = loo.rounding.own.clone()
    own[::20] = torch.inf
    loo = replace(loo, rounding=replace(loo.rounding, own=own))
    new = far_and_near(7)
    assert_same_ends(loo, new, [20, 11, 10, 3])
    assert bool(torch.isinf(plus(loo, new, [10])[2]).all())
    assert bool(torch.isfinite(plus(loo, new, [11])[2]).all())


def test_few_models_are_looked_at() -> None:
    loo = models_of(*rows_of(1000, seed=8))
    counts = [
        len(window(*bounds(loo.scores, loo.reach, eta), 100).members) for eta in (0.0, 0.1, 1e4)
    ]
    assert counts[0] <= counts[1] < 100
    assert counts[2] > 900
