"""λ that models choose on their own rows, against searches without the rows that they leave out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife.choosing.per_model import choose_ridges
from lazyknife.ridge.system import OwnRidges
from machines import MACHINE, here
from reference import Array
from systems import chosen_ridges, problem


def minus_log_likelihood(J: Array, r: Array, ridge: float, intercept: bool) -> float:
    """−2 log restricted likelihood over its degrees of freedom, without any shortcut."""
    n, G = len(r), J @ J.T + ridge * np.eye(len(r))
    ones = np.ones((n, 1))[:, : int(intercept)]
    inverse = np.linalg.inv(G)
    inner = ones.T @ inverse @ ones
    A = (
        inverse - inverse @ ones @ np.linalg.solve(inner, ones.T @ inverse)
        if intercept
        else inverse
    )
    freedom = n - int(intercept)
    logs = np.linalg.slogdet(G)[1] + (np.linalg.slogdet(inner)[1] if intercept else 0.0)
    return float(np.log(r @ A @ r / freedom) + logs / freedom)


@settings(max_examples=15, deadline=None)
@given(st.integers(4, 14), st.integers(1, 9), st.booleans(), st.integers(0, 10**6))
def test_every_model_chooses_as_without_its_row(
    n: int, size: int, intercept: bool, seed: int
) -> None:
    J, r, _ = problem(n, size, seed)
    found = chosen_ridges(here(J @ J.T), here(r), intercept)
    for j in np.flatnonzero(found.doubtful.cpu().numpy() == 0):
        kept = np.arange(n) != j
        alone = chosen_ridges(here(J[kept] @ J[kept].T), here(r[kept]), intercept)
        assert found.values[j] == alone.values[-1]


@pytest.mark.parametrize("intercept", [False, True])
def test_no_neighbour_is_likelier_by_more_than_the_least_gain(intercept: bool) -> None:
    J, r, _ = problem(20, 4, seed=0)
    ridge = float(chosen_ridges(here(J @ J.T), here(r), intercept).values[-1])
    best = minus_log_likelihood(J, r, ridge, intercept)
    for other in (ridge / 4, ridge * 4):
        assert best < minus_log_likelihood(J, r, other, intercept) + np.log(20) / 20 + 1e-6


def test_every_fold_chooses_as_without_its_rows() -> None:
    J, r, _ = problem(17, 5, seed=3)
    folds = [torch.arange(k, 17, 3, device=MACHINE.device) for k in range(3)]
    given = (here(J @ J.T), here(r), True, 1.0)
    found = choose_ridges(*given, [0, 1, 2, 3], folds, MACHINE)
    for k, rows in enumerate(folds):
        kept = np.delete(np.arange(17), rows.cpu().numpy())
        alone = chosen_ridges(here(J[kept] @ J[kept].T), here(r[kept]), True)
        assert found.values[k] == alone.values[-1]


def test_models_that_know_all_rows_choose_as_the_full_one() -> None:
    J, r, _ = problem(9, 3, seed=1)
    found = choose_ridges(here(J @ J.T), here(r), True, 1.0, [9, 0, 9], None, MACHINE)
    assert isinstance(found, OwnRidges)
    assert found.values[0] == found.values[2]


def test_rows_choose_different_ridges() -> None:
    J, r, _ = problem(9, 3, seed=1)
    r[2] += 20.0
    assert len(chosen_ridges(here(J @ J.T), here(r), True).values.unique()) > 1
