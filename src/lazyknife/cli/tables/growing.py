"""Columns that grow by a part at a time, without a second copy of what is there."""

from __future__ import annotations

from typing import Any

from .formats import load

STEP = 1.2  # by which arrays grow
# Kinds that the parts of a column may have together; it is text if they have others. A column of
# booleans with gaps has objects, one without values has floats.
TOGETHER = ({"number", "empty"}, {"boolean", "empty"}, {"text", "empty"})


class Column:
    """A column of several parts."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.numbers = Numbers()
        self.others: list[Any] = []

    def add(self, part: Any) -> None:
        """Add a series; parts that have no common type are dropped."""
        if not len(part):  # as of a header alone, which says nothing of types
            return
        self.kinds.add(kind_of(part))
        if self.is_mixed:
            self.numbers, self.others = Numbers(), []
        elif self.kinds <= {"number", "empty"}:
            self.numbers.add(part.to_numpy())
        else:
            self.others.append(part.copy())  # of its own, not a part of its block

    @property
    def is_mixed(self) -> bool:
        """Whether the parts have no common type."""
        return not any(self.kinds <= kinds for kinds in TOGETHER)

    def values(self) -> Any:
        """Return all parts together."""
        numbers = self.numbers.values()
        if not self.others:
            return numbers
        pandas = load("pandas")
        parts = [pandas.Series(numbers), *self.others] if len(numbers) else self.others
        if "text" in self.kinds:
            parts = [part.astype("str") for part in parts]
        return pandas.concat(parts, ignore_index=True)


class Numbers:
    """An array that grows."""

    def __init__(self) -> None:
        self.count = 0
        self.array: Any = None

    def add(self, part: Any) -> None:
        """Add an array of integers or floats."""
        numpy, end = load("numpy"), self.count + len(part)
        if self.array is None:
            self.array = numpy.empty(0, part.dtype)
        common = numpy.result_type(self.array, part)
        if common != self.array.dtype:
            self.array = self.array.astype(common)
        if end > len(self.array):  # in place where the system can, and nobody else has it
            self.array.resize(max(end, int(STEP * len(self.array))), refcheck=False)
        self.array[self.count : end] = part
        self.count = end

    def values(self) -> Any:
        """Return the array, of which nothing is left here."""
        array, self.array = self.array, None
        if array is None:
            return load("numpy").empty(0)
        array.resize(self.count, refcheck=False)
        return array


def kind_of(part: Any) -> str:
    """Return "number", "boolean", "text" or "empty"."""
    if part.dtype.kind in "iuf":
        return "empty" if part.isna().all() else "number"
    return "boolean" if part.dtype in (bool, object) else "text"
