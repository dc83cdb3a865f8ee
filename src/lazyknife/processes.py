"""Calls side by side in processes of their own, which end with the process that started them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")
CONNECT = 10.0  # seconds to wait for a scheduler
INSTALL = "pip install 'lazyknife[dask]'"
PATIENCE = 1.0  # seconds between looks at the parent


def side_by_side(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    jobs: int,
    scheduler: str | None = None,
) -> Iterator[Result]:
    """Yield the results of many calls as they end, each in a process with one thread.

    With the address of a Dask scheduler they run on its workers, all of which are used.
    """
    from joblib import Parallel, delayed, parallel_config

    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(connected(scheduler))
            stack.enter_context(parallel_config(backend="dask"))
            jobs = -1
        else:
            watching = {"initializer": watch, "initargs": (os.getpid(),)}
            one_thread = parallel_config(backend="loky", inner_max_num_threads=1, **watching)
            stack.enter_context(one_thread)
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(function)(*call) for call in calls)


@contextmanager
def connected(scheduler: str) -> Iterator[Any]:
    """A client of a Dask scheduler."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(f"scheduler={scheduler!r} needs Dask: {INSTALL}") from error
    try:
        client = Client(scheduler, timeout=CONNECT)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"scheduler={scheduler!r} does not answer: give the address that dask-scheduler "
            f"prints, such as tcp://10.0.0.1:8786 ({type(error).__name__}: {error})"
        ) from error
    with client:
        yield client


def watch(parent: int) -> None:
    """Make this process end within seconds after its parent, however that ended."""

    def end_with_parent() -> None:
        while os.getppid() == parent:  # until another process adopts this one
            time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
