"""The paper's method: its settings, the device that trains it, and units of y."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import descents
import lazyknife as lk
from lazyknife.base import Task
from lazyknife.base.dpsgd import poisson_batches, run_dpsgd
from rows import linear

X, Y = linear(30)
NEW = linear(12, seed=1)[0]


def paper(**settings):
    chosen = {"network": lk.mlp((4,)), "epochs": 1, "epsilon": 1.0, "random_state": 0}
    return lk.DPLazyPI(**chosen | settings)


def test_settings_of_the_base_and_of_the_estimator_are_passed_on():
    model = lk.DPLazyPI(
        epsilon=0.2, delta=0.01, epochs=3, batch_size=4, max_grad_norm=2.0, lr=0.1, device="cpu"
    )
    assert model.base == lk.DPSGD(0.2, 0.01, 3, 4, 2.0, 0.1)
    assert model.device == "cpu"
    with pytest.raises(TypeError, match="alhpa"):
        lk.DPLazyPI(alhpa=0.1)


class Placed(nn.Linear):
    """A network that keeps where it was moved."""

    def to(self, *args, **terms):
        self.places = [*getattr(self, "places", ()), *args]
        return super().to(*args, **terms)


def test_the_network_is_brought_to_the_device_before_it_is_trained():
    """There need not be a GPU: the device of the settings reaches the trainer's network."""
    places = []

    class Seeing(lk.DPSGD):
        def learn(self, task):
            places.append(list(task.start.places))
            return super().learn(task)

    terms = {"ridge": 1.0, "device": "cpu", "random_state": 0}
    model = lk.LazyJackknifeRegressor(lambda p: Placed(p, 1), Seeing(epochs=1), **terms)
    lk.audit_stability(model, X, Y, NEW, refits=1)
    assert places == [[torch.device("cpu")]] * 2  # the fit and the refit


def test_units_of_y_matter_and_the_warning_names_settings_that_help():
    large = 1000 * Y
    with pytest.warns(UserWarning, match="Use readout='tangent', divide y by a fixed unit"):
        wide = paper().fit(X, large).predict_interval(NEW).width
    tangent = paper(readout="tangent", fit_intercept=True)
    narrow = tangent.fit(X, large).predict_interval(NEW).width
    assert np.median(wide) > 10 * np.median(narrow)
    assert np.median(narrow) < 3 * np.ptp(large)


@pytest.mark.parametrize(
    "base", [lk.DPSGD(), lk.Split(), lk.Perturbed(1.0, 1.0), lk.Plain(), descents.Moved()]
)
@pytest.mark.parametrize("network", [lk.wide("laplace"), [lk.wide("relu"), lk.wide("laplace")]])
def test_infinitely_wide_networks_have_nothing_to_train(network, base):
    with pytest.raises(ValueError, match=r"have no weights to train: use base=Public\(\), or"):
        lk.LazyJackknifeRegressor(network, base).fit(X, Y, X_pool=NEW)
    with pytest.raises(ValueError, match="have no weights to train"):
        lk.certify(n=30, alpha=0.1, network=network, base=base)


def test_a_fitted_model_shows_the_papers_bounds():
    model = lk.DPLazyPI(epochs=1, nu=0.25, random_state=0).fit(X, Y)
    expected = lk.certify(n=30, alpha=0.1, base=model.base, eta=0.001, nu=0.25)
    assert model.certify(eta=0.001).bounds == expected.bounds
    assert expected.remarks[-1] in model.certify(eta=0.001).remarks
    assert "ν = 0.5" in model.certify(0.2, eta=0.001, nu=0.5).details
    assert 0 < expected.bounds["paper"] < expected.bounds["paper_literal"]
    assert set(model.certify().bounds) == {"ghost_point"}
    noted = model.set_params(ridge=5.0).fit(X, Y).certify(eta=0.0)
    assert "paper" in noted.bounds
    assert "Set by set_params" in noted.details
    with pytest.raises(ValueError, match=r"eta=-1\.0"):
        model.certify(eta=-1.0)
    other = lk.JackknifeRegressor(lk.mlp((3,)), epochs=1, random_state=0).fit(X, Y)
    assert "paper" not in other.certify(eta=0.0).bounds  # its theorem is not about refits


def test_step_sizes_may_change_over_the_steps():
    """η_t of the paper's Algorithm 1: public, so that the privacy stays as it is."""
    start, (rows, y) = descents.start_network(), descents.rows(20)
    base = lk.DPSGD(epochs=3, batch_size=5, lr=[0.1, 0.02, 0.0005], noise_multiplier=1e-6)
    run = base.mechanism(20)
    batches = list(poisson_batches(20, run, 0))
    found = run_dpsgd(Task(start, rows, y, 0, 20), run, base.lr, batches)
    twin = start
    for t, batch in enumerate(batches):  # 12 steps, 4 at each size
        moved = descents.clipped_descent(twin, rows, y, [batch], 1.0, base.lr[t // 4], 5.0)
        twin = copy.deepcopy(start)
        nn.utils.vector_to_parameters(moved, twin.parameters())
    torch.testing.assert_close(descents.weights(found), descents.weights(twin), rtol=0, atol=1e-5)
    assert base.lr == (0.1, 0.02, 0.0005)
    falling = paper(lr=(0.1, 0.05)).fit(X, Y)
    assert falling.base_.details["lr"] == (0.1, 0.05)
    assert falling.certificate_.coverage == paper().fit(X, Y).certificate_.coverage
    with pytest.raises(ValueError, match="lr=-1"):
        lk.DPSGD(lr=(0.1, -1.0))
