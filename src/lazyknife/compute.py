"""Where the linear algebra runs, in float64: device, memory, progress.

A fit holds one or two matrices that it cannot do without: n×n in the dual form, (features + 1)×n in
the primal one. Everything else, features kept for later and the temporaries of every loop, stays
within ``Machine.budget`` bytes, whatever the number of rows.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .memory import NotEnoughMemory, free_bytes, total_bytes
from .threads import shared_map

CPU = torch.device("cpu")
Device = str | torch.device
Item = TypeVar("Item")
Result = TypeVar("Result")
LEAST_BUDGET = 10**6  # bytes; with less, loops over single rows take most of the time
BUDGET_SHARE = 0.25  # of the free memory, that blocks may take by default
# Temporaries of this size stay in a processor's caches; a GPU needs large ones.
CACHED_BYTES, GPU_BYTES = 2 * 2**20, 2 * 2**30
# Least and most rows of a block of predictions, and how many numbers it should hold.
ROWS_AT_ONCE = (256, 2048, 2**20)
GPU_ROWS_AT_ONCE = (1024, 2**16, 2**28)

# glibc returns freed memory to the system above a threshold set by the largest block freed so far.
# Freeing a large one raises it: otherwise every temporary costs a page fault for each 4 KiB.
torch.empty(31 * 2**20, dtype=torch.uint8)


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
        fitting = self.block // (self.item * max(1, numbers))
        return shared_map(work, items, max(1, fitting) if self.on_cpu else 1)

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
        budget = int(BUDGET_SHARE * free_memory(chosen))
    elif isinstance(memory_budget, Real) and LEAST_BUDGET <= memory_budget < 2**63:  # type: ignore[operator]
        budget = int(memory_budget)  # type: ignore[call-overload]
    else:
        raise ValueError(
            f"memory_budget={memory_budget!r}: give a number of bytes of at least "
            f"{LEAST_BUDGET:,}, or None"
        )
    return Machine(chosen, budget)


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


_WAKING = threading.Lock()  # filters of warnings are shared by all threads


@cache
def wake(device: torch.device) -> None:
    """Let torch set up its threads for derivatives on a GPU, without its first-time warning."""
    if device.type == "cuda":
        with _WAKING, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS", UserWarning)
            x = torch.ones(2, 2, device=device, requires_grad=True)
            (x @ x).sum().backward()


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return free_bytes()


def total_memory(device: torch.device) -> int:
    """Bytes of the device; on the processor at most what its container may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return total_bytes()


def called(work: Callable[[], Result]) -> Result:
    """What a piece of work returns, for ``Machine.map``."""
    return work()


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
