"""How much memory a machine has in all, which, unlike what is free, does not change."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch

from .compute import CONTROL_GROUP, SYSTEM_MEMORY, UNKNOWN_MEMORY


def total_memory(
    device: torch.device, system: Path = SYSTEM_MEMORY, group: Path = CONTROL_GROUP
) -> int:
    """Bytes of the device; on the processor at most what its container may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return min(_of_the_system(system), _of_the_container(group))


def _of_the_system(report: Path) -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = report.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN_MEMORY


def _of_the_container(group: Path) -> int:
    with suppress(OSError, ValueError):
        return int((group / "memory.max").read_text())
    return 2**63
