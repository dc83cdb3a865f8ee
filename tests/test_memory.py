"""Memory of the system, of a container and of a process, and what happens where it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import FunctionTransformer

from lazyknife import LazyJackknifeRegressor, mlp
from lazyknife.memory import UNKNOWN_MEMORY, NotEnoughMemory, free_bytes, total_bytes


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_what_a_limit_of_the_process_leaves_counts() -> None:
    code = """
import resource, lazyknife.memory as m
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, resource.RLIM_INFINITY))
print(m.free_bytes())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 2**27


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


@pytest.mark.parametrize("call", ["fit", "predict", "predict_interval"])
def test_torchs_errors_of_allocation_are_errors_of_memory(call: str) -> None:
    def greedy(rows: Any) -> Any:
        return torch.empty(2**60, dtype=torch.uint8) if asked else rows

    X, y = np.arange(12.0).reshape(6, 2) % 5, np.arange(6.0)
    model = LazyJackknifeRegressor(
        network=mlp((2,)), scaling=FunctionTransformer(greedy), alpha=0.5
    )
    asked = False
    model.fit(X, y, X_pool=X)
    asked = True
    arguments = (X, y, X) if call == "fit" else (X,)
    with pytest.raises(NotEnoughMemory, match=rf"memory ran out \({2**60} bytes were asked for\)"):
        getattr(model, call)(*arguments)
