"""Base weights: what runs is what is accounted, and nothing outside is touched."""

import copy
import math

import numpy as np
import opacus.utils.uniform_sampler as uniform_sampler
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.utils import parameters_to_vector

from lazyknife.base import DPSGD, Perturbed, Plain, Public, Split, dpsgd
from lazyknife.base.dpsgd import NOISE_SHARE, public_step, run_dpsgd
from lazyknife.base.method import Task
from lazyknife.base.perturbed import l1_noise, l2_noise
from lazyknife.certificate import certify
from lazyknife.losses import SQUARED, Huber, Logistic, Poisson, Squared
from lazyknife.networks import build, mlp
from lazyknife.records import INDEPENDENT

NOISY = {"epochs": 2, "noise_multiplier": 2.0}
BASES = {
    "dpsgd": DPSGD(**NOISY),
    "perturbed l2": Perturbed(sensitivity=0.1, epsilon=1.0),
    "perturbed l1": Perturbed(sensitivity=0.1, epsilon=1.0, norm="l1"),
    "public": Public(),
    "split": Split(),
    "plain": Plain(epochs=2),
}
RANDOM = [name for name in BASES if name != "public"]


def start_network(features: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return mlp((5,), "tanh")(features).double()


def rows(n: int = 30, features: int = 3, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, features, dtype=torch.float64, generator=generator)
    return X, X.sum(dim=1) + torch.randn(n, dtype=torch.float64, generator=generator)


def weights(module: nn.Module) -> torch.Tensor:
    return parameters_to_vector(module.parameters()).detach().clone()


def linear(features: int) -> nn.Module:
    network = nn.Linear(features, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(network.weight)
    return network


# --- every base ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BASES)
def test_the_users_start_is_not_changed(name):
    start = start_network().train()
    before = copy.deepcopy(start.state_dict())
    fitted = BASES[name].fit(start, *rows(), seed=3)
    after = start.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert fitted.module is not start
    assert start.training
    assert all(p.grad is None and not hasattr(p, "grad_sample") for p in start.parameters())
    assert not any(part._forward_hooks for part in fitted.module.modules())


@pytest.mark.parametrize("name", BASES)
def test_the_global_random_states_are_left_alone(name):
    start, (X, y) = start_network(), rows()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()
    BASES[name].fit(start, X, y, seed=3)
    BASES[name].rows(len(X), 3)
    assert torch.equal(torch.get_rng_state(), torch_before)
    numpy_after = np.random.get_state()
    assert np.array_equal(numpy_before[1], numpy_after[1])
    assert numpy_before[2:] == numpy_after[2:]


@pytest.mark.parametrize("name", BASES)
def test_same_seed_same_weights_whatever_the_global_state(name):
    start, (X, y) = start_network(), rows()
    first = weights(BASES[name].fit(start, X, y, seed=3).module)
    torch.rand(5)
    assert torch.equal(first, weights(BASES[name].fit(start, X, y, seed=3).module))


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_other_weights(name):
    start, (X, y) = start_network(), rows()
    one, two = (weights(BASES[name].fit(start, X, y, seed=seed).module) for seed in (3, 4))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("name", BASES)
def test_frozen_parameters_stay(name):
    start = start_network()
    for parameter in start[0].parameters():
        parameter.requires_grad_(False)
    trained = BASES[name].fit(start, *rows(), seed=3).module
    assert torch.equal(trained[0].weight, start[0].weight)
    assert not trained[0].weight.requires_grad
    assert torch.equal(trained[2].weight, start[2].weight) == (name == "public")


# --- DP-SGD: what ran is what is accounted ------------------------------------------------------


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
    assert details["seed"] == 5
    assert details["lr"] == public_step(start_network(), run)
    assert details["delta"] == 1e-3
    assert details["epsilon"] == pytest.approx(2.0, rel=2e-3)
    assert details["epsilon"] <= 2.0
    assert fitted.dependence == base.dependence(n)


def count_steps(monkeypatch) -> list[int]:
    """Count the calls of SGD.step from now on."""
    calls, original = [], torch.optim.SGD.step

    def counted(self, *args, **kwargs):
        calls.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, "step", counted)
    return calls


def record_draws(monkeypatch) -> list[list[int]]:
    """Keep every batch that the sampler draws from now on."""
    draws, original = [], uniform_sampler.UniformWithReplacementSampler.__iter__

    def recorded(self):
        for batch in original(self):
            draws.append(batch)
            yield batch

    monkeypatch.setattr(uniform_sampler.UniformWithReplacementSampler, "__iter__", recorded)
    return draws


def squared_error(f, y):
    return (f - y).square().mean()


def clipped_descent(start, X, y, batches, clip, lr, expected, loss=squared_error) -> torch.Tensor:
    """Noiseless DP-SGD, a row at a time."""
    module = copy.deepcopy(start)
    parameters = list(module.parameters())
    for batch in batches:
        total = [torch.zeros_like(p) for p in parameters]
        for i in batch:
            error = loss(module(X[i : i + 1]).reshape(()), y[i])
            gradients = torch.autograd.grad(error, parameters)
            norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
            factor = min(1.0, clip / (norm + 1e-6))
            total = [t + factor * g for t, g in zip(total, gradients, strict=True)]
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p -= lr / expected * t
    return weights(module)


def run_only(
    base: DPSGD, start, X, y, seed: int = 0, n: int | None = None, loss=SQUARED
) -> torch.Tensor:
    """Run the mechanism without the accountant, which has no answer for next to no noise."""
    run = base.mechanism(n or len(X))
    lr = base.lr or public_step(start, run)
    return weights(run_dpsgd(Task(start, X, y, seed, len(X), loss=loss), run, lr))


def test_without_noise_clipping_or_sampling_it_is_full_batch_gradient_descent():
    start, (X, y) = start_network(), rows(12)
    base = DPSGD(epochs=6, batch_size=12, max_grad_norm=1e6, lr=0.05, epsilon=math.inf)
    twin = copy.deepcopy(start)
    for _ in range(base.mechanism(12).steps):
        loss = (twin(X).squeeze(1) - y).square().mean()
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for p, g in zip(twin.parameters(), gradients, strict=True):
                p -= 0.05 * g
    found = run_only(base, start, X, y)
    torch.testing.assert_close(found, weights(twin), rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_clipping_is_by_row_and_the_normaliser_is_fixed(monkeypatch, clip):
    """The drawn sizes vary, the twin divides by q·n all the same."""
    start, (X, y) = start_network(), rows(20)
    base = DPSGD(epochs=3, batch_size=5, max_grad_norm=clip, lr=0.1, epsilon=math.inf)
    draws = record_draws(monkeypatch)
    found = run_only(base, start, X, y, seed=2)
    assert len(draws) == 12
    assert len({len(batch) for batch in draws}) > 1
    twin = clipped_descent(start, X, y, draws, clip, 0.1, expected=5.0)
    torch.testing.assert_close(found, twin, rtol=0, atol=1e-9)
    by_drawn_size = copy.deepcopy(start)
    for batch in draws:
        moved = clipped_descent(by_drawn_size, X, y, [batch], clip, 0.1, max(len(batch), 1))
        nn.utils.vector_to_parameters(moved, by_drawn_size.parameters())
    assert float((found - weights(by_drawn_size)).abs().max()) > 1e-4


def test_empty_draws_are_steps_of_noise(monkeypatch):
    """At a rate of 1/40 on one row of data nearly every draw is empty, and every step counts."""
    start, (X, y) = start_network(), rows(1)
    base = DPSGD(epochs=1, batch_size=1, noise_multiplier=1.0, lr=0.1)
    calls, draws = count_steps(monkeypatch), record_draws(monkeypatch)
    run_only(base, start, X, y, n=40)
    assert len(calls) == len(draws) == 40
    assert sum(not batch for batch in draws) > 30


def test_a_run_of_empty_draws_still_moves_every_weight(monkeypatch):
    monkeypatch.setattr(
        uniform_sampler.UniformWithReplacementSampler,
        "__iter__",
        lambda self: iter([[]] * self.steps),
    )
    calls = count_steps(monkeypatch)
    start = start_network()
    base = DPSGD(epochs=2, noise_multiplier=1.0, lr=0.1)
    found = run_only(base, start, *rows())
    assert len(calls) == 6
    assert bool((found != weights(start)).all())


def spread_of_pure_noise(sigma: float) -> tuple[torch.Tensor, float]:
    """Displacement of a linear network whose gradients are 0, and the scale it should have."""
    features = 4000
    base = DPSGD(epochs=5, batch_size=4, max_grad_norm=0.5, lr=0.3, noise_multiplier=sigma)
    X, y = torch.zeros(16, features, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
    moved = run_only(base, linear(features), X, y, seed=11)
    return moved, 0.3 * sigma * 0.5 * math.sqrt(20) / 4


def scale_is_accepted(displacement: torch.Tensor, scale: float) -> bool:
    """Chi-square test of a normal sample's variance, false alarms at 1e-6."""
    law = stats.chi2(len(displacement))
    statistic = float((displacement / scale).square().sum())
    return law.ppf(5e-7) <= statistic <= law.isf(5e-7)


@pytest.mark.parametrize("sigma", [0.8, 5.0])
def test_the_noise_has_the_accounted_scale(sigma):
    """A false alarm has probability 1e-6, and as much for the shape."""
    displacement, scale = spread_of_pure_noise(sigma)
    assert scale_is_accepted(displacement, scale)
    assert stats.kstest(displacement.numpy() / scale, "norm").pvalue > 1e-6


@pytest.mark.parametrize("wrong", [0.9, 1.1, 4 / math.sqrt(20), 0.5])
def test_another_scale_of_the_noise_is_rejected(wrong):
    displacement, scale = spread_of_pure_noise(5.0)
    assert not scale_is_accepted(displacement, wrong * scale)


def drawn_sizes(monkeypatch, batch_size: int) -> tuple[list[list[int]], int]:
    draws = record_draws(monkeypatch)
    base = DPSGD(epochs=40, batch_size=batch_size, noise_multiplier=1.0, lr=1e-3)
    run_only(base, linear(2), *rows(50, 2), seed=8)
    return draws, base.mechanism(50).steps


def test_every_row_is_drawn_at_the_accounted_rate(monkeypatch):
    """Two tests, each with a false-alarm rate of 1e-6: the total, and the sizes' spread."""
    draws, steps = drawn_sizes(monkeypatch, 10)
    sizes = np.array([len(batch) for batch in draws])
    assert len(sizes) == steps == 200
    law = stats.binom(50 * steps, 0.2)
    assert law.isf(1 - 5e-7) <= sizes.sum() <= law.isf(5e-7)
    dispersion = ((sizes - 10) ** 2).sum() / (50 * 0.2 * 0.8)  # about χ² with `steps` degrees
    assert stats.chi2(steps).ppf(5e-7) <= dispersion <= stats.chi2(steps).isf(5e-7)


def test_another_sampling_rate_is_rejected(monkeypatch):
    """The same test refutes a rate of .24, and batches of a fixed size."""
    draws, steps = drawn_sizes(monkeypatch, 12)
    law = stats.binom(50 * steps, 0.2)
    assert sum(len(batch) for batch in draws) > law.isf(5e-7)
    dispersion_of_fixed_sizes = 0.0
    assert dispersion_of_fixed_sizes < stats.chi2(steps).ppf(5e-7)


def test_draws_do_not_depend_on_the_data_or_on_the_noise(monkeypatch):
    first = record_draws(monkeypatch)
    run_only(DPSGD(noise_multiplier=1.0, lr=1e-3), linear(2), *rows(50, 2), seed=8)
    kept = list(first)
    first.clear()
    X, y = rows(50, 2, seed=9)
    run_only(DPSGD(noise_multiplier=3.0, lr=1e-2), linear(2), X, y, seed=8)
    assert kept == first


def test_more_rows_in_a_batch_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"batch_size=10.*at most 9"):
        DPSGD().fit(start_network(), *rows(9), seed=0)


def test_a_mechanism_for_one_row_more_runs_unchanged_on_fewer_rows(monkeypatch):
    X, y = rows(30)
    base = DPSGD(**NOISY)
    draws = record_draws(monkeypatch)
    short = base.fit(start_network(), X, y, seed=4, n=31)
    whole = base.fit(start_network(), *rows(31), seed=4)
    assert short.details == whole.details
    assert short.details["sampling_rate"] == 10 / 31
    assert short.details["steps"] == 2 * 4
    assert short.dependence == whole.dependence == base.dependence(31)
    assert max(max(batch, default=0) for batch in draws[:8]) <= 29


# --- DP-SGD: the step size ----------------------------------------------------------------------


def test_the_step_size_does_not_look_at_the_data():
    start = start_network()
    steps = {
        DPSGD(**NOISY).fit(start, X, y, seed=0).details["lr"]
        for X, y in (rows(seed=1), rows(seed=2), (rows()[0] * 100, rows()[1] * 1e4))
    }
    assert len(steps) == 1


@pytest.mark.parametrize("sigma", [0.5, 5.0, 94.0])
@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_the_step_size_bounds_what_noise_and_gradients_can_do(sigma, clip):
    start = start_network()
    run = DPSGD(noise_multiplier=sigma, max_grad_norm=clip).mechanism(100)
    lr = public_step(start, run)
    flat = weights(start)
    displacement = lr * sigma * clip * math.sqrt(run.steps) / run.expected_batch
    assert displacement <= NOISE_SHARE * float(flat.square().mean().sqrt()) * (1 + 1e-12)
    assert lr * clip * run.steps <= float(flat.norm()) * (1 + 1e-12)


def test_the_step_size_falls_with_the_noise_and_can_be_given():
    start = start_network()
    lrs = [public_step(start, DPSGD(noise_multiplier=s).mechanism(100)) for s in (5.0, 20.0, 94.0)]
    assert lrs == sorted(lrs, reverse=True)
    assert len(set(lrs)) == 3
    assert DPSGD(lr=0.123, **NOISY).fit(start, *rows(), seed=0).details["lr"] == 0.123


def test_a_start_at_zero_still_gets_a_step_size():
    assert public_step(linear(3), DPSGD(noise_multiplier=5.0).mechanism(100)) > 0


# --- DP-SGD: networks and settings --------------------------------------------------------------


class Signal(nn.Module):
    """A convolution over the features."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1))

    def forward(self, x):
        return self.body(x[:, None])


class Tied(nn.Module):
    """Two layers of their own biases that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).tanh())


