"""How the process's threads share the work: by independent pieces, each of one thread.

torch's own threads wait for each other, spinning, at the end of every operation: where operations
are small, or other processes are busy, that takes longer than one thread alone. A thread of Python
takes torch's setting for new threads at its first use of torch, and keeps it: blocks change the
setting of their own threads only.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
LARGE = 1024  # rows of a matrix from which on torch's threads are worth their waiting


def _own_settings() -> tuple[Callable[[int], object], ...]:
    """What sets the calling thread's number in the libraries that torch computes with."""
    names = [
        "omp_set_num_threads",
        *["MKL_Set_Num_Threads_Local"] * torch.backends.mkl.is_available(),
    ]
    try:
        library = ctypes.CDLL(torch._C.__file__)
        return tuple(getattr(library, name) for name in names)
    except (AttributeError, OSError):  # built in another way
        return ()


OWN = _own_settings()
_changing = threading.Lock()


def set_here(count: int, own: Sequence[Callable[[int], object]] = OWN) -> None:
    """Set how many threads torch uses in this thread, not in others.

    ``torch.set_num_threads`` also sets the number of threads that have not used torch yet. Where
    there is no other way, one of these puts it back at once.
    """
    if torch.get_num_threads() == count:
        return
    for setting in own:
        setting(count)
    if torch.get_num_threads() == count:
        return
    with _changing, ThreadPoolExecutor(1) as other:
        default = other.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        other.submit(torch.set_num_threads, default).result()


class _Setting:
    """torch's number of threads: the user's, and what it is within blocks."""

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def one(self, unless: bool = False) -> Iterator[int]:
        """Within the block torch uses one thread; yields how many pieces may run side by side."""
        if unless:
            yield 1
            return
        outer: int | None = getattr(self._here, "allowed", None)
        users = torch.get_num_threads()
        self._here.allowed = users if outer is None else outer
        set_here(1)
        try:
            yield self._here.allowed
        finally:
            self._here.allowed = outer
            if outer is None:
                set_here(users)

    def share(self) -> None:
        """Let this thread, which ends with its work, share it with others."""
        self._here.allowed = 1
        set_here(1)

    @property
    def allowed(self) -> int:
        """How many pieces of work of this thread may run side by side."""
        return getattr(self._here, "allowed", None) or torch.get_num_threads()


_setting = _Setting()
one_thread = _setting.one


def available() -> int:
    """How many pieces of work may run side by side."""
    return _setting.allowed


def few_threads(rows: int) -> AbstractContextManager[int]:
    """Within the block torch uses one thread, unless matrices of so many rows are large."""
    return one_thread(unless=rows >= LARGE)


def shared_map(
    work: Callable[[Item], Result], items: Sequence[Item], most: int
) -> Iterator[Result]:
    """Results of independent pieces of work, in their order, at most so many side by side."""
    if min(most, len(items)) <= 1:
        yield from map(work, items)
        return
    with one_thread() as allowed:
        if allowed == 1:
            yield from map(work, items)
            return
        count, waiting = min(allowed, most), deque[Future[Result]]()
        with ThreadPoolExecutor(count, initializer=_setting.share) as pool:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 2 * count:  # results do not pile up
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
