"""Devices, precisions and budgets of memory, and loops that stay within them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyknife import compute as machine
from lazyknife.compute import (
    CPU,
    GPU_ROWS_AT_ONCE,
    ROWS_AT_ONCE,
    Machine,
    NotEnoughMemory,
    blocks,
    find_device,
    free_memory,
    machine_for,
    steps,
)
from machines import MACHINE

GPU = torch.device("cuda")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.mark.parametrize("device", ["cpu", CPU])
@pytest.mark.parametrize("precision", ["float64", "mixed", "float32", "tf32"])
@pytest.mark.parametrize("budget", [1, 10**9, 2.5e6, np.int64(7)])
def test_settings_make_a_machine(device: str | torch.device, precision: str, budget: float) -> None:
    made = machine_for(device, precision, budget)
    assert (made.device, made.budget, made.precision) == (CPU, int(budget), precision)
    solved_exactly = precision in ("float64", "mixed")
    assert made.dtype == (torch.float64 if solved_exactly else torch.float32)
    assert made.predicting == (torch.float32 if precision == "mixed" else None)
    assert made.tf32 == (precision == "tf32")
    assert made.item == (8 if solved_exactly else 4)


def test_without_a_budget_it_is_a_share_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda device: 4000)
    assert machine_for("cpu", "float64", None).budget == 1000


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert find_device("auto") == torch.device(device)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "tpu"),
        ("device", None),
        ("device", 1.5),
        ("precision", "float16"),
        ("precision", None),
        ("precision", torch.float32),
        ("precision", ["float64"]),
        ("memory_budget", 0),
        ("memory_budget", -1),
        ("memory_budget", 0.5),
        ("memory_budget", float("nan")),
        ("memory_budget", float("inf")),
        ("memory_budget", "1GB"),
    ],
)
def test_wrong_settings_are_refused_by_name_and_value(name: str, value: object) -> None:
    asked = {"device": "cpu", "precision": "float64", "memory_budget": None} | {name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}")):
        machine_for(**asked)


def test_precisions_are_listed_when_another_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"\['float64', 'mixed', 'float32', 'tf32'\]"):
        machine_for("cpu", "half", None)


@without_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0", GPU])
def test_a_gpu_that_is_not_there_is_refused(device: str | torch.device) -> None:
    with pytest.raises(ValueError, match=re.escape(f"device={device!r}: torch sees no GPU")):
        find_device(device)


def test_a_coarser_precision_has_a_larger_epsilon() -> None:
    exact, single, tf32 = (machine_for("cpu", p, 1) for p in ("float64", "float32", "tf32"))
    assert exact.epsilon < 1e-15 < single.epsilon < 1e-6 < tf32.epsilon


def test_some_memory_is_free() -> None:
    assert free_memory(MACHINE.device) > 0
    assert isinstance(free_memory(MACHINE.device), int)


def control_group(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> None:
    """Have the package see these files where a container's limits are."""
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    seen = {"/sys/fs/cgroup": folder}
    monkeypatch.setattr(machine, "Path", lambda path: seen.get(path, Path(path)))


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    control_group(monkeypatch, tmp_path, max="5000\n", current="2000\n")
    assert free_memory(CPU) == 3000


def test_a_container_past_its_limit_has_nothing_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    control_group(monkeypatch, tmp_path, max="5000\n", current="6000\n")
    assert free_memory(CPU) == 0


@pytest.mark.parametrize("files", [{}, {"max": "max\n", "current": "2000\n"}, {"max": "5000"}])
def test_without_a_limit_the_system_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str]
) -> None:
    control_group(monkeypatch, tmp_path, **files)
    monkeypatch.setattr(machine, "_free_on_the_system", lambda: 77)
    assert free_memory(CPU) == 77


def test_a_system_that_tells_nothing_still_gives_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / "nothing")
    assert free_memory(CPU) > 0
    monkeypatch.delattr(machine.os, "sysconf", raising=False)
    assert free_memory(CPU) == machine.UNKNOWN_MEMORY


def test_what_does_not_fit_is_refused_with_the_bytes_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda device: 10_000)
    small = Machine(budget=4_000)
    small.check_fits(6_000, "the kernel", "use fewer rows")  # just so
    for error in (NotEnoughMemory, MemoryError, ValueError):
        with pytest.raises(error) as caught:
            small.check_fits(11_000, "the kernel", "use fewer rows")
        assert str(caught.value) == (
            "the kernel needs 11,000 bytes, and memory_budget=4,000 more for blocks, but 10,000 "
            "are free on cpu: use fewer rows"
        )
    with pytest.raises(NotEnoughMemory, match="give a smaller memory_budget, or use fewer rows"):
        small.check_fits(6_001, "the kernel", "use fewer rows")


