"""DP-SGD: what runs is what is accounted."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from descents import (
    TWINS,
    clipped_descent,
    rows,
    start_network,
    weights,
    zero_linear,
)
from lazyknife.base import DPSGD, Perturbed, Task
from lazyknife.base.dpsgd import poisson_batches, public_step, run_dpsgd
from lazyknife.certificate import certify
from lazyknife.losses import SQUARED
from lazyknife.networks import spawn_seeds
from zoo import Net

NOISY = {"epochs": 2, "noise_multiplier": 2.0}


def run_only(base, start, X, y, seed=0, n=None, loss=SQUARED, batches=None) -> torch.Tensor:
    """Run the mechanism without the accountant, which has no answer for next to no noise."""
    run = base.mechanism(n or len(X))
    lr = base.lr or public_step(start, run)
    return weights(run_dpsgd(Task(start, X, y, seed, len(X), loss=loss), run, lr, batches))


def drawn(base, rows, seed=0, n=None) -> list[list[int]]:
    """The batches of a run."""
    return list(poisson_batches(rows, base.mechanism(n or rows), spawn_seeds(seed, 3)[0]))


@pytest.mark.parametrize(("n", "batch"), [(30, 10), (33, 10), (10, 10)])
def test_details_hold_the_mechanism_that_is_accounted(n, batch):
    base = DPSGD(epsilon=2.0, epochs=3, batch_size=batch, max_grad_norm=0.7)
    fitted = base.fit(start_network(), *rows(n), seed=5)
    details, run = fitted.details, base.mechanism(n)
    assert details["sampling_rate"] == run.sampling_rate == batch / n
    assert details["steps"] == run.steps == 3 * math.ceil(n / batch)
    assert details["expected_batch"] == pytest.approx(batch)
    assert details["noise_multiplier"] == run.noise_multiplier
    assert details["max_grad_norm"] == 0.7
    assert (details["seed"], details["delta"]) == (5, 1e-3)
    assert details["lr"] == public_step(start_network(), run)
    assert details["epsilon"] == pytest.approx(2.0, rel=2e-3)
    assert details["epsilon"] <= 2.0
    assert fitted.dependence == base.dependence(n)


@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("kind", TWINS)
def test_clipping_is_by_row_and_the_normaliser_is_fixed(kind, clip):
    """The drawn sizes vary, the twin divides by q·n all the same."""
    loss, target, twin = TWINS[kind]
    start, (X, y) = start_network(), rows(20)
    y = target(y)
    base = DPSGD(epochs=3, batch_size=5, max_grad_norm=clip, lr=0.1, epsilon=math.inf)
    draws = drawn(base, 20, seed=2)
    found = run_only(base, start, X, y, seed=2, loss=loss)
    assert len(draws) == 12
    assert len({len(batch) for batch in draws}) > 1
    expected = clipped_descent(start, X, y, draws, clip, 0.1, expected=5.0, loss=twin)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    by_drawn_size = copy.deepcopy(start)
    for batch in draws:
        moved = clipped_descent(by_drawn_size, X, y, [batch], clip, 0.1, max(len(batch), 1), twin)
        nn.utils.vector_to_parameters(moved, by_drawn_size.parameters())
    assert float((found - weights(by_drawn_size)).abs().max()) > 1e-4


def scale_is_accepted(displacement: torch.Tensor, scale: float) -> bool:
    """Chi-square test of a normal sample's variance, false alarms at 1e-6."""
    law = stats.chi2(len(displacement))
    statistic = float((displacement / scale).square().sum())
    return law.ppf(5e-7) <= statistic <= law.isf(5e-7)


