"""Losses: derivatives, links, tails, and the targets that they refuse."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyknife.losses import LOSSES, SQUARED, Huber, Logistic, Loss, Poisson, Squared, find_loss
from reference import assert_close

EACH: list[Loss] = [Squared(), Huber(), Huber(0.3), Logistic(), Poisson()]
FAR = torch.tensor([-700.0, -40.0, -20.0, 0.0, 20.0, 40.0, 700.0], dtype=torch.float64)


def rows(loss: Loss, size: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Predictions and targets that the loss takes."""
    rng = np.random.default_rng(seed)
    f, y = 3 * rng.normal(size=size), rng.normal(size=size)
    if isinstance(loss, Logistic):
        y = rng.integers(0, 2, size=size).astype(float)
    if isinstance(loss, Poisson):
        y = rng.poisson(4.0, size=size).astype(float)
    return torch.from_numpy(f), torch.from_numpy(y)


@pytest.mark.parametrize("loss", EACH, ids=str)
def test_the_derivatives_are_those_of_the_value(loss: Loss) -> None:
    f, y = rows(loss)
    f.requires_grad_()
    (trained,) = torch.autograd.grad(loss.training(f, y).sum(), f)
    factor = 2.0 if isinstance(loss, Squared) else 1.0
    assert_close(trained, factor * loss.gradient(f, y), 1e-13)
    (slope,) = torch.autograd.grad(loss.value(f, y).sum(), f, create_graph=True)
    assert_close(loss.gradient(f, y), slope, 1e-13)
    if isinstance(loss, Huber):
        inside = (f - y).abs() <= loss.delta
        assert 0 < int(inside.sum()) < len(f)
        assert torch.equal(loss.curvature(f, y), inside.double())
    else:
        (curvature,) = torch.autograd.grad(slope.sum(), f)
        assert_close(loss.curvature(f, y), curvature, 1e-12)


