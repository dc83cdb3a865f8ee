"""Main memory, free and in all, and errors where it ran out, without loading torch."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

SYSTEM_MEMORY, CONTROL_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
UNKNOWN_MEMORY = 8 * 2**30  # where the system does not report it
LIBRARIES = 1.5e9  # bytes of address space with which torch and pandas can be loaded
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


def free_bytes(system: Path = SYSTEM_MEMORY, group: Path = CONTROL_GROUP) -> int:
    """Bytes that can still be allocated."""
    used = _number(group / "memory.current") or 0
    left = max(0, min(_limit(group) - used, _address_space()))
    return min(_reported(system, "MemAvail") or _asked(share=2), left)


def total_bytes(system: Path = SYSTEM_MEMORY, group: Path = CONTROL_GROUP) -> int:
    """Bytes in all, at most what a container may use; unlike what is free, they do not change."""
    return min(_reported(system, "MemTotal") or _asked(share=1), _limit(group))


def _reported(report: Path, name: str) -> int | None:
    with suppress(OSError, StopIteration, ValueError):
        lines = report.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
    return None


def _asked(share: int) -> int:
    """A part of what the system says it has."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // share
    return UNKNOWN_MEMORY


def _limit(group: Path) -> int:
    """Bytes that a control group allows; without one there is no such limit."""
    limit = _number(group / "memory.max")
    return 2**63 if limit is None else limit


def _address_space() -> int:
    """Bytes that ``ulimit -v`` leaves to this process; without it there is no such limit."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        return 2**63 if limit == resource.RLIM_INFINITY else limit - used
    return 2**63


def _number(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
