"""Predictions change nothing that another call can see, and fits in threads are independent."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyknife as lk
from lazyknife.losses import Huber
from lazyknife.networks import make
from rows import linear
from tangents import ended
from zoo import Remembers, branches, scaled, tied, two

THREADS = 8
X, Y = linear(24)
NEW = linear(5, seed=1)[0]
# Filters of warnings are one for all threads, and every package that silences a warning of its own
# changes them: which warnings are seen here is left to chance, and none is an error.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _interrupted_often() -> Iterator[None]:
    """Threads take turns a hundred times as often as by themselves, and torch adds no others."""
    interval, inner = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(5e-5)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(inner)
    sys.setswitchinterval(interval)


@pytest.fixture(autouse=True)
def _random_states_are_kept() -> Iterator[None]:
    """No fit and no prediction of any test changes torch's or numpy's global random state."""
    torch.manual_seed(11)
    np.random.seed(11)
    before, numpys = torch.get_rng_state(), np.random.get_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
    for kept, now in zip(numpys, np.random.get_state(), strict=True):
        np.testing.assert_array_equal(kept, now)


def in_threads(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Results of the jobs, done in threads that begin together; any error is raised here."""
    start = threading.Barrier(THREADS)

    def work(mine: list[Callable[[], Any]]) -> list[Any]:
        start.wait(timeout=60)
        return [job() for job in mine]

    with ThreadPoolExecutor(THREADS) as pool:
        done = list(pool.map(work, [jobs[k::THREADS] for k in range(THREADS)]))
    return [done[k % THREADS][k // THREADS] for k in range(len(jobs))]


def intervals(model: Any, rows: Any) -> np.ndarray:
    made = model.predict_interval(rows)
    return np.stack([made.point, made.lower, made.upper])


def check_same(actual: Any, expected: Any, err_msg: str = "") -> None:
    """Bit for bit, where the libraries have one thread, as in ``make test``.

    With several ones a product is divided as these are free, and rounds accordingly.
    """
    close = 0.0 if os.environ.get("OMP_NUM_THREADS") == "1" else 1e-3
    np.testing.assert_allclose(actual, expected, rtol=close, atol=close, err_msg=err_msg)


LAZY = {"network": lk.mlp((6,)), "base": lk.Public(), "alpha": 0.2, "random_state": 0}
TRAINED = {"network": lk.mlp((6,)), "epochs": 1, "alpha": 0.2, "random_state": 0}


def lazy(**settings: Any) -> lk.LazyJackknifeRegressor:
    return lk.LazyJackknifeRegressor(**LAZY | settings)


ESTIMATORS: dict[str, Any] = {
    "default": lk.LazyJackknifeRegressor(alpha=0.2, random_state=0),
    "DPLazyPI": lk.DPLazyPI(alpha=0.2, random_state=0),
    "network": lazy(readout="network", widths="constant"),
    "leverage": lazy(widths="leverage"),
    "starts": lazy(n_starts=3),
    "last layer": lazy(parameters="last"),
    "sketch": lazy(features=lk.Sketch(8)),
    "huber": lazy(loss="huber"),
    "standardised": lazy(scaling="standardize"),
    **{c: lazy(construction=c, folds=4) for c in ("minmax", "full", "cv+", "jackknife", "naive")},
    "jackknife by refits": lk.JackknifeRegressor(**TRAINED),
    "CV+ by refits": lk.CVPlusRegressor(**TRAINED, folds=4),
    "split conformal": lk.SplitConformalRegressor(**TRAINED),
}


def dropping(features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 1))


RNG = np.random.default_rng(2)
PICTURES = torch.from_numpy(RNG.normal(size=(24, 1, 4, 4)))
CODES = torch.from_numpy(RNG.integers(0, 7, size=(24, 2)))
NETWORKS: dict[str, tuple[Any, Any]] = {
    "mlp with a skip": (lk.mlp((5,), skip=True), X),
    "in place": (lambda _: two(nn.ReLU(True), nn.Linear(4, 4), nn.ReLU(True)), X),
    "tied": (tied, X),
    "cannot be batched": (lambda _: branches(), X),
    "without a formula": (lambda _: scaled(), X),
    "dropout": (dropping, X),
    "remembers": (lambda _: Remembers(), X),
    "norms": (lambda _: two(nn.BatchNorm1d(4).eval()), X),
    "convolution": (lambda _: ended(8, nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True)), PICTURES),
    "embedding": (lambda _: ended(6, nn.Embedding(7, 3, max_norm=1.0)), CODES),
}


