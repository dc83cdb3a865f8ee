"""Where the linear algebra runs: device, precision, and how much memory a block may take.

A fit holds one or two matrices that it cannot do without: n×n in the dual form, (features + 1)×n in
the primal one. Everything else, features kept for later and the temporaries of every loop, stays
within ``Machine.budget`` bytes, whatever the number of rows.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CPU = torch.device("cpu")
# Types of the solution and of predictions.
PRECISIONS = {
    "float64": (torch.float64, torch.float64),
    "mixed": (torch.float64, torch.float32),
    "float32": (torch.float32, torch.float32),
    "tf32": (torch.float32, torch.float32),
}
Device = str | torch.device
# Share of the free memory that blocks may take when nothing else is asked for.
BUDGET_SHARE = 0.25
UNKNOWN_MEMORY = 8 * 2**30  # where the system does not tell
# Temporaries of this size stay in a processor's caches; a GPU wants them large.
CACHED_BYTES = 2 * 2**20
GPU_BYTES = 2 * 2**30
# Least and most rows of a block of predictions, and how many numbers it should hold.
ROWS_AT_ONCE = (256, 2048, 2**20)
GPU_ROWS_AT_ONCE = (1024, 2**16, 2**28)

# The C library (glibc) gives freed memory back to the system above a limit that follows the largest
# block freed so far. One large block, never touched, teaches it to keep ours: without that, every
# temporary costs a page fault for each 4 KiB.
torch.empty(31 * 2**20, dtype=torch.uint8)


class NotEnoughMemory(MemoryError, ValueError):
    """What was asked for cannot fit, found before anything was computed."""


class _SharedSetting:
    """torch's precision of float32 products, which is one for all threads.

    Threads that want the same one work side by side; one that wants another waits until they are
    done, and later comers wait behind it. The user's own comes back with the last to leave.
    """

    def __init__(self) -> None:
        self._queue = threading.Lock()
        self._left = threading.Condition()
        self._workers = 0
        self._users = self._now = ""
        self._thread = threading.local()

    @contextmanager
    def at(self, wanted: str) -> Iterator[None]:
        """Run a block at this precision; one within another may want another."""
        outer: str | None = getattr(self._thread, "at", None)
        if outer == wanted:
            yield
            return
        if outer is not None:  # nothing of that block runs during this one
            self._leave()
        self._enter(wanted)
        self._thread.at = wanted
        try:
            yield
        finally:
            self._leave()
            if outer is not None:
                self._enter(outer)
            self._thread.at = outer

    def _enter(self, wanted: str) -> None:
        with self._queue, self._left:
            self._left.wait_for(lambda: not self._workers or self._now == wanted)
            if not self._workers:
                self._users = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision(wanted)
                self._now = wanted
            self._workers += 1

    def _leave(self) -> None:
        with self._left:
            self._workers -= 1
            if not self._workers:
                torch.set_float32_matmul_precision(self._users)
                self._left.notify_all()


_PRODUCTS = _SharedSetting()


@dataclass(frozen=True)
class Machine:
    """The device and number type of all linear algebra, and the bytes that blocks may take.

    Attributes
    ----------
    device, dtype
        Where, and in which floating type.
    tf32
        Whether the device may round the factors of float32 products to TF32.
    budget
        Bytes for everything but the matrices named above.
    predicting
        The floating type of predictions, if it is another one.

    """

    device: torch.device = CPU
    dtype: torch.dtype = torch.float64
    tf32: bool = False
    budget: int = 2**30
    predicting: torch.dtype | None = None

    @property
    def item(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def epsilon(self) -> float:
        """Relative rounding error of one operation."""
        return 1e-3 if self.tf32 else torch.finfo(self.dtype).eps

    @property
    def precision(self) -> str:
        """Name of the precision."""
        if self.predicting is not None:
            return "mixed"
        return "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")

    @property
    def exact(self) -> Machine:
        """The same machine without TF32."""
        return replace(self, tf32=False)

    def of_type(self, dtype: torch.dtype) -> Machine:
        """The same machine with another floating type for everything."""
        return replace(self, dtype=dtype, tf32=False, predicting=None)

    @property
    def on_cpu(self) -> bool:
        """Whether the device is the processor."""
        return self.device.type == "cpu"

    @property
    def kept(self) -> int:
        """Bytes for features that are kept."""
        return self.budget // 2

    @property
    def block(self) -> int:
        """Bytes for the temporaries of a loop."""
        return self.budget // 4

    @property
    def tile(self) -> int:
        """Bytes of a temporary that several cheap operations share."""
        return max(1, min(CACHED_BYTES if self.on_cpu else GPU_BYTES, self.budget // 16))

    def rows_at_once(self, columns: int, bytes_each: int) -> int:
        """Rows of a block so wide that keep the products fast and the block within its bytes."""
        least, most, entries = ROWS_AT_ONCE if self.on_cpu else GPU_ROWS_AT_ONCE
        wanted = min(max(entries // columns, least), most)
        return max(1, min(wanted, self.block // bytes_each))

    def put(self, X: Tensor) -> Tensor:
        """Bring a tensor here; integer codes stay integers."""
        if X.is_floating_point():
            return X.to(self.device, self.dtype)
        return X.to(self.device)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Within the block, matrix products run at this machine's precision."""
        if self.dtype == torch.float64:  # torch's setting is about float32 alone
            yield
            return
        with _PRODUCTS.at("high" if self.tf32 else "highest"):
            yield

    def check_fits(self, needed: int, what: str, remedy: str) -> None:
        """Refuse, before computing, what does not fit beside the budget."""
        free = free_memory(self.device)
        if needed + self.budget > free:
            if needed < free:
                remedy = f"give a smaller memory_budget, or {remedy}"
            raise NotEnoughMemory(
                f"{what} needs {needed:,} bytes, and memory_budget={self.budget:,} more for "
                f"blocks, but {free:,} are free on {self.device}: {remedy}"
            )


