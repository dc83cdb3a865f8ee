"""Devices, precisions and budgets of memory, and loops that stay within them."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyknife as lk
from lazyknife import compute
from lazyknife.compute import CPU, Machine, NotEnoughMemory, find_device, free_memory, machine_for
from machines import MACHINE
from rows import linear

GPU = torch.device("cuda")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.mark.parametrize("device", ["cpu", CPU])
@pytest.mark.parametrize("precision", compute.PRECISIONS)
@pytest.mark.parametrize("budget", [10**6, 10**9, 2.5e6, np.int64(2**20)])
def test_settings_make_a_machine(device: str | torch.device, precision: str, budget: float) -> None:
    made = machine_for(device, precision, budget)
    assert (made.device, made.budget, made.precision) == (CPU, int(budget), precision)
    solved_exactly = precision in ("float64", "mixed", "network")
    assert made.dtype == (torch.float64 if solved_exactly else torch.float32)
    assert made.predicting == (torch.float32 if precision == "mixed" else None)
    assert made.passes == (torch.float32 if precision == "network" else None)
    assert made.tf32 == (precision == "tf32")
    assert made.item == (8 if solved_exactly else 4)
    rounding = 2.0**-52 if solved_exactly else 1e-3 if made.tf32 else 2.0**-23
    assert made.epsilon == rounding


def test_without_a_budget_it_is_a_share_of_the_free_memory() -> None:
    budget = machine_for("cpu", "float64", None).budget
    assert budget == pytest.approx(compute.BUDGET_SHARE * free_memory(CPU), rel=0.2)


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert find_device("auto") == torch.device(device)


WRONG: dict[str, list[object]] = {
    "device": ["tpu", None, 1.5],
    "precision": ["float16", None, torch.float32, ["float64"]],
    "memory_budget": [0, -1, 0.5, 1000, 999_999, float("nan"), float("inf"), "1GB", True],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_wrong_settings_are_refused_by_name_and_value(name: str, value: object) -> None:
    asked = {"device": "cpu", "precision": "float64", "memory_budget": None} | {name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}")):
        machine_for(**asked)
    with pytest.raises(ValueError, match=r"\['float64', 'mixed', 'network', 'float32', 'tf32'\]"):
        machine_for("cpu", "half", None)


@without_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0", GPU])
def test_a_gpu_that_is_not_there_is_refused(device: str | torch.device) -> None:
    with pytest.raises(ValueError, match=re.escape(f"device={device!r}: torch finds no GPU")):
        find_device(device)


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


@given(total=st.integers(0, 200), size=st.integers(1, 250))
def test_steps_cover_everything_once(total: int, size: int) -> None:
    parts = list(compute.steps(total, size))
    assert [i for part in parts for i in range(total)[part]] == list(range(total))
    assert all(part.stop - part.start == size for part in parts[:-1])
    assert all(0 < part.stop - part.start <= size for part in parts)


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


def test_products_run_at_the_machines_precision_and_may_be_nested(users_precision: str) -> None:
    for machine, within in WITHIN.items():
        with machine.products(), MACHINE.products():  # float64 leaves the setting alone
            assert precision() == within
        assert precision() == users_precision
    with MACHINE.products():
        assert precision() == users_precision
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


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lk.LazyJackknifeRegressor(base=lk.DPSGD(), ridge=30.0), ["private training"]),
        (lk.LazyJackknifeRegressor(base=lk.Plain(), ridge=30.0), ["training"]),
        (lk.LazyJackknifeRegressor(), ["predicting"]),
        (lk.CVPlusRegressor(epochs=1), ["training networks"]),
    ],
)
def test_estimators_show_their_long_loops(
    model: Any, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = linear(30)
    many = np.repeat(X, 100, axis=0)  # in several blocks
    model.set_params(progress=True).fit(X, y).predict_interval(many)
    err = capsys.readouterr().err
    assert all(word in err for word in words)
