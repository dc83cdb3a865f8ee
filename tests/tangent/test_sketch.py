"""The projection of Jacobian rows, against the explicit rows times the explicit signs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import reference
from lazyknife.compute import Machine
from lazyknife.networks import mlp
from lazyknife.tangent import Sketch, Tangent, linearise
from lazyknife.tangent.parts import Lookup, Part
from lazyknife.tangent.sketch import Signs, draw_signs
from machines import MACHINE
from reference import Array, assert_close

Draw = Callable[[int, Sequence[Part], int, Machine], Signs]


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, *shape)))


def codes(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, size=(n, *shape)))


def only_a_bias() -> nn.Module:
    module = mlp((4,), "tanh")(3)
    module[0].weight.requires_grad_(False)
    return module


class Scale(nn.Module):
    """One number for each feature, used outside any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.randn(2, 3)), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.scale[0] * x + self.scale[1]).tanh())


class TiedTable(nn.Module):
    """A table that is read at the input and multiplied at the output."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.scores = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.table(x).sum(dim=1)).tanh().sum(dim=1)


Made = tuple[Callable[[], nn.Module], Callable[..., Tensor], tuple[int, ...]]
# Networks, how to draw their rows, and the shape of a row.
NETWORKS: dict[str, Made] = {
    "dense": (lambda: mlp((5, 4), "tanh")(3), rows, (3,)),
    "only a bias": (only_a_bias, rows, (3,)),
    "places kept apart": (
        lambda: nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Flatten(), nn.Linear(40, 1)),
        rows,
        (2, 20),
    ),
    "places multiplied out": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)),
        rows,
        (4, 3),
    ),
    "table": (
        lambda: nn.Sequential(nn.Embedding(5, 3, padding_idx=2), nn.Flatten(), nn.Linear(6, 1)),
        codes,
        (2,),
    ),
    "tied table": (TiedTable, codes, (2,)),
    "pictures": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2), nn.GroupNorm(1, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)
        ),
        rows,
        (2, 3, 3),
    ),
    "sound": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(12, 1)),
        rows,
        (2, 4),
    ),
    "norm": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1)),
        rows,
        (3,),
    ),
    "no formula": (Scale, rows, (3,)),
}


def network(name: str, n: int = 6) -> tuple[nn.Module, Tensor]:
    make, draw, shape = NETWORKS[name]
    torch.manual_seed(0)
    return make(), draw(n, *shape)


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
    module, X = network(name)
    tangent = linearise(module, X, machine=replace(MACHINE, budget=budget))
    basis = Sketch(7).basis(tangent, X, seed=3)
    matrix = dense_signs(tangent, tangent.make(X[:1])[1], basis.projection)
    projected = reference.jacobian(module, X) @ matrix
    outputs, coordinates, norms = basis.at(X)
    assert_close(outputs, reference.outputs(module, X), 1e-12)
    assert_close(coordinates, projected, 1e-12)
    assert_close(norms, (projected**2).sum(axis=1), 1e-12)
    np.testing.assert_allclose(np.abs(matrix), 1 / math.sqrt(7), rtol=1e-15)


def test_every_kind_of_part_is_among_the_networks() -> None:
    kinds = set()
    for name in NETWORKS:
        module, X = network(name)
        for part in linearise(module, X).make(X)[1]:
            kind = type(part).__name__
            shape = part.rows.ndim - 1 if kind == "Explicit" else min(part.places, 2)
            kinds.add((kind, shape))
    factors = {("Outer", 1), ("Outer", 2), ("Lookup", 2)}
    assert kinds == factors | {("Explicit", axes) for axes in (1, 2, 3, 4)}


SEEDS = range(400)
ALLOWED = 5.0  # standard errors: 20 kernel entries are off by chance once in 80,000 times


def bias_of(draw: Draw, name: str) -> float:
    """Largest bias of a kernel entry, in standard errors over the seeds."""
    module, X = network(name, n=4)
    parts = linearise(module, X, machine=MACHINE).make(X)[1]
    J = reference.jacobian(module, X)
    sketched = [draw(8, parts, seed, MACHINE).project(parts) for seed in SEEDS]
    kernels = torch.stack([Z @ Z.T for Z in sketched]).cpu().numpy()
    errors = kernels.std(axis=0) / math.sqrt(len(SEEDS))
    return float((np.abs(kernels.mean(axis=0) - J @ J.T) / errors).max())


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


@pytest.mark.parametrize("name", ["norm", "pictures"])
def test_inner_products_keep_their_expectation(name: str) -> None:
    assert bias_of(draw_signs, name) < ALLOWED


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_signs_do_not(mutant: str) -> None:
    assert bias_of(MUTANTS[mutant], "norm") > 2 * ALLOWED


def test_the_error_of_the_kernel_falls_like_the_root_of_the_dimension() -> None:
    module, X = network("dense", n=10)
    parts = linearise(module, X, machine=MACHINE).make(X)[1]
    J = reference.jacobian(module, X)

    def error(dimension: int) -> float:
        sketched = [draw_signs(dimension, parts, s, MACHINE).project(parts) for s in range(40)]
        squares = [np.square((Z @ Z.T).cpu().numpy() - J @ J.T).mean() for Z in sketched]
        return math.sqrt(np.mean(squares) / np.square(J @ J.T).mean())

    few, many = error(16), error(1024)
    assert 8 / 1.4 < few / many < 8 * 1.4
    assert many < 0.1


def flat(signs: Signs) -> Tensor:
    return torch.cat([side.cpu().double().sign() for pair in signs.pairs.values() for side in pair])


def test_a_seed_stands_for_the_same_signs_everywhere() -> None:
    module, X = network("pictures")
    parts = linearise(module, X).make(X)[1]
    torch.manual_seed(1)
    first = flat(draw_signs(9, parts, 5, Machine()))
    torch.manual_seed(2)
    assert set(first.unique().tolist()) == {-1.0, 1.0}
    for machine in (Machine(dtype=torch.float32, budget=1), MACHINE):
        assert torch.equal(flat(draw_signs(9, parts, 5, machine)), first)
    other = flat(draw_signs(9, parts, 6, Machine()))
    assert 0.4 < (other != first).double().mean() < 0.6


def test_the_signs_do_not_look_at_the_rows() -> None:
    module, X = network("places kept apart")
    drawn = [
        Sketch(9).basis(linearise(module, Z, machine=MACHINE), Z, seed=5).projection
        for Z in (X, 100 * rows(3, 2, 20, seed=1))
    ]
    assert torch.equal(flat(drawn[0]), flat(drawn[1]))


def test_drawing_leaves_torchs_random_state_alone() -> None:
    module, X = network("dense")
    before = torch.get_rng_state()
    draw_signs(9, linearise(module, X).make(X)[1], 5, MACHINE)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sketch_has_a_whole_number_of_dimensions() -> None:
    assert Sketch() == Sketch(4096)
    with pytest.raises(ValueError, match="dimension=0"):
        Sketch(0)
    for dimension in (1.5, "8", True):
        with pytest.raises(TypeError, match="dimension="):
            Sketch(dimension)  # type: ignore[arg-type]
