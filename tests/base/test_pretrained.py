"""A base learnt from covariates alone: what is trained, on what, and what is left untouched."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from descents import adam, squared_error, start_network, weights
from lazyknife import LazyJackknifeRegressor
from lazyknife.base import Pretrained, Public
from lazyknife.base.method import Task
from lazyknife.base.pretrained import find_head
from lazyknife.certificate import certify
from lazyknife.networks import Averaged, seeded, spawn_seeds
from lazyknife.records import INDEPENDENT
from rows import linear
from zoo import Net

QUICK = Pretrained(epochs=3, batch_size=8, lr=1e-2)
START = start_network(widths=(5, 4))  # no base changes it


def covariates(n: int = 30, *shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, *(shape or (3,)), dtype=torch.float64, generator=generator)


def task(start: nn.Module, rows: Tensor | None, seed: int = 3, label: float = 0.0) -> Task:
    """Training rows and labels that have nothing to do with the covariates."""
    X = torch.full((6, 3), label, dtype=torch.float64)
    return Task(start, X, X[:, 0], seed, len(X), covariates=rows)


def learn(start: nn.Module, rows: Tensor, seed: int = 3, base: Pretrained = QUICK) -> nn.Module:
    return base.learn(task(start, rows, seed)).module


# --- what is trained ----------------------------------------------------------------------------


def slow_autoencode(start: nn.Sequential, X: Tensor, base: Pretrained, seed: int) -> nn.Sequential:
    """Adam written out on the reconstruction error, for a sequence of layers."""
    module = copy.deepcopy(start)
    with seeded(seed):
        flat = X.reshape(len(X), -1)
        decoder = nn.Linear(module[-1].in_features, flat.shape[1]).double()
        moved = [*module[:-1].parameters(), *decoder.parameters()]
        orders = [torch.randperm(len(X)) for _ in range(base.epochs)]
    batches = [batch for order in orders for batch in order.split(base.batch_size)]
    adam(lambda b: squared_error(decoder(module[:-1](X[b])), flat[b]), moved, batches, base.lr)
    return module


@pytest.mark.parametrize("number", range(6))
def test_training_is_that_of_the_slow_twin(number):
    rng = np.random.default_rng(number)
    n, features, units, batch = (int(k) for k in rng.integers(2, 12, size=4))
    start = start_network(features, (units, units + 1), number)
    X = covariates(n, features, seed=number)
    base = Pretrained(epochs=3, batch_size=batch, lr=3e-3)
    fast, slow = learn(start, X, number, base), slow_autoencode(start, X, base, number)
    torch.testing.assert_close(weights(fast), weights(slow), rtol=1e-9, atol=1e-12)
    assert not torch.equal(weights(fast), weights(start))
    with seeded(number):  # rows may have any shape
        layers = nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, 1)
    start, X = nn.Sequential(*layers).double(), covariates(n, 2, 4, 4)
    fast, slow = learn(start, X, number, base), slow_autoencode(start, X, base, number)
    torch.testing.assert_close(weights(fast), weights(slow), rtol=1e-9, atol=1e-12)


def test_a_linear_body_learns_the_principal_components():
    """No k units rebuild more of the rows than k principal components, and training gets there."""
    with seeded(0):
        start = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 1)).double()
    X = covariates(200, 6) @ torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.5, 0.3, 0.2]).double())
    spectrum = torch.linalg.svdvals(X - X.mean(dim=0)).square()
    least = float(spectrum[2:].sum()) / X.numel()
    base = Pretrained(epochs=300, batch_size=200, lr=0.03)
    module = base.learn(task(start, X)).module
    hidden = torch.cat([module[0](X), torch.ones(len(X), 1).double()], dim=1).detach()
    left = X - hidden @ torch.linalg.lstsq(hidden, X).solution
    assert least <= float(left.square().mean()) * (1 + 1e-9) <= 1.05 * least


@pytest.mark.parametrize(("epochs", "batch"), [(1, 30), (2, 7)])
def test_the_error_told_is_that_of_the_last_epoch(epochs, batch):
    """With a step too small to move anything it is that of the start and the decoder's start."""
    start, X = START, covariates()
    details = Pretrained(epochs=epochs, batch_size=batch, lr=1e-12).learn(task(start, X)).details
    with seeded(3):
        decoder = nn.Linear(4, 3).double()
    error = float((decoder(start[:-1](X)) - X).detach().square().mean())
    assert details["error"] == pytest.approx(error, rel=1e-6)
    assert (details["objective"], details["covariates"], details["seed"]) == ("autoencode", 30, 3)


