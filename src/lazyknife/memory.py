"""Main memory of this machine, free and in all, found without loading torch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SYSTEM_MEMORY, CONTROL_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
UNKNOWN_MEMORY = 8 * 2**30  # where the system does not report it


def free_bytes(system: Path = SYSTEM_MEMORY, group: Path = CONTROL_GROUP) -> int:
    """Bytes that can still be allocated."""
    used = _number(group / "memory.current") or 0
    left = max(0, _limit(group) - used)
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


def _number(file: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