def twice(layer):
    """The same layer under two names."""
    return nn.Sequential(nn.Linear(6, 8), layer, nn.Tanh(), layer, nn.Linear(8, 1)).eval()


NETWORKS = {
    "layer twice": lambda: twice(nn.Linear(8, 8)),
    "layer norm twice": lambda: twice(nn.LayerNorm(8)),
    "batch norm twice": lambda: twice(nn.BatchNorm1d(8)),
    "tied weights": Tied,
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 1)),
    "layer norm": lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval(),
    "convolution": Signal,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_dpsgd_trains_networks_with_other_layers(name):
    torch.manual_seed(0)
    start = NETWORKS[name]()
    buffers = {key: value.clone() for key, value in start.named_buffers()}
    X, y = rows(30, 6)
    one, two = (DPSGD(**NOISY).fit(start, X, y, seed=1).module for _ in range(2))
    assert torch.equal(weights(one), weights(two))
    assert bool((weights(one) != weights(start)).any())
    assert not one.training
    for key, value in one.named_buffers():
        assert torch.equal(value, buffers[key])
    assert [type(part) for part in one.modules()] == [type(part) for part in start.modules()]


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "dropout"])
def test_row_gradients_of_other_layers_are_exact(name):
    torch.manual_seed(0)
    start = NETWORKS[name]().double()
    for key, value in start.named_buffers():
        if "running" in key:  # a batch norm that has seen data
            value += torch.rand_like(value)
    X, y = rows(8, 6)
    base = DPSGD(epochs=2, batch_size=8, lr=0.1, epsilon=math.inf)
    twin = clipped_descent(start, X, y, [range(8)] * 2, 1.0, 0.1, expected=8.0)
    torch.testing.assert_close(run_only(base, start, X, y), twin, rtol=0, atol=1e-10)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.head = nn.Linear(1, 4), nn.Linear(4, 1)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        h = self.lift(x[..., None])
        return self.head(self.attention(h, h, h, need_weights=False)[0].mean(dim=1))


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x):
        return self.used(x)


