"""Pieces of work on threads and in processes: the same results, and no setting is changed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazyknife import LazyJackknifeRegressor, wide
from lazyknife.compute import (
    LARGE,
    OWN,
    PROCESSOR,
    Machine,
    available,
    few_threads,
    one_thread,
    set_here,
    side_by_side,
)
from rows import linear


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_several_threads_and_errors_end_the_work() -> None:
    start = threading.Barrier(3, timeout=30)  # three pieces run side by side, or none ends

    def work(item: int) -> tuple[int, int]:
        if item < 3:
            start.wait()
        return item, torch.get_num_threads()

    assert list(PROCESSOR.map(work, range(20), numbers=1)) == [(k, 1) for k in range(20)]
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError):
        list(PROCESSOR.map(lambda item: 1 // (item - 3), range(8), numbers=1))
    assert torch.get_num_threads() == available() == 3


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_than_so_many_run_side_by_side(most: int) -> None:
    running, seen, lock = set[int](), list[int](), threading.Lock()

    def work(item: int) -> None:
        with lock:
            running.add(item)
            seen.append(len(running))
        torch.ones(200, 200) @ torch.ones(200, 200)
        with lock:
            running.remove(item)

    machine = Machine(budget=4 * 8 * most)  # a quarter of it for pieces of one number each
    list(machine.map(work, range(12), numbers=1))
    assert max(seen) <= most


def test_pieces_of_pieces_run_one_after_another() -> None:
    def name(_: int) -> str:
        return threading.current_thread().name

    def outer(item: int) -> bool:
        return {name(item)} == set(PROCESSOR.map(name, range(4), numbers=1))

    assert all(PROCESSOR.map(outer, range(4), numbers=1))


def test_blocks_may_be_nested_and_end_in_any_thread() -> None:
    with one_thread():
        assert (available(), torch.get_num_threads()) == (3, 1)
        with few_threads(LARGE - 1):
            assert (available(), torch.get_num_threads()) == (3, 1)
        assert (available(), torch.get_num_threads()) == (3, 1)
    with few_threads(LARGE):
        assert torch.get_num_threads() == 3
    entered, leave = threading.Event(), threading.Event()

    def other() -> int:
        with one_thread():
            entered.set()
            leave.wait(30)
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        with one_thread():
            later = pool.submit(other)
            entered.wait(30)
        leave.set()
        assert later.result() == 3
    assert torch.get_num_threads() == 3


def count_of_a_new_thread() -> int:
    """What a thread finds that has not used torch before."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_threads_that_first_use_torch_within_a_block_keep_the_users_setting() -> None:
    touched, leave = threading.Event(), threading.Event()

    def other() -> tuple[int, int]:
        first = torch.get_num_threads()
        touched.set()
        leave.wait(30)
        with one_thread():
            return first, available()

    with ThreadPoolExecutor(1) as pool:
        with one_thread():
            later = pool.submit(other)
            touched.wait(30)
            counts = Machine(budget=64).map(lambda _: count_of_a_new_thread(), range(4), 1)
            assert set(counts) == {3}
        leave.set()
        assert later.result() == (3, 3)
    assert (torch.get_num_threads(), count_of_a_new_thread()) == (3, 3)


@pytest.mark.parametrize("own", [OWN, ()], ids=["of its libraries", "of torch"])
def test_a_thread_with_its_own_setting_keeps_it_and_does_not_spread_it(own: Any) -> None:
    def other() -> tuple[int, int]:
        set_here(2, own)
        with one_thread():
            allowed = available()
        return allowed, torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(other).result() == (2, 2)
    assert (torch.get_num_threads(), count_of_a_new_thread()) == (3, 3)


@pytest.mark.parametrize("n", [90, 1010])
def test_fits_and_intervals_are_the_same_with_any_number_of_threads(n: int) -> None:
    X, y = linear(n + 300, 2)
    model = LazyJackknifeRegressor([wide("gaussian"), wide("laplace")], random_state=0)
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        intervals = model.fit(X[:n], y[:n]).predict_interval(torch.from_numpy(X[n:]))
        found.append(intervals.to_numpy())
        assert torch.get_num_threads() == count
        assert torch.is_grad_enabled()  # a setting of each thread
        assert not intervals.lower.requires_grad
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-10)


# Workers that end with the process that started them.


SLEEPER = """
import os, time
def sleep(path):
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    time.sleep(600)
"""


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def waits(condition, seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_workers_end_after_their_parent_is_killed(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "main.py").write_text(
        "import sys\nfrom sleeper import sleep\nfrom lazyknife.compute import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    list(side_by_side(sleep, [(sys.argv[1],), (sys.argv[2],)], 2))\n"
    )
    marks = [tmp_path / "one", tmp_path / "two"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "main.py", *map(str, marks)]
    quiet = {"cwd": tmp_path, "env": environment, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as parent:
        assert waits(lambda: all(mark.exists() for mark in marks))
        workers = [int(mark.read_text()) for mark in marks]
        parent.send_signal(signal.SIGKILL)
    assert waits(lambda: not any(map(is_alive, workers)))


def test_one_job_runs_in_this_process():
    assert set(side_by_side(os.getpid, [(), ()], 1)) == {os.getpid()}