def test_each_network_of_a_mean_is_trained_on_its_own():
    X = covariates()
    start = Averaged([start_network(widths=(5, 4), seed=seed) for seed in range(3)])
    base = QUICK.learn(task(start, X))
    seeds = spawn_seeds(3, 3)
    alone = [QUICK.learn(task(m, X, seed)) for m, seed in zip(start.members, seeds, strict=True)]
    assert torch.equal(weights(base.module), torch.cat([weights(b.module) for b in alone]))
    assert base.details["error"] == pytest.approx(np.mean([b.details["error"] for b in alone]))


def head_first() -> nn.Module:
    """The last layer is the first to be registered, and a layer on the side takes no part in it."""
    layers = {"head": nn.Linear(4, 1), "body": nn.Linear(3, 4), "side": nn.Linear(3, 1)}
    return Net(lambda net, x: (net.side(x) + net.head(net.body(x).tanh())).squeeze(1), **layers)


def test_the_last_layer_to_run_keeps_its_start_and_its_body_moves():
    with seeded(0):
        other = head_first().double()
    assert find_head(other, covariates(2)) is other.head
    for start, fixed in ((START, "4."), (other, ("head.", "side."))):
        trained = learn(start, covariates())
        for name, before in start.named_parameters():
            assert torch.equal(trained.get_parameter(name), before) == name.startswith(fixed), name


def test_a_network_that_works_in_place_is_shown_its_own_rows():
    plain, inplace = (nn.Sequential(nn.ReLU(inplace), *START) for inplace in (False, True))
    X = covariates()
    before = X.clone()
    assert torch.equal(weights(learn(plain, X)), weights(learn(inplace, X)))
    assert torch.equal(X, before)


def test_statistics_of_norms_stay_and_dropout_is_on():
    with seeded(0):
        layers = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)
    start = nn.Sequential(*layers).double().eval()
    start[1].running_mean.fill_(0.3)
    trained = learn(start, covariates())
    assert torch.equal(trained[1].running_mean, start[1].running_mean)
    assert torch.equal(trained[1].running_var, start[1].running_var)
    assert not any(part.training for part in trained.modules())
    without = copy.deepcopy(start)
    without[2].p = 0.0
    assert not torch.equal(weights(trained), weights(learn(without, covariates())))


# --- on what ------------------------------------------------------------------------------------


def test_neither_labels_nor_training_rows_are_looked_at():
    one, two = (QUICK.learn(task(START, covariates(), label=label)) for label in (0.0, np.nan))
    assert torch.equal(weights(one.module), weights(two.module))


def test_the_order_of_the_rows_does_not_count(monkeypatch):
    """The law is symmetric: other order, and shuffles that undo it, give the same weights."""
    start, X = START, covariates(20)
    moved = torch.randperm(20, generator=torch.Generator().manual_seed(5))
    first = learn(start, X)
    assert not torch.allclose(weights(first), weights(learn(start, X[moved])))
    shuffle, back = torch.randperm, torch.argsort(moved)
    monkeypatch.setattr(
        torch, "randperm", lambda n, generator: back[shuffle(n, generator=generator)]
    )
    assert torch.equal(weights(first), weights(learn(start, X[moved])))


