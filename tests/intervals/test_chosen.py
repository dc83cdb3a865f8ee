"""Models in groups against the same models together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyknife.choosing.shape import Factors
from lazyknife.estimators.fit_network import LazyStep
from lazyknife.intervals import CONSTRUCTIONS
from lazyknife.intervals.chosen import ChosenModels, Group, some_of
from lazyknife.networks import mlp, seeded
from lazyknife.records import Side
from lazyknife.ridge.readout import LinearModels
from lazyknife.tangent import linearise
from machines import MACHINE, here
from reference import assert_close

N = 11


def rows(seed: int, n: int) -> Tensor:
    return here(np.random.default_rng(seed).normal(size=(n, 2)))


def together(construction: str, widths: str) -> LinearModels:
    with seeded(0):
        network = mlp((8,))(2)
    X = rows(0, N)
    tangent = linearise(network, X, machine=MACHINE)
    step = LazyStep(0.5, construction=construction, widths=widths, folds=3)
    loo = step.models(tangent, X, torch.sin(3 * X[:, 0]) + X[:, 1])
    assert isinstance(loo, LinearModels)
    return loo


def in_groups(read: LinearModels, doubtful: Tensor | None = None) -> ChosenModels:
    """The same models, in three groups in no order."""
    order = np.random.default_rng(1).permutation(N)
    members = [here(part) for part in np.array_split(order, 3)]
    groups = tuple(Group(part, some_of(read, part)) for part in members)
    nothing = torch.zeros(N, dtype=torch.bool, device=MACHINE.device)
    full = some_of(read, members[0][:0])
    return ChosenModels(groups, full, nothing if doubtful is None else doubtful)


CASES = [
    *(("plus", "constant"), ("plus", "leverage"), ("minmax", "leverage")),
    *(("jackknife", "constant"), ("naive", "constant"), ("cv+", "constant")),
]


@pytest.mark.parametrize(("construction", "widths"), CASES)
def test_groups_do_not_change_the_models(construction: str, widths: str) -> None:
    read, new = together(construction, widths), rows(1, 5)
    chosen = in_groups(read)
    assert torch.equal(chosen.residuals, read.residuals)
    assert torch.equal(chosen.training_residuals, read.training_residuals)
    assert_close(chosen.scores, read.scores, 1e-14)
    assert_close(chosen.point(new), read.point(new), 1e-13)
    one, other = chosen.scaled(new), read.scaled(new)
    assert_close(one.each, other.each, 1e-13)
    assert_close(one.scales, other.scales.expand_as(other.each), 1e-13)
    assert (one.slack <= other.slack * (1 + 1e-9)).all()
    kind = CONSTRUCTIONS[construction]
    for found, expected in zip(
        kind.ends(chosen, new, [1, 2]), kind.ends(read, new, [1, 2]), strict=True
    ):
        assert_close(found, expected, 1e-12)
    assert chosen.undetermined == read.undetermined == 0
    slack, relative = chosen.typical_error()  # medians over the models
    assert 0 < slack < 100 * read.typical_error()[0]
    assert 0 < relative < 1e-6 or widths == "constant"
    assert chosen.rows_at_once > 0


def test_doubtful_models_have_infinite_scores() -> None:
    doubtful = torch.arange(N, device=MACHINE.device) == 4
    chosen = in_groups(together("plus", "constant"), doubtful)
    assert torch.equal(torch.isinf(chosen.scores), doubtful)
    assert chosen.undetermined == 1
    _, lower, upper = CONSTRUCTIONS["plus"].ends(chosen, rows(1, 3), [1, 2])
    assert torch.isinf(upper[:, 0] - lower[:, 0]).all()
    assert torch.isfinite(upper[:, 1] - lower[:, 1]).all()


class Doubled(Factors):
    """A factor of 2 for every model, and of its number plus one at its own row."""

    def at(self, X: Tensor, each: Tensor) -> Tensor:
        return torch.full_like(each, 2.0)


def doubled(error: float, shift: float = 0.0) -> Factors:
    own = torch.arange(N, device=MACHINE.device) + 1.0
    nothing = torch.zeros(N, dtype=torch.bool, device=MACHINE.device)
    shifts = torch.full_like(own.double(), shift)
    return Doubled((), own.double(), error, nothing, ("doubled",) * N, shifts, 0 * shifts)


def test_factors_multiply_widths() -> None:
    plain, new = in_groups(together("plus", "leverage")), rows(1, 5)
    chosen = replace(plain, factors=doubled(1e-3))
    own = torch.arange(N, device=MACHINE.device) + 1.0
    assert_close(chosen.scores, plain.scores / own * (1 + 1e-3), 1e-13)
    assert_close(chosen.scaled(new).scales, 2 * plain.scaled(new).scales, 1e-13)
    assert (chosen.scaled(new).stretch >= 1e-3).all()
    assert chosen.typical_error()[1] >= 1e-3


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
def test_shifts_move_intervals_and_the_scores_of_left_out_rows(side: Side) -> None:
    """Intervals of shifted models hold a row just where its score is among the smaller ones."""
    plain, new = in_groups(together("plus", "leverage")), rows(1, 5)
    chosen = replace(plain, factors=doubled(0.0, 0.7), side=side)
    sigma = plain.scaled(new).scales
    factors = torch.arange(N, device=MACHINE.device) + 1.0
    own = plain.residuals.sign() * plain.scores / factors
    errors = {"both": (own - 0.7).abs(), "upper": own - 0.7, "lower": 0.7 - own}[side]
    assert_close(chosen.scores, errors, 1e-9)
    lower, upper = chosen.scaled(new).ends(chosen.scores)
    middle = plain.scaled(new).each + 1.4 * sigma
    assert_close(lower, middle - 2 * sigma * chosen.scores, 1e-9)
    assert_close(upper, middle + 2 * sigma * chosen.scores, 1e-9)
    assert_close(chosen.point(new), plain.point(new), 1e-13)