CASES = {name: (model, X) for name, model in ESTIMATORS.items()}
for name, (network, rows) in NETWORKS.items():
    moved = lazy(network=network, ridge=5.0, readout="network", widths="constant")
    trained = lk.SplitConformalRegressor(**TRAINED | {"network": network})
    around = {"tangent": lazy(network=network), "moved network": moved, "split": trained}
    if name in ("tied", "cannot be batched"):
        around["refits"] = lk.JackknifeRegressor(**TRAINED | {"network": network})
    CASES |= {f"{name}, {how}": (model, rows) for how, model in around.items()}


@pytest.mark.parametrize("name", CASES)
def test_models_predict_in_threads_as_they_do_alone(name: str) -> None:
    """Many threads at once get what one gets, whatever they ask, and leave the model as it was."""
    model, rows = CASES[name]
    model, new = model.fit(rows, Y), NEW if rows is X else rows[:5]
    asks = [
        lambda: intervals(model, new),
        lambda: np.asarray(model.predict(new)),
        lambda: model.predict_interval(new[:3], alpha=[0.2, 0.3]).to_numpy(),
        lambda: np.concatenate([r.lower for r in model.predict_interval(iter([new] * 2))]),
    ]
    expected = [ask() for ask in asks]
    for k, result in enumerate(in_threads(asks * THREADS)):
        check_same(result, expected[k % len(asks)])
    for ask, values in zip(asks, expected, strict=True):
        check_same(ask(), values)


# Fits

NOISY: dict[str, Any] = {"noise_multiplier": 1.0, "epochs": 2, "batch_size": 8}
PLAIN = lk.Plain(epochs=2)
BASES = [lk.Public(), lk.DPSGD(**NOISY), PLAIN, lk.Split(training=PLAIN)]
BASES += [lk.Perturbed(1.0, 1.0, training=PLAIN)]
MAKERS: dict[str, Callable[..., Any]] = {
    **{
        type(base).__name__: partial(
            lk.LazyJackknifeRegressor, base=base, ridge=1.0, widths="constant"
        )
        for base in BASES
    },
    **{
        kind.__name__: partial(kind, epochs=2)
        for kind in (lk.JackknifeRegressor, lk.CVPlusRegressor, lk.SplitConformalRegressor)
    },
}
LEARNERS: dict[str, Any] = {
    "mlp": lk.mlp((64, 64, 64)),  # its constructor draws from torch's global random state
    "dropout": dropping,
    "one module for all": dropping(3),
}


@pytest.mark.parametrize(
    "network",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "dropout")) for name in LEARNERS],
)
def test_fits_in_threads_equal_fits_alone_bit_for_bit(network: str) -> None:
    """All ways to fit at once, those that draw random numbers in training among them."""
    model = lazy(network=dropping).fit(X, Y)

    def job(name: str, seed: int) -> Callable[[], np.ndarray]:
        terms = {"network": LEARNERS[network], "alpha": 0.2, "random_state": seed}
        return lambda: intervals(MAKERS[name](**terms).fit(X, Y, X_pool=NEW), NEW)

    first, second = ([job(name, seed) for name in MAKERS] for seed in (0, 1))
    jobs = [*first, *second, lambda: intervals(model, NEW)]  # and some predict meanwhile
    alone = [ask() for ask in jobs]
    if network != "one module for all":  # which is a start without a seed
        assert not any(map(np.array_equal, alone[: len(first)], alone[len(first) :]))
    for expected, result in zip(alone * 2, in_threads(jobs * 2), strict=True):
        check_same(result, expected)


def test_private_fits_of_networks_that_draw_nothing_run_side_by_side() -> None:
    """Each waits in a step until the other is in one too: neither holds a lock meanwhile."""
    meeting = threading.Barrier(2, timeout=60)

    class Meets(Huber):
        def training(self, f: Tensor, y: Tensor) -> Tensor:
            meeting.wait()
            return super().training(f, y)

    def fit(seed: int) -> None:
        rows, y = torch.from_numpy(X), torch.from_numpy(Y)
        start = make(lk.mlp((6,)), rows, seed)
        lk.DPSGD(**NOISY).fit(start, rows, y, seed=seed, loss=Meets())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fit, range(2)))


def test_bars_of_several_threads_do_not_disturb_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    streams = sys.stdout, sys.stderr

    def fit() -> np.ndarray:
        return intervals(lazy(base=lk.Plain(epochs=3), verbose=True).fit(X, Y), NEW)

    expected = fit()
    for result in in_threads([fit] * THREADS):
        check_same(result, expected)
    assert (sys.stdout, sys.stderr) == streams
    assert capsys.readouterr().err.count("training") >= THREADS
