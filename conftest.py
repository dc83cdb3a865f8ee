"""For all tests: names of cases that are the same in every process."""

from __future__ import annotations

from typing import Any

LONGEST = 40


def pytest_make_parametrize_id(val: Any, argname: str) -> str | None:
    """Name bytes, whose text may hold the time, after their argument."""
    return argname if isinstance(val, bytes) and len(val) > LONGEST else None
