"""The memory of the machine, from what the system and a container report."""

from __future__ import annotations

from pathlib import Path

from lazyknife.compute import CPU, UNKNOWN_MEMORY, free_memory
from lazyknife.memory import total_memory
from machines import MACHINE


def test_it_is_at_least_what_is_free_and_stays_the_same() -> None:
    total = total_memory(MACHINE.device)
    assert total >= free_memory(MACHINE.device)
    assert total_memory(MACHINE.device) == total


def test_it_is_what_the_system_and_the_container_report(tmp_path: Path) -> None:
    system = tmp_path / "meminfo"
    system.write_text("MemTotal:  9 kB\nMemAvailable: 7 kB\n")
    assert total_memory(CPU, system, tmp_path) == 9 * 1024
    for limit, total in (("4000", 4000), ("max", 9 * 1024), ("90000", 9 * 1024)):
        (tmp_path / "memory.max").write_text(limit)
        assert total_memory(CPU, system, tmp_path) == total


def test_without_a_report_it_is_asked_for_or_assumed(tmp_path: Path) -> None:
    found = total_memory(CPU, tmp_path / "none", tmp_path)
    assert found == UNKNOWN_MEMORY or found > 2**20