@given(total=st.integers(0, 200), each=st.integers(0, 50), limit=st.integers(0, 300))
def test_blocks_cover_everything_once_within_the_limit(total: int, each: int, limit: int) -> None:
    parts = list(blocks(total, each, limit))
    assert [i for part in parts for i in range(total)[part]] == list(range(total))
    for part in parts:
        count = part.stop - part.start
        assert count == 1 or 1 < count * each <= limit or each == 0 < count <= limit
    if len(parts) > 1 and each:  # no more blocks than it takes
        assert (parts[0].stop + 1) * each > limit


@given(total=st.integers(0, 200), size=st.integers(1, 250))
def test_steps_cover_everything_once(total: int, size: int) -> None:
    parts = list(steps(total, size))
    assert [i for part in parts for i in range(total)[part]] == list(range(total))
    assert all(part.stop - part.start == size for part in parts[:-1])
    assert all(0 < part.stop - part.start <= size for part in parts)


@settings(max_examples=200)
@given(
    device=st.sampled_from([CPU, GPU]),
    budget=st.integers(1, 2**38),
    columns=st.integers(1, 10**6),
    bytes_each=st.integers(1, 10**8),
)
def test_rows_at_once_stay_within_their_bounds_and_bytes(
    device: torch.device, budget: int, columns: int, bytes_each: int
) -> None:
    made = Machine(device=device, budget=budget)
    least, most, entries = ROWS_AT_ONCE if device == CPU else GPU_ROWS_AT_ONCE
    rows = made.rows_at_once(columns, bytes_each)
    assert 1 <= rows <= most
    assert rows * bytes_each <= made.block or rows == 1
    if rows < least:  # only because more would not fit
        assert (rows + 1) * bytes_each > made.block
    if rows > least:
        assert rows * columns <= entries


@given(device=st.sampled_from([CPU, GPU]), budget=st.integers(1, 2**40))
def test_all_shares_stay_within_the_budget(device: torch.device, budget: int) -> None:
    made = Machine(device=device, budget=budget)
    assert made.kept + made.block <= budget
    assert 1 <= made.tile <= max(1, made.block)


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
@pytest.mark.parametrize(("tf32", "within"), [(False, "highest"), (True, "high")])
def test_products_run_at_the_machines_precision_and_then_at_the_users(
    before: str, tf32: bool, within: str
) -> None:
    made, users = replace(MACHINE, dtype=torch.float32, tf32=tf32), precision()
    torch.set_float32_matmul_precision(before)
    try:
        with made.products():
            assert precision() == within
        assert precision() == before
        with pytest.raises(ZeroDivisionError), made.products():
            raise ZeroDivisionError
        assert precision() == before
    finally:
        torch.set_float32_matmul_precision(users)


def precision() -> str:
    return torch.get_float32_matmul_precision()


SINGLE = replace(MACHINE, dtype=torch.float32)
TF32 = replace(SINGLE, tf32=True)
WITHIN = {SINGLE: "highest", TF32: "high"}


@pytest.fixture
def users_precision() -> Iterator[str]:
    """The user's own setting, which no machine wants."""
    before = precision()
    torch.set_float32_matmul_precision("medium")
    yield "medium"
    torch.set_float32_matmul_precision(before)


def test_products_in_float64_leave_the_setting_alone(users_precision: str) -> None:
    with MACHINE.products():
        assert precision() == users_precision
    with SINGLE.products(), MACHINE.products():
        assert precision() == "highest"


def test_products_may_be_within_products(users_precision: str) -> None:
    with SINGLE.products():
        for inner in (TF32, SINGLE):
            with inner.products():
                assert precision() == WITHIN[inner]
                with SINGLE.products():
                    assert precision() == "highest"
                assert precision() == WITHIN[inner]
            assert precision() == "highest"
        with pytest.raises(ZeroDivisionError), TF32.products():
            raise ZeroDivisionError
        assert precision() == "highest"
    assert precision() == users_precision


def test_threads_have_the_precision_that_they_want(users_precision: str) -> None:
    def work(number: int) -> set[bool]:
        outer, inner = (SINGLE, TF32) if number % 2 else (TF32, SINGLE)
        kept = set()
        for _ in range(10):
            with outer.products():
                for wanted in (outer, inner, outer):
                    with wanted.products():
                        kept.add(precision() == WITHIN[wanted])
                        time.sleep(1e-4)
                        kept.add(precision() == WITHIN[wanted])
        return kept

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(work, range(8))) == {True}
    assert precision() == users_precision


def test_threads_of_one_precision_work_side_by_side(users_precision: str) -> None:
    together = threading.Barrier(4, timeout=10)

    def work(_: int) -> str:
        with TF32.products():
            together.wait()  # breaks unless all four are here
            return precision()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == ["high"] * 4
    assert precision() == users_precision


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_put_takes_its_type_for_numbers_and_keeps_that_of_codes(dtype: torch.dtype) -> None:
    made = replace(MACHINE, dtype=dtype)
    for kind in (torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8):
        X = torch.arange(3).to(kind)
        put = made.put(X)
        assert put.device.type == MACHINE.device.type
        assert put.dtype == (dtype if kind.is_floating_point else kind)
        assert put.tolist() == [0, 1, 2]