@pytest.mark.parametrize(
    ("sigma", "batches"), [(0.8, None), (5.0, None), (1.0, [[]] * 7), (1.0, [[]] * 19)]
)
def test_the_noise_has_the_accounted_scale_in_every_step(sigma, batches):
    """Also where nothing was drawn: gradients are 0, and what is left is noise.

    A false alarm has probability 1e-6, and as much for the shape; other scales are rejected.
    """
    base = DPSGD(epochs=5, batch_size=4, max_grad_norm=0.5, lr=0.3, noise_multiplier=sigma)
    X, y = torch.zeros(16, 4000, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
    moved = run_only(base, zero_linear(4000), X, y, seed=11, batches=batches)
    steps = math.sqrt(20 if batches is None else len(batches))
    scale = 0.3 * sigma * 0.5 * steps / 4
    assert scale_is_accepted(moved, scale)
    assert stats.kstest(moved.numpy() / scale, "norm").pvalue > 1e-6
    for wrong in (0.9, 1.1, 4 / steps, 0.5):
        assert not scale_is_accepted(moved, wrong * scale)


def test_every_row_is_drawn_at_the_accounted_rate():
    """Two tests, each with a false-alarm rate of 1e-6: the total, and the sizes' spread.

    They refute a rate of .24, and batches of a fixed size.
    """
    base = DPSGD(epochs=40, batch_size=10, noise_multiplier=1.0, lr=1e-3)
    sizes = np.array([len(batch) for batch in drawn(base, 50, seed=8)])
    steps = base.mechanism(50).steps
    assert len(sizes) == steps == 200
    law, spread = stats.binom(50 * steps, 0.2), stats.chi2(steps)
    assert law.isf(1 - 5e-7) <= sizes.sum() <= law.isf(5e-7)
    dispersion = ((sizes - 10) ** 2).sum() / (50 * 0.2 * 0.8)  # about χ² with `steps` degrees
    assert 0.0 < spread.ppf(5e-7) <= dispersion <= spread.isf(5e-7)
    other = DPSGD(epochs=48, batch_size=12, noise_multiplier=1.0)
    assert sum(map(len, drawn(other, 50, seed=8)[:200])) > law.isf(5e-7)
    single = drawn(DPSGD(epochs=1, batch_size=1, noise_multiplier=1.0), 1, n=40)
    assert len(single) == 40  # an empty draw is a step
    assert sum(not batch for batch in single) > 30


@pytest.mark.parametrize(
    ("n", "batch"), [(100, 10), (3, 1), (3, 2), (10**6, 10), (10**9, 1), (5, 5)]
)
def test_rows_are_drawn_no_more_often_than_is_accounted(n, batch):
    """Uniform numbers of float32 are multiples of 2⁻²⁴: count those that draw a row."""
    draws = torch.rand(2**16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws * 2**24, (draws * 2**24).round())
    run = DPSGD(batch_size=batch, noise_multiplier=1.0).mechanism(n)
    every = torch.arange(2**24, dtype=torch.float32) / 2**24
    share = float((every < run.sampling_rate).double().mean())
    assert share <= run.accounted[1] <= run.sampling_rate + 2**-23
    assert share > run.sampling_rate or batch == n


def test_draws_do_not_depend_on_the_default_type():
    """In 16 bits a rate of 1/1000 would be one of 1/256."""
    base = DPSGD(epochs=1, batch_size=1, noise_multiplier=1.0)
    expected = drawn(base, 1000)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = drawn(base, 1000)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == expected


def test_draws_noise_and_dropout_have_seeds_of_their_own():
    """Amplification by sampling requires them to be independent."""
    assert len(set(spawn_seeds(8, 3))) == 3
    quiet, loud = (DPSGD(noise_multiplier=s, lr=1e-3) for s in (1.0, 3.0))
    assert drawn(quiet, 50, seed=8) == drawn(loud, 50, seed=8) != drawn(quiet, 50, seed=9)
    start, (X, y) = zero_linear(4), rows(50, 4)
    given = drawn(quiet, 50, seed=8)
    assert torch.equal(
        run_only(quiet, start, X, y, seed=8), run_only(quiet, start, X, y, seed=8, batches=given)
    )


def test_a_mechanism_for_one_row_more_runs_unchanged_on_fewer_rows():
    X, y = rows(30)
    base = DPSGD(**NOISY)
    short = base.fit(start_network(), X, y, seed=4, n=31)
    whole = base.fit(start_network(), *rows(31), seed=4)
    assert short.details == whole.details
    assert short.details["sampling_rate"] == 10 / 31
    assert short.details["steps"] == 2 * 4
    assert short.dependence == whole.dependence == base.dependence(31)
    draws = drawn(base, 30, seed=4, n=31)
    assert len(draws) == 8
    assert max(max(batch, default=0) for batch in draws) <= 29
    with pytest.raises(ValueError, match=r"batch_size=10.*at most 9"):
        DPSGD().fit(start_network(), *rows(9), seed=0)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_network_that_has_diverged_is_still_clipped(kind):
    """Log-means of about 1000: e^f is infinite, the clipped gradients and the weights are not."""
    loss, target, _ = TWINS[kind]
    X, y = rows(20)
    start = zero_linear(3).float()
    nn.init.constant_(start.weight, 1e3)
    y = (X.sum(dim=1) < 0).double() if kind == "logistic" else target(y)  # every class is wrong
    base = DPSGD(epochs=2, batch_size=5, max_grad_norm=0.5, lr=0.1, epsilon=math.inf)
    moved = run_only(base, start, X, y, loss=loss) - weights(start)
    assert torch.isfinite(moved).all()
    steps = base.mechanism(20).steps
    assert 0 < float(moved.norm()) <= 0.1 * 0.5 * 20 * steps / 5 + 0.1  # and float32's rounding


# --- the step size ------------------------------------------------------------------------------


def test_the_step_size_does_not_look_at_the_data_and_can_be_given():
    start = start_network()
    steps = {
        DPSGD(**NOISY).fit(start, X, y, seed=0).details["lr"]
        for X, y in (rows(seed=1), rows(seed=2), (rows()[0] * 100, rows()[1] * 1e4))
    }
    assert len(steps) == 1
    assert DPSGD(lr=0.123, **NOISY).fit(start, *rows(), seed=0).details["lr"] == 0.123


@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_steps_go_as_far_as_the_start_less_the_share_that_noise_alone_would_go(clip):
    """T independent steps, each a clipped gradient and the noise."""
    start, generator = start_network(), torch.Generator().manual_seed(0)
    distance, size = float(weights(start).norm()), len(weights(start))
    for sigma in (0.5, 5.0, 94.0):
        run = DPSGD(noise_multiplier=sigma, max_grad_norm=clip).mechanism(100)
        moves = torch.randn(400, run.steps, size, generator=generator, dtype=torch.float64)
        gradients = torch.randn(400, run.steps, size, generator=generator, dtype=torch.float64)
        gradients *= clip / gradients.norm(dim=2, keepdim=True)
        total = (gradients + sigma * clip / run.expected_batch * moves).sum(1)
        reached = public_step(start, run) * float(total.square().sum(1).mean().sqrt())
        drift = size * (sigma / run.expected_batch) ** 2 / run.steps  # ν/T
        assert reached == pytest.approx(distance / (1 + drift), rel=0.05)
        assert public_step(zero_linear(3), run) > 0


# --- networks and settings ----------------------------------------------------------------------


def counting():
    """Counts its calls in a buffer."""

    def run(net, x):
        net.calls += 1
        return net.head(x)

    net = Net(run, head=nn.Linear(6, 1))
    net.register_buffer("calls", torch.zeros(()))
    return net.eval()


def test_statistics_that_would_bypass_the_noise_are_refused_or_not_kept():
    """Buffers that follow the rows are no part of the mechanism."""
    with pytest.raises(ValueError, match=r"changes its buffers \['calls'\]"):
        Perturbed(1.0, 1.0).fit(counting(), *rows(30, 6), seed=1)
    assert DPSGD(**NOISY).fit(counting(), *rows(30, 6), seed=1).module.calls == 0


def test_noise_multiplier_is_used_and_shown_instead_of_epsilon():
    base = DPSGD(epsilon=0.01, noise_multiplier=3.0)
    assert base.mechanism(100).noise_multiplier == 3.0
    assert base.spent(100) > 0.5
    assert base.with_noise(7.0).mechanism(100).noise_multiplier == 7.0
    assert "epsilon=0.2" in repr(DPSGD(epsilon=0.2))
    assert "noise_multiplier" not in repr(DPSGD(epsilon=0.2))
    assert "epsilon" not in repr(base)
    assert eval(repr(base)).noise_multiplier == 3.0


def test_infinite_epsilon_adds_no_noise_and_certifies_nothing():
    base = DPSGD(epsilon=math.inf, epochs=2, batch_size=4)
    assert base.mechanism(20).noise_multiplier == 0.0
    assert base.dependence(20) is None
    assert base.spent(20) == math.inf
    assert base.remarks == ()
    assert DPSGD(epsilon=math.inf, noise_multiplier=1.0).remarks == DPSGD().remarks != ()
    assert certify(n=20, alpha=0.1, base=base).coverage is None
    assert "finite epsilon" in str(certify(n=20, alpha=0.1, base=base))
    start, (X, y) = start_network().float(), rows(20)
    quiet = base.fit(start, X, y, seed=1)
    assert quiet.dependence is None
    # Next to no noise makes next to no difference.
    nearly = DPSGD(noise_multiplier=1e-6, epochs=2, batch_size=4, lr=quiet.details["lr"])
    close = nearly.fit(start, X, y, seed=1).module
    torch.testing.assert_close(weights(quiet.module), weights(close), rtol=0, atol=1e-5)
    assert (weights(quiet.module) - weights(start)).abs().max() > 1e-3