def running_statistics():
    norm = nn.InstanceNorm1d(2, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), nn.Linear(6, 1)).eval()


@pytest.mark.parametrize("base", [DPSGD(**NOISY), Perturbed(1.0, 1.0)])
def test_statistics_that_would_pass_by_the_noise_are_refused(base):
    """Buffers that follow the rows are no part of the mechanism."""
    with pytest.raises(
        ValueError, match=r"changes its buffers \['1.running_mean', '1.running_var'\]"
    ):
        base.fit(running_statistics(), *rows(30, 6), seed=1)
    frozen = running_statistics()
    frozen[1] = nn.InstanceNorm1d(2)
    base.fit(frozen, *rows(30, 6), seed=1)


def test_what_opacus_cannot_train_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"\['idle.weight', 'idle.bias'\] take no part"):
        DPSGD(**NOISY).fit(Idle(), *rows(30, 6), seed=1)
    half = Idle()
    half.idle.requires_grad_(False)
    DPSGD(**NOISY).fit(half, *rows(30, 6), seed=1)
    with pytest.raises(ValueError, match=r"gradient of each row .* base=Public\(\)"):
        DPSGD(**NOISY).fit(Attention(), *rows(30, 6), seed=1)


def test_draws_noise_and_dropout_have_seeds_of_their_own(monkeypatch):
    """Amplification by sampling wants them independent."""
    import opacus.optimizers

    seeds = []

    def spied(original):
        def call(*args, **kwargs):
            seeds.append(kwargs["generator"].initial_seed())
            return original(*args, **kwargs)

        return call

    sampler = "UniformWithReplacementSampler"
    monkeypatch.setattr(uniform_sampler, sampler, spied(getattr(uniform_sampler, sampler)))
    monkeypatch.setattr(opacus.optimizers, "DPOptimizer", spied(opacus.optimizers.DPOptimizer))
    original = dpsgd.seeded
    monkeypatch.setattr(dpsgd, "seeded", lambda s, *where: seeds.append(s) or original(s, *where))
    DPSGD(**NOISY).fit(NETWORKS["dropout"](), *rows(30, 6), seed=1)
    assert len(set(seeds)) == 3


