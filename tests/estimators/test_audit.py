import copy

import numpy as np
import pytest
import torch
from scipy.stats import binom
from sklearn.base import clone

import lazyknife as lk
import reference
from descents import Moved
from lazyknife.estimators.paper import clopper_pearson_upper
from rows import linear

X, Y = linear(24)
NEW = linear(15, seed=1)[0]


def model(base, **settings):
    chosen = {"ridge": 2.0, "readout": "tangent", "random_state": 0, "alpha": 0.2} | settings
    return lk.LazyJackknifeRegressor(lk.mlp((4,)), base, **chosen)


@pytest.mark.parametrize("base", [lk.Public(), lk.Split()])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ridge": "auto"},
        {"scaling": "standardize"},  # fitted on the new rows too
        {"construction": "full"},
        {"construction": "cv+", "folds": 6},
    ],
)
def test_a_base_that_ignores_the_row_is_perfectly_stable(base, settings):
    audit = lk.audit_stability(model(base, **settings), X, Y, NEW, refits=5, nu=0.0)
    assert audit.eta.tolist() == audit.eta_in_sample.tolist() == [0.0]
    assert audit.lemma == 0.0


@pytest.mark.parametrize("scaling", [None, "standardize"])
@pytest.mark.parametrize("base", [lk.DPSGD(epochs=1), Moved()])
def test_independent_noise_or_other_covariates_make_a_base_unstable(base, scaling):
    """The first is the paper's own setting."""
    audit = lk.audit_stability(model(base, scaling=scaling), X, Y, NEW, refits=5, nu=[0.0, 1e9])
    assert audit.eta.tolist() == [1.0, 0.0]
    assert audit.eta_upper[0] == 1.0


def recording(kind, seen):
    """Return a base of this kind that keeps the tasks it was given and the modules it learnt."""

    class Recording(kind):
        def learn(self, task):
            base = super().learn(task)
            seen.append((task, copy.deepcopy(base.module)))
            return base

    return Recording


@pytest.mark.parametrize("kind", [lk.Plain, Moved])
def test_differences_equal_explicit_refits(kind):
    """One refit of a base without noise: both models written out."""
    seen = []
    base = recording(kind, seen)(epochs=3, lr=0.02)
    settings = {"refits": 1, "nu": np.linspace(0, 2, 401), "random_state": 8}
    audit = lk.audit_stability(model(base, fit_intercept=False), X, Y, NEW, **settings)
    left_out = int(np.random.default_rng(8).integers(24))
    kept = np.arange(24) != left_out

    def lazy(module, new):
        rows = torch.from_numpy(X[kept])
        targets = Y[kept] - reference.outputs(module, rows)
        move, _ = reference.ridge_fit(reference.jacobian(module, rows), targets, 2.0, False)
        return reference.outputs(module, new) + reference.jacobian(module, new) @ move

    (_, with_all), (task, without) = seen
    for rows, found in ((NEW, audit.eta), (X[~kept], audit.eta_in_sample)):
        new = torch.from_numpy(rows)
        differences = np.abs(lazy(with_all, new) - lazy(without, new))
        np.testing.assert_allclose(found, [(differences > nu / 2).mean() for nu in audit.nu])
    assert audit.lemma is None
    assert "without privacy" in str(audit)
    assert audit.eta[1:].max() > 0
    np.testing.assert_array_equal(task.X, X[kept])
    if base.uses_covariates:
        np.testing.assert_array_equal(task.covariates, np.concatenate([X[kept], NEW]))


