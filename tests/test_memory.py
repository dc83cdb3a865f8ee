"""Memory of the system, of a container and of a process, and what happens where it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from sklearn.preprocessing import FunctionTransformer

from lazyknife import LazyJackknifeRegressor, mlp
from lazyknife.memory import NotEnoughMemory, free_bytes, total_bytes


def test_the_systems_memory_and_a_containers_limit_count(tmp_path: Path) -> None:
    assert 0 < free_bytes(tmp_path) <= psutil.virtual_memory().total  # without a group
    assert free_bytes() <= free_bytes(tmp_path) + 2**30  # others allocate meanwhile
    for (limit, current), free in {("5000\n", "2000\n"): 3000, ("5000\n", "6000\n"): 0}.items():
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(current)
        assert free_bytes(tmp_path) == free
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path) > 6000


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
    everything = psutil.virtual_memory().total
    assert total_bytes(tmp_path) == everything > 2**20
    for limit, total in (("4000", 4000), ("max", everything), (str(2 * everything), everything)):
        (tmp_path / "memory.max").write_text(limit)
        assert total_bytes(tmp_path) == total


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