def test_values_are_the_textbooks() -> None:
    f, y = rows(Squared())
    assert_close(SQUARED.value(f, y), (f - y) ** 2 / 2, 1e-15)
    assert torch.equal(SQUARED.training(f, y), (f - y).square())
    for delta in (0.3, 1.0, 5.0):
        twin = torch.nn.functional.huber_loss(f, y, reduction="none", delta=delta)
        assert_close(Huber(delta).value(f, y), twin, 1e-14)
    f, y = rows(Logistic())
    p = 1 / (1 + np.exp(-f.numpy()))
    twin = -np.log(np.where(y.numpy() == 1, p, 1 - p))
    assert_close(Logistic().value(f, y), twin, 1e-12)
    f, y = rows(Poisson())
    twin = -torch.distributions.Poisson(f.exp()).log_prob(y) - torch.lgamma(y + 1)
    assert_close(Poisson().value(f, y), twin, 1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", EACH, ids=str)
def test_training_never_gives_an_infinite_gradient(loss: Loss, dtype: torch.dtype) -> None:
    """An infinite gradient could not be clipped, and would undo the privacy."""
    f = torch.tensor([-1e30, -1e4, -100.0, 100.0, 1e4, 1e30], dtype=dtype, requires_grad=True)
    for y in (0.0, 1.0):
        (slope,) = torch.autograd.grad(loss.training(f, torch.full_like(f, y)).sum(), f)
        assert torch.isfinite(slope).all()
        assert (slope.diff() >= 0).all()  # convex
        assert slope[0] <= 0 < slope[-1] or isinstance(loss, Logistic)


@pytest.mark.parametrize("loss", EACH, ids=str)
def test_nothing_overflows_up_to_700_and_the_gradient_has_its_limits(loss: Loss) -> None:
    assert torch.isfinite(loss.mean(FAR)).all()
    for targets in (torch.zeros_like(FAR), torch.ones_like(FAR)):
        for function in (loss.value, loss.gradient, loss.curvature):
            assert torch.isfinite(function(FAR, targets)).all()
        assert (loss.curvature(FAR, targets) >= 0).all()
    _, y = rows(loss)
    far = torch.full_like(y, math.inf)
    for f in (far, -far):
        limit, near = loss.gradient(f, y), loss.gradient(f.clamp(-700, 700), y)
        assert not torch.isnan(limit).any()
        if isinstance(loss, Huber | Logistic):
            assert_close(limit, near, 1e-14)
        else:
            assert torch.equal(limit.sign(), near.sign() * (limit != 0))


def test_the_logistic_tails_keep_their_digits() -> None:
    loss, one = Logistic(), torch.ones(1, dtype=torch.float64)
    for f in (30.0, 45.0, 600.0):
        at = torch.tensor([f], dtype=torch.float64)
        for mirrored, y in ((at, one), (-at, 0 * one)):
            sign, tail = 1.0 if y == 0 else -1.0, math.exp(-f)
            for function, wanted in (
                (loss.value, tail),
                (loss.gradient, sign * tail),
                (loss.curvature, tail),
            ):
                found = float(function(mirrored, y))
                assert found == pytest.approx(wanted, rel=1e-12, abs=0)  # not within 1e-12
    wrong = loss.value(torch.tensor([25.0], dtype=torch.float64), 0 * one)
    assert float(wrong) - 25 == pytest.approx(math.exp(-25), abs=1e-14)


@pytest.mark.parametrize("loss", EACH, ids=str)
def test_the_mean_is_where_the_gradient_is_0_and_targets_broadcast(loss: Loss) -> None:
    f, y = rows(loss, 12)
    mean = loss.mean(f)
    assert loss.identity == torch.equal(mean, f)
    if isinstance(loss, Logistic):
        zero, one = torch.zeros_like(y), torch.ones_like(y)
        slope = mean * loss.gradient(f, one) + (1 - mean) * loss.gradient(f, zero)
    else:
        slope = loss.gradient(f, mean)
    assert float(slope.abs().max()) < 1e-12
    if not isinstance(loss, Huber):
        assert_close(loss.variance(mean), loss.curvature(f, y), 1e-12)
    grid, column = f.reshape(3, 4), y[:3, None]
    for part in (loss.value, loss.gradient, loss.curvature, loss.majorant):
        assert part(grid, column).shape == (3, 4)
        assert part(grid[:, :1], column.expand(3, 4)).shape == (3, 4)
        assert_close(part(grid, column)[1], part(grid[1], column[1]), 1e-15)


def test_hubers_parabola_lies_above_and_its_flat_parts_end_where_the_gradient_changes() -> None:
    loss = Huber(0.7)
    f, y = rows(loss)
    weight, slope = loss.majorant(f, y), loss.gradient(f, y)
    assert (weight > 0).all()
    for step in (-5.0, -0.4, 0.4, 5.0):
        above = loss.value(f, y) + slope * step + weight * step**2 / 2
        assert (above >= loss.value(f + step, y) - 1e-12).all()
    for sign, room in zip((-1.0, 1.0), loss.flat(f, y), strict=True):
        assert (room >= 0).all()
        ends, near = torch.isfinite(room), room.clamp(max=100.0)
        assert int((~ends).sum()) > 10
        within = loss.gradient(f + sign * near, y)
        torch.testing.assert_close(within, slope, rtol=0, atol=1e-12)
        past = loss.gradient(f + sign * (near + 0.1), y)
        assert ((past - slope).abs()[ends] > 0.01).all()
    assert all((room == 0).all() for room in SQUARED.flat(f, y))


@pytest.mark.parametrize(
    ("loss", "wrong", "message"),
    [
        (Logistic(), [0.0, 1.0, 0.5], "'logistic' requires y of 0 or 1, but y has 0.5 in row 2"),
        (Logistic(), [0.0, -1.0], "'logistic' .* -1.0 in row 1"),
        (Logistic(), [math.nan, 1.0], "nan in row 0"),
        (Poisson(), [3.0, -1.0], "'poisson' requires y of 0 or more, but y has -1.0 in row 1"),
        (Poisson(), [3.0, math.inf], "inf in row 1"),
        (Poisson(), [math.nan], "nan in row 0"),
        (Squared(), [1.0, math.nan], "'squared' requires y of finite numbers, .* nan in row 1"),
        (Huber(), [-math.inf], "'huber' .* -inf in row 0"),
    ],
)
def test_targets_that_do_not_fit_are_refused(loss: Loss, wrong: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss.check(torch.tensor(wrong, dtype=torch.float64))
    loss.check(rows(loss)[1])
    Poisson().check(torch.tensor([0.0, 0.25, 1e6]))  # rates


def test_losses_are_found_by_name_taken_as_they_are_or_refused() -> None:
    assert [find_loss(name) for name in LOSSES] == [Squared(), Huber(1.0), Logistic(), Poisson()]
    assert all(find_loss(name).name == name for name in LOSSES)
    assert find_loss(loss := Huber(2.0)) is loss != Huber(1.0)
    for wrong in ("hinge", None, 3, Huber):
        with pytest.raises(ValueError, match=r"loss=.*'squared', 'huber', 'logistic', 'poisson'"):
            find_loss(wrong)  # type: ignore[arg-type]
    for delta in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="delta"):
            Huber(delta)