def test_dropout_is_drawn_from_the_seed_not_from_the_global_state():
    start = NETWORKS["dropout"]()
    X, y = rows(30, 6)
    before = torch.get_rng_state()
    one = weights(DPSGD(**NOISY).fit(start, X, y, seed=1).module)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(one, weights(DPSGD(**NOISY).fit(start, X, y, seed=1).module))


def test_noise_multiplier_is_used_instead_of_epsilon():
    base = DPSGD(epsilon=0.01, noise_multiplier=3.0)
    assert base.mechanism(100).noise_multiplier == 3.0
    assert base.spent(100) > 0.5
    assert base.with_noise(7.0).mechanism(100).noise_multiplier == 7.0


def test_repr_shows_the_setting_that_counts():
    assert "epsilon=0.2" in repr(DPSGD(epsilon=0.2))
    assert "noise_multiplier" not in repr(DPSGD(epsilon=0.2))
    assert "noise_multiplier=3.0" in repr(DPSGD(noise_multiplier=3.0))
    assert "epsilon" not in repr(DPSGD(noise_multiplier=3.0))
    assert eval(repr(DPSGD(noise_multiplier=3.0))).noise_multiplier == 3.0


BAD = [
    (DPSGD, {"epsilon": 0}, ValueError, "epsilon"),
    (DPSGD, {"epsilon": math.nan}, ValueError, "epsilon"),
    (DPSGD, {"epsilon": "1"}, TypeError, "epsilon"),
    (DPSGD, {"epsilon": 1e-300}, ValueError, r"epsilon=1e-300.*from 1e-06 to 500.*Public\(\)"),
    (DPSGD, {"epsilon": 1e300}, ValueError, r"epsilon=1e\+300.*protects nothing.*math\.inf"),
    (DPSGD, {"epsilon": 501}, ValueError, "epsilon=501"),
    (DPSGD, {"delta": 1.0}, ValueError, "delta"),
    (DPSGD, {"delta": 1e-16}, ValueError, "delta=1e-16.*from 1e-10 to 1"),
    (DPSGD, {"delta": 1e-300}, ValueError, "delta=1e-300.*Rounding"),
    (DPSGD, {"epochs": 0}, ValueError, "epochs"),
    (DPSGD, {"batch_size": 2.5}, TypeError, "batch_size"),
    (DPSGD, {"max_grad_norm": -1}, ValueError, "max_grad_norm"),
    (DPSGD, {"lr": 0.0}, ValueError, "lr"),
    (DPSGD, {"noise_multiplier": 0.0}, ValueError, "noise_multiplier"),
    (
        DPSGD,
        {"noise_multiplier": 1e-300},
        ValueError,
        r"noise_multiplier=1e-300.*epsilon=math\.inf",
    ),
    (DPSGD, {"noise_multiplier": 1e300}, ValueError, r"noise_multiplier=1e\+300.*Public\(\)"),
    (Perturbed, {"sensitivity": 0.0, "epsilon": 1.0}, ValueError, "sensitivity"),
    (Perturbed, {"sensitivity": 1.0, "epsilon": -1.0}, ValueError, "epsilon"),
    (Perturbed, {"sensitivity": 1.0, "epsilon": math.inf}, ValueError, "epsilon"),
    (Perturbed, {"sensitivity": 1.0, "epsilon": 1e-300}, ValueError, "epsilon=1e-300.*from 1e-12"),
    (Perturbed, {"sensitivity": 1.0, "epsilon": 1e300}, ValueError, "epsilon=.*protects nothing"),
    (Perturbed, {"sensitivity": 1.0, "epsilon": 1.0, "norm": "l3"}, ValueError, "norm='l3'.*'l2'"),
    (Split, {"fraction": 1.0}, ValueError, "fraction"),
    (Split, {"fraction": None}, TypeError, "fraction"),
    (Plain, {"epochs": -1}, ValueError, "epochs"),
    (Plain, {"batch_size": 0}, ValueError, "batch_size"),
    (Plain, {"lr": "fast"}, TypeError, "lr"),
]


