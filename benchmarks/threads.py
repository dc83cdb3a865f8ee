"""A fit and its intervals with one thread and with two, on a quiet machine and beside other work.

    python -m benchmarks.threads            # prints the ratios of two threads to one

Every measurement is a process of its own on the same two cores; "busy": two other processes use
them all the time.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHAPES = ((400, 14), (1500, 50), (4000, 50))  # rows and features
NEW_ROWS = 1000
JOB = """
import logging, sys, time, warnings
import numpy as np, torch
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
from lazyknife import LazyJackknifeRegressor
threads, n, features, new = map(int, sys.argv[1:])
torch.set_num_threads(threads)
rng = np.random.default_rng(0)
X = rng.normal(size=(n + new, features))
y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.45 * rng.normal(size=n + new)
LazyJackknifeRegressor(random_state=0).fit(X[:30], y[:30])  # what only the first fit does
start = time.perf_counter()
LazyJackknifeRegressor(random_state=0).fit(X[:n], y[:n]).predict_interval(X[n:])
print(time.perf_counter() - start)
"""


def threads(repeats: int) -> list[dict[str, Any]]:
    """Ratios of two threads to one, measured in turn."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    return [
        row(n, features, busy, repeats)
        for (n, features), busy in itertools.product(SHAPES, (False, True))
    ]


def row(n: int, features: int, busy: bool, repeats: int) -> dict[str, Any]:
    """The median and the quartiles of one comparison."""
    with load(2 if busy else 0):
        pairs = [[seconds(count, n, features) for count in (1, 2)] for _ in range(repeats)]
    ratios = [two / one for one, two in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "what": "two threads ÷ one, beside two busy processes" if busy else "two threads ÷ one",
        "setting": f"default fit and {NEW_ROWS:,} intervals, n = {n:,}",
        **{
            name: float(f"{value:.3g}")
            for name, value in (("ratio", middle), ("low", low), ("high", high))
        },
    }


def seconds(count: int, n: int, features: int) -> float:
    """Time of one fit with so many threads, in a new process."""
    asked = map(str, (count, n, features, NEW_ROWS))
    run = subprocess.run([sys.executable, "-c", JOB, *asked], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return float(run.stdout)


@contextmanager
def load(count: int) -> Iterator[None]:
    """Within the block so many other processes are busy."""
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()


def spin() -> None:
    """Work until killed."""
    while True:
        sum(range(10**6))


if __name__ == "__main__":
    for found in threads(3):
        print(found)