def test_every_epoch_shows_every_row_once_in_an_order_of_its_own():
    shown: list[Tensor] = []
    start = nn.Sequential(nn.Identity(), *START)
    start[0].register_forward_pre_hook(lambda _, args: shown.append(args[0][:, 0]))
    X = covariates(20)
    learn(start, X, base=Pretrained(epochs=2, batch_size=6))
    batches = shown[3:]  # the others look for the last layer, its width, and dropout
    assert [len(batch) for batch in batches] == [6, 6, 6, 2] * 2
    epochs = torch.cat(batches).split(20)
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, X[:, 0].sort().values)
    assert not torch.equal(*epochs)


def test_the_first_rows_are_seen_no_more_often_than_the_others():
    def add_up(net: nn.Module, x: Tensor) -> Tensor:
        if net.training:
            net.seen += x.detach().sum(dim=0)
        return x

    memory = Net(add_up, seen=nn.Buffer(torch.zeros(3, dtype=torch.float64)))
    trained = learn(nn.Sequential(memory, *START), covariates())
    torch.testing.assert_close(trained[0].seen, QUICK.epochs * covariates().sum(dim=0))


def test_nothing_is_taken_from_the_certificate():
    base = QUICK.learn(task(START, covariates()))
    assert base.dependence == QUICK.dependence(100) == INDEPENDENT
    pretrained, public = (certify(n=100, alpha=0.1, base=b) for b in (QUICK, Public()))
    assert pretrained.coverage == public.coverage > 0.8
    assert QUICK.assumptions == ()
    assert QUICK.uses_covariates
    assert not Public().uses_covariates


def test_the_estimator_hands_over_the_scaled_covariates():
    X, y = linear(90)
    model = LazyJackknifeRegressor(base=QUICK, scaling="standardize", random_state=0)
    for others in ({"X_unlabeled": X[40:]}, {"X_pool": X[40:]}):
        fitted = model.fit(X[:40], y[:40], **others)
        seen = X[40:] if "X_unlabeled" in others else X
        scaled = (seen - seen.mean(axis=0)) / seen.std(axis=0)
        by_hand = learn(fitted.start_, torch.from_numpy(scaled), fitted.seeds_.base)
        torch.testing.assert_close(weights(fitted.base_.module), weights(by_hand))
        assert fitted.certificate_.coverage > 0.8
    with pytest.raises(ValueError, match="X_pool"):
        model.fit(X, y)


# --- what is refused ----------------------------------------------------------------------------


def test_without_covariates_or_with_integer_codes_it_says_what_to_pass():
    with pytest.raises(ValueError, match=r"X_pool.*X_unlabeled.*X alone would be a leak"):
        QUICK.learn(task(START, None))
    with pytest.raises(ValueError, match=r"torch\.int64.*integer codes"):
        QUICK.learn(task(START, torch.arange(30).reshape(10, 3)))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv1d(1, 1, 3), nn.Flatten()],  # no linear layer
        [
            nn.Flatten(),
            nn.Linear(3, 4),
            Net(lambda _, x: x.sum(dim=1)),
        ],  # one, but with four outputs
    ],
)
def test_networks_that_do_not_end_in_a_linear_layer_are_refused(layers):
    start = nn.Sequential(*layers).double()
    with pytest.raises(ValueError, match=r"does not end in a torch\.nn\.Linear with one output"):
        learn(start, covariates(10, 1, 3))
    assert not any(part._forward_hooks for part in start.modules())


@pytest.mark.parametrize("frozen", [False, True])
def test_networks_without_a_free_body_are_refused(frozen):
    start = copy.deepcopy(START) if frozen else start_network(widths=())
    if frozen:
        start[:-1].requires_grad_(False)
    with pytest.raises(ValueError, match="no free parameter before its last layer"):
        learn(start, covariates())


def test_divergence_is_told():
    with pytest.raises(ValueError, match=r"diverged \(lr=0\.01\).*standardize"):
        learn(copy.deepcopy(START).float(), 1e30 * covariates())