def test_refits_share_the_start_run_the_same_mechanism_and_draw_their_own_noise():
    seen = []
    lk.audit_stability(model(recording(lk.DPSGD, seen)(epochs=1)), X, Y, NEW, refits=4)
    first, *refits = [task for task, _ in seen]
    assert [(len(task.X), task.n) for task in refits] == [(23, 24)] * 4
    assert len({task.seed for task, _ in seen}) == 5
    for task in refits:
        pairs = zip(task.start.parameters(), first.start.parameters(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


def test_the_result_is_ready_for_certify_and_for_print():
    base = lk.DPSGD(epochs=1)
    audit, again = (
        lk.audit_stability(model(base), X, Y, NEW, refits=3, random_state=0) for _ in range(2)
    )
    eta, nu = audit.eta_upper[-1], audit.nu[-1]
    assert "paper" in lk.certify(n=24, alpha=0.1, base=base, eta=eta, nu=nu).bounds
    assert "3 refits" in str(audit)
    assert (np.diff(audit.eta) <= 0).all()
    np.testing.assert_array_equal(audit.eta, again.eta)


def test_no_bound_is_below_its_estimate():
    """The bound counts one new row for each refit, which may lie on the lucky side."""
    asked, lucky = model(lk.DPSGD(epochs=1, lr=0.05)), 0
    for seed in range(12):
        settings = {"refits": 2, "nu": np.linspace(0, 0.5, 40), "random_state": seed}
        audit = lk.audit_stability(asked, X, Y, NEW, **settings)
        assert (audit.eta_upper >= audit.eta).all()
        assert audit.eta_upper.min() >= clopper_pearson_upper(np.array([0]), 2, 0.95) - 1e-12
        lucky += ((audit.eta_upper == audit.eta) & (audit.eta < 1)).any()
    assert lucky


@pytest.mark.slow
def test_privacy_bridges_in_sample_and_out_of_sample_stability():
    """The paper's lemma: 2ε + δ under replacing a row; without privacy they differ by far more."""
    rng = np.random.default_rng(0)
    rows, levels = rng.normal(size=(120, 5)), {"nu": [0.05, 0.1, 1.5], "refits": 40}
    y = rows[:40, 0] + rng.normal(size=40)
    private = lk.DPLazyPI(network=lk.mlp((16,)), readout="tangent", epochs=2, random_state=0)
    memorising = clone(private).set_params(base=lk.Plain(epochs=150, lr=0.02))
    found, naked = (
        lk.audit_stability(each, rows[:40], y, rows[40:], random_state=0, **levels)
        for each in (private, memorising)
    )
    epsilon, delta = lk.DPSGD(epochs=2).dependence(40).replace_one
    assert found.lemma == pytest.approx(2 * epsilon + delta)
    allowed = found.lemma + 0.32  # four standard deviations of a share of 40 refits
    assert np.abs(found.eta - found.eta_in_sample).max() <= allowed
    assert np.abs(naked.eta - naked.eta_in_sample).max() > allowed
    large = clone(private).set_params(base=lk.DPSGD(epsilon=5.0, epochs=1))
    assert lk.audit_stability(large, X, Y, NEW, refits=1).lemma == 1.0


def test_clopper_pearson_is_the_exact_bound():
    for trials in (5, 20, 99):
        for successes in range(trials):
            bound = clopper_pearson_upper(np.array(successes), trials, 0.95)
            assert binom.cdf(successes, trials, bound) == pytest.approx(0.05)
        assert clopper_pearson_upper(np.array(trials), trials, 0.95) == 1.0


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        *(({"random_state": seed}, f"={seed!r}: give None") for seed in (-1, "now", 1.5)),
        ({"refits": 0}, "refits=0"),
        ({"nu": -1.0}, r"nu=-1\.0"),
    ],
)
def test_bad_arguments_are_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        lk.audit_stability(model(lk.Public()), X, Y, NEW, **{"refits": 2} | argument)


@pytest.mark.parametrize(
    "settings",
    [
        {"construction": "full", "ridge": "auto"},
        {"construction": "cv+", "folds": 6},
        {"widths": "leverage"},
        {"widths": "leverage", "construction": "minmax"},
        {"construction": "full", "widths": "leverage"},
    ],
)
def test_models_without_one_row_are_audited_whatever_intervals_are_made_of(settings):
    base = lk.Plain(epochs=2, lr=0.02)
    asked = model(base, **settings)
    audit, plain = (
        lk.audit_stability(m, X, Y, NEW, refits=3, random_state=1)
        for m in (asked, model(base, widths="constant", ridge=settings.get("ridge", 2.0)))
    )
    np.testing.assert_array_equal(audit.nu, plain.nu)
    np.testing.assert_array_equal(audit.eta, plain.eta)
    assert audit.eta[0] == 1.0
    assert not hasattr(asked, "loo_")
    assert asked.get_params()["widths"] == settings.get("widths")