PROCESSOR = Machine()


def machine_for(device: Any, precision: Any, memory_budget: Any) -> Machine:
    """Return the machine for an estimator's settings."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: choose from {list(PRECISIONS)}")
    chosen = find_device(device)
    if memory_budget is None:
        budget = int(BUDGET_SHARE * free_memory(chosen))
    elif isinstance(memory_budget, Real) and 1 <= float(memory_budget) < math.inf:
        budget = int(float(memory_budget))
    else:
        raise ValueError(f"memory_budget={memory_budget!r}: give a number of bytes, or None")
    solving, predicting = PRECISIONS[precision]
    other = None if predicting == solving else predicting
    return Machine(chosen, solving, precision == "tf32", budget, other)


def find_device(device: Any) -> torch.device:
    """``"auto"`` is the GPU where there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device={device!r}: give 'auto', 'cpu', 'cuda' or a torch.device"
        ) from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r}: only 'cpu' and 'cuda' have all that is needed")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: torch sees no GPU here; use 'auto' or 'cpu'")
    return found


_WAKING = threading.Lock()  # filters of warnings are those of all threads


@cache
def wake(device: torch.device) -> None:
    """Let torch set up its threads for derivatives on a GPU, of which it warns the first time."""
    if device.type == "cuda":
        with _WAKING, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Attempting to run cuBLAS", UserWarning)
            x = torch.ones(2, 2, device=device, requires_grad=True)
            (x @ x).sum().backward()


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on the device."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return min(_free_on_the_system(), _free_in_the_container())


def _free_on_the_system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return UNKNOWN_MEMORY


def _free_in_the_container() -> int:
    """Bytes that a control group leaves; without one there is no such limit."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        return max(0, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        return 2**63


def blocks(total: int, bytes_each: int, limit: int) -> Iterator[slice]:
    """Split ``range(total)`` so that no block needs more than the limit, but holds at least one."""
    return steps(total, max(1, limit // max(bytes_each, 1)))


def steps(total: int, size: int) -> Iterator[slice]:
    """Split ``range(total)`` into runs of the same size."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))
