"""Scales σ_{−j}(x) and scores against rows really deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import reference
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.networks import mlp
from lazyknife.ridge.widths import LeverageScales
from lazyknife.tangent import Dual, Primal, Sketch, linearise
from machines import MACHINE, here
from reference import Array, assert_close
from rows import linear
from systems import FORMS, factor, problem

EPSILON = torch.finfo(torch.float64).eps


def scales_for(form: str, J: Array, ridges: Sequence[float], intercept: bool) -> LeverageScales:
    targets = np.zeros(len(J))  # σ never looks at them
    factors = [factor(form, J, targets, ridge, intercept) for ridge in sorted(set(ridges))]
    return LeverageScales(tuple(factors), here(np.array(ridges)), EPSILON)


def coordinates(form: str, J: Array, new: Array) -> tuple[Tensor, Tensor]:
    return here(new @ J.T if form == "dual" else new), here(np.square(new).sum(axis=1))


def own_leverage(J: Array, ridges: Sequence[float], intercept: bool) -> Array:
    """σ_{−j}(X_j) with row j deleted, shape (n,)."""
    each = [
        reference.left_open(np.delete(J, j, axis=0), J[j : j + 1], ridge, intercept)
        for j, ridge in enumerate(ridges)
    ]
    return np.sqrt(np.concatenate(each))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 15),
    size=st.integers(1, 20),
    count=st.integers(1, 3),
    intercept=st.booleans(),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 10**6),
)
def test_leverage_is_what_the_rows_without_j_leave_open(
    n: int, size: int, count: int, intercept: bool, form: str, seed: int
) -> None:
    J, _, new = problem(n, size, seed)
    ridges = np.random.default_rng(seed).choice([0.02, 1.0, 50.0][:count], n).tolist()
    scales = scales_for(form, J, ridges, intercept)
    found, _ = scales.at(*coordinates(form, J, new))
    expected = reference.leverage(J, new, ridges, intercept)
    assert_close(found.cpu().numpy() / expected, np.ones((3, n)), 1e-7)

    own = own_leverage(J, ridges, intercept)
    assert_close(scales.own.cpu().numpy() / own, np.ones(n), 1e-7)
    at_training = scales.at(*coordinates(form, J, J))[0].diagonal()
    assert_close(at_training.cpu().numpy() / own, np.ones(n), 1e-6)


# Scores: errors over widths.


class Problem(NamedTuple):
    """A network, its rows, and what the lazy step made of them."""

    module: nn.Module
    X: Tensor
    new: Tensor
    models: Any


def solved(step: LazyStep, n: int = 9, widths: tuple[int, ...] = (5,), budget: int = 0) -> Problem:
    torch.manual_seed(0)
    module = mlp(widths, "tanh")(3)
    machine = replace(MACHINE, budget=budget) if budget else MACHINE
    X, y = (machine.put(torch.from_numpy(part)) for part in linear(n))
    new = machine.put(torch.from_numpy(2 * linear(6, seed=1)[0]))
    return Problem(module, X, new, step.models(linearise(module, X, machine=machine), X, y))


@pytest.mark.filterwarnings("ignore:the moved networks are far")
@pytest.mark.parametrize("ridge", [0.5, "auto"])
@pytest.mark.parametrize(("n", "widths", "form"), [(9, (5,), Dual), (13, (2,), Primal)])
def test_widths_and_scores_with_leverage(
    n: int, widths: tuple[int, ...], form: type, ridge: float | str
) -> None:
    first = solved(LazyStep(ridge, widths="leverage"), n, widths)
    J, J_new = (reference.jacobian(first.module, part.cpu()) for part in (first.X, first.new))
    ridges = first.models.models.ridges[:-1].tolist()
    sigma, own = reference.leverage(J, J_new, ridges, True), own_leverage(J, ridges, True)
    for readout, budget in (("tangent", 0), ("tangent", 4000), ("network", 0)):
        found = solved(LazyStep(ridge, readout=readout, widths="leverage"), n, widths, budget)
        assert type(found.models.basis) is form
        assert_close(found.models.scaled(found.new).scales, sigma, 1e-6)
        assert_close(found.models.scores, np.abs(found.models.residuals.cpu().numpy()) / own, 1e-7)


@pytest.mark.parametrize("ridge", [0.5, "auto"])
def test_a_score_leaves_predictions_alone(ridge: float | str) -> None:
    plain, scaled = (solved(LazyStep(ridge, widths=s), 9) for s in ("constant", "leverage"))
    for one, other in zip(
        plain.models.scaled(plain.new)[:2], scaled.models.scaled(plain.new)[:2], strict=True
    ):
        assert_close(other, one, 1e-10)
    assert torch.equal(plain.models.models.ridges, scaled.models.models.ridges)
    assert plain.models.scaled(plain.new).scales.shape == ()
    assert_close(plain.models.scores, plain.models.residuals.abs(), 1e-10)


def test_leverage_with_a_sketch_is_that_of_the_sketched_rows() -> None:
    found = solved(LazyStep(0.5, widths="leverage", features=Sketch(7), seed=2), 12)
    basis = found.models.basis
    Z, Z_new = (basis.at(part).coordinates.cpu().numpy() for part in (found.X, found.new))
    expected = reference.leverage(Z, Z_new, [0.5] * 12, True)
    assert_close(found.models.scaled(found.new).scales, expected, 1e-7)
