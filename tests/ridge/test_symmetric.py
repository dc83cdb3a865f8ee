"""Symmetric matrices in place, tile by tile, against numpy on whole ones."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazyknife.ridge import inverse
from lazyknife.ridge.inverse import (
    diagonal_tiles,
    invert_lower_,
    largest_row_sum,
    lower_rows,
    mirror_lower_,
    restore_lower_,
    tiles,
)
from machines import MACHINE, here, tiny_tiles
from reference import Array, assert_close

SIZES = st.integers(1, 40)
PARTS = st.integers(1, 12)  # pivots and rows of a tile: neither need divide the other
SEEDS = st.integers(0, 10**6)


def positive_definite(n: int, seed: int) -> Array:
    B = np.random.default_rng(seed).normal(size=(n, n + 3))
    return B @ B.T + np.eye(n)


def with_eigenvalues(values: Array, seed: int) -> Array:
    n = len(values)
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


def above_the_tiles(n: int) -> Tensor:
    """Which entries lie in tiles strictly above the diagonal ones, shape (n, n)."""
    above = torch.zeros(n, n, dtype=torch.bool, device=MACHINE.device)
    for rows in tiles(above):
        above[rows, rows.stop :] = True
    return above


def lower(matrix: Tensor | Array) -> Array:
    return np.tril(matrix.cpu().numpy() if isinstance(matrix, Tensor) else matrix)


def inverted(A: Array) -> Array:
    """The inverse that the sweeps leave behind, whole."""
    matrix = here(A)
    assert invert_lower_(matrix, here(np.zeros((1, len(A)))))
    mirror_lower_(matrix)
    return matrix.cpu().numpy()


@settings(max_examples=80, deadline=None)
@given(n=SIZES, pivots=PARTS, tile=PARTS, wanted=st.integers(1, 3), seed=SEEDS)
def test_the_sweeps_give_the_inverse_and_solve_for_rows(
    n: int, pivots: int, tile: int, wanted: int, seed: int
) -> None:
    A = positive_definite(n, seed)
    B = np.random.default_rng(seed + 1).normal(size=(wanted, n))
    matrix, rows = here(A), here(B)
    with tiny_tiles(pivots, tile):
        assert invert_lower_(matrix, rows) is True
    assert_close(lower(matrix), lower(np.linalg.inv(A)), 1e-10)
    assert_close(rows, np.linalg.solve(A, B.T).T, 1e-10)


@settings(max_examples=80, deadline=None)
@given(n=SIZES, pivots=PARTS, tile=PARTS, seed=SEEDS)
def test_tiles_above_the_diagonal_are_neither_read_nor_written(
    n: int, pivots: int, tile: int, seed: int
) -> None:
    A = positive_definite(n, seed)
    matrix, other = here(A), here(np.random.default_rng(seed + 1).normal(size=(n, n)))
    with tiny_tiles(pivots, tile):
        above = above_the_tiles(n)
        matrix[above] = other[above]
        assert invert_lower_(matrix, here(np.ones((1, n))))
    assert torch.equal(matrix[above], other[above])
    assert_close(lower(matrix), lower(np.linalg.inv(A)), 1e-10)


@settings(max_examples=80, deadline=None)
@given(n=SIZES, pivots=PARTS, tile=PARTS, seed=SEEDS)
def test_an_inverse_is_undone_to_the_last_bit(n: int, pivots: int, tile: int, seed: int) -> None:
    A = positive_definite(n, seed)
    matrix = here(A)
    with tiny_tiles(pivots, tile):
        kept = diagonal_tiles(matrix)
        matrix.diagonal().add_(0.5)
        invert_lower_(matrix, here(np.ones((1, n))))
        restore_lower_(matrix, kept)
    assert torch.equal(matrix, here(A))


def test_an_inverse_is_undone_at_the_sizes_in_use() -> None:
    size = inverse.TILE if MACHINE.on_cpu else inverse.GPU_TILE
    A = positive_definite(size + 70, seed=0)
    matrix = here(A)
    kept = diagonal_tiles(matrix)
    invert_lower_(matrix, here(np.ones((1, len(A)))))
    assert_close(lower(matrix), lower(np.linalg.inv(A)), 1e-10)
    restore_lower_(matrix, kept)
    assert torch.equal(matrix, here(A))


@settings(max_examples=40, deadline=None)
@given(n=SIZES, pivots=PARTS, tile=PARTS, seed=SEEDS)
def test_an_indefinite_matrix_is_reported(n: int, pivots: int, tile: int, seed: int) -> None:
    A = with_eigenvalues(np.linspace(-0.5, 2, n), seed)
    with tiny_tiles(pivots, tile):
        assert invert_lower_(here(A), here(np.ones((1, n)))) is False


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("entry", [0.0, -1.0])
def test_one_bad_pivot_is_reported_wherever_it_is(place: int, entry: float) -> None:
    diagonal = np.ones(6)
    diagonal[place] = entry
    with tiny_tiles(2, 3):
        assert not invert_lower_(here(np.diag(diagonal)), here(np.ones((1, 6))))


def exact_inverse(A: Array) -> Array:
    """Gauss and Jordan in fractions: the inverse of these very numbers, rounded once."""
    n = len(A)
    rows = [
        [Fraction(float(entry)) for entry in row] + [Fraction(i == j) for j in range(n)]
        for i, row in enumerate(A)
    ]
    for k in range(n):
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return np.array([[float(entry) for entry in row[n:]] for row in rows])


def relative_error(actual: Array, expected: Array) -> float:
    return float(np.linalg.norm(actual - expected, 2) / np.linalg.norm(expected, 2))


CONDITION = 1e8
# By name, from the number of rows; of low rank, as kernels are, leading blocks are as bad as all.
SPECTRA: dict[str, Callable[[int], Array]] = {
    "geometric": lambda n: np.geomspace(1, 1 / CONDITION, n),
    "low rank": lambda n: np.where(np.arange(n) < 3, 1, 1 / CONDITION),
    "half rank": lambda n: np.where(np.arange(n) < n // 2, 1, 1 / CONDITION),
}


def by_cholesky(A: Array) -> Array:
    return torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(A))).numpy()


@pytest.mark.parametrize(("pivots", "tile"), [(1, 4), (3, 6), (5, 5), (7, 14), (20, 20)])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(2))
def test_an_ill_conditioned_matrix_costs_no_more_digits_than_cholesky(
    seed: int, spectrum: str, pivots: int, tile: int
) -> None:
    A = with_eigenvalues(SPECTRA[spectrum](14), seed)
    expected = exact_inverse(A)
    with tiny_tiles(pivots, tile):
        error = relative_error(inverted(A), expected)
    assert error < 1e-14 * CONDITION
    assert error < 30 * relative_error(by_cholesky(A), expected) + 1e-17 * CONDITION


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_an_ill_conditioned_matrix_of_many_pivots(spectrum: str) -> None:
    A = with_eigenvalues(SPECTRA[spectrum](300), seed=0)
    with tiny_tiles(64, 256):
        assert relative_error(inverted(A), by_cholesky(A)) < 1e-14 * CONDITION


@settings(max_examples=30, deadline=None)
@given(n=SIZES, tile=PARTS, seed=SEEDS)
def test_the_lower_triangle_is_mirrored_and_nothing_above_it_is_read(
    n: int, tile: int, seed: int
) -> None:
    A = positive_definite(n, seed)
    matrix = here(np.where(np.tri(n, dtype=bool), A, np.nan))
    with tiny_tiles(1, tile):
        mirror_lower_(matrix)
    assert torch.equal(matrix, here(np.tril(A) + np.tril(A, -1).T))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_any_whole_rows_come_from_the_lower_triangle(n: int) -> None:
    A = np.tril(np.random.default_rng(0).normal(size=(n, n)))
    whole, matrix = A + np.tril(A, -1).T, here(np.where(np.tri(n, dtype=bool), A, np.nan))
    for start in range(n):
        for stop in range(start + 1, n + 1):
            rows = lower_rows(matrix, slice(start, stop))
            assert torch.equal(rows, here(whole[start:stop]))
    assert torch.equal(torch.tril(matrix), here(A))  # what came back was a copy


@settings(max_examples=30, deadline=None)
@given(n=SIZES, tile=PARTS, seed=SEEDS)
def test_the_largest_row_sum_is_the_infinity_norm(n: int, tile: int, seed: int) -> None:
    A = positive_definite(n, seed)
    with tiny_tiles(1, tile):
        assert largest_row_sum(here(A)) == pytest.approx(np.linalg.norm(A, np.inf), rel=1e-12)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("entry", [np.inf, -np.inf, np.nan])
def test_no_entry_that_is_not_finite_is_missed(place: int, entry: float) -> None:
    A = np.eye(6)
    A[place, place] = entry
    with tiny_tiles(1, 2):
        assert not np.isfinite(largest_row_sum(here(A)))
