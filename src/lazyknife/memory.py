"""Main memory, free and in all, and errors where it ran out, without loading torch."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

LIBRARIES = 1.5e9  # bytes of address space with which torch and pandas can be loaded
CONTROL_GROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 2**63
# How torch, numpy and the loader of libraries say so, and how much was asked for.
RAN_OUT = re.compile(r"(?:ried|nable) to allocate ([\d.]+ \w+)|out of memory|failed to map segment")


class NotEnoughMemory(MemoryError, ValueError):
    """What was asked for does not fit."""


def noticing_memory(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a function: any error of allocation is NotEnoughMemory."""

    @functools.wraps(function)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except NotEnoughMemory:
            raise
        except (MemoryError, RuntimeError, ImportError, OSError) as error:
            found = RAN_OUT.search(str(error))
            if found is None and not isinstance(error, MemoryError):
                raise
            asked = f" ({found[1]} were asked for)" if found and found[1] else ""
            raise NotEnoughMemory(
                f"memory ran out{asked}: use fewer rows or features, a smaller memory budget, or a "
                "machine with more memory"
            ) from error

    return wrapped


def check_room() -> None:
    """Refuse to load torch where it would be aborted, or wait for ever, for lack of room."""
    left = _address_space()
    if "torch" not in sys.modules and left < LIBRARIES:
        raise NotEnoughMemory(
            f"{left / 1e9:.2g} GB of address space are left (ulimit -v), and loading torch and "
            f"pandas takes {LIBRARIES / 1e9:.2g} GB: raise the limit"
        )


def free_bytes(group: Path = CONTROL_GROUP) -> int:
    """Bytes that can still be allocated, in the container too that a control group may be."""
    in_group = _number(group / "memory.max", NO_LIMIT) - _number(group / "memory.current", 0)
    return max(0, min(int(psutil.virtual_memory().available), in_group, _address_space()))


def total_bytes(group: Path = CONTROL_GROUP) -> int:
    """Bytes in all, at most what a container may use; unlike what is free, they do not change."""
    return min(int(psutil.virtual_memory().total), _number(group / "memory.max", NO_LIMIT))


def _address_space() -> int:
    """Bytes that ``ulimit -v`` leaves to this process."""
    with suppress(ImportError, AttributeError, OSError):  # systems without such limits
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            return limit - int(psutil.Process().memory_info().vms)
    return NO_LIMIT


def _number(file: Path, otherwise: int) -> int:
    """What a file of a control group says, which psutil does not look at; it may say "max"."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return otherwise
