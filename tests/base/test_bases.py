"""Every base: nothing outside is touched, the seed decides, bad settings are refused."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from descents import TWINS, adam, rows, start_network, weights
from lazyknife.base import BASES, DPSGD, Perturbed, Plain, Public, Split
from lazyknife.losses import Squared
from lazyknife.records import INDEPENDENT

NOISY = {"epochs": 2, "noise_multiplier": 2.0}
EACH = {
    "dpsgd": DPSGD(**NOISY),
    "perturbed": Perturbed(sensitivity=0.1, epsilon=1.0),
    "perturbed l1": Perturbed(sensitivity=0.1, epsilon=1.0, norm="l1"),
    "public": Public(),
    "split": Split(),
    "plain": Plain(epochs=2),
}


def fit(name, start, X, y, seed=3, **terms):
    return EACH[name].fit(start, X, y, seed=seed, **terms)


def test_every_base_is_listed_and_tested():
    assert {type(base) for base in EACH.values()} == set(BASES.values())
    for name, base in EACH.items():
        details = fit(name, start_network(), *rows()).details
        assert BASES[details["method"]] is type(base)


WITHOUT = """
import sys
sys.modules["dp_accounting"] = None
import torch, lazyknife as lk
X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
def fit(base):
    return lk.LazyJackknifeRegressor(lk.mlp((4,)), base, random_state=0).fit(X, X[:, 0])
for base in (lk.Public(), lk.Split(), lk.Perturbed(1.0, 1.0), lk.Plain(epochs=1)):
    fit(base)
def certify(base):
    return lk.certify(n=20, alpha=0.1, base=base)
for ask, base in ((fit, lk.DPSGD(noise_multiplier=1.0)), (certify, lk.DPSGD())):
    try:
        ask(base)
    except ImportError as error:
        print(error)
