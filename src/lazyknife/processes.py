"""Calls side by side in processes of their own, which end with the process that started them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")
PATIENCE = 1.0  # seconds between looks at the parent


def side_by_side(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[Result]:
    """Yield the results of many calls as they end, each in a process with one thread."""
    from joblib import Parallel, delayed, parallel_config

    watching = {"initializer": watch, "initargs": (os.getpid(),)}
    with parallel_config(backend="loky", inner_max_num_threads=1, **watching):
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(function)(*call) for call in calls)


def watch(parent: int) -> None:
    """Make this process end within seconds after its parent, however that ended."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is another one, which adopted it."""
    while os.getppid() == parent:
        time.sleep(PATIENCE)
    os._exit(1)
