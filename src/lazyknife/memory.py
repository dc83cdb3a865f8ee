"""Memory that is free on this machine, found without loading torch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SYSTEM_MEMORY, CONTROL_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
UNKNOWN_MEMORY = 8 * 2**30  # where the system does not report it


def free_bytes(system: Path = SYSTEM_MEMORY, group: Path = CONTROL_GROUP) -> int:
    """Bytes of main memory that can still be allocated."""
    return min(_free_on_the_system(system), _free_in_the_container(group))


def _free_on_the_system(report: Path) -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = report.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvail"))
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN_MEMORY


def _free_in_the_container(group: Path) -> int:
    """Bytes that a control group leaves; without one there is no such limit."""
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        return max(0, limit - int((group / "memory.current").read_text()))
    return 2**63
