"""What every feature map promises, against an explicit Jacobian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from lazyknife.networks import mlp
from lazyknife.tangent import FEATURES, Dual, Exact, Primal, Tangent, linearise
from machines import MACHINE, here
from reference import assert_close

SIZE = 21  # parameters of the network below
torch.manual_seed(0)
MODULE = mlp((4,), "tanh")(3)
NEW = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3)))


def linearised(n: int) -> tuple[Tangent, Tensor]:
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(n, 3)))
    return linearise(MODULE, X, machine=MACHINE), X


@pytest.mark.parametrize(("n", "kernel", "form"), [(21, 0, Dual), (22, 0, Primal), (22, 1, Dual)])
def test_exact_features_take_the_smaller_form_unless_told(n: int, kernel: int, form: type) -> None:
    tangent, X = linearised(n)
    assert tangent.size == SIZE
    basis = Exact().basis(tangent, X, seed=0, kernel=bool(kernel))
    assert isinstance(basis, form)
    assert basis.size == (n if form is Dual else SIZE)
    J, J_new = reference.jacobian(MODULE, X), reference.jacobian(MODULE, NEW)
    outputs, coordinates, norms = basis.at(NEW)
    assert_close(outputs, reference.outputs(MODULE, NEW), 1e-12)
    assert_close(coordinates, J_new @ J.T if form is Dual else J_new, 1e-12)
    assert_close(norms, np.square(J_new).sum(axis=1), 1e-12)


@pytest.mark.parametrize("n", [6, 30, 5000])
@pytest.mark.parametrize("name", FEATURES)
def test_a_map_has_the_form_the_moves_and_the_kernel_that_it_says(name: str, n: int) -> None:
    tangent, X = linearised(n)
    features = FEATURES[name]().for_rows(n, MACHINE)
    assert features == FEATURES[name]().for_rows(n, MACHINE)
    basis = features.basis(tangent, X, seed=3)
    if isinstance(basis, Dual):
        assert n <= features.size(tangent.size)
    else:
        assert basis.size == features.size(tangent.size)
    for part, again in zip(basis.at(NEW), features.basis(tangent, X, 3).at(NEW), strict=True):
        assert torch.equal(part, again)
    columns = here(np.random.default_rng(2).normal(size=(basis.size, 2)))
    if features.has_moves:  # z(x)ᵀw is the derivative in the direction of the move
        moves = torch.cat([move.flatten(1) for move in in_order(basis.moves(columns))], dim=1)
        expected = reference.jacobian(MODULE, NEW) @ moves.cpu().numpy().T
        assert_close(basis.at(NEW).coordinates @ columns, expected, 1e-11)
    else:
        with pytest.raises(AssertionError, match="do not move"):
            basis.moves(columns)
    if features.has_kernel:
        assert isinstance(features.basis(tangent, X[:30], seed=3, kernel=True), Dual)
    else:
        with pytest.raises(AssertionError, match="no kernel"):
            features.basis(tangent, X, seed=3, kernel=True)


def in_order(moves: dict[str, Tensor]) -> list[Tensor]:
    return [moves[name] for name, _ in MODULE.named_parameters()]
