"""Devices and budgets of memory, and loops that stay within them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import FunctionTransformer

import lazyknife as lk
from lazyknife import compute
from lazyknife.compute import CPU, Machine, find_device, free_memory, machine_for
from lazyknife.memory import NotEnoughMemory, free_bytes, total_bytes
from machines import MACHINE

GPU = torch.device("cuda")


@pytest.mark.parametrize("device", ["cpu", CPU])
@pytest.mark.parametrize("budget", [10**6, 2.5e6, np.int64(2**20), None])
def test_settings_make_a_machine(device: str | torch.device, budget: float | None) -> None:
    share = compute.BUDGET_SHARE * free_memory(CPU)
    made = machine_for(device, budget)
    assert made == Machine(CPU, made.budget)
    assert made.budget == (int(budget) if budget else pytest.approx(share, rel=0.2))


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        for given in ("cuda", "cuda:0", GPU):
            with pytest.raises(
                ValueError, match=re.escape(f"device={given!r}: torch finds no GPU")
            ):
                find_device(given)
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert find_device("auto") == torch.device(device)


WRONG = [
    *(("device", value) for value in ("tpu", None, 1.5)),
    *(("memory_budget", value) for value in (0, -1, 0.5, 999_999, "1GB", True)),
    *(("memory_budget", float(value)) for value in ("nan", "inf")),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_settings_are_refused_by_name_and_value(name: str, value: object) -> None:
    asked = {"device": "cpu", "memory_budget": None} | {name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}")):
        machine_for(**asked)


def test_what_does_not_fit_is_refused_with_the_bytes_and_a_remedy() -> None:
    small = Machine(budget=4_000)
    small.check_fits(6_000, "the kernel", "use fewer rows", free=10_000)  # just so
    for error in (NotEnoughMemory, MemoryError, ValueError):
        with pytest.raises(error) as caught:
            small.check_fits(11_000, "the kernel", "use fewer rows", free=10_000)
        assert str(caught.value) == (
            "the kernel needs 11,000 bytes, and memory_budget=4,000 more for blocks, but 10,000 "
            "are free on cpu: use fewer rows"
        )
    with pytest.raises(NotEnoughMemory, match="give a smaller memory_budget, or use fewer rows"):
        small.check_fits(6_001, "the kernel", "use fewer rows", free=10_000)


@given(total=st.integers(0, 200), each=st.integers(0, 50), limit=st.integers(0, 300))
def test_blocks_cover_everything_once_within_the_limit(total: int, each: int, limit: int) -> None:
    parts = list(compute.blocks(total, each, limit))
    assert [i for part in parts for i in range(total)[part]] == list(range(total))
    for part in parts:
        count = part.stop - part.start
        assert count == 1 or 1 < count * each <= limit or each == 0 < count <= limit
    if len(parts) > 1 and each:  # no more blocks than it takes
        assert (parts[0].stop + 1) * each > limit


@settings(max_examples=200)
@given(
    device=st.sampled_from([CPU, GPU]),
    budget=st.integers(1, 2**40),
    columns=st.integers(1, 10**6),
    bytes_each=st.integers(1, 10**8),
)
def test_rows_at_once_stay_within_their_bounds_and_bytes(
    device: torch.device, budget: int, columns: int, bytes_each: int
) -> None:
    made = Machine(device=device, budget=budget)
    least, most, entries = (compute.ROWS_AT_ONCE, compute.GPU_ROWS_AT_ONCE)[device != CPU]
    rows = made.rows_at_once(columns, bytes_each)
    assert 1 <= rows <= most
    assert rows * bytes_each <= made.block or rows == 1
    if rows < least:  # only because more would not fit
        assert (rows + 1) * bytes_each > made.block
    if rows > least:
        assert rows * columns <= entries
    assert made.kept + made.block <= budget
    assert 1 <= made.tile <= max(1, made.block)


def test_put_makes_numbers_float64_and_keeps_the_type_of_codes() -> None:
    for kind in (torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8):
        put = MACHINE.put(torch.arange(3).to(kind))
        assert put.device.type == MACHINE.device.type
        assert put.dtype == (torch.float64 if kind.is_floating_point else kind)
        assert put.tolist() == [0, 1, 2]


@pytest.mark.parametrize("rich", [True, False])
def test_progress_is_shown_on_stderr_if_asked_for_with_and_without_rich(
    rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert list(compute.track(iter("abc"), "work", 3, show=False)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")
    assert list(compute.track(iter("abc"), "work", 3, show=True)) == ["a", "b", "c"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "work" in err
    assert "left" in err or rich


# Memory of the system, of a container and of a process, and what happens where it ends.


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_systems_memory_and_a_containers_limit_count(tmp_path: Path) -> None:
    everything = psutil.virtual_memory().total
    assert 0 < free_bytes(tmp_path) <= everything  # without a group
    assert free_bytes() <= free_bytes(tmp_path) + 2**30  # others allocate meanwhile
    assert total_bytes(tmp_path) == everything >= total_bytes() >= free_bytes()
    for limit, current, free, total in (
        ("5000\n", "2000\n", 3000, 5000),
        ("5000\n", "6000\n", 0, 5000),
        (str(2 * everything), "0", None, everything),
        ("max\n", "0", None, everything),
    ):
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(current)
        found = free_bytes(tmp_path)
        assert found == free or (free is None and found > 6000)
        assert total_bytes(tmp_path) == total
    code = "import sys, lazyknife.memory as m; print(m.free_bytes() > 0, 'torch' in sys.modules)"
    assert run(code).split() == ["True", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_what_a_limit_of_the_process_leaves_counts() -> None:
    printed = run("""
import resource, lazyknife.memory as m
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, resource.RLIM_INFINITY))
print(m.free_bytes())
""")
    assert 0 < int(printed) <= 2**27


@pytest.mark.parametrize("call", ["fit", "predict", "predict_interval"])
def test_torchs_errors_of_allocation_are_errors_of_memory(call: str) -> None:
    def greedy(rows: Any) -> Any:
        return torch.empty(2**60, dtype=torch.uint8) if asked else rows

    X, y = np.arange(12.0).reshape(6, 2) % 5, np.arange(6.0)
    model = lk.LazyJackknifeRegressor(
        network=lk.mlp((2,)), scaling=FunctionTransformer(greedy), alpha=0.5
    )
    asked = False
    model.fit(X, y, X_pool=X)
    asked = True
    arguments = (X, y, X) if call == "fit" else (X,)
    with pytest.raises(NotEnoughMemory, match=rf"memory ran out \({2**60} bytes were asked for\)"):
        getattr(model, call)(*arguments)