@pytest.mark.parametrize(("kind", "arguments", "error", "words"), BAD)
def test_a_bad_argument_is_refused_by_name(kind, arguments, error, words):
    with pytest.raises(error, match=words):
        kind(**arguments)


@pytest.mark.parametrize("name", BASES)
def test_private_bases_say_what_their_guarantee_averages_over_and_what_is_private(name):
    remarks = BASES[name].remarks
    if name.startswith(("dpsgd", "perturbed")):
        seeds, release = remarks
        assert "average over the seeds" in seeds
        assert "not a private release" in release
    else:
        assert remarks == ()


def test_without_noise_there_is_nothing_private_to_remark_on():
    assert DPSGD(epsilon=math.inf).remarks == ()
    assert DPSGD(epsilon=math.inf, noise_multiplier=1.0).remarks == DPSGD().remarks != ()


# --- Perturbed ----------------------------------------------------------------------------------


def radii(size: int, scale: float, draws: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(1)
    return np.array([float(l2_noise(size, scale, generator).norm()) for _ in range(draws)])


def test_l2_noise_has_a_gamma_radius():
    """Kolmogorov-Smirnov and mean, false alarms at 1e-6 each."""
    size, scale, draws = 40, 0.5 / 2.0, 4000
    found = radii(size, scale, draws)
    error = scale * math.sqrt(size / draws)
    assert abs(found.mean() - size * scale) < 4.9 * error
    assert stats.kstest(found, stats.gamma(size, scale=scale).cdf).pvalue > 1e-6


def test_a_wrong_radius_is_rejected():
    size, scale, draws = 40, 0.5 / 2.0, 4000
    found = radii(size, scale, draws)
    assert stats.kstest(found, stats.gamma(size, scale=1.05 * scale).cdf).pvalue < 1e-6
    assert stats.kstest(found, stats.gamma(size + 1, scale=scale).cdf).pvalue < 1e-6


def test_l2_noise_has_a_uniform_direction():
    """The squared first cosine is Beta(1/2, (M−1)/2) and signs are even; false alarms at 1e-6."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.stack([l2_noise(5, 1.0, generator) for _ in range(4000)]).numpy()
    cosine = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    for k in (0, 4):
        assert stats.kstest(cosine[:, k] ** 2, stats.beta(0.5, 2).cdf).pvalue > 1e-6
        assert stats.binomtest(int((cosine[:, k] > 0).sum()), 4000).pvalue > 1e-6


def test_l1_noise_is_laplace():
    """Kolmogorov-Smirnov, a false alarm at 1e-6; a scale one tenth off is rejected."""
    noise = l1_noise(20_000, 0.3, torch.Generator().manual_seed(3)).numpy()
    assert stats.kstest(noise, stats.laplace(scale=0.3).cdf).pvalue > 1e-6
    assert stats.kstest(noise, stats.laplace(scale=0.33).cdf).pvalue < 1e-6
    assert stats.kstest(noise, stats.norm(scale=0.3 * math.sqrt(2)).cdf).pvalue < 1e-6


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_perturbed_is_plain_training_plus_noise_of_scale_s_over_epsilon(norm):
    """The radius has mean M·s/ε (l2), the entries mean size s/ε (l1); false alarms at 1e-6."""
    start, (X, y) = start_network(), rows()
    base = Perturbed(sensitivity=0.4, epsilon=2.0, norm=norm, training=Plain(epochs=1))
    size, draws = len(weights(start)), 60
    noise = torch.stack(
        [
            weights(base.fit(start, X, y, seed=seed).module)
            - weights(base.training.fit(start, X, y, seed=seed).module)
            for seed in range(draws)
        ]
    ).numpy()
    scale = 0.2
    found = np.linalg.norm(noise, axis=1) if norm == "l2" else np.abs(noise)
    law = stats.gamma(size * draws, scale=scale)  # either is a sum of size·draws exponentials
    assert law.ppf(5e-7) <= found.sum() <= law.isf(5e-7)
    assert not law.ppf(5e-7) <= 1.2 * found.sum() <= law.isf(5e-7)


def test_perturbed_knows_the_number_of_its_weights_and_its_assumption():
    base = Perturbed(sensitivity=0.25, epsilon=1.0)
    start = start_network()
    start[0].weight.requires_grad_(False)
    fitted = base.fit(start, *rows(), seed=0)
    trained = sum(p.numel() for p in start.parameters() if p.requires_grad)
    assert fitted.details["n_parameters"] == trained
    assert fitted.dependence == base.dependence(30, trained)
    (assumption,) = base.assumptions
    assert "0.25" in assumption
    assert "l2" in assumption
    assert "not checked" in assumption
    assert base.spent(10) == 1.0
    assert base.with_noise(4.0).epsilon == 0.25


# --- Split, Public, Plain -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "fraction"), [(10, 0.5), (11, 0.5), (100, 0.3), (5, 0.01), (5, 0.99)]
)
def test_split_parts_are_disjoint_and_cover_everything(n, fraction):
    base = Split(fraction)
    learn, left = base.rows(n, seed=0)
    assert sorted([*learn, *left]) == list(range(n))
    assert len(left) == base.rows_left(n)
    assert 1 <= len(learn) < n
    if 1 <= round(fraction * n) < n:
        assert len(learn) == round(fraction * n)


def test_split_parts_are_random_by_seed():
    base = Split()
    assert np.array_equal(base.rows(50, 1)[0], base.rows(50, 1)[0])
    assert not np.array_equal(base.rows(50, 1)[0], base.rows(50, 2)[0])
    assert base.dependence(25) == INDEPENDENT


def test_every_row_is_as_likely_to_be_in_either_part():
    """Chi-square over 20 rows, a false alarm at 1e-6; parts cut in order are rejected."""
    counts = np.zeros(20)
    for seed in range(1000):
        counts[Split(0.25).rows(20, seed)[0]] += 1
    # Drawn without replacement: the variance of each count is 1000·p(1−p), their sum is fixed.
    statistic = (19 / 20) * ((counts - 250) ** 2).sum() / (1000 * 0.25 * 0.75)
    assert statistic < stats.chi2(19).isf(1e-6)
    in_order = np.repeat([1000.0, 0.0], [5, 15])
    assert (19 / 20) * ((in_order - 250) ** 2).sum() / 187.5 > stats.chi2(19).isf(1e-6)


def test_other_bases_use_every_row_for_everything():
    learn, left = DPSGD().rows(7, 0)
    assert list(learn) == list(left) == list(range(7))
    assert DPSGD().rows_left(7) == 7


def test_split_trains_as_plain_does_on_its_rows():
    start, (X, y) = start_network(), rows()
    learn = torch.from_numpy(Split().rows(30, 0)[0])
    fitted = Split(training=Plain(epochs=3)).fit(start, X[learn], y[learn], seed=2)
    plain = Plain(epochs=3).fit(start, X[learn], y[learn], seed=2)
    assert torch.equal(weights(fitted.module), weights(plain.module))
    assert fitted.dependence == INDEPENDENT
    assert fitted.details["rows_learnt"] == 15


def test_public_keeps_exactly_the_starts_weights():
    start = start_network()
    fitted = Public().fit(start, *rows(), seed=0)
    assert torch.equal(weights(fitted.module), weights(start))
    assert fitted.dependence == INDEPENDENT
    assert any("starting weights" in assumption for assumption in Public().assumptions)


def test_public_has_no_noise_to_choose():
    with pytest.raises(ValueError, match=r"no noise.*DPSGD"):
        Public().with_noise(1.0)


def adam_by_hand(start, X, y, epochs, batch_size, lr, seed, loss=squared_error) -> torch.Tensor:
    """Adam's recursion written out, on the batches that the seed shuffles."""
    module = copy.deepcopy(start)
    parameters = list(module.parameters())
    first = [torch.zeros_like(p) for p in parameters]
    second = [torch.zeros_like(p) for p in parameters]
    step = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(epochs):
            for batch in torch.randperm(len(X)).split(batch_size):
                step += 1
                error = loss(module(X[batch]).squeeze(1), y[batch])
                gradients = torch.autograd.grad(error, parameters)
                with torch.no_grad():
                    for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                        m.mul_(0.9).add_(g, alpha=0.1)
                        v.mul_(0.999).addcmul_(g, g, value=0.001)
                        size = (v / (1 - 0.999**step)).sqrt() + 1e-8
                        p -= lr * (m / (1 - 0.9**step)) / size
    return weights(module)


@pytest.mark.parametrize("center", [False, True])
def test_plain_is_adam_on_the_squared_error(center):
    start, (X, y) = start_network(), rows(25)
    y = y + 3.0
    found = Plain(epochs=3, batch_size=8, lr=0.01).fit(start, X, y, seed=6, center=center)
    target = y - y.mean() if center else y
    expected = adam_by_hand(start, X, target, 3, 8, 0.01, seed=6)
    torch.testing.assert_close(weights(found.module), expected, rtol=0, atol=1e-10)
    assert found.dependence is None
    assert not found.module.training


def test_plain_takes_a_column_of_outputs_for_a_vector_of_targets():
    """An (n, 1) output against an (n,) target must not broadcast to n × n."""
    start, (X, _) = start_network(), rows(40)
    y = 2 * X[:, 0]
    trained = Plain(epochs=200, lr=0.02).fit(start, X, y, seed=0).module
    with torch.no_grad():
        error = float((trained(X).squeeze(1) - y).square().mean())
    assert error < 0.1 * float(y.square().mean())


def test_infinite_epsilon_adds_no_noise_and_certifies_nothing():
    base = DPSGD(epsilon=math.inf, epochs=2, batch_size=4)
    assert base.mechanism(20).noise_multiplier == 0.0
    assert base.dependence(20) is None
    assert base.spent(20) == math.inf
    assert certify(n=20, alpha=0.1, base=base).coverage is None
    assert "finite epsilon" in str(certify(n=20, alpha=0.1, base=base))
    X = torch.linspace(-2, 2, 60, dtype=torch.float64).sin().reshape(20, 3)
    y = X.sum(dim=1)
    start = build(mlp((4,)), X, seed=0)
    quiet = base.fit(start, X, y, seed=1)
    assert quiet.dependence is None
    # Next to no noise makes next to no difference.
    nearly = DPSGD(noise_multiplier=1e-6, epochs=2, batch_size=4, lr=quiet.details["lr"])
    close = nearly.fit(start, X, y, seed=1).module
    torch.testing.assert_close(weights(quiet.module), weights(close), rtol=0, atol=1e-5)
    assert (weights(quiet.module) - weights(start)).abs().max() > 1e-3


# --- other losses -------------------------------------------------------------------------------


def counts(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = rows(n)
    return X, y.abs().round()


def classes(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = rows(n)
    return X, (y > 0).double()


# The loss, rows for it, and the loss of one row as torch has it.
TWINS = {
    "huber": (Huber(0.3), rows, lambda f, y: nn.functional.huber_loss(f, y, delta=0.3)),
    "logistic": (Logistic(), classes, nn.functional.binary_cross_entropy_with_logits),
    "poisson": (Poisson(), counts, nn.functional.poisson_nll_loss),
}


@pytest.mark.parametrize("name", BASES)
def test_the_squared_loss_is_the_default(name):
    start, (X, y) = start_network(), rows()
    one, two = (BASES[name].fit(start, X, y, seed=3, **more) for more in ({}, {"loss": Squared()}))
    assert torch.equal(weights(one.module), weights(two.module))


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("kind", TWINS)
def test_another_loss_gives_other_weights(name, kind):
    loss, make, _ = TWINS[kind]
    start, (X, y) = start_network(), make()
    one, two = (BASES[name].fit(start, X, y, seed=3, loss=each) for each in (loss, Squared()))
    assert not torch.equal(weights(one.module), weights(two.module))
    assert one.dependence == two.dependence
    assert one.details == two.details


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", TWINS)
def test_plain_is_adam_on_the_loss(kind, center):
    """Only a loss that predicts y itself lets the mean be taken out."""
    loss, make, twin = TWINS[kind]
    start, (X, y) = start_network(), make(25)
    base = Plain(epochs=3, batch_size=8, lr=0.01)
    found = base.fit(start, X, y, seed=6, center=center, loss=loss)
    target = y - y.mean() if center and kind == "huber" else y
    expected = adam_by_hand(start, X, target, 3, 8, 0.01, seed=6, loss=twin)
    torch.testing.assert_close(weights(found.module), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("clip", [0.1, 5.0])
@pytest.mark.parametrize("kind", TWINS)
def test_every_rows_gradient_of_the_loss_is_clipped(monkeypatch, kind, clip):
    loss, make, twin = TWINS[kind]
    start, (X, y) = start_network(), make(20)
    base = DPSGD(epochs=3, batch_size=5, max_grad_norm=clip, lr=0.1, epsilon=math.inf)
    draws = record_draws(monkeypatch)
    found = run_only(base, start, X, y, seed=2, loss=loss)
    expected = clipped_descent(start, X, y, draws, clip, 0.1, expected=5.0, loss=twin)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_network_that_has_run_away_is_still_clipped(kind):
    """Log-means of about 1000: e^f is infinite, the clipped gradients and the weights are not."""
    loss, make, _ = TWINS[kind]
    X, y = make(20)
    start = linear(3).float()
    nn.init.constant_(start.weight, 1e3)
    y = (X.sum(dim=1) < 0).double() if kind == "logistic" else y  # every class is wrong
    base = DPSGD(epochs=2, batch_size=5, max_grad_norm=0.5, lr=0.1, epsilon=math.inf)
    moved = run_only(base, start, X, y, loss=loss) - weights(start)
    assert torch.isfinite(moved).all()
    steps = base.mechanism(20).steps
    assert 0 < float(moved.norm()) <= 0.1 * 0.5 * 20 * steps / 5 + 0.1  # and float32's rounding
