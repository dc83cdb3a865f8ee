"""A cluster of processes: answers of one machine, also where a worker is killed on the way."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from lazyknife import LazyJackknifeRegressor, compare_methods, wide
from lazyknife.compute import connected, side_by_side

pytestmark = pytest.mark.slow
PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    own = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**own, silence_logs=50) as found:
        yield found


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as found:
        found.wait_for_workers(2)
        yield found


@pytest.fixture(scope="module")
def rows() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + (0.3 + 0.3 * (X[:, 2] > 0)) * rng.normal(size=len(X))
    new = rng.normal(size=(600, 4))
    terms: dict[str, Any] = {"construction": "plus", "random_state": 0}  # as "auto" with Dask
    return X, y, new, LazyJackknifeRegressor(network=wide("laplace"), **terms).fit(X, y)


def fitted(X: Any, y: Any) -> LazyJackknifeRegressor:
    parts = da.from_array(X, chunks=(200, 4)), da.from_array(y, chunks=200)
    return LazyJackknifeRegressor(network=wide("laplace"), random_state=0).fit(*parts)


KILLS = pytest.mark.skipif(os.name != "posix", reason="signals")


@contextmanager
def a_worker_killed(client: Client, task: str) -> Iterator[None]:
    """Kill a worker as soon as the scheduler knows of a task of this name."""
    tasks, done = client.cluster.scheduler.tasks, threading.Event()
    known = set(tasks)
    workers = list(client.run(os.getpid).values())

    def kill() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if any(task in str(key) for key in list(tasks) if key not in known):
                os.kill(workers[0], signal.SIGKILL)
                done.set()
                return
            time.sleep(0.001)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert done.is_set(), f"there was no task {task}"


def check_same(ends: Any, expected: Any) -> None:
    assert np.allclose(ends, expected.to_numpy(), rtol=1e-10, atol=1e-10)


def test_a_cluster_gives_the_answers_of_one_machine(client: Client, rows: tuple[Any, ...]) -> None:
    X, y, new, model = rows
    found, expected = fitted(X, y), model.predict_interval(new)
    check_same(found.predict_interval(new).to_numpy(), expected)
    check_same(found.predict_interval(da.from_array(new, chunks=(100, 4))).compute(), expected)


@KILLS
@pytest.mark.parametrize("task", ["sums_of", "left_of", "extent_of", "members_of"])
def test_a_worker_killed_in_fit_changes_nothing(client: Client, rows: Any, task: str) -> None:
    X, y, new, model = rows
    with a_worker_killed(client, task):
        found = fitted(X, y)
    check_same(found.predict_interval(new).to_numpy(), model.predict_interval(new))
    assert str(found.certificate_) == str(model.certificate_)


@KILLS
@pytest.mark.parametrize("task", ["_eta", "concatenate"])
def test_a_worker_killed_in_predict_changes_nothing(client: Client, rows: Any, task: str) -> None:
    X, y, new, model = rows
    found = fitted(X, y)
    with a_worker_killed(client, task):
        ends = found.predict_interval(da.from_array(new, chunks=(50, 4)), alpha=0.2).compute()
    check_same(ends, model.predict_interval(new, alpha=0.2))


def test_levels_that_were_not_used_before_the_client_was_closed_are_refused(
    cluster: LocalCluster, rows: tuple[Any, ...]
) -> None:
    X, y, new, _ = rows
    with Client(cluster):
        model = fitted(X, y)
        before = model.predict_interval(new).to_numpy()
    assert np.array_equal(model.predict_interval(new).to_numpy(), before)
    for again in (new, da.from_array(new, chunks=(200, 4))):
        with pytest.raises(ValueError, match=r"alpha: .* once before .* the cluster is closed"):
            model.predict_interval(again, alpha=0.3)
    far = model.predict_interval(1e3 * new)  # wider than with all models
    assert np.isfinite(far.to_numpy()).all()


def test_calls_run_on_the_workers(cluster: LocalCluster) -> None:
    found = set(side_by_side(os.getpid, [()] * 6, 1, cluster.scheduler_address))
    assert os.getpid() not in found


def test_a_comparison_on_a_cluster_is_that_of_processes(cluster: LocalCluster) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    terms = {"methods": ("naive",), "folds": 2, "epochs": 1}
    here = compare_methods(X, X[:, 0], **terms, jobs=1)
    there = compare_methods(X, X[:, 0], **terms, scheduler=cluster.scheduler_address)
    assert (there["error"] == "").all()
    assert np.allclose(here[["coverage", "width"]], there[["coverage", "width"]], rtol=1e-4)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyknife.compute.CONNECT", 0.5)
    with (
        pytest.raises(ValueError, match=r"scheduler='tcp://127.0.0.1:9' does not answer"),
        connected("tcp://127.0.0.1:9"),
    ):
        pass
