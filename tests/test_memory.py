"""Memory of the system and of a container, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lazyknife.memory import UNKNOWN_MEMORY, free_bytes, total_bytes


def test_the_systems_memory_and_a_containers_limit_count(tmp_path: Path) -> None:
    assert free_bytes() > 0
    system, group = tmp_path / "meminfo", tmp_path / "group"
    assert 0 < free_bytes(system, group) < 2**63  # neither file is there
    system.write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\n")
    assert free_bytes(system, group) == 7 * 1024
    group.mkdir()
    limits = {("5000\n", "2000\n"): 3000, ("5000\n", "6000\n"): 0, ("max\n", "2000\n"): 7 * 1024}
    for (limit, current), free in limits.items():
        (group / "memory.max").write_text(limit)
        (group / "memory.current").write_text(current)
        assert free_bytes(system, group) == free


def test_a_system_that_reports_nothing_still_gives_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert free_bytes(tmp_path, tmp_path) == UNKNOWN_MEMORY


def test_all_of_it_is_what_the_system_and_the_container_report(tmp_path: Path) -> None:
    assert total_bytes() >= free_bytes()
    system = tmp_path / "meminfo"
    system.write_text("MemTotal:  9 kB\nMemAvailable: 7 kB\n")
    assert total_bytes(system, tmp_path) == 9 * 1024
    for limit, total in (("4000", 4000), ("max", 9 * 1024), ("90000", 9 * 1024)):
        (tmp_path / "memory.max").write_text(limit)
        assert total_bytes(system, tmp_path) == total
    assert total_bytes(tmp_path / "none", tmp_path / "none") > 2**20


def test_it_loads_no_torch() -> None:
    code = "import sys, lazyknife.memory as m; print(m.free_bytes() > 0, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
