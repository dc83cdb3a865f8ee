"""The projection of Jacobian rows, against the explicit rows times the explicit signs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from lazyknife.compute import Machine
from lazyknife.tangent import Sketch, Tangent, linearise
from lazyknife.tangent.parts import Lookup, Part, Signs, draw_signs
from machines import MACHINE
from reference import Array, assert_close
from tangents import NETWORKS, network

Draw = Callable[[int, Sequence[Part], int, Machine], Signs]


def dense_signs(tangent: Tangent, parts: Iterable[Part], signs: Signs) -> Array:
    """The projection as one matrix: a row for every entry of every moved parameter."""
    blocks: dict[str, Tensor] = {}
    for part in parts:
        left, right = signs.pairs[part.names]
        entries = left[:, None, :] * right[None, :, :]  # u_a v_b for entry (a, b) of the matrix
        if isinstance(part, Lookup):
            blocks[part.names[0]] = entries.transpose(0, 1)  # kept as (entry, width)
        elif len(part.names) == 2:
            weight, bias = part.names
            blocks[weight], blocks[bias] = entries[:, :-1], entries[:, -1]
        else:
            blocks[part.names[0]] = entries
    dimension = left.shape[1]
    each = [blocks[name].reshape(-1, dimension) for name in tangent.moved]
    return torch.cat(each).cpu().numpy()


@pytest.mark.parametrize("budget", [1, 2**30])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_projection_is_the_jacobian_times_the_signs(name: str, budget: int) -> None:
    module, X, _ = network(name)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    basis = Sketch(7).basis(tangent, X, seed=3)
    matrix = dense_signs(tangent, tangent.make(X[:1])[1], basis.projection)
    projected = reference.jacobian(module, X) @ matrix
    outputs, coordinates, norms = basis.at(X)
    assert_close(outputs, reference.outputs(module, X), 1e-12)
    assert_close(coordinates, projected, 1e-12)
    assert_close(norms, (projected**2).sum(axis=1), 1e-12)
    np.testing.assert_allclose(np.abs(matrix), 1 / math.sqrt(7), rtol=1e-15)


SEEDS = 400
ALLOWED = 5.0  # standard errors: 20 kernel entries are off by chance once in 80,000 times


def kernels_of(draw: Draw, name: str, dimension: int, seeds: int) -> tuple[Array, Array]:
    """Kernels from sketches, one for each seed, and from the Jacobian."""
    module, X, _ = network(name, n=4)
    parts = linearise(module, X, machine=MACHINE).make(X)[1]
    J = reference.jacobian(module, X)
    sketched = [draw(dimension, parts, seed, MACHINE).project(parts) for seed in range(seeds)]
    return torch.stack([Z @ Z.T for Z in sketched]).cpu().numpy(), J @ J.T


def bias_of(draw: Draw, name: str) -> float:
    """Largest bias of a kernel entry, in standard errors over the seeds."""
    kernels, truth = kernels_of(draw, name, 8, SEEDS)
    errors = kernels.std(axis=0) / math.sqrt(SEEDS)
    return float((np.abs(kernels.mean(axis=0) - truth) / errors).max())


def mutant(change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Draw:
    """Change the signs of every part, with one long list of signs that is the same for all."""

    def draw(dimension: int, parts: Sequence[Part], seed: int, machine: Machine) -> Signs:
        generator = torch.Generator().manual_seed(seed)
        shared = 2 * torch.randint(0, 2, (100, 2 * dimension), generator=generator).double() - 1
        drawn = draw_signs(dimension, parts, seed, machine)
        changed = {k: change(u, v, machine.put(shared)) for k, (u, v) in drawn.pairs.items()}
        return replace(drawn, pairs=changed)

    return draw


MUTANTS: dict[str, Draw] = {
    "without the scale": mutant(lambda u, v, shared: (u.sign(), v)),
    "the same for all parts": mutant(
        lambda u, v, shared: (
            u.abs() * shared[: len(u), : u.shape[1]],
            shared[: len(v), u.shape[1] :],
        )
    ),
    "the same for rows and columns": mutant(
        lambda u, v, shared: (
            u.abs() * max(u, v, key=len)[: len(u)].sign(),
            max(u, v, key=len)[: len(v)].sign(),
        )
    ),
}


@pytest.mark.parametrize("name", ["layer norm", "batch norm of pictures"])
def test_inner_products_keep_their_expectation(name: str) -> None:
    assert bias_of(draw_signs, name) < ALLOWED


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_signs_do_not(mutant: str) -> None:
    assert bias_of(MUTANTS[mutant], "layer norm") > 2 * ALLOWED


def flat(signs: Signs) -> Tensor:
    return torch.cat([side.cpu().sign() for pair in signs.pairs.values() for side in pair])


def test_a_seed_stands_for_the_same_signs_everywhere() -> None:
    module, X, _ = network("batch norm of pictures")
    parts = linearise(module, X).make(X)[1]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = flat(draw_signs(9, parts, 5, Machine()))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert set(first.unique().tolist()) == {-1.0, 1.0}
    for machine in (Machine(budget=1), MACHINE):
        assert torch.equal(flat(draw_signs(9, parts, 5, machine)), first)
    others = 100 * X[:3]  # the signs do not look at the rows
    basis = Sketch(9).basis(linearise(module, others, machine=MACHINE), others, seed=5)
    assert torch.equal(flat(basis.projection), first)
    other = flat(draw_signs(9, parts, 6, Machine()))
    assert 0.4 < (other != first).double().mean() < 0.6


@pytest.mark.parametrize(
    ("n", "memory", "dimension"),
    [
        *((1, 2**36, 1), (5, 2**36, 1), (100, 2**36, 16), (128, 2**36, 32), (5_000, 2**36, 1024)),
        *((16_383, 2**36, 2048), (10**5, 2**36, 4096), (10**6, 2**36, 1024), (10**6, 2**20, 1)),
        *((10**6, 2**32, 64), (10**6, 2**33, 128)),
    ],
)
def test_a_size_that_is_not_given_is_a_quarter_of_the_rows_in_a_quarter_of_the_memory(
    n: int, memory: int, dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazyknife.tangent.basis.total_memory", lambda _: memory)
    assert Sketch().for_rows(n, MACHINE) == Sketch(dimension)
    assert Sketch(9).for_rows(n, MACHINE) == Sketch(9)
    assert dimension in (1, 4096) or 4 * dimension <= n
    assert dimension == 1 or 16 * n * (dimension + 1) <= memory / 4


@pytest.mark.parametrize(
    ("dimension", "error"), [(0, ValueError), (1.5, TypeError), ("8", TypeError), (True, TypeError)]
)
def test_a_sketch_has_a_whole_number_of_dimensions(dimension: Any, error: type) -> None:
    with pytest.raises(error, match=f"dimension={dimension!r}"):
        Sketch(dimension)