"""


def test_only_private_training_needs_the_extra_and_says_how_to_get_it():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    said = "private training needs dp_accounting: pip install 'lazyknife[dp]'"
    assert done.stdout.splitlines() == [said, said]


@pytest.mark.parametrize("name", EACH)
def test_the_users_start_and_the_global_random_states_are_left_alone(name):
    start, (X, y) = start_network().train(), rows()
    before = copy.deepcopy(start.state_dict())
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()
    fitted = fit(name, start, X, y)
    EACH[name].rows(len(X), 3)
    assert torch.equal(torch.get_rng_state(), torch_before)
    for kept, now in zip(numpy_before, np.random.get_state(), strict=True):
        np.testing.assert_array_equal(kept, now)
    after = start.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert name == "public" or fitted.module is not start
    assert start.training
    assert all(p.grad is None and not hasattr(p, "grad_sample") for p in start.parameters())
    assert not any(p._forward_hooks or p._forward_pre_hooks for p in fitted.module.modules())


@pytest.mark.parametrize("name", EACH)
def test_the_seed_and_nothing_else_decides(name):
    start, (X, y) = start_network(), rows()
    first = weights(fit(name, start, X, y).module)
    torch.rand(5)
    assert torch.equal(first, weights(fit(name, start, X, y, loss=Squared()).module))
    assert torch.equal(first, weights(fit(name, start, X, y, seed=4).module)) == (name == "public")


@pytest.mark.parametrize("name", EACH)
def test_frozen_parameters_stay(name):
    start = start_network(widths=(5, 4))
    start[0].requires_grad_(False)
    trained = fit(name, start, *rows()).module
    assert torch.equal(trained[0].weight, start[0].weight)
    assert not trained[0].weight.requires_grad
    assert torch.equal(trained[2].weight, start[2].weight) == (name == "public")


ASSERTED = {"sensitivity": 1.0, "epsilon": 1.0}
BAD = [
    *((DPSGD, {name: 0}, ValueError, name) for name in ("epsilon", "epochs", "lr")),
    (DPSGD, {"epsilon": "1"}, TypeError, "epsilon"),
    (DPSGD, {"epsilon": 1e-300}, ValueError, r"epsilon=1e-300.*from 1e-06 to 500.*Public\(\)"),
    (DPSGD, {"epsilon": 1e300}, ValueError, r"epsilon=1e\+300.*protect nothing.*math\.inf"),
    (DPSGD, {"delta": 1e-16}, ValueError, "delta=1e-16.*from 1e-10 to 1.*Rounding"),
    (DPSGD, {"batch_size": 2.5}, TypeError, "batch_size"),
    (DPSGD, {"max_grad_norm": -1}, ValueError, "max_grad_norm"),
    (DPSGD, {"noise_multiplier": 1e-300}, ValueError, r"noise_multiplier=1e-300.*math\.inf"),
    (Perturbed, ASSERTED | {"sensitivity": 0.0}, ValueError, "sensitivity"),
    (Perturbed, ASSERTED | {"epsilon": 1e300}, ValueError, "epsilon=.*protect nothing"),
    (Perturbed, ASSERTED | {"norm": "l3"}, ValueError, "norm='l3'.*'l2'"),
    (Split, {"fraction": 1.0}, ValueError, "fraction"),
    (Plain, {"epochs": -1}, ValueError, "epochs"),
    (Plain, {"lr": "fast"}, TypeError, "lr"),
]


@pytest.mark.parametrize(("kind", "arguments", "error", "words"), BAD)
def test_a_bad_argument_is_refused_by_name(kind, arguments, error, words):
    with pytest.raises(error, match=words):
        kind(**arguments)


@pytest.mark.parametrize("name", EACH)
def test_private_bases_say_what_their_guarantee_averages_over_and_what_is_private(name):
    base = EACH[name]
    if not name.startswith(("dpsgd", "perturbed")):
        assert base.remarks == ()
        with pytest.raises(ValueError, match=r"no noise.*DPSGD"):
            base.with_noise(1.0)
        return
    seeds, release, exact = base.remarks
    assert "average over the seeds" in seeds
    assert "not a private release" in release
    assert "exact real numbers" in exact


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
    everything, all_left = DPSGD().rows(n, 0)
    assert list(everything) == list(all_left) == list(range(n))
    assert DPSGD().rows_left(n) == n


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
    assert np.array_equal(Split().rows(50, 1)[0], Split().rows(50, 1)[0])


def test_split_trains_as_plain_does_on_its_rows():
    start, (X, y) = start_network(), rows()
    learn = torch.from_numpy(Split().rows(30, 0)[0])
    fitted = Split(training=Plain(epochs=3)).fit(start, X[learn], y[learn], seed=2)
    plain = Plain(epochs=3).fit(start, X[learn], y[learn], seed=2)
    assert torch.equal(weights(fitted.module), weights(plain.module))
    assert fitted.dependence == Split().dependence(25) == INDEPENDENT
    assert fitted.details["rows_learnt"] == 15


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", TWINS)
def test_plain_is_adam_on_the_loss(kind, center):
    """Only a loss that predicts y itself lets the mean be taken out.

    The twin compares (n,) with (n,): an (n, 1) output must not broadcast to n × n.
    """
    loss, target, twin = TWINS[kind]
    start, (X, y) = start_network(), rows(25)
    y = target(y)
    base = Plain(epochs=3, batch_size=8, lr=0.01)
    found = base.fit(start, X, y, seed=6, center=center, loss=loss)
    y = y - y.mean() if center and loss.identity else y
    module, shuffling = copy.deepcopy(start), torch.Generator().manual_seed(6)
    batches = [b for _ in range(3) for b in torch.randperm(25, generator=shuffling).split(8)]
    parameters = list(module.parameters())
    adam(lambda b: twin(module(X[b]).squeeze(1), y[b]), parameters, batches, 0.01)
    torch.testing.assert_close(weights(found.module), weights(module), rtol=0, atol=1e-10)
    assert found.dependence is None
    assert not found.module.training
