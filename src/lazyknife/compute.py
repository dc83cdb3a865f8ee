"""Where the work runs: device, memory, threads, processes, progress. All numbers are float64.

A fit holds one or two matrices that it cannot do without: n×n in the dual form, (features + 1)×n in
the primal one. Everything else, features kept for later and the temporaries of every loop, stays
within ``Machine.budget`` bytes, whatever the number of rows.

Threads share the work by independent pieces, each of one thread. torch's own threads wait for each
other, spinning, at the end of every operation: where operations are small, or other processes are
busy, that takes longer than one thread alone. A thread of Python takes torch's setting for new
threads at its first use of torch, and keeps it: blocks change the setting of their own threads
only.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .memory import NotEnoughMemory, free_bytes, total_bytes

CPU = torch.device("cpu")
Device = str | torch.device
Item = TypeVar("Item")
Result = TypeVar("Result")
LEAST_BUDGET = 10**6  # bytes; with less, loops over single rows take most of the time
BUDGET_SHARE = 0.25  # of the free memory, that blocks may take by default
# On a processor and on a GPU: bytes of temporaries, which stay in the former's caches; least and
# most rows of a block of predictions, and how many numbers it should hold.
CACHED_BYTES, GPU_BYTES = 2 * 2**20, 2 * 2**30
ROWS_AT_ONCE, GPU_ROWS_AT_ONCE = (256, 2048, 2**20), (1024, 2**16, 2**28)
LARGE = 1024  # rows of a matrix from which on torch's threads are worth their waiting
CONNECT = 10.0  # seconds to wait for a scheduler
PATIENCE = 1.0  # seconds between looks at the parent of a worker process

# glibc returns freed memory to the system above a threshold set by the largest block freed so far.
# Freeing a large one raises it: otherwise every temporary costs a page fault for each 4 KiB.
torch.empty(31 * 2**20, dtype=torch.uint8)


# Device and memory.


@dataclass(frozen=True)
class Machine:
    """The device of all linear algebra, and the bytes that blocks may take."""

    device: torch.device = CPU
    # Bytes for everything but the matrices named above: half (``kept``) for features that are kept,
    # a quarter (``block``) for the temporaries of a loop.
    budget: int = 2**30
    item: ClassVar[int] = 8  # bytes of a number

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def kept(self) -> int:
        return self.budget // 2

    @property
    def block(self) -> int:
        return self.budget // 4

    @property
    def tile(self) -> int:
        """Bytes of a temporary that several cheap operations share."""
        return max(1, min(CACHED_BYTES if self.on_cpu else GPU_BYTES, self.budget // 16))

    def rows_at_once(self, columns: int, bytes_each: int) -> int:
        """Rows of a block with so many columns, for fast products within the block's bytes."""
        least, most, entries = ROWS_AT_ONCE if self.on_cpu else GPU_ROWS_AT_ONCE
        wanted = min(max(entries // columns, least), most)
        return max(1, min(wanted, self.block // bytes_each))

    def put(self, X: Tensor) -> Tensor:
        """Bring a tensor here; integer codes stay integers."""
        return X.to(self.device, torch.float64 if X.is_floating_point() else X.dtype)

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], numbers: int
    ) -> Iterator[Result]:
        """Results of independent pieces of work, in their order, by the process's threads.

        Each holds so many numbers, which limits how many run side by side; what they compute does
        not depend on that.
        """
        fitting = self.block // (self.item * max(1, numbers)) if self.on_cpu else 1
        count = min(fitting, len(items), available())
        if count <= 1:
            yield from map(work, items)
            return
        waiting = deque[Future[Result]]()

        def share_work() -> None:
            _here.allowed = 1
            set_here(1)

        with one_thread(), ThreadPoolExecutor(count, initializer=share_work) as pool:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 2 * count:  # results do not pile up
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def check_fits(self, needed: int, what: str, remedy: str, free: int | None = None) -> None:
        """Refuse, before computing, what does not fit beside the budget."""
        free = free_memory(self.device) if free is None else free
        if needed + self.budget > free:
            remedy = f"give a smaller memory_budget, or {remedy}" if needed < free else remedy
            raise NotEnoughMemory(
                f"{what} needs {needed:,} bytes, and memory_budget={self.budget:,} more for "
                f"blocks, but {free:,} are free on {self.device}: {remedy}"
            )


PROCESSOR = Machine()


def machine_for(device: Any, memory_budget: Any) -> Machine:
    """Return the machine for an estimator's settings."""
    chosen = find_device(device)
    if memory_budget is None:
        return Machine(chosen, int(BUDGET_SHARE * free_memory(chosen)))
    if not isinstance(memory_budget, Real) or not LEAST_BUDGET <= memory_budget < 2**63:  # type: ignore[operator]
        raise ValueError(
            f"memory_budget={memory_budget!r}: give a number of bytes of at least "
            f"{LEAST_BUDGET:,}, or None"
        )
    return Machine(chosen, int(memory_budget))  # type: ignore[call-overload]


def find_device(device: Any) -> torch.device:
    """``"auto"`` is the GPU where there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r}: give 'auto', or a torch.device of 'cpu' or 'cuda'")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: torch finds no GPU here; use 'auto' or 'cpu'")
    return found


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated."""
    if device.type != "cuda":
        return free_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def total_memory(device: torch.device) -> int:
    """Bytes of the device; on the processor at most what its container may use."""
    gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).total_memory if gpu else total_bytes()


@cache
def wake(device: torch.device) -> None:
    """Let torch set up its threads for derivatives on a GPU, without its first-time warning."""
    if device.type == "cuda":
        with _changing, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS", UserWarning)
            x = torch.ones(2, 2, device=device, requires_grad=True)
            (x @ x).sum().backward()


# Loops.


def blocks(total: int, bytes_each: int, limit: int) -> Iterator[slice]:
    """Split ``range(total)`` so that no block needs more than the limit, but holds at least one."""
    return steps(total, max(1, limit // max(bytes_each, 1)))


def steps(total: int, size: int) -> Iterator[slice]:
    """Split ``range(total)`` into runs of the same size."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def track(items: Iterable[Item], description: str, total: int, show: bool) -> Iterator[Item]:
    """Yield the items; with ``show``, show how far they are and the time left."""
    if not show:
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        start = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            left = (time.monotonic() - start) * (total - done) / done
            shown = f"\r{description}: {done}/{total}, {left:.0f} s left "
            print(shown, end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    else:
        # Lines printed meanwhile go above the bar, for which rich replaces sys.stdout and
        # sys.stderr: bars of several threads must not all do that.
        main = threading.current_thread() is threading.main_thread()
        console = Console(stderr=True)
        with Progress(console=console, redirect_stdout=main, redirect_stderr=main) as bar:
            yield from bar.track(items, total=total, description=description)


# Threads.


# What sets the calling thread's number in the libraries that torch computes with.
OWN: tuple[Callable[[int], object], ...] = ()
with suppress(AttributeError, OSError):  # torch may be built in another way
    _library = ctypes.CDLL(torch._C.__file__)
    _local = (_library.MKL_Set_Num_Threads_Local,) if torch.backends.mkl.is_available() else ()
    OWN = (_library.omp_set_num_threads, *_local)
_changing = threading.Lock()  # of what all threads share
_here = threading.local()  # allowed: within a block, how many pieces of work may run side by side


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


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch uses one thread; ``available`` is still what it was before."""
    outer, users = getattr(_here, "allowed", None), torch.get_num_threads()
    _here.allowed = outer or users
    set_here(1)
    try:
        yield
    finally:
        _here.allowed = outer
        set_here(users)


def few_threads(rows: int) -> AbstractContextManager[None]:
    """Within the block torch uses one thread, unless matrices of so many rows are large."""
    return nullcontext() if rows >= LARGE else one_thread()


def available() -> int:
    """How many pieces of work of this thread may run side by side."""
    return getattr(_here, "allowed", None) or torch.get_num_threads()


# Processes.


def side_by_side(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    jobs: int,
    scheduler: str | None = None,
) -> Iterator[Result]:
    """Yield the results of many calls as they end, each in a process with one thread.

    With the address of a Dask scheduler calls run on its workers, all of which are used.
    """
    from joblib import Parallel, delayed, parallel_config

    watching = {"initializer": _end_with_parent, "initargs": (os.getpid(),)}
    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(connected(scheduler))
            stack.enter_context(parallel_config(backend="dask"))
            jobs = -1
        else:
            stack.enter_context(parallel_config("loky", inner_max_num_threads=1, **watching))
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(function)(*call) for call in calls)


def connected(scheduler: str) -> AbstractContextManager[Any]:
    """A client of a Dask scheduler."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(
            f"scheduler={scheduler!r} needs Dask: pip install 'lazyknife[dask]'"
        ) from error
    try:
        client: AbstractContextManager[Any] = Client(scheduler, timeout=CONNECT)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"scheduler={scheduler!r} does not answer: give the address that dask-scheduler "
            f"prints, such as tcp://10.0.0.1:8786 ({type(error).__name__}: {error})"
        ) from error
    return client


def _end_with_parent(parent: int) -> None:
    """Make this process end within seconds after its parent, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:  # until another process adopts this one
            time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
